"""Executed instructions of each processor of a board, at every signal: by a plugin that QEMU loads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from codegen_c.program.interface import Interface
from codegen_c.program.interval import MEASURED_INPUTS, replayed_interval, successive_signals
from codegen_c.program.makespan import ListCounts, SharedRun, replayed
from codegen_c.program.parallel import Entry, ParallelProgram, RunStep
from tvm_ext.core.errors import BuildFailed, MissingTool
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import function_ranges
from tvm_ext.execution.qemu_plugin import compiled_plugin, quoted
from tvm_ext.execution.qemu_start import QemuExtras

_EVENTS = "events"
_MEASURED_RUN = 1
"""The run that is counted: the one before it warms up."""


def count_plugin(elf: Path, platform: Platform, interface: Interface, folder: Path) -> QemuExtras | None:
    """The plugin that counts into files in `folder`; None where this machine cannot build it."""
    try:
        plugin = compiled_plugin("tvm_ext.execution", "count_plugin", folder)
    except (MissingTool, BuildFailed):
        return None
    places: dict[str, list[str]] = {"run": [], "notify": [], "await": []}
    for name, begin, end in function_ranges(elf, platform.toolchain):
        if name == interface.run:
            places["run"].append(f"{begin:x}")
        elif found := re.fullmatch(r"tvm_ext_(notify|await)", name):
            places[found[1]].append(f"{begin:x}-{end:x}")
    words = [f"{key}={text}" for key, texts in places.items() for text in texts]
    text = ",".join([f"file={quoted(plugin)}", f"out={quoted(folder / _EVENTS)}", *words])
    events = tuple(folder / f"{_EVENTS}.{number}" for number in range(len(platform.processors)))
    return QemuExtras(arguments=("-plugin", text), reads=(plugin,), writes=events)


def shared_run(folder: Path, platform: Platform, parallel: ParallelProgram) -> SharedRun | None:
    """The measured run by the files in `folder`; None where they are not there, or not of these lists."""
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
        one = _counts(events, kinds, is_callers=number == 0)
        if one is None:
            return None
        counts.append(one)
        if successive:
            behind = (_MEASURED_RUN + 1) * (len(kinds) + (2 if number == 0 else 0))
            stretches.append(_stretch(events[behind:], _kinds(successive[number])))
    found = [one for one in stretches if one is not None]
    measured = replayed(parallel, counts)
    if not successive or len(found) < len(stretches):
        return measured
    return replace(measured, interval=replayed_interval(parallel, found, MEASURED_INPUTS))


def _kinds(entries: Sequence[Entry]) -> str:
    """A letter for each signal of a list, as the plugin has it."""
    return "".join("A" if hasattr(e, "source") else "N" for e in entries if not isinstance(e, RunStep))


def _stretch(events: Sequence[tuple[str, str]], kinds: str) -> list[int] | None:
    """Counts behind the signals of the pipeline's measured inputs, which come next; None where they do not."""
    own = events[: len(kinds)]
    return [int(count) for _, count in own] if "".join(kind for kind, _ in own) == kinds else None


def _counts(events: Sequence[tuple[str, str]], kinds: str, *, is_callers: bool) -> ListCounts | None:
    """Counts of the measured run. kinds: the events of a list in a run."""
    expected = f"R{kinds}E" if is_callers else kinds
    begin = _MEASURED_RUN * len(expected)
    run = events[begin : begin + len(expected)]
    if "".join(kind for kind, _ in run) != expected:
        return None
    numbers = [int(count) for _, count in run]
    if is_callers:
        return ListCounts(behind_signals=tuple(numbers[1:-1]), begin=numbers[0], end=numbers[-1])
    return ListCounts(behind_signals=tuple(numbers))
