"""TVM for a command, imported in this process of ours."""

from __future__ import annotations

from pathlib import Path

from tvm_ext.tvm_alone import import_tvm_alone


def import_tvm_for(file: Path) -> None:
    """Import tvm without PyTorch, unless the file is PyTorch's."""
    if file.suffix.lower() != ".pt2":
        import_tvm_alone()
