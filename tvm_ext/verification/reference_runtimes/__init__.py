"""Runtimes that can say what a model means, one per file; each runs in a child process, and only there.

A witness is a module with a function `testify(path, sha256, limits, samples, inner)`: it reads the model's file anew,
within the limits (JSON) that it was loaded with, refuses one whose sha256 is another, runs every sample, and gives
`{"outputs": [...], "inner": [...]}`, a dict of arrays for each sample, under the model's own names. What it cannot run
it refuses, by any exception whatever. Modules of witnesses do not import tvm, but for TVM's own (`tvm_witness`), which
is asked with a module in place of a file.
"""
