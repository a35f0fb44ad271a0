"""The registry of targets: the folders here, and packages that an entry point of the group `tvm_ext.targets` names."""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Literal

from codegen_c.kernels.contract import Target
from codegen_c.kernels.measurements import UNMEASURED, KernelMeasurements
from codegen_c.targets.instruction_set import InstructionSet, Startup
from codegen_c.targets.read_times import read_times
from tvm_ext.core.errors import BadPlatform
from tvm_ext.core.platform import NO_SIMD, Platform, Processor

GROUP = "tvm_ext.targets"
_HERE = "codegen_c.targets"
_COMMON_FIRMWARE = files("codegen_c.targets.firmware")
_COMMON_RUNTIME = files("codegen_c") / "runtime"
_VECTORS = re.compile(r"_f32x(\d+)\.h$")


@cache
def instruction_sets() -> tuple[InstructionSet, ...]:
    """Return every target, ordered by `simd`. Two targets of one `simd` raise an error that names both packages."""
    shipped = [f"{_HERE}.{info.name}" for info in iter_modules(import_module(_HERE).__path__) if info.ispkg]
    shipped = [package for package in shipped if find_spec(f"{package}.target")]
    found: dict[str, InstructionSet] = {}
    for package in [*shipped, *sorted(point.value for point in entry_points(group=GROUP))]:
        declared: InstructionSet = import_module(f"{package}.target").TARGET
        if declared.simd in found:
            raise ImportError(f"target {declared.simd!r} is defined in {found[declared.simd].package} and {package}")
        found[declared.simd] = replace(
            declared,
            package=package,
            times={**read_times(package, "speed"), **declared.times},
            times_for_size={**read_times(package, "size"), **declared.times_for_size},
        )
    return tuple(found[simd] for simd in sorted(found))


def instruction_set_of(processor: Processor) -> InstructionSet:
    """Return the target whose code a processor runs. Raises BadPlatform if there is none."""
    known = {found.simd: found for found in instruction_sets()}
    if processor.simd not in known:
        near = get_close_matches(processor.simd, known, 1)
        raise BadPlatform(
            f"processors.{processor.name}.simd = {processor.simd!r}: there is no such target.{_hint(near)} Known: "
            f"{', '.join(known)}; a target of your own is a package that an entry point {GROUP!r} names."
        )
    return known[processor.simd]


def shared_by(platform: Platform) -> InstructionSet:
    """Return the target whose code all our processors run: the first one's, or plain C if the others differ."""
    first, cores = platform.processor, [processor for processor in platform.processors if processor.kind == "core"]
    same = all((one.simd, one.isa) == (first.simd, first.isa) for one in cores)
    return instruction_set_of(first if same else replace(first, simd=NO_SIMD))


def check_processors(platform: Platform) -> None:
    """Raise BadPlatform if a processor has no target, or a board no start-up code."""
    for processor in platform.processors:
        instruction_set_of(processor)
    if platform.board:
        runs, is_process = startup_of(platform).runs, platform.board.is_process
        if is_process != (runs == "process"):
            expected = "a process, without qemu_machine" if runs == "process" else "a machine, by qemu_machine"
            raise BadPlatform(f"[board]: the start-up code of {platform.processor.isa} is for {expected}.")


def startup_of(platform: Platform) -> Startup:
    """Return the start-up code of a platform's board. Raises BadPlatform if its processor's target has none."""
    processor = platform.processor
    found = instruction_set_of(processor).startups
    startup = next((startup for startup in found if processor.isa in startup.isas), None)
    if startup is None:
        known = sorted({isa for startup in found for isa in startup.isas})
        raise BadPlatform(
            f"processors.{processor.name}.isa = {processor.isa!r}: target {processor.simd!r} has start-up code for "
            f"{', '.join(known) or 'no board'}.{_hint(get_close_matches(processor.isa, known, 1))} Without a [board] "
            "table none is needed."
        )
    return startup


def target_of(
    processor: Processor,
    *,
    core: str = "",
    optimize: Literal["speed", "size"] = "speed",
    least_scratch: bool = False,
    least_flash: bool = False,
    measurements: KernelMeasurements = UNMEASURED,
) -> Target:
    """Return the target for which kernels are chosen; only this function makes one. Raises BadPlatform."""
    return Target(
        processor=processor, instruction_set=instruction_set_of(processor), core=core, optimize=optimize,
        least_scratch=least_scratch, least_flash=least_flash, measurements=measurements,
    )  # fmt: skip


def runtime_text(name: str, instruction_set: InstructionSet) -> str:
    """Return a header or source that is copied into packages: the target's own, that of the target it extends, or the
    shared one.

    Headers that are the same for vectors of any length are written for single floats, `..._f32x1.h`; for other lengths
    they are copied under the names of these.
    """
    extended = [one.package for one in instruction_sets() if one.simd == instruction_set.extends]
    for package in (instruction_set.package, *extended):
        own = files(package) / "runtime" / name
        if own.is_file():
            return own.read_text(encoding="utf-8")
    common = _COMMON_RUNTIME / name
    vectors = _VECTORS.search(name)
    if common.is_file() or vectors is None:
        return common.read_text(encoding="utf-8")
    lanes = vectors[1]
    text = (_COMMON_RUNTIME / name.replace(f"_f32x{lanes}", "_f32x1")).read_text(encoding="utf-8")
    return text.replace("f32x1", f"f32x{lanes}").replace("F32X1", f"F32X{lanes}")


def startup_text(name: str, startup: Startup) -> str:
    """Return a file of start-up code: its own, the shared one, or one that all packages may contain."""
    places = (files(startup.package), _COMMON_FIRMWARE, _COMMON_RUNTIME)
    place = next((place for place in places if (place / name).is_file()), _COMMON_FIRMWARE)
    return (place / name).read_text(encoding="utf-8")


def machine_name(platform: Platform) -> str:
    """Return the name of the machine that firmware runs on, or of the emulator that runs it as a process."""
    return (platform.board.qemu_machine if platform.board else "") or startup_of(platform).emulator


def timers_of(startup: Startup) -> list[str]:
    """Return the timers that `board.timer` may name, sorted."""
    return _headers(startup, "timer_")


def starts_of(startup: Startup) -> list[str]:
    """Return the methods to start other processors that `board.starts` may name, sorted."""
    return _headers(startup, "start_")


def _headers(startup: Startup, prefix: str) -> list[str]:
    names = [item.name for item in files(startup.package).iterdir()]
    return sorted(name[len(prefix) : -len(".h")] for name in names if name.startswith(prefix) and name[-2:] == ".h")


def _hint(near: list[str]) -> str:
    return f" Did you mean {near[0]!r}?" if near else ""
