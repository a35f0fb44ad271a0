"""Pipelines by name: after `import tvm_ext`, `relax.get_pipeline("tvm_ext.cortex_m4")` works for each shipped platform.

`import tvm_ext` does not import tvm, which takes seconds. If tvm is already imported, the names are added to its table
at once. Otherwise an import hook adds them as soon as tvm creates the table, and then removes itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from tvm_ext.core.shipped import shipped_names

_TABLE = "tvm.relax.pipeline"


def register_pipelines() -> None:
    """Register the pipeline `tvm_ext.<platform>` of every shipped platform in Relax, now or when tvm is imported."""
    loaded = sys.modules.get(_TABLE)
    if loaded is not None and hasattr(loaded, "PIPELINE_MAP"):
        _register(loaded)
    elif not any(isinstance(finder, _TableFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TableFinder())


def _register(table: ModuleType) -> None:
    for name in shipped_names():
        table.PIPELINE_MAP.setdefault(f"tvm_ext.{name}", _pipeline_of(name))


def _pipeline_of(platform: str) -> Callable[..., object]:
    """Return a function that creates the pipeline; it takes the arguments of `relax_pipeline` after the platform."""

    def pipeline(**arguments: object) -> object:
        return import_module("tvm_ext.relax.compile").relax_pipeline(platform, **arguments)

    return pipeline


class _TableFinder(MetaPathFinder):
    """Import hook that finds TVM's module of pipelines and makes its loader register our pipelines afterwards."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _TABLE:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((found for found in specs if found is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _RegisteringLoader(spec.loader, self)
        return spec


class _RegisteringLoader(Loader):
    """Loader that registers the pipelines after it executed the module."""

    def __init__(self, loader: Loader, finder: MetaPathFinder) -> None:
        self._loader, self._finder = loader, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        _register(module)
