"""Compile neural networks to readable, self-contained C11 for microcontrollers, on top of Apache TVM.

    platform = tvm_ext.Platform.load("cortex_m4")
    package = tvm_ext.build(tvm_ext.load("model.onnx"), platform, "out/model")
    outputs = package.run({"input": x}, on="host")

Public names are loaded when first used: `tvm_ext.Platform` does not import tvm, `tvm_ext.build` does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tvm_ext.relax.pipeline_names import register_pipelines

if TYPE_CHECKING:
    __version__: str
    from codegen_c.backend.tvm_regions import region_sources
    from tvm_ext import custom
    from tvm_ext.building.build import build
    from tvm_ext.bundles.bundler import bundle
    from tvm_ext.bundles.package import BundlePackage
    from tvm_ext.comparison.compare import compare
    from tvm_ext.core import errors
    from tvm_ext.core.limits import Limits
    from tvm_ext.core.options import BuildOptions
    from tvm_ext.core.platform import Platform
    from tvm_ext.estimates.estimate import Estimate, estimate
    from tvm_ext.execution.samples import RunResult
    from tvm_ext.execution.session import Session
    from tvm_ext.frontends.load import load
    from tvm_ext.packages.package import Package
    from tvm_ext.profiling.profile import Profile
    from tvm_ext.relax.compile import place, relax_pipeline
    from tvm_ext.relax.partition import partition_for_tvm_ext
    from tvm_ext.relax.placement import Placing
    from tvm_ext.sweeps.candidates import SweepModel
    from tvm_ext.sweeps.sweep import sweep
    from tvm_ext.sweeps.table import SweepTable

__all__ = [
    "BuildOptions",
    "BundlePackage",
    "Estimate",
    "Limits",
    "Package",
    "Placing",
    "Platform",
    "Profile",
    "RunResult",
    "Session",
    "SweepModel",
    "SweepTable",
    "build",
    "bundle",
    "compare",
    "custom",
    "errors",
    "estimate",
    "load",
    "partition_for_tvm_ext",
    "place",
    "region_sources",
    "relax_pipeline",
    "sweep",
]  # fmt: skip

_HOMES = {
    "Profile": "tvm_ext.profiling.profile",
    "RunResult": "tvm_ext.execution.samples",
    "Session": "tvm_ext.execution.session",
    "BuildOptions": "tvm_ext.core.options",
    "BundlePackage": "tvm_ext.bundles.package",
    "Estimate": "tvm_ext.estimates.estimate",
    "Limits": "tvm_ext.core.limits",
    "SweepModel": "tvm_ext.sweeps.candidates",
    "Package": "tvm_ext.packages.package",
    "Placing": "tvm_ext.relax.placement",
    "Platform": "tvm_ext.core.platform",
    "SweepTable": "tvm_ext.sweeps.table",
    "build": "tvm_ext.building.build",
    "bundle": "tvm_ext.bundles.bundler",
    "compare": "tvm_ext.comparison.compare",
    "custom": "tvm_ext",
    "errors": "tvm_ext.core",
    "estimate": "tvm_ext.estimates.estimate",
    "load": "tvm_ext.frontends.load",
    "partition_for_tvm_ext": "tvm_ext.relax.partition",
    "place": "tvm_ext.relax.compile",
    "region_sources": "codegen_c.backend.tvm_regions",
    "relax_pipeline": "tvm_ext.relax.compile",
    "sweep": "tvm_ext.sweeps.sweep",
}

_MOVED = {
    **{f"Custom{what}": f"custom.Custom{what}" for what in ("Call", "Code", "Operator", "State", "Tensor")},
    "register_operator": "custom.register_operator",
    **dict.fromkeys(("HostModel", "QemuSession"), "Session"),
    **dict.fromkeys(("QemuResult", "RunnerResult"), "RunResult"),
}
"""Names of before, and what to write in their place."""


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("tvm-ext")
    if name not in _HOMES:
        way = f"; it is tvm_ext.{_MOVED[name]} now" if name in _MOVED else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{way}")
    if name in ("custom", "errors"):
        return import_module(f"{_HOMES[name]}.{name}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_pipelines()
