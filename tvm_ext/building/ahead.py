"""Start the C compilers while the reference runtime still computes the expected outputs.

The objects are kept by their content (`core/kept_objects.py`). The build compiles the same files again in the package's
folder, and takes these objects or waits for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from codegen_c.backend.build import Compiled
from tvm_ext.building.artifacts import library_objects
from tvm_ext.core.errors import TvmExtError
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import QUICK_TOOLCHAIN
from tvm_ext.core.toolchain import compile_objects
from tvm_ext.execution.host_model import library_sources


def compile_ahead(threads: Executor, compiled: Compiled, options: BuildOptions, *, verifies: bool) -> None:
    """Start compilers for the library and, if the package is verified, for its builds on this machine.

    Errors are ignored, because the build meets them again.
    """
    texts = compiled.sources()

    def for_platform() -> None:
        with TemporaryDirectory(prefix="tvm_ext_") as name, suppress(TvmExtError):
            library_objects(_written(texts, Path(name)), compiled, options, Path(name) / "objects")

    def for_host() -> None:
        with TemporaryDirectory(prefix="tvm_ext_") as name, suppress(TvmExtError):
            folder = _written(texts, Path(name))
            sources = library_sources(folder, compiled.interface.model)
            compile_objects(sources, folder / "objects", QUICK_TOOLCHAIN, flags=["-fPIC"], include_dirs=[folder])

    threads.submit(for_platform)
    if verifies and compiled.platform.toolchain_of(compiled.platform.processor).prefix:
        threads.submit(for_host)


def _written(texts: Mapping[str, str], folder: Path) -> Path:
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder
