"""Pipelines by name: `relax.get_pipeline("tvm_ext.cortex_m4")` works after `import tvm_ext`, for each shipped one.

`import tvm_ext` does not import tvm. Where tvm is there already, its table gets the names at once; else as soon as tvm
has made that table, by a finder of modules that does nothing but this, and leaves when it is done.
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
    """Makes every shipped platform known to Relax as `tvm_ext.<platform>`, now or when tvm is imported."""
    loaded = sys.modules.get(_TABLE)
    if loaded is not None and hasattr(loaded, "PIPELINE_MAP"):
        _register(loaded)
    elif not any(isinstance(finder, _TableFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TableFinder())


def _register(table: ModuleType) -> None:
    for name in shipped_names():
        table.PIPELINE_MAP.setdefault(f"tvm_ext.{name}", _pipeline_of(name))


def _pipeline_of(platform: str) -> Callable[..., object]:
    """A function that makes the pipeline; what it takes beside the platform is what `relax_pipeline` takes."""

    def pipeline(**arguments: object) -> object:
        return import_module("tvm_ext.relax.compile").relax_pipeline(platform, **arguments)

    return pipeline


class _TableFinder(MetaPathFinder):
    """Finds TVM's module of pipelines as Python does, and has its loader register ours behind it."""

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
    """A loader that registers the pipelines when the module is there."""

    def __init__(self, loader: Loader, finder: MetaPathFinder) -> None:
        self._loader, self._finder = loader, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        _register(module)
