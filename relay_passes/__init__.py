"""Passes over Relax modules, from graph to graph. Relay, which gave this package its name, is no longer part of TVM."""

import tvm_ffi

from tvm_ext.core.errors import TvmExtError

# TVM re-raises the error of a pass by the name of its class, and only for classes that are registered.
for _error in TvmExtError.__subclasses__():
    tvm_ffi.register_error(_error)
