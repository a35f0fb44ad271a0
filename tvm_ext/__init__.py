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

from tvm_ext.pipeline_names import register_pipelines

if TYPE_CHECKING:
    __version__: str
    from codegen_c.custom.contract import CustomCall, CustomCode, CustomOperator, CustomState, CustomTensor
    from codegen_c.custom.registry import register_operator
    from tvm_ext.builder import build
    from tvm_ext.bundles.bundler import bundle
    from tvm_ext.bundles.package import BundlePackage
    from tvm_ext.comparison.compare import compare
    from tvm_ext.core import errors
    from tvm_ext.core.limits import Limits
    from tvm_ext.core.options import BuildOptions
    from tvm_ext.core.platform import Platform
    from tvm_ext.estimates import Estimate, estimate
    from tvm_ext.execution.board import QemuResult
    from tvm_ext.execution.host_model import HostModel
    from tvm_ext.execution.qemu_session import QemuSession
    from tvm_ext.execution.runner import Runner, RunnerResult
    from tvm_ext.load import load
    from tvm_ext.package import Package, TensorSpec
    from tvm_ext.profiling.device_profile import DeviceProfile
    from tvm_ext.profiling.profile import Profile
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
    "DeviceProfile",
    "Estimate",
    "HostModel",
    "Limits",
    "Package",
    "PlacedModule",
    "Placing",
    "Platform",
    "Profile",
    "QemuResult",
    "QemuSession",
    "Runner",
    "RunnerResult",
    "SweepModel",
    "SweepTable",
    "TensorSpec",
    "build",
    "bundle",
    "compare",
    "errors",
    "estimate",
    "load",
    "place",
    "register_operator",
    "relax_pipeline",
    "sweep",
]  # fmt: skip

_HOMES = {
    "DeviceProfile": "tvm_ext.profiling.device_profile",
    "HostModel": "tvm_ext.execution.host_model",
    "Profile": "tvm_ext.profiling.profile",
    "QemuResult": "tvm_ext.execution.board",
    "QemuSession": "tvm_ext.execution.qemu_session",
    "Runner": "tvm_ext.execution.runner",
    "RunnerResult": "tvm_ext.execution.runner",
    "TensorSpec": "tvm_ext.package",
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
    "compare": "tvm_ext.comparison.compare",
    "errors": "tvm_ext.core",
    "estimate": "tvm_ext.estimates",
    "load": "tvm_ext.load",
    "place": "tvm_ext.tvm_compile",
    "register_operator": "codegen_c.custom.registry",
    "relax_pipeline": "tvm_ext.tvm_compile",
    "sweep": "tvm_ext.sweeps.sweep",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("tvm-ext")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "errors":
        return import_module("tvm_ext.core.errors")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps `tvm_ext.load` the function: importing the submodule would put the module of that name in its place."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, getattr(value, name) if name == "load" and isinstance(value, ModuleType) else value)


sys.modules[__name__].__class__ = _Package
register_pipelines()
