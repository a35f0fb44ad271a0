"""Reference runtimes, one per file. Each runs in a child process.

A reference runtime is a module with a function `run_reference(path, sha256, limits, samples, inner)`. The function
reads the model's file again within the limits (JSON) of the first reading, refuses a file with another sha256, runs
every sample, and returns `{"outputs": [...], "inner": [...]}`, each with a dict of arrays per sample by the model's own
names. Any exception means that the runtime refuses the model. The modules do not import tvm, except for `tvm_runtime`
and `float64_runtime`, which get a Relax module instead of a file.
"""
