"""Bytes that steps touch, as offsets in memories; part of the validator of the order of steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.program.program import Program
from codegen_c.program.steps import Call, DriverWait, KernelCall, Loop, Step, Wait, calls
from codegen_c.program.tensors import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Touch:
    """Bytes of a tensor that a step reads or writes.

    places: offsets from the first byte of the whole tensor that contains it, or, after `located`, of a memory.
    """

    tensor: str
    whole: str
    places: slice | np.ndarray
    writes: bool

    def place(self, index: int) -> int:
        """Return the offset of the byte at `index`."""
        return self.places.start + index if isinstance(self.places, slice) else int(self.places[index])

    def holds(self, place: int) -> bool:
        """Return True if a touched byte is at this offset."""
        if isinstance(self.places, slice):
            return self.places.start <= place < self.places.stop
        return bool((self.places == place).any())


def touches(program: Program, plan: MemoryPlan, step: Step) -> list[Touch]:
    """Return the bytes that a step touches while it runs, including its scratch."""
    found = _of_tensors(program, step)
    scratch = plan.placements.get(f"{step.name}_scratch")
    if scratch:
        found.append(Touch(tensor=scratch.name, whole=scratch.name, places=slice(0, scratch.num_bytes), writes=True))
    return found


def _of_tensors(program: Program, step: Step) -> list[Touch]:
    """Return the bytes of tensors that a step touches."""
    return [touch for call, rows in _calls_with_rows(step) for touch in _of_call(program, call, rows)]


def _calls_with_rows(step: Step) -> Iterator[tuple[Call, range | None]]:
    """Yield the calls of a step, each with its range of output rows; None for a call that computes all rows."""
    for call in calls(step):
        if not isinstance(call, KernelCall) or call.rows is None:
            yield call, None
            continue
        turns = range(step.count if isinstance(step, Loop) else 1)
        edges = [(call.rows.begin.at(turn), call.rows.end.at(turn)) for turn in turns]
        yield call, range(min(begin for begin, _ in edges), max(end for _, end in edges))


def _of_call(program: Program, call: Call, rows: range | None) -> list[Touch]:
    """Return the bytes of tensors that a call touches. rows: output rows that it computes, or None for all."""
    if isinstance(call, DriverWait):
        return _of_call(program, call.call, rows)
    if not isinstance(call, KernelCall):
        moved = call.transfers if isinstance(call, Wait) else (call,)
        sources = [whole_of(program, t.source, writes=False) for t in moved if not t.source_is_constant]
        return sources + [whole_of(program, t.target, writes=True) for t in moved]
    spatial = call.implementation.spatial
    found = [whole_of(program, tensor, writes=False) for _, tensor in call.prefetched]
    if rows is None or spatial is None or spatial.accumulates:
        found += [whole_of(program, name, writes=False) for name in call.inputs]
        return found + [whole_of(program, name, writes=True) for name in call.outputs]
    for position, name in enumerate(call.inputs):
        if position >= len(spatial.inputs):
            found.append(whole_of(program, name, writes=False))
            continue
        access = spatial.inputs[position]
        needed = [(access.begins[row], access.ends[row]) for row in rows if access.begins[row] < access.ends[row]]
        if needed:
            span = min(begin for begin, _ in needed), max(end for _, end in needed)
            shape = call.seen_shape(position, program.tensors[name])
            found.append(_rows_of(program, name, shape, access.input_rows, span, writes=False))
    for name in call.outputs:
        span = rows.start, rows.stop
        shape = program.tensors[name].shape
        found.append(_rows_of(program, name, shape, spatial.output_rows, span, writes=True))
    return found


def _rows_of(
    program: Program, name: str, shape: tuple[int, ...], num_rows: int, span: tuple[int, int], *, writes: bool
) -> Touch:
    """Return the bytes of some rows of a tensor, or of the whole tensor if its rows are not contiguous."""
    whole, vectors = whole_of(program, name, writes=writes), int(np.prod(shape[:-1], dtype=np.int64))
    tensor = program.tensors[name]
    one_image = shape[0] == 1 or num_rows == vectors
    if tensor.ring or program.has_moving_offset(name) or num_rows == 0 or vectors % num_rows or not one_image:
        return whole
    if tensor.part and tensor.part.pitch and shape[-1] != tensor.shape[-1]:
        return whole
    if isinstance(whole.places, slice):
        size, first = tensor.num_bytes // num_rows, whole.places.start
        return replace(whole, places=slice(first + span[0] * size, first + span[1] * size))
    size = whole.places.size // num_rows
    return replace(whole, places=whole.places[span[0] * size : span[1] * size])


def whole_of(program: Program, name: str, *, writes: bool) -> Touch:
    """Return all bytes of a tensor. For rows whose offset differs from run to run, return all bytes of their ring."""
    tensor = program.tensors[name]
    home: Tensor = program.tensors[tensor.part.tensor] if tensor.part else tensor
    item = np.dtype(tensor.dtype).itemsize
    if tensor.part is None or program.has_moving_offset(name):
        places = slice(0, home.num_bytes)
    elif tensor.part.pitch is None:
        places = slice(tensor.part.first * item, tensor.part.first * item + tensor.num_bytes)
    else:
        run = int(np.prod(tensor.shape[-tensor.part.run_axes :], dtype=np.int64))
        count = int(np.prod(tensor.shape, dtype=np.int64)) // run
        firsts = np.arange(count) * tensor.part.pitch + tensor.part.first
        places = np.add.outer(firsts * item, np.arange(run * item)).reshape(-1)
    return Touch(tensor=name, whole=home.name, places=places, writes=writes)


def located(plan: MemoryPlan, touch: Touch) -> tuple[str, Touch]:
    """Return the memory of touched bytes, and their offsets in it; or their tensor, if the plan gives it no offset."""
    place = plan.placements.get(touch.whole)
    if place is None:
        return f"tensor {touch.whole}", touch
    places = touch.places
    if isinstance(places, slice):
        moved = slice(place.offset + places.start, place.offset + places.stop)
    else:
        moved = place.offset + places
    return f"memory {place.memory}", replace(touch, places=moved)
