"""TVM and this compiler for a command, imported in this process of ours."""

from __future__ import annotations

import gc
from importlib import import_module
from pathlib import Path

from tvm_ext.services.import_tvm import import_tvm_alone


def import_tvm_for(file: Path) -> None:
    """Import tvm and what builds with it: tvm without PyTorch, unless the file is PyTorch's.

    What is imported stays: the collector of garbage walked it again and again, for a tenth of a small build.
    """
    gc.disable()
    try:
        import_tvm_alone(with_torch=file.suffix.lower() == ".pt2")
        for module in ("tvm_ext.relax.compile", "tvm_ext.building.build"):
            import_module(module)
        gc.freeze()
    finally:
        gc.enable()
