"""Instructions and estimated cycles of firmware that tvm_ext did not generate, by the tables that packages use."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from codegen_c.emit.firmware import qemu_arguments
from tvm_ext.core.errors import RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import find_program
from tvm_ext.profiling.core_table import core_table
from tvm_ext.profiling.layer_names import PackageSteps
from tvm_ext.profiling.profile import WAITS, LayerProfile
from tvm_ext.profiling.profile_package import counted_layers, profile_plugin

_SECONDS = 1200


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Counts of one call of a function. cycles: estimated. waits: cycles that memories add, part of `cycles`."""

    instructions: int
    cycles: float
    waits: float


def counted(elf: Path, platform: Platform, function: str, folder: Path, *, skip: int) -> Counted:
    """Return the counts of a call of `function` in QEMU, after `skip` uncounted calls.

    The plugin and its counts are written to `folder`. Raises RunFailed if the firmware fails or does not call the
    function, MissingTool, BuildFailed.
    """
    table = core_table(platform)
    command = [
        find_program("qemu-system-arm"), *qemu_arguments(platform, shift=None), "-semihosting-config",
        "enable=on,target=native", "-kernel", str(elf),
        *profile_plugin(elf, platform, table, function, folder, skip=skip).arguments,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if done.returncode:
        raise RunFailed(f"{elf.name}: {(done.stdout + done.stderr)[-300:]}")
    return counts_of(counted_layers(elf, platform, table, folder, PackageSteps()))


def counts_of(layers: Iterable[LayerProfile]) -> Counted:
    """Return the sums over the layers of a profile."""
    layers = tuple(layers)
    return Counted(
        instructions=sum(layer.num_instructions for layer in layers),
        cycles=sum(layer.cycles for layer in layers),
        waits=sum(layer.cycles_by_kind().get(WAITS, 0.0) for layer in layers),
    )
