"""Imports tvm without PyTorch, in processes that are ours alone."""

from __future__ import annotations

import sys
from importlib import import_module


def import_tvm_alone() -> None:
    """Import tvm; where PyTorch is installed, tvm_ffi would import it first, for half of all the seconds it takes.

    It does so lest symbols clash on Windows, and to take PyTorch's types as arguments, which a compilation of other
    files has none of. What imports PyTorch later gets it.
    """
    if "tvm_ffi" in sys.modules or "torch" in sys.modules:
        return
    sys.modules["torch"] = None  # pyright: ignore[reportArgumentType] - an import of it raises ImportError
    try:
        import_module("tvm")
    finally:
        del sys.modules["torch"]
