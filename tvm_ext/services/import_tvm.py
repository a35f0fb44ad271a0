"""Fast import of tvm without PyTorch and GPU modules, for processes that run only our code."""

from __future__ import annotations

import os
import sys
from importlib import import_module

_BACKENDS = "TVM_DEVICE_BACKEND_AUTOLOAD"
_DISCO = "tvm.runtime.disco"


def import_tvm_alone(*, with_torch: bool = False) -> None:
    """Import tvm without its GPU modules and, unless requested, without PyTorch.

    If PyTorch is installed, tvm_ffi imports it first, to avoid a clash of symbols on Windows and to accept PyTorch's
    types as arguments. This takes half of the import time, and only a compilation of PyTorch files needs it. TVM's GPU
    back ends and its multi-GPU sessions (disco) look up operators that are not loaded yet. The lookups fail, TVM
    continues without them, but each failure creates a slow backtrace with the symbols of all libraries. PyTorch and
    disco can still be imported later.
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
