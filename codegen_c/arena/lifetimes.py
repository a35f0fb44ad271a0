"""Live ranges of tensors: the steps of whole tensors, and the live bytes at each step of tensors made of parts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from codegen_c.program.program import Program, parts_of
from codegen_c.program.steps import reads, writes
from codegen_c.program.tensors import KeptState, Tensor


def lifetimes(program: Program) -> dict[str, tuple[int, int]]:
    """Return the steps [begin, end) in which each tensor is live.

    Inputs are live from the first step on, outputs until the last step, and states in all steps. A tensor with parts
    is live as long as any of its parts.
    """
    spans = _own_lifetimes(program)
    for whole, parts in parts_of(program).items():
        family = [spans[name] for name in (whole, *(part.name for part in parts)) if name in spans]
        if not family:  # memory for other inputs of a pipeline, which no step of this program uses
            continue
        spans[whole] = min(begin for begin, _ in family), max(end for _, end in family)
        for part in parts:  # no step writes a part that is cut out of the whole; only the whole is written
            spans[part.name] = spans.get(part.name, spans[whole])
    return spans


def _own_lifetimes(program: Program) -> dict[str, tuple[int, int]]:
    """Return the steps [begin, end) in which a step uses each tensor itself, without regard to its parts."""
    num_steps = max(len(program.steps), 1)
    begin = {name: 0 for name in program.inputs}
    end = {name: 1 for name in program.inputs}
    for index, step in enumerate(program.steps):
        for name in writes(step):
            begin.setdefault(name, index)
            end[name] = index + 1
        for name in reads(step):
            begin.setdefault(name, index)
            end[name] = index + 1
    for name in program.outputs:
        begin.setdefault(name, num_steps - 1)
        end[name] = num_steps
    kept = {name: (0, num_steps) for name in program.kept}
    return {name: (begin[name], end[name]) for name in begin} | kept


def extents(program: Program) -> dict[str, list[tuple[int, int]]]:
    """Return the live bytes [low, high) at each step of a tensor's lifetime, for states and tensors that have parts."""
    alive, families = lifetimes(program), parts_of(program)
    written, read = _touches(program) if families else ({}, {})
    found = {
        name: _extents(program, name, parts, written, read, alive[name])
        for name, parts in families.items()
        if name in alive and name not in program.kept
    }
    return found | {state.tensor: _extents_of_state(program, state) for state in program.states}


def extents_while(
    program: Program, alive: Mapping[str, tuple[int, int]], kept: Collection[str] = ()
) -> dict[str, list[tuple[int, int]]]:
    """Return `extents` of the tensors whose lifetimes in `alive` have the same length.

    kept: tensors to leave out, because all their bytes are always live.
    """
    return {
        name: found
        for name, found in extents(program).items()
        if name in alive and name not in kept and len(found) == alive[name][1] - alive[name][0]
    }


def _extents_of_state(program: Program, state: KeptState) -> list[tuple[int, int]]:
    """Return the live bytes of a state at each step.

    Bytes that are kept for the next run are always live; other bytes from the first to the last step that touches them.
    """
    whole, kept = program.tensors[state.tensor], program.kept_bytes(state)
    parts = [tensor for tensor in program.tensors.values() if tensor.part and tensor.part.tensor == whole.name]
    beyond = {whole.name} | {
        tensor.name
        for tensor in parts
        if tensor.part and tensor.part.first * tensor.element_bytes + tensor.num_bytes > kept
    }
    touched = [i for i, step in enumerate(program.steps) if beyond & {*reads(step), *writes(step)}]
    span = range(touched[0], touched[-1] + 1) if touched else range(0)
    return [(0, whole.num_bytes if index in span else kept) for index in range(max(len(program.steps), 1))]


def _touches(program: Program) -> tuple[dict[str, int], dict[str, int]]:
    """Return the first step that writes each tensor, and the last step that reads or writes it."""
    written: dict[str, int] = {name: 0 for name in program.inputs}
    read: dict[str, int] = {name: len(program.steps) - 1 for name in program.outputs}
    for index, step in enumerate(program.steps):
        for name in writes(step):
            written.setdefault(name, index)
            read[name] = max(index, read.get(name, 0))  # a transfer still fills its target when it is waited for
        for name in reads(step):
            read[name] = max(index, read.get(name, 0))
    return written, read


def _extents(
    program: Program,
    whole: str,
    parts: list[Tensor],
    written: Mapping[str, int],
    read: Mapping[str, int],
    life: tuple[int, int],
) -> list[tuple[int, int]]:
    """Return the live bytes of a tensor with parts: each byte from its first write to its last read.

    written, read: the first and last step of each tensor, as `_touches` returns them. life: steps [begin, end) of the
    whole tensor.
    """
    ranges = {whole: (0, program.tensors[whole].num_bytes)}
    for tensor in parts:
        assert tensor.part is not None, "they are parts"
        low = tensor.part.first * tensor.element_bytes
        ranges[tensor.name] = low, low + tensor.num_bytes
    begin, end = life
    pieces = _pieces(ranges, written, read)
    # Each step takes the first piece that is live in it: pieces by ascending low, then by descending high.
    lows = _first_values([(first, last, low) for low, _, first, last in pieces], begin, end)
    highs = _first_values([(first, last, high) for _, high, first, last in reversed(pieces)], begin, end)
    return list(zip(lows, highs, strict=True))


def _pieces(
    ranges: Mapping[str, tuple[int, int]], written: Mapping[str, int], read: Mapping[str, int]
) -> list[tuple[int, int, int, int]]:
    """Return the bytes [low, high) between the edges of some tensors, with the first and last step that needs them.

    ranges: the bytes of each tensor. Bytes that no step writes are left out.
    """
    opening: dict[int, list[str]] = {}
    closing: dict[int, list[str]] = {}
    for name, (low, high) in ranges.items():
        if low < high:
            opening.setdefault(low, []).append(name)
            closing.setdefault(high, []).append(name)
    over = dict[str, None]()
    found: list[tuple[int, int, int, int]] = []
    for low, high in pairwise(sorted({*opening, *closing})):
        for name in closing.get(low, ()):
            del over[name]
        over |= dict.fromkeys(opening.get(low, ()))
        since = [written[name] for name in over if name in written]
        until = [read[name] for name in over if name in read]
        if since:
            found.append((low, high, min(since), max(until, default=min(since))))
    return found


def _first_values(spans: Iterable[tuple[int, int, int]], begin: int, end: int) -> list[int]:
    """Return for each step [begin, end) the value of the first span (first, last, value) that contains it, or 0."""
    values = [0] * (end - begin)
    following = list(range(end - begin + 1))  # for each step, a lower bound of the next step without a value

    def free(index: int) -> int:
        path: list[int] = []
        while following[index] != index:
            path.append(index)
            index = following[index]
        for passed in path:
            following[passed] = index
        return index

    for first, last, value in spans:
        index = free(min(max(first - begin, 0), end - begin))
        while index < end - begin and index + begin <= last:
            values[index] = value
            following[index] = index + 1
            index = free(index + 1)
    return values
