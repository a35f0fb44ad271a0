"""Processors of `kind = "tvm"` on this machine: targets that TVM has a device for, back ends with code and patterns."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import relax

from relay_passes.processors.byoc_patterns import Patterns
from tvm_ext.core.errors import BadPlatform, MissingTool
from tvm_ext.core.platform import Processor

_HOST_KEY = "cpu"


def patterns_of(processor: Processor) -> Patterns | None:
    """Patterns of its BYOC back end; None for a target. Raises MissingTool, BadPlatform where it can't be used here."""
    assert processor.tvm is not None
    if processor.tvm.target:
        _check_target(processor.name, processor.tvm.target)
        return None
    name = processor.tvm.codegen
    where = f"processors.{processor.name}.tvm.codegen = {name!r}"
    leave_out = f"or leave {processor.name} out of `processors`"
    if tvm_ffi.get_global_func(f"relax.ext.{name}", allow_missing=True) is None:
        raise MissingTool(
            f"{where}: this TVM has no function relax.ext.{name}, which compiles for it; use a TVM that was built with "
            f"it, import the package that registers it, {leave_out}."
        )
    patterns = relax.backend.get_patterns_with_prefix(f"{name}.")
    if not patterns:
        raise MissingTool(
            f"{where}: no patterns are registered under {name}., so nothing is known that it takes; import the module "
            f"that calls register_patterns of tvm.relax.backend.pattern_registry, {leave_out}."
        )
    return patterns


def _check_target(processor: str, text: str) -> None:
    where = f"processors.{processor}.tvm.target = {text!r}"
    try:
        target = tvm.target.Target(text)
    except ValueError:
        raise BadPlatform(f"{where}: is no target of TVM {tvm.__version__}; llvm and cuda are some.") from None
    if _HOST_KEY in list(target.keys):
        return
    kind = target.kind.name
    if not tvm.runtime.enabled(kind) or not tvm.device(kind).exist:
        built = "finds no such device" if tvm.runtime.enabled(kind) else "was built without its runtime"
        raise MissingTool(
            f"{where}: this TVM {built}, and the result is to run here. Use a TVM built with {kind} on a machine that "
            f"has such a device, or leave {processor} out of `processors`."
        )
