"""Imports tvm without what a compilation does not need, in processes that are ours alone."""

from __future__ import annotations

import os
import sys
from importlib import import_module

_BACKENDS = "TVM_DEVICE_BACKEND_AUTOLOAD"
_DISCO = "tvm.runtime.disco"


def import_tvm_alone(*, with_torch: bool = False) -> None:
    """Import tvm without PyTorch, unless it is asked for, and without what it has for GPUs.

    Where PyTorch is installed, tvm_ffi would import it first, for half of all the seconds it takes, lest symbols clash
    on Windows, and to take PyTorch's types as arguments, which a compilation of other files has none of. TVM's back
    ends of GPUs, and its sessions on several (disco), look up operators and types that are not loaded by then; it goes
    on without them, after the backtrace of that error: the symbols of all libraries, for nobody to read. What imports
    PyTorch or disco later gets it.
    """
    if "tvm_ffi" in sys.modules:
        return
    hidden = [_DISCO] if with_torch or "torch" in sys.modules else [_DISCO, "torch"]
    backends = os.environ.get(_BACKENDS)
    sys.modules.update(dict.fromkeys(hidden))  # pyright: ignore[reportArgumentType] - an import raises ImportError
    os.environ[_BACKENDS] = "0"
    try:
        import_module("tvm")
    finally:
        for name in hidden:
            del sys.modules[name]
        del os.environ[_BACKENDS]
        if backends is not None:
            os.environ[_BACKENDS] = backends
