"""Folders of headers that generated C may include: those all targets share, each target's own, copies for vectors."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path

from codegen_c.targets.registry import instruction_sets, runtime_text

FOLDERS = [Path(str(files(package) / "runtime")) for package in ("codegen_c", *(s.package for s in instruction_sets()))]
COPIES = Path(tempfile.mkdtemp(prefix="tvm_ext_headers_"))
"""Headers for single floats, copied for the vectors of each target."""
atexit.register(shutil.rmtree, COPIES, ignore_errors=True)
for target in instruction_sets():
    for single in FOLDERS[0].glob("tvm_ext_*_f32x1.h"):
        copy = single.name.replace("f32x1", f"f32x{target.floats.lanes}")
        (COPIES / copy).write_text(runtime_text(copy, target), encoding="utf-8")
FOLDERS.append(COPIES)
INCLUDE_FLAGS = [f"-I{folder}" for folder in FOLDERS]
HEADERS = {path.name: path for folder in reversed(FOLDERS) for path in sorted(folder.glob("tvm_ext_*.h"))}
"""Path of each header; of targets whose vectors have equal lengths, the first one's, as compilers find it."""
