"""Run a package's firmware on its board in QEMU, and count the instructions of each processor."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from codegen_c.emit.firmware import counts_moves, instruction_shift
from codegen_c.program.interface import Interface
from codegen_c.program.makespan import (
    MEASURED_INPUTS,
    ListCounts,
    SharedRun,
    replayed,
    replayed_interval,
    successive_signals,
)
from codegen_c.program.parallel import Entry, ParallelProgram, RunStep
from codegen_c.targets.registry import machine_name, startup_of
from tvm_ext.core.errors import BadInput, BuildFailed, MissingTool, RunFailed
from tvm_ext.core.platform import Board, Platform
from tvm_ext.core.processes.process import allowed_seconds
from tvm_ext.core.toolchain import function_ranges
from tvm_ext.execution.qemu_start import INPUTS, OUTPUTS, QemuExtras, compiled_plugin, quoted, started
from tvm_ext.execution.samples import RunResult, Sample, check_inputs, outputs_of
from tvm_ext.frontends.shapes import ModelNotice

Fields = dict[str, int]
EMPTY_INSTRUCTIONS = 2  # instructions of the empty function that runtime/measure.h measures
_START_SECONDS = 30.0
_SLOWEST_INSTRUCTIONS_PER_SECOND = 2_000_000  # a tenth of the speed of QEMU on a loaded machine


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A file loaded into a board's memory at `address` before the start. The firmware's last argument is `address`."""

    file: Path
    address: int


def run_qemu(
    elf: Path,
    platform: Platform,
    interface: Interface,
    samples: Sequence[Sample],
    *,
    time_limit_s: float = 300,
    placed: Placed | None = None,
    parallel: ParallelProgram | None = None,
    extras: QemuExtras | None = None,
) -> RunResult:
    """Run firmware on its board in QEMU.

    time_limit_s: limit for each start of the board; `board_seconds` derives it from the work. placed: an image for
    firmware that contains no model. parallel: the per-core schedules of processors that share a run; their
    instructions are then counted. extras: further files that the firmware reads and writes.

    Raises BadInput, MissingTool, and RunFailed with the board's output for a platform without a board, a fault, a stack
    overflow, a status other than 0, or a run that exceeds the time limit.
    """
    if platform.board is None:
        raise RunFailed(
            f"platform {platform.name} has no board; run the package on the host, or choose a platform with a board."
        )
    if not samples:
        raise BadInput("no samples to run; give at least one.")
    flat = [
        port.handed_over(array)
        for sample in samples
        for port, array in zip(interface.inputs, check_inputs(interface, sample), strict=True)
    ]
    came = np.uint32(len(samples)).tobytes() + b"".join(array.tobytes() for array in flat)
    if interface.servers:
        return _run_shared(elf, platform, interface, len(samples), came, time_limit_s, parallel)
    if platform.board.is_process:
        return _run_process(elf, platform, interface, len(samples), came, time_limit_s, extras)
    ((fields, coarse),), data = booted(elf, platform, came, [""], time_limit_s, placed, extras)
    return qemu_result(elf, platform, interface, len(samples), data, fields, coarse)


def booted(
    elf: Path,
    platform: Platform,
    came: bytes,
    prefixes: Sequence[str],
    time_limit_s: float,
    placed: Placed | None = None,
    extras: QemuExtras | None = None,
) -> tuple[list[tuple[Fields, Fields]], bytes]:
    """Start a board on a file of inputs; return its outputs and the fields of the report line of each prefix.

    Fields are returned twice: from a start with a clock fine enough to tell single instructions apart and, if the
    timer wrapped, from a second start with a coarse clock; otherwise both are the same. Raises the errors of
    `run_qemu`.
    """
    assert platform.board is not None, "the caller checked the board"
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        (folder / INPUTS).write_bytes(came)
        shift = instruction_shift(platform.board)
        seconds = allowed_seconds(time_limit_s)
        fine = boot(elf, platform, shift, folder, seconds, prefixes, placed, extras)
        data = (folder / OUTPUTS).read_bytes()
        wrapped = any(fields["wrapped"] for fields in fine)
        coarse = boot(elf, platform, 0, folder, seconds, prefixes, placed, extras) if wrapped else fine
    return list(zip(fine, coarse, strict=True)), data


def booted_together(
    elf: Path,
    platform: Platform,
    came: bytes,
    prefixes: Sequence[str],
    time_limit_s: float,
    extras: QemuExtras | None = None,
) -> tuple[list[tuple[Fields, Fields]], bytes]:
    """Start a board whose processors run at once, in real time; return the same as `booted`.

    The timer does not count instructions then.
    """
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        (folder / INPUTS).write_bytes(came)
        fields = boot(elf, platform, None, folder, allowed_seconds(time_limit_s), prefixes, None, extras)
        return [(one, one) for one in fields], (folder / OUTPUTS).read_bytes()


def qemu_result(
    elf: Path,
    platform: Platform,
    interface: Interface,
    num_samples: int,
    data: bytes,
    fields: Fields,
    coarse: Fields,
    *,
    counted: bool = True,
) -> RunResult:
    """Return the measurements and outputs of a model.

    data: the outputs in the board's bytes. fields, coarse: from `booted`, with the fine and the coarse clock. counted:
    False if the board's timer did not count instructions.
    """
    outputs = outputs_of(data, interface, num_samples, elf.name)
    assert platform.board is not None, "the caller has looked"
    if not counted or platform.board.timer is None:
        instructions = None
    elif fields["wrapped"]:
        instructions = unwrap_instructions(fields, coarse, platform.board, instruction_shift(platform.board))
    else:
        instructions = _field(fields, "instructions", elf)
    return RunResult(
        outputs=outputs, instructions=instructions, stack_bytes=fields["stack"], moved_bytes=_moved(fields, platform),
        driver_calls=_driver_calls(fields),
    )  # fmt: skip


def _run_process(
    elf: Path,
    platform: Platform,
    interface: Interface,
    num_samples: int,
    came: bytes,
    time_limit_s: float,
    extras: QemuExtras | None,
) -> RunResult:
    """Run firmware as a process of its emulator, which counts instructions by a plugin if the program has no timer.

    Without a timer and without the plugin, the result has no instructions.
    """
    assert platform.board is not None, "the caller has looked"
    by_plugin = platform.board.timer is None and startup_of(platform).takes_plugins
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        (folder / INPUTS).write_bytes(came)
        seconds = allowed_seconds(time_limit_s)
        counting = count_plugin(elf, platform, interface.run, folder) if by_plugin else None
        given = (extras or QemuExtras()) + (counting or QemuExtras())
        (fields,) = boot(elf, platform, None, folder, seconds, [""], None, given)
        data = (folder / OUTPUTS).read_bytes()
        counted = _instructions_of_run(folder) if counting else None
    result = qemu_result(elf, platform, interface, num_samples, data, fields, fields)
    return replace(result, instructions=counted) if by_plugin else result


def _instructions_of_run(folder: Path) -> int | None:
    """Return the instructions of the measured run of the first processor; None if the plugin saw no such run."""
    text = (folder / f"{_EVENTS}.0").read_text(encoding="utf-8")
    begins, ends = ([int(count) for count in re.findall(rf"^{kind} (\d+)$", text, re.MULTILINE)] for kind in "RE")
    return ends[_MEASURED_RUN] - begins[_MEASURED_RUN] if min(len(begins), len(ends)) > _MEASURED_RUN else None


def _run_shared(
    elf: Path,
    platform: Platform,
    interface: Interface,
    num_samples: int,
    came: bytes,
    time_limit_s: float,
    parallel: ParallelProgram | None,
) -> RunResult:
    """Run a package whose processors share a run.

    The run is in real time: with QEMU's instruction clock, the processors would run one after the other.
    """
    assert platform.board is not None, "the caller has looked"
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        (folder / INPUTS).write_bytes(came)
        seconds = allowed_seconds(time_limit_s)
        counting = count_plugin(elf, platform, interface.run, folder) if parallel else None
        try:
            (fields,) = boot(elf, platform, None, folder, seconds, [""], None, counting)
        except RunFailed as error:
            if not counting:
                raise
            counting = None
            warnings.warn(
                f"{interface.model}: the executed instructions are not counted, because QEMU failed with the plugin "
                f"that counts the instructions of several processors: {str(error).splitlines()[0]}",
                ModelNotice, stacklevel=3,
            )  # fmt: skip
            (fields,) = boot(elf, platform, None, folder, seconds, [""], None)
        data = (folder / OUTPUTS).read_bytes()
        shared = shared_run(folder, platform, parallel) if parallel and counting else None
    return RunResult(
        outputs=outputs_of(data, interface, num_samples, elf.name), instructions=shared.makespan if shared else None,
        stack_bytes=fields["stack"], moved_bytes=_moved(fields, platform), shared=shared,
        driver_calls=_driver_calls(fields),
    )  # fmt: skip


def qemu_loads(placed: Placed) -> QemuExtras:
    """Return QEMU's arguments that load a file into memory."""
    words = f"loader,file={quoted(placed.file)},addr={placed.address:#x},force-raw=on"
    return QemuExtras(arguments=("-device", words), reads=(placed.file,))


def board_seconds(modelled_instructions: int, num_samples: int) -> float:
    """Return a time limit for firmware in QEMU: ten times the expected time on a loaded machine, plus the start."""
    runs = num_samples + 2 + MEASURED_INPUTS  # the samples, the warm-up run and the measured runs
    return _START_SECONDS + runs * modelled_instructions / _SLOWEST_INSTRUCTIONS_PER_SECOND


def unwrap_instructions(fine: Mapping[str, int], coarse: Mapping[str, int], board: Board, shift: int) -> int:
    """Return the exact instructions from two measurements: fine ticks modulo 2**32, and coarse ticks without a wrap.

    The coarse ticks, at shift 0, tell how often the timer wrapped in the fine measurement, at `shift`. The instructions
    around the measured function are subtracted by `fine["empty_ticks"]`, the ticks of an empty function.
    """
    if coarse["wrapped"]:
        raise RunFailed(
            "the run has too many instructions to count: the board's timer wraps even at one instruction a nanosecond."
        )
    expected = coarse["ticks"] << shift
    wraps = round((expected - fine["ticks"]) / (1 << 32))
    period = 1_000_000_000

    def instructions(ticks: int) -> int:
        divisor = board.timer_hz << shift
        return (ticks * period + divisor // 2) // divisor

    return instructions(fine["ticks"] + (wraps << 32)) - instructions(fine["empty_ticks"]) + EMPTY_INSTRUCTIONS


def boot(
    elf: Path,
    platform: Platform,
    shift: int | None,
    folder: Path,
    seconds: float,
    prefixes: Sequence[str],
    placed: Placed | None,
    extras: QemuExtras | None = None,
) -> list[Fields]:
    """Start the board on `folder/in.bin` and return the fields of each report line. Raises the errors of `run_qemu`.

    shift, extras: as in `qemu_command`.
    """
    words = ("run", INPUTS, OUTPUTS, *([hex(placed.address)] if placed else []))
    own = (qemu_loads(placed) if placed else QemuExtras()) + (extras or QemuExtras())
    return [
        _fields(line, elf, machine_name(platform))
        for line in started(elf, platform, shift, folder, seconds, prefixes, words, own)
    ]


def _fields(line: str, elf: Path, machine: str) -> Fields:
    """Parse a report line of firmware. Raises RunFailed if a required field is missing."""
    fields = {key: int(value) for key, value in re.findall(r"\b(\w+)=(\d{1,20})\b", line)}
    absent = [key for key in ("ticks", "empty_ticks", "wrapped", "stack") if key not in fields]
    if absent:
        raise RunFailed(f"{elf.name} on {machine} did not report {absent[0]}; compile the model again.")
    return fields


def _moved(fields: Fields, platform: Platform) -> dict[tuple[str, str], int] | None:
    """Return the copied bytes by (source, target) memory, from the fields `moved_<from>_<to>`; without zeros.

    None if the firmware does not count them.
    """
    if not counts_moves(platform.on_machine):
        return None
    pairs = itertools.product(enumerate(platform.memories), repeat=2)
    return {
        (source.name, target.name): count
        for (i, source), (j, target) in pairs
        if (count := fields.get(f"moved_{i}_{j}", 0))
    }


def _driver_calls(fields: Fields) -> tuple[int, int] | None:
    return (fields["starts"], fields["waits"]) if {"starts", "waits"} <= {*fields} else None


def _field(fields: Fields, key: str, elf: Path) -> int:
    if key not in fields:
        raise RunFailed(
            f"{elf.name} did not report {key}: the board's timer and QEMU's clock do not agree; check timer_hz of the "
            "platform."
        )
    return fields[key]


_EVENTS = "events"
_MEASURED_RUN = 1
"""Index of the measured run: run 0 warms up."""


def count_plugin(elf: Path, platform: Platform, run: str, folder: Path) -> QemuExtras | None:
    """Return the QEMU plugin that counts events into files in `folder`; None if this machine cannot build it.

    run: the function whose begin and end are events.
    """
    try:
        plugin = compiled_plugin("tvm_ext.execution", "count_plugin", folder)
    except (MissingTool, BuildFailed):
        return None
    places: dict[str, list[str]] = {"run": [], "notify": [], "await": []}
    for name, begin, end in function_ranges(elf, platform.toolchain):
        if name == run:
            places["run"].append(f"{begin:x}")
        elif found := re.fullmatch(r"tvm_ext_(notify|await)", name):
            places[found[1]].append(f"{begin:x}-{end:x}")
    words = [f"{key}={text}" for key, texts in places.items() for text in texts]
    text = ",".join([f"file={quoted(plugin)}", f"out={quoted(folder / _EVENTS)}", *words])
    events = tuple(folder / f"{_EVENTS}.{number}" for number in range(len(platform.processors)))
    return QemuExtras(arguments=("-plugin", text), reads=(plugin,), writes=events)


def shared_run(folder: Path, platform: Platform, parallel: ParallelProgram) -> SharedRun | None:
    """Return the measured run from the plugin's files in `folder`; None if they are missing or do not match."""
    names = [processor.name for processor in platform.processors]
    counts: list[ListCounts] = []
    stretches: list[list[int] | None] = []
    successive = successive_signals(parallel, MEASURED_INPUTS) if parallel.phases else []
    for number, steps in enumerate(parallel.lists):
        path = folder / f"{_EVENTS}.{names.index(steps.processor)}"
        if not path.is_file():
            return None
        text = path.read_text(encoding="utf-8")
        kinds = _kinds(steps.entries)
        events = re.findall(r"^(\w) (\d+)$", text, re.MULTILINE)
        each = len(kinds) + (2 if number == 0 else 0)
        one = _counts(events, kinds, _MEASURED_RUN * each, is_callers=number == 0)
        if one is None:
            return None
        counts.append(one)
        if successive:
            behind = (_MEASURED_RUN + 1) * each
            stretches.append(_stretch(events[behind:], _kinds(successive[number])))
    found = [one for one in stretches if one is not None]
    measured = replayed([steps.entries for steps in parallel.lists], counts)
    if not successive or len(found) < len(stretches):
        return measured
    return replace(measured, interval=replayed_interval(parallel, found, MEASURED_INPUTS))


def last_run(folder: Path, platform: Platform, lists: Mapping[str, Sequence[Entry]]) -> SharedRun | None:
    """Return the last run that the plugin counted in `folder`; None if its files are missing or do not match.

    lists: entries of each processor's list, the caller's first. Other events may be ahead of the run; none is after it.
    """
    names = [processor.name for processor in platform.processors]
    counts: list[ListCounts] = []
    for number, (processor, entries) in enumerate(lists.items()):
        path, kinds = folder / f"{_EVENTS}.{names.index(processor)}", _kinds(entries)
        if not path.is_file():
            return None
        events = re.findall(r"^(\w) (\d+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        begin = len(events) - len(kinds) - (2 if number == 0 else 0)
        one = _counts(events, kinds, begin, is_callers=number == 0)
        if one is None:
            return None
        counts.append(one)
    return replayed(list(lists.values()), counts)


def _kinds(entries: Sequence[Entry]) -> str:
    """Return a letter for each signal of a per-core schedule, as the plugin writes it: A for await, N for notify."""
    return "".join("A" if hasattr(e, "source") else "N" for e in entries if not isinstance(e, RunStep))


def _stretch(events: Sequence[tuple[str, str]], kinds: str) -> list[int] | None:
    """Return the counts at the next signals, of the pipeline's measured inputs; None if the signals do not match."""
    own = events[: len(kinds)]
    return [int(count) for _, count in own] if "".join(kind for kind, _ in own) == kinds else None


def _counts(events: Sequence[tuple[str, str]], kinds: str, begin: int, *, is_callers: bool) -> ListCounts | None:
    """Return the counts of a run whose events start at `begin`; None if they do not match.

    kinds: expected events in a run. is_callers: True for the processor that calls `run`, whose events also hold the
    begin and the end of the run.
    """
    expected = f"R{kinds}E" if is_callers else kinds
    run = events[max(begin, 0) : begin + len(expected)]
    if "".join(kind for kind, _ in run) != expected:
        return None
    numbers = [int(count) for _, count in run]
    if is_callers:
        return ListCounts(behind_signals=tuple(numbers[1:-1]), begin=numbers[0], end=numbers[-1])
    return ListCounts(behind_signals=tuple(numbers))
