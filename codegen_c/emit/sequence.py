"""RowSteps as C: its calls as they are known when compiling, in loops where they repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

from codegen_c.c_text.text import Compound, block, plus, times
from codegen_c.emit.stream import RowBounds
from codegen_c.program.sequences import spatial_of
from codegen_c.program.steps import KernelCall, RowSteps
from tvm_ext.core.row_schedule import RowLoop, in_turn
from tvm_ext.core.row_sequence import RowCall

COUNTERS = "hijklmn"
"""Counters of nested loops. The outermost counts rows of its last operator where those of others are multiples."""


CallLines = Callable[[KernelCall, RowBounds], Sequence[str]]
"""Lines that call a kernel for some rows."""


@dataclass(frozen=True, kw_only=True)
class _Counter:
    """A loop's counter, from `first` on in steps of `step`; advances: rows of each operator in a turn."""

    name: str
    first: int
    step: int
    advances: dict[int, int]

    def factor(self, operator: int) -> int:
        return self.advances[operator] // self.step


def sequence_lines(step: RowSteps, call_lines: CallLines) -> list[str]:
    """A block that computes all rows of the last kernel of a sequence, and of the others what that takes."""
    first, last, unit = step.body[0].name, step.body[-1].name, _unit(step)
    lines: list[str] = []
    said = ""
    for is_loop, group in groupby(step.schedule, lambda entry: isinstance(entry, RowLoop)):
        for entries in [[entry] for entry in group] if is_loop else [list(group)]:
            described = _described(step, entries)
            lines += [f"/* {described} */"] if described != said else []
            lines += _entries(step, entries, (), call_lines)
            said = described
    return [
        f"/* {len(step.body)} steps in series, {first} to {last}: each computes {unit} as late as those behind it",
        f" * allow, and of what lies between two steps only the last few {unit} are kept, in a ring buffer. */",
        *lines,
    ]


def _described(step: RowSteps, entries: Sequence[RowCall | RowLoop]) -> str:
    """Rows of the last kernel that some calls lead to."""
    last, unit = len(step.body) - 1, _unit(step)
    made = [call for call in in_turn(tuple(entries)) if call.operator == last]
    if not made:
        return f"{unit.capitalize()} that {step.body[last].name} needs first."
    name, adds_up = step.body[last].name, spatial_of(step.body[last]).accumulates
    does = f"that {name} adds up" if adds_up else f"of {name}"
    rows = f"{unit.capitalize()} [{made[0].begin}, {made[-1].end}) {does}"
    turn = [entry.advances.get(last, 0) for entry in entries if isinstance(entry, RowLoop)]
    return f"{rows}, {turn[0]} in a turn." if turn else f"{rows}."


def _entries(
    step: RowSteps, entries: Sequence[RowCall | RowLoop], around: tuple[_Counter, ...], call_lines: CallLines
) -> list[str]:
    lines: list[str] = []
    for entry in entries:
        if isinstance(entry, RowCall):
            lines += call_lines(step.body[entry.operator], _bounds(entry, around))
            continue
        counter = _counter(entry, len(around))
        name, end = counter.name, counter.first + entry.count * counter.step
        turn = f"++{name}" if counter.step == 1 else f"{name} += {counter.step}"
        head = f"for (int32_t {name} = {counter.first}; {name} < {end}; {turn}) {{"
        lines += [head, block(_entries(step, entry.body, (*around, counter), call_lines)), "}"]
    return lines


def _counter(loop: RowLoop, depth: int) -> _Counter:
    """Counts rows of the loop's last operator where that can be, or else turns."""
    last = max(loop.advances)
    step, name = loop.advances[last], COUNTERS[depth % len(COUNTERS)]
    if depth == 0 and not any(rows % step for rows in loop.advances.values()):
        first = next(call.begin for call in in_turn(loop.body) if call.operator == last)
        return _Counter(name=name, first=first, step=step, advances=loop.advances)
    return _Counter(name=name, first=0, step=1, advances=loop.advances)


def _bounds(call: RowCall, around: tuple[_Counter, ...]) -> RowBounds:
    terms = [times(counter.name, counter.factor(call.operator)) for counter in around]
    first = call.begin - sum(counter.first * counter.factor(call.operator) for counter in around)
    count = call.end - call.begin
    known = None if around else first
    return RowBounds(begin=_sum(terms, first), end=_sum(terms, first + count), count=count, first=known)


def _sum(terms: Sequence[str], number: int) -> str:
    if not terms:
        return str(number)
    total = Compound(" + ".join(terms)) if len(terms) > 1 else terms[0]
    return plus(total, number) if number >= 0 else Compound(f"{total} - {-number}")


def _unit(step: RowSteps) -> str:
    """Name of the rows of a sequence: of vectors alone, runs of their channels."""
    are_vectors = all(len(call.input_shapes[0]) != 4 and prod(call.input_shapes[0][:-1]) == 1 for call in step.body)
    return "runs of channels" if are_vectors else "rows"
