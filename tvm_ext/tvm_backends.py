"""Processors of `kind = "tvm"` on this machine: targets that TVM has a device for, back ends with code and patterns."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
import tvm_ffi
from tvm import relax

from relay_passes.processors.byoc_patterns import Patterns
from relay_passes.processors.memory_ways import memory_of
from relay_passes.processors.move_to_devices import BackendDevice
from tvm_ext.core.errors import BadPlatform, MissingTool
from tvm_ext.core.platform import Platform, Processor

HOST_KEY = "cpu"


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


def devices_of(platform: Platform, processors: Sequence[Processor]) -> tuple[BackendDevice, ...]:
    """Devices of processors whose code has a memory of its own, numbered from 1 on the host and from 0 elsewhere."""
    found: list[BackendDevice] = []
    for processor in processors:
        if processor.tvm is None or not processor.tvm.target:
            continue  # a BYOC back end copies by itself
        target = tvm.target.Target(processor.tvm.target)
        is_host = HOST_KEY in list(target.keys)
        if is_host and memory_of(processor, platform) == platform.activations:
            continue
        same = sum(device.target.kind.name == target.kind.name for device in found)
        found.append(BackendDevice(processor=processor.name, target=target, number=same + is_host))
    return tuple(found)


def machine_devices(devices: Sequence[BackendDevice]) -> list[tvm.runtime.Device]:
    """Devices as `relax.VirtualMachine` takes them, the host first."""
    kinds = [HOST_KEY if HOST_KEY in list(device.target.keys) else device.target.kind.name for device in devices]
    others = [tvm.device(kind, device.number) for kind, device in zip(kinds, devices, strict=True)]
    return [tvm.cpu(), *others]


def _check_target(processor: str, text: str) -> None:
    where = f"processors.{processor}.tvm.target = {text!r}"
    try:
        target = tvm.target.Target(text)
    except ValueError:
        raise BadPlatform(f"{where}: is no target of TVM {tvm.__version__}; llvm and cuda are some.") from None
    if HOST_KEY in list(target.keys):
        return
    kind = target.kind.name
    if not tvm.runtime.enabled(kind) or not tvm.device(kind).exist:
        built = "finds no such device" if tvm.runtime.enabled(kind) else "was built without its runtime"
        raise MissingTool(
            f"{where}: this TVM {built}, and the result is to run here. Use a TVM built with {kind} on a machine that "
            f"has such a device, or leave {processor} out of `processors`."
        )
