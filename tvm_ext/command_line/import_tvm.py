"""Import of TVM and of the compiler in the process of a command."""

from __future__ import annotations

import gc
from importlib import import_module
from pathlib import Path

from tvm_ext.services.import_tvm import import_tvm_alone


def import_tvm_for(file: Path) -> None:
    """Import tvm and the modules that build with it. PyTorch is only imported for a .pt2 file.

    The imported objects are frozen for the garbage collector: imports are never freed, and walking them repeatedly
    took a tenth of the time of a small build.
    """
    gc.disable()
    try:
        import_tvm_alone(with_torch=file.suffix.lower() == ".pt2")
        for module in ("tvm_ext.relax.compile", "tvm_ext.building.build"):
            import_module(module)
        gc.freeze()
    finally:
        gc.enable()
