"""Passes over Relax modules: graph in, graph out. (Relay, which gave this package its name, is gone from TVM.)"""

import tvm_ffi

from tvm_ext.core.errors import TvmExtError

# TVM hands on the errors of a pass by their class's name, and only of classes it knows.
for _error in TvmExtError.__subclasses__():
    tvm_ffi.register_error(_error)
