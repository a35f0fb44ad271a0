"""Compile neural networks to readable, self-contained C11 for microcontrollers, on top of Apache TVM.

    platform = tvm_ext.Platform.load("cortex_m4")
    package = tvm_ext.build(tvm_ext.load("model.onnx"), platform, "out/model")
    outputs = package.run({"input": x}, on="host")

Public names are loaded when first used: `tvm_ext.Platform` does not import tvm, `tvm_ext.build` does.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from codegen_c.custom.contract import CustomCall, CustomCode, CustomOperator, CustomState, CustomTensor
    from codegen_c.custom.registry import register_operator
    from tvm_ext.builder import build
    from tvm_ext.bundles.bundler import bundle
    from tvm_ext.bundles.package import BundlePackage
    from tvm_ext.core import errors
    from tvm_ext.core.limits import Limits
    from tvm_ext.core.options import BuildOptions
    from tvm_ext.core.platform import Platform
    from tvm_ext.estimates import Estimate, estimate
    from tvm_ext.load import load
    from tvm_ext.package import Package
    from tvm_ext.sweeps.candidates import SweepModel
    from tvm_ext.sweeps.sweep import sweep
    from tvm_ext.sweeps.table import SweepTable
    from tvm_ext.tvm_compile import place, relax_pipeline
    from tvm_ext.tvm_place import PlacedModule, Placing

__all__ = [
    "BuildOptions",
    "BundlePackage",
    "CustomCall",
    "CustomCode",
    "CustomOperator",
    "CustomState",
    "CustomTensor",
    "Estimate",
    "Limits",
    "Package",
    "PlacedModule",
    "Placing",
    "Platform",
    "SweepModel",
    "SweepTable",
    "build",
    "bundle",
    "errors",
    "estimate",
    "load",
    "place",
    "register_operator",
    "relax_pipeline",
    "sweep",
]  # fmt: skip

_HOMES = {
    "BuildOptions": "tvm_ext.core.options",
    "BundlePackage": "tvm_ext.bundles.package",
    "CustomCall": "codegen_c.custom.contract",
    "CustomCode": "codegen_c.custom.contract",
    "CustomOperator": "codegen_c.custom.contract",
    "CustomState": "codegen_c.custom.contract",
    "CustomTensor": "codegen_c.custom.contract",
    "Estimate": "tvm_ext.estimates",
    "Limits": "tvm_ext.core.limits",
    "SweepModel": "tvm_ext.sweeps.candidates",
    "Package": "tvm_ext.package",
    "PlacedModule": "tvm_ext.tvm_place",
    "Placing": "tvm_ext.tvm_place",
    "Platform": "tvm_ext.core.platform",
    "SweepTable": "tvm_ext.sweeps.table",
    "build": "tvm_ext.builder",
    "bundle": "tvm_ext.bundles.bundler",
    "errors": "tvm_ext.core",
    "estimate": "tvm_ext.estimates",
    "load": "tvm_ext.load",
    "place": "tvm_ext.tvm_compile",
    "register_operator": "codegen_c.custom.registry",
    "relax_pipeline": "tvm_ext.tvm_compile",
    "sweep": "tvm_ext.sweeps.sweep",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "errors":
        return import_module("tvm_ext.core.errors")
    value = getattr(import_module(_HOMES[name]), name)
    if name in ("build", "bundle", "load"):
        import_module("tvm_ext.tvm_compile")  # so that tvm.compile knows our pipelines by name, too
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps `tvm_ext.load` the function: importing the submodule would put the module of that name in its place."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, getattr(value, name) if name == "load" and isinstance(value, ModuleType) else value)


sys.modules[__name__].__class__ = _Package
