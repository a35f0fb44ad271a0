"""Profile a package: run its firmware once in QEMU with the counting plugin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from codegen_c.emit.firmware import stack_range
from codegen_c.program.interface import Interface
from tvm_ext.core.errors import RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.process import allowed_seconds
from tvm_ext.core.time_model import TimeModel
from tvm_ext.core.toolchain import disassembly, function_ranges
from tvm_ext.execution.board import boot
from tvm_ext.execution.qemu_start import INPUTS, QemuExtras, compiled_plugin, quoted
from tvm_ext.execution.samples import Sample, check_inputs
from tvm_ext.profiling.core_table import CoreTable, core_table
from tvm_ext.profiling.estimate_cycles import Firmware, layer_profiles, read_counts
from tvm_ext.profiling.instructions import read_disassembly, read_riscv
from tvm_ext.profiling.layer_names import PackageSteps, layer_names, without_skipped
from tvm_ext.profiling.profile import LayerProfile, Profile
from tvm_ext.profiling.taken_branches import guards_in_report

_WARM_UP_RUNS = 1
"""Number of runs of the firmware before the measured run."""
_COUNTS = "counts"


@dataclass(frozen=True, kw_only=True)
class ProfiledModel:
    """A model of a package, for profiling. order: names of all models of a bundle, in the firmware's order of samples.

    report_steps: entry `steps` of the report. other_cores: processors beside the first that run models of the bundle.
    """

    elf: Path
    platform: Platform
    interface: Interface
    steps: PackageSteps
    report_steps: Sequence[Mapping[str, Any]]
    order: Sequence[str] = ()
    other_cores: Sequence[str] = ()


def profile_model(subject: ProfiledModel, sample: Sample, *, time_limit_s: float) -> Profile:
    """Profile a run in QEMU, after a warm-up run.

    Raises RunFailed (no board, several processors, a timeout), BadPlatform (no table of cycles for the core), BadInput,
    MissingTool, BuildFailed.
    """
    platform, interface = subject.platform, subject.interface
    if platform.board is None:
        raise RunFailed(
            f"platform {platform.name} has no board in QEMU, which a profile needs; compile for a platform with a "
            "board, or count instructions on the host with callgrind."
        )
    if platform.board.is_process:
        raise RunFailed(
            f"platform {platform.name} runs firmware as a process, whose memories have no addresses to profile; "
            "compile for a platform with a machine of QEMU, or count instructions on the host with callgrind."
        )
    if interface.servers:
        raise RunFailed(
            f"{interface.model}: several processors share a run, and a profile only supports one processor; compile "
            f"with --processors {platform.processor.name}."
        )
    if subject.other_cores:
        raise RunFailed(
            f"{interface.model}: models of its bundle run on {' and '.join(subject.other_cores)}, too, and a profile "
            f"only supports one processor; give all models processors = ['{platform.processor.name}'] for the profile."
        )
    table = core_table(platform)
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        plugin = profile_plugin(subject.elf, platform, table, interface.run, folder, skip=_WARM_UP_RUNS)
        run_counted(subject.elf, platform, interface, sample, plugin, subject.order, time_limit_s=time_limit_s)
        steps = replace(subject.steps, guards=guards_in_report(subject.report_steps))
        layers, skipped = counted_run(subject.elf, platform, table, folder, steps)
    return Profile(
        model=interface.model, platform=platform.name, core_source=table.source, core_bound=table.bound,
        clock_hz=platform.processor.clock_hz, layers=tuple(_reported(layer, subject.report_steps) for layer in layers),
        skipped=None if skipped is None else tuple(skipped),
    )  # fmt: skip


def counted_layers(
    elf: Path, platform: Platform, table: CoreTable, folder: Path, steps: PackageSteps
) -> list[LayerProfile]:
    """Return the layers of the run that the plugin counted into `folder`. table: cycles of the core.

    Raises RunFailed if no run was counted, MissingTool, BuildFailed.
    """
    return counted_run(elf, platform, table, folder, steps)[0]


def counted_run(
    elf: Path, platform: Platform, table: CoreTable, folder: Path, steps: PackageSteps
) -> tuple[list[LayerProfile], list[str] | None]:
    """Return the layers as `counted_layers` does, and the steps that the run skipped (`without_skipped`)."""
    counts = read_counts(folder / _COUNTS)
    functions = function_ranges(elf, platform.toolchain)
    isa = platform.processor.isa
    read = read_riscv if isa.startswith("rv32") else read_disassembly
    firmware = Firmware(
        instructions=read(disassembly(elf, platform.toolchain, machine=isa)),
        functions=functions,
        memories=[memory.name for memory in platform.on_machine.memories],
    )
    by_address = {begin: function for function, begin, _ in functions}
    taken, skipped = without_skipped(counts.calls, by_address, steps)
    names = layer_names(counts.calls, by_address, taken)
    return layer_profiles(counts, names, firmware, table, TimeModel(platform=platform)), skipped


def noise(interface: Interface) -> dict[str, np.ndarray]:
    """Return reproducible random inputs: normally distributed floats, quantized integers over their whole range.

    Other integers are 0 to 2, because they may be indices; booleans are 0 or 1.
    """
    generator = np.random.default_rng(0)
    found: dict[str, np.ndarray] = {}
    for port in interface.inputs:
        dtype = np.dtype(port.dtype)
        if dtype.kind == "f":
            found[port.source] = generator.standard_normal(port.shape).astype(dtype)
        elif port.quantization is None:
            found[port.source] = generator.integers(0, 2 if dtype.kind == "b" else 3, port.shape).astype(dtype)
        else:
            limits = np.iinfo(dtype)
            found[port.source] = generator.integers(limits.min, limits.max, port.shape, dtype, endpoint=True)
    return found


def profile_plugin(elf: Path, platform: Platform, table: CoreTable, run: str, folder: Path, *, skip: int) -> QemuExtras:
    """Return the QEMU plugin that counts a run of the function `run` into `folder`, after `skip` uncounted runs.

    Raises RunFailed if the firmware has no function `run`, MissingTool, BuildFailed.
    """
    plugin = compiled_plugin("tvm_ext.profiling", "profile_plugin", folder)
    found = [(begin, end) for name, begin, end in function_ranges(elf, platform.toolchain) if name == run]
    if not found:
        raise RunFailed(f"{elf.name} has no function {run}; compile the model again.")
    regions = [(memory.address or 0, memory.capacity_bytes) for memory in platform.on_machine.memories]
    words = [
        f"file={quoted(plugin)}", f"out={quoted(folder / _COUNTS)}", "run={:x}-{:x}".format(*found[0]),
        f"skip={skip}", f"bus={table.bus_bytes}", "stack={:x}-{:x}".format(*stack_range(platform)),
        *(f"memory={begin:x}-{begin + size:x}" for begin, size in regions),
    ]  # fmt: skip
    return QemuExtras(arguments=("-plugin", ",".join(words)), reads=(plugin,), writes=(folder / _COUNTS,))


def _reported(layer: LayerProfile, steps: Sequence[Mapping[str, Any]]) -> LayerProfile:
    """Return the layer with the kernel and the multiply-accumulates of its step in the report."""
    own = next((step for step in steps if step.get("name") == layer.name), None)
    if own is None:
        return layer
    kernel, macs = own.get("kernel"), own.get("macs")
    return replace(
        layer, kernel=kernel if isinstance(kernel, str) else None, macs=macs if isinstance(macs, int) else None
    )


def run_counted(
    elf: Path,
    platform: Platform,
    interface: Interface,
    sample: Sample,
    plugin: QemuExtras,
    order: Sequence[str] = (),
    *,
    time_limit_s: float = 300,
) -> None:
    """Run firmware on a sample in QEMU with the plugin: a warm-up run, then runs of which the first is counted.

    order: names of all models of a bundle. Raises the errors of `run_qemu`.
    """
    assert platform.board is not None, "the caller checked the board"
    counts = np.array([int(name == interface.model) for name in order or [interface.model]], np.uint32)
    arrays = zip(interface.inputs, check_inputs(interface, sample), strict=True)
    came = counts.tobytes() + b"".join(port.handed_over(array).tobytes() for port, array in arrays)
    prefix = f"{interface.model} " if order else ""
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        (folder / INPUTS).write_bytes(came)
        seconds = allowed_seconds(time_limit_s)
        boot(elf, platform, None, folder, seconds, [prefix], None, plugin)
