"""Live bytes of a program that differs from another one in a few steps and tensors.

A search that tries many changes needs the peak after each change. Live bytes differ only in steps in which a changed
tensor is live, so only a window of steps is counted again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from codegen_c.arena.bound import live_bytes
from codegen_c.arena.lifetimes import lifetimes
from codegen_c.arena.overlap import overlaps
from codegen_c.program.program import Program, parts_of
from codegen_c.program.steps import Step

Span = tuple[int, int]
LiveBytes = dict[str, list[int]]
"""Live bytes at each step, by memory."""


@dataclass(frozen=True, kw_only=True)
class Counted:
    """A program with its live bytes and the lifetimes of its tensors."""

    program: Program
    live: LiveBytes
    spans: Mapping[str, Span]

    @property
    def peaks(self) -> dict[str, int]:
        """Peak of live bytes, by memory."""
        return {memory: max(live) for memory, live in self.live.items()}


def counted(program: Program) -> Counted:
    """Count all steps of a program."""
    memories, spans = {tensor.memory for tensor in program.tensors.values()}, lifetimes(program)
    return Counted(program=program, live=_live(program, spans, memories), spans=spans)


def changed(before: Counted, program: Program, limits: Mapping[str, int]) -> Counted | None:
    """Count a program that differs from a counted one; None if it needs more than a limit in some memory."""
    begin, end = _window(before, program)
    shorter = len(before.program.steps) - len(program.steps)
    part = _part(before, program, begin, end, end - shorter)
    inside = lifetimes(part)
    live = _live(part, inside, before.live)
    if any(max(live[memory], default=0) > limits[memory] for memory in live):
        return None
    merged = {memory: [*known[:begin], *live[memory], *known[end:]] for memory, known in before.live.items()}
    spans = {name: _moved(span, inside.get(name), begin, end, shorter) for name, span in before.spans.items()}
    return Counted(program=program, live=merged, spans=spans)


def _moved(span: Span, inside: Span | None, begin: int, end: int, shorter: int) -> Span:
    """Return the span of a tensor after steps [begin, end) lost `shorter` steps.

    inside: its span within these steps, counted from `begin`; None if it is not live there.
    """
    first, last = span
    if inside is None:
        return span if last <= begin else (first - shorter, last - shorter)
    return (
        first if first < begin else begin + inside[0],
        last - shorter if last > end else begin + inside[1],
    )  # fmt: skip


def _live(program: Program, spans: Mapping[str, Span], memories: Iterable[str]) -> LiveBytes:
    pairs = {pair for step in overlaps(program) for pair in (*step.ascending, *step.descending)}
    return {memory: live_bytes(program, spans, pairs, memory, default=memory) for memory in memories}


def _window(before: Counted, program: Program) -> Span:
    """Return the steps [begin, end) of the counted program that contain every change of live bytes."""
    old, new = before.program.steps, program.steps
    if program.states:  # states are live in all steps
        return 0, len(old)
    begin = _num_same(old, new)
    begin, end = min(begin, len(old) - 1), max(len(old) - _num_same(old[::-1], new[::-1]), begin + 1)
    families, tensors = parts_of(program), program.tensors
    names = {name for name, tensor in tensors.items() if before.program.tensors.get(name) is not tensor}
    names |= {part.tensor for name in names if (part := tensors[name].part)}
    whole = [(name, *(part.name for part in parts)) for name, parts in families.items()]
    spans = [_around(before.spans, family) for family in whole if not names.isdisjoint(family)]
    spans += [_around(before.spans, [name]) for name in names]
    begin, end = min([begin, *(first for first, _ in spans)]), max([end, *(last for _, last in spans)])
    # The live bytes of a tensor with parts depend on all steps of its lifetime, so the window includes these.
    lives = [_around(before.spans, family) for family in whole]
    while crossing := [(first, last) for first, last in lives if first < begin < last or first < end < last]:
        begin, end = min(begin, *(first for first, _ in crossing)), max(end, *(last for _, last in crossing))
    return begin, end


def _num_same(one: Sequence[Step], other: Sequence[Step]) -> int:
    """Return the number of equal steps at the begin of two sequences."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a is not b), min(len(one), len(other)))


def _around(spans: Mapping[str, Span], names: Iterable[str]) -> Span:
    """Return the shortest span that contains the lifetimes of some tensors; an empty span if none is ever live."""
    found = [spans[name] for name in names if name in spans]
    return min((begin for begin, _ in found), default=0), max((end for _, end in found), default=0)


def _part(before: Counted, program: Program, begin: int, end: int, new_end: int) -> Program:
    """Return steps [begin, new_end) of a program as a program; they replace [begin, end) of the counted program.

    Tensors that are live before these steps become inputs, and tensors that are live after them become outputs.
    """
    last = len(before.program.steps)
    spans = {name: span for name, span in before.spans.items() if span[0] < end and begin < span[1]}
    inputs = [name for name, span in spans.items() if span[0] < begin or (begin == 0 and name in program.inputs)]
    outputs = [name for name, span in spans.items() if span[1] > end or (end == last and name in program.outputs)]
    return replace(
        program, inputs=tuple(inputs), outputs=tuple(outputs), steps=program.steps[begin:new_end],
        tensors={name: tensor for name, tensor in program.tensors.items() if name in spans},
    )  # fmt: skip
