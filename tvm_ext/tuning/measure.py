"""Measure candidates for layers on a board in QEMU or on a device, several in a firmware, and check their outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from tvm_ext.core.errors import BadOptions, BadPlatform
from tvm_ext.core.options import BuildOptions, CompileFor
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.process import allowed_seconds
from tvm_ext.execution.board import board_seconds
from tvm_ext.execution.qemu_start import INPUTS, OUTPUTS, started
from tvm_ext.execution.runner import Runner, written
from tvm_ext.profiling.core_table import CoreTable, core_table
from tvm_ext.profiling.device_profile import measured_layers
from tvm_ext.profiling.profile_package import counted_layers, profile_plugin
from tvm_ext.services.cache import ResultCache
from tvm_ext.tuning.layers import SHARE, memory_bytes
from tvm_ext.tuning.layers_program import LayersFirmware, MeasuredMethod, build_layers, check_outputs
from tvm_ext.tuning.remembered import MethodMeasurement, Tools, key_of, read_measurement, write_measurement

MOST_TOGETHER = 24
"""Limit of candidates in a firmware."""
_NO_TABLE = CoreTable(cpus=("any",), source="none", bound="only instructions are counted", bus_bytes=4, taken=0.0)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The board on which layers are measured.

    table: cycles of the core; None if there is no table, or a device measures the cycles. runner: of the device.
    """

    platform: Platform
    optimize: CompileFor
    table: CoreTable | None
    runner: Runner | None = None

    @property
    def device(self) -> str | None:
        """Program that runs firmware on a device; None for QEMU."""
        return self.runner.program if self.runner else None

    @property
    def place(self) -> str:
        """Text for the board in messages of progress."""
        return f"the device, by {self.device}" if self.device else "the board in QEMU"

    @classmethod
    def of(cls, platform: Platform, options: BuildOptions, runner: Runner | None = None) -> Self:
        """Return the bench of a platform. Raises BadOptions if the platform has no board."""
        if platform.board is None or platform.board.is_process:
            raise BadOptions(
                f"tune: {platform.name} has no board in QEMU, on which kernels are measured. Choose a platform with a "
                "board, such as cortex_m4 or cortex_m55, add a [board] table to your platform file, or leave tune out."
            )
        if runner is not None:
            return cls(platform=platform, optimize=options.compile_for, table=None, runner=runner)
        try:
            table = core_table(platform)
        except BadPlatform:
            table = None
        return cls(platform=platform, optimize=options.compile_for, table=table)


def measured_ways(
    methods: Sequence[MeasuredMethod], bench: Bench, cache: ResultCache, threads: Executor
) -> tuple[dict[MeasuredMethod, MethodMeasurement], int]:
    """Return the measurements of candidates, and how many were cached. Threads build and run firmware for the others.

    Candidates with the same C and the same types and shapes of constants are measured once. If a candidate of a layer
    is not cached, all candidates of the layer are measured, because their results are compared.
    Raises MissingTool, BuildFailed, DoesNotFit, RunFailed, and VerificationFailed for a wrong result.
    """
    tools = Tools.of(bench.platform, bench.optimize, bench.table, bench.runner)
    keys = {method: key_of(method, bench.platform, tools) for method in methods}
    asked = {key: method for method, key in reversed(keys.items())}
    found = {key: measurements for key in asked if (measurements := read_measurement(cache, key))}
    changed = {method.layer for method in methods if keys[method] not in found}
    left = [method for method in methods if asked[keys[method]] is method and method.layer in changed]
    running = [threads.submit(_measured, together, bench) for together in batches(left, bench.platform)]
    for future in running:
        for method, measurements in future.result().items():
            found[keys[method]] = measurements
            write_measurement(cache, keys[method], measurements)
    return {method: found[key] for method, key in keys.items()}, len(asked) - len(left)


def batches(methods: Sequence[MeasuredMethod], platform: Platform) -> Iterator[list[MeasuredMethod]]:
    """Yield groups of candidates that fit the board together. The candidates of a layer stay together if they fit."""
    together: list[MeasuredMethod] = []
    for _, group in groupby(methods, key=lambda method: method.layer):
        own = list(group)
        parts = [own] if _fits(own, platform) else [[method] for method in own]
        for part in parts:
            if together and not _fits([*together, *part], platform):
                yield together
                together = []
            together += part
    if together:
        yield together


def _fits(methods: Sequence[MeasuredMethod], platform: Platform) -> bool:
    if len(methods) > MOST_TOGETHER:
        return False
    layers = dict.fromkeys(method.layer for method in methods)
    tensors, constants = memory_bytes(
        [(layer.operator, [method.candidate.made for method in methods if method.layer is layer]) for layer in layers]
    )
    ram, rom = platform.memory(platform.activations), platform.memory(platform.weights)
    return tensors <= SHARE * ram.capacity_bytes and constants <= SHARE * rom.capacity_bytes


def _measured(methods: Sequence[MeasuredMethod], bench: Bench) -> Mapping[MeasuredMethod, MethodMeasurement]:
    """Build and run a firmware of candidates, check their outputs, and return their measurements."""
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        firmware = build_layers(methods, bench.platform, bench.optimize, folder, hooks=bench.runner is not None)
        modelled = sum(method.candidate.made.instructions for method in methods)
        data, measurements = run_layers(firmware, bench, folder, board_seconds(modelled, 1))
    check_outputs(methods, firmware, data)
    return {method: measurements[method.name] for method in methods}


def run_layers(
    firmware: LayersFirmware, bench: Bench, folder: Path, seconds: float
) -> tuple[bytes, dict[str, MethodMeasurement]]:
    """Run the firmware once and return its outputs and the measurements by step.

    QEMU counts instructions; a device measures cycles by the hooks around layers.

    Raises MissingTool, BuildFailed, RunFailed.
    """
    platform, table = bench.platform, bench.table or _NO_TABLE
    assert platform.board is not None, "a bench has a board"
    (folder / INPUTS).write_bytes(firmware.inputs)
    if bench.runner is not None:
        said = bench.runner.run(firmware.elf, folder)
        measured = measured_layers(said, platform)
        return written(folder, said), {
            name: MethodMeasurement(instructions=None, cycles=layer.cycles) for name, layer in measured.items()
        }
    counting = profile_plugin(firmware.elf, platform, table, firmware.run, folder, skip=0)
    limit = allowed_seconds(seconds)
    started(firmware.elf, platform, None, folder, limit, (), (), counting)
    layers = counted_layers(firmware.elf, platform, table, folder, firmware.steps)
    measurements = {
        layer.name: MethodMeasurement(instructions=layer.num_instructions, cycles=layer.cycles if bench.table else None)
        for layer in layers
    }
    return (folder / OUTPUTS).read_bytes(), measurements
