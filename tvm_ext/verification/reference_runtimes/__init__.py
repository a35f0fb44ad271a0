"""Runtimes that can say what a model means, one per file; each runs in a child process, and only there.

A reference runtime is a module with a function `run_reference(path, sha256, limits, samples, inner)`: it reads the
model's file anew, within the limits (JSON) that it was loaded with, refuses one whose sha256 is another, runs every
sample, and gives `{"outputs": [...], "inner": [...]}`, a dict of arrays for each sample, under the model's own names.
What it cannot run it refuses, by any exception whatever. Modules of reference runtimes do not import tvm, but for TVM's
own (`tvm_runtime`), which is asked with a module in place of a file.
"""
