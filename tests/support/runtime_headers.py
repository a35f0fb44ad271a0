"""Folders of headers that generated C may include: those all targets share, and each target's own."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from codegen_c.targets.registry import instruction_sets

FOLDERS = [Path(str(files(package) / "runtime")) for package in ("codegen_c", *(s.package for s in instruction_sets()))]
INCLUDE_FLAGS = [f"-I{folder}" for folder in FOLDERS]
HEADERS = {path.name: path for folder in FOLDERS for path in sorted(folder.glob("tvm_ext_*.h"))}
