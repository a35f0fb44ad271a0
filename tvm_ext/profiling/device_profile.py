"""Profile from a device: the cycles of each layer, which the firmware counts by the hooks of `<model>_profile.h`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from codegen_c.emit.firmware import profile_counter
from codegen_c.program.interface import Interface
from tvm_ext.core.errors import RunFailed
from tvm_ext.core.options import CompileFor
from tvm_ext.core.platform import Platform
from tvm_ext.core.rich_display import bars_html, rows_html
from tvm_ext.core.toolchain import compile_objects
from tvm_ext.execution.host_model import library_sources
from tvm_ext.execution.qemu_start import link_firmware
from tvm_ext.execution.runner import Runner, check_device, run_by, tail_of
from tvm_ext.execution.samples import Sample

NOT_AVAILABLE = ("executed instructions", "loads and stores of each memory", "functions and stack of each layer")
"""Measurements that only QEMU's plugin makes."""
_LINE = re.compile(r"^layer=(\w+) (cycles|ticks)=(\d{1,20}) calls=(\d{1,10})$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class MeasuredLayer:
    """Measurement of a layer on a device. calls: in a run; more than 1 for a layer that runs some rows at a time."""

    name: str
    cycles: int
    calls: int
    kernel: str | None = None
    macs: int | None = None


@dataclass(frozen=True, kw_only=True)
class DeviceProfile:
    """Profile of a run on a device: measured cycles of the processor, including the hooks around layers.

    counter: `cycles` for the processor's own counter (DWT), or `ticks` for the board's timer, converted to cycles.
    total_cycles: of the whole run by the board's timer; None if the timer wrapped. stack_bytes: of the whole run.
    """

    model: str
    platform: str
    program: str
    counter: str
    clock_hz: int
    layers: tuple[MeasuredLayer, ...]
    total_cycles: int | None
    stack_bytes: int

    def __repr__(self) -> str:
        figures = f"{self.cycles:,} cycles measured, {self.milliseconds(self.cycles):,.3f} ms"
        return f"<DeviceProfile {self.model} on {self.platform}: {len(self.layers):,} layers, {figures}>"

    def _repr_html_(self) -> str:
        rows = [(one.name, one.kernel, one.calls, one.cycles, self.milliseconds(one.cycles)) for one in self.layers]
        shown = rows_html(repr(self)[1:-1], ("layer", "kernel", "calls", "cycles", "ms"), rows, most=200)
        return shown + bars_html("measured cycles", [(one.name, one.cycles, f"{one.cycles:,}") for one in self.layers])

    @property
    def cycles(self) -> int:
        """Sum of the cycles of all layers."""
        return sum(layer.cycles for layer in self.layers)

    def milliseconds(self, cycles: float) -> float:
        """Return the time of a number of cycles at the platform's clock."""
        return cycles * 1000 / self.clock_hz

    def to_json(self) -> dict[str, Any]:
        """Return the content of profile.json. The entry `not_available` lists measurements that a device lacks."""
        return {
            "schema_version": 1,
            "note": f"Cycles are measured on a device by {self.program}.",
            "not_available": list(NOT_AVAILABLE),
            "model": self.model,
            "platform": self.platform,
            "counter": self.counter,
            "clock_hz": self.clock_hz,
            "cycles": self.cycles,
            "ms": round(self.milliseconds(self.cycles), 4),
            "run_cycles": self.total_cycles,
            "stack_bytes": self.stack_bytes,
            "layers": [
                {
                    "name": layer.name, "kernel": layer.kernel, "macs": layer.macs, "calls": layer.calls,
                    "cycles": layer.cycles, "ms": round(self.milliseconds(layer.cycles), 4),
                }
                for layer in self.layers
            ],
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ProfiledPackage:
    """A package whose firmware is built again with hooks enabled. report_steps: entry `steps` of its report."""

    folder: Path
    platform: Platform
    interface: Interface
    optimize: CompileFor
    report_steps: Sequence[Mapping[str, Any]]


def profile_on_device(package: ProfiledPackage, sample: Sample, runner: Runner) -> DeviceProfile:
    """Profile a run on a device, after a warm-up run.

    Raises RunFailed (no hooks, no firmware, a counter that does not count, a failure of the runner), BadInput,
    BadOptions for a platform whose firmware only runs in QEMU, MissingTool, BuildFailed, DoesNotFit.
    """
    interface, platform = package.interface, package.platform
    header = package.folder / f"{interface.model}_profile.h"
    if platform.board is None:
        raise RunFailed(
            f"platform {platform.name} has no board, so there is no firmware for a device; add the device's timer in "
            "[board] of a copy of the platform file."
        )
    check_device(platform)
    if not header.is_file():
        raise RunFailed(
            f"{package.folder} has no hooks around its layers, which a device needs to count cycles; compile the model "
            "with --hooks, or in Python with BuildOptions(hooks=True)."
        )
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        built = Path(name)
        flags = counting_flags(interface.model, built)
        sources = [*library_sources(package.folder, interface.model), package.folder / f"{interface.model}_vectors.c"]
        sources += [package.folder / f"{interface.model}_selftest.c", *sorted((package.folder / "board").glob("*.c"))]
        toolchain = platform.toolchain_of(platform.processor)
        include = [package.folder, package.folder / "board"]
        objects = compile_objects(
            sources, built / "objects", toolchain, optimize=package.optimize, flags=flags, include_dirs=include
        )
        elf = link_firmware(objects, built / "profile.elf", platform, package.folder / "board")
        found = run_by(runner, elf, platform, interface, [sample])
    layers = measured_layers(found.said, platform)
    steps = {str(step.get("name")): step for step in package.report_steps}
    return DeviceProfile(
        model=interface.model, platform=platform.name, program=runner.program, clock_hz=platform.processor.clock_hz,
        counter="ticks" if " ticks=" in found.said.split("layer=", 1)[-1].split("\n", 1)[0] else "cycles",
        layers=tuple(_reported(layer, steps.get(layer.name, {})) for layer in layers.values()),
        total_cycles=found.cycles, stack_bytes=found.stack_bytes,
    )  # fmt: skip


def counting_flags(model: str, folder: Path) -> list[str]:
    """Return the compiler flags that enable hooks, and write a header with the counter into the folder."""
    header = folder / "profile_counter.h"
    header.write_text(profile_counter(model), encoding="utf-8")
    return [f"-D{model.upper()}_PROFILE", "-include", str(header)]


def measured_layers(said: str, platform: Platform) -> dict[str, MeasuredLayer]:
    """Parse the layers that firmware printed, by name. Ticks of the board's timer are converted to cycles.

    Raises RunFailed if no layer was printed, or all counts are 0.
    """
    assert platform.board is not None, "firmware was run"
    ticks = platform.processor.clock_hz / platform.board.timer_hz
    found = {
        name: MeasuredLayer(name=name, cycles=round(int(count) * (ticks if unit == "ticks" else 1)), calls=int(calls))
        for name, unit, count, calls in _LINE.findall(said)
    }
    if not found:
        raise RunFailed(
            "runner: the firmware printed no line for a layer (layer=... cycles=...); check that the command shows the "
            f"whole output of the device{tail_of(said)}"
        )
    if not any(layer.cycles for layer in found.values()):
        raise RunFailed(
            "runner: the cycle counter stays at 0 on this device. QEMU has no DWT; on a device, a debugger may have "
            "disabled the counter, or the core lacks it."
        )
    return found


def _reported(layer: MeasuredLayer, step: Mapping[str, Any]) -> MeasuredLayer:
    """Return the layer with the kernel and the multiply-accumulates of its step in the report."""
    kernel, macs = step.get("kernel"), step.get("macs")
    return MeasuredLayer(
        name=layer.name, cycles=layer.cycles, calls=layer.calls, kernel=kernel if isinstance(kernel, str) else None,
        macs=macs if isinstance(macs, int) else None,
    )  # fmt: skip
