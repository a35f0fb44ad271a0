"""Checks a parallel program and its memory plan for all interleavings at once. Shares no code with what made them.

The lists are played once, over bytes that know which list touched them last and when. Two steps of which one writes a
byte that the other touches have to be ordered by lists and signals; if all such pairs are, every interleaving computes
what this one does. So what is left is the rules for one processor, which `validate` holds for the order played.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.validate import validate
from codegen_c.arena.validate_lists import Moment, play
from codegen_c.program.parallel import ParallelProgram, RunStep
from codegen_c.program.program import Call, KernelCall, Loop, Program, RowSteps, Step, Tensor, Transfer, Wait, calls
from tvm_ext.core.errors import PlanRejected


@dataclass(frozen=True, kw_only=True, eq=False)
class _Touch:
    """Bytes of a tensor that a step reads or writes, counted from its whole's first one, or from a memory's."""

    tensor: str
    whole: str
    places: slice | np.ndarray
    writes: bool

    def place(self, index: int) -> int:
        """Place of its byte `index`."""
        return self.places.start + index if isinstance(self.places, slice) else int(self.places[index])

    def holds(self, place: int) -> bool:
        """True if one of its bytes lies at a place."""
        if isinstance(self.places, slice):
            return self.places.start <= place < self.places.stop
        return bool((self.places == place).any())


@dataclass(kw_only=True)
class _Bytes:
    """Bytes of a memory, or of a tensor that the caller holds, after some of the steps.

    written, read: per list, the position behind which its last write or read of the byte has ended; 0 for none.
    users: what was touched there, by list and that position.
    """

    written: np.ndarray
    read: np.ndarray
    users: dict[tuple[int, int], list[_Touch]] = field(default_factory=dict[tuple[int, int], list[_Touch]])


def validate_order(parallel: ParallelProgram, plan: MemoryPlan) -> None:
    """Raises PlanRejected with the two steps that are not in order, the processors they run on, and what they share.

    Proved for any interleaving of any number of runs: each step and each signal is used once, no list waits for ever,
    nothing runs outside of its run, reads come behind their writes, nothing is written over what is still used.
    """
    played = play(parallel)
    ends = _transfer_ends(parallel)
    memories = _untouched(parallel, plan)
    for index, moment in played:
        _check_step(parallel, plan, memories, index, moment, ends)
    program = replace(parallel.program, steps=tuple(parallel.program.steps[index] for index, _ in played))
    validate(program, plan)
    _check_made(program)


def _transfer_ends(parallel: ParallelProgram) -> dict[int, int]:
    """Position behind the wait for each transfer that goes on while steps run, by number."""
    started = [
        (number, position, transfer)
        for number, position, call in _placed_calls(parallel)
        if isinstance(transfer := call, Transfer) and transfer.number is not None
    ]
    waited = {
        transfer.number: (number, position)
        for number, position, call in _placed_calls(parallel)
        if isinstance(call, Wait)
        for transfer in call.transfers
        if transfer.number is not None
    }
    ends: dict[int, int] = {}
    for number, position, transfer in started:
        home, end = waited.get(transfer.number, (number, position))  # `validate` refuses one without a wait
        first, processors = started[0], [steps.processor for steps in parallel.lists]
        if home != number or number != first[0]:
            other = home if home != number else first[0]
            raise PlanRejected(
                f"{processors[number]}, entry {position}: {transfer.name} goes on while steps run, and {processors[other]} "
                f"{'waits for it' if home != number else f'starts {first[2].name}'}; all such transfers need one list."
            )
        ends[transfer.number or 0] = end + 1
    return ends


def _placed_calls(parallel: ParallelProgram) -> Iterator[tuple[int, int, Call]]:
    for number, steps in enumerate(parallel.lists):
        for position, entry in enumerate(steps.entries):
            if isinstance(entry, RunStep):
                for call in calls(parallel.program.steps[entry.index]):
                    yield number, position, call


def _untouched(parallel: ParallelProgram, plan: MemoryPlan) -> dict[str, _Bytes]:
    """Bytes of every memory, and of wholes without a place, that no step has touched."""
    sizes: dict[str, int] = {}
    for place in plan.placements.values():
        memory = f"memory {place.memory}"
        sizes[memory] = max(sizes.get(memory, 0), place.offset + place.num_bytes)
    for name, tensor in parallel.program.tensors.items():
        if name not in plan.placements and tensor.part is None:
            sizes[f"tensor {name}"] = tensor.num_bytes
    count = len(parallel.lists)
    return {
        name: _Bytes(written=np.zeros((count, size), np.int32), read=np.zeros((count, size), np.int32))
        for name, size in sizes.items()
    }


def _check_step(
    parallel: ParallelProgram,
    plan: MemoryPlan,
    memories: Mapping[str, _Bytes],
    index: int,
    moment: Moment,
    ends: Mapping[int, int],
) -> None:
    """Raises PlanRejected where a step of another list may run at the same time and touch the same bytes."""
    step = parallel.program.steps[index]
    end = moment.position + 1
    if isinstance(step, Transfer) and step.number is not None:
        end = ends[step.number]
    located = [_located(plan, touch) for touch in _touches(parallel.program, plan, step)]
    for name, touch in located:
        held = memories[name]
        for number in range(len(parallel.lists)):
            for before, writes in ((held.written, True), (held.read, False)):
                if not writes and not touch.writes:
                    continue
                late = np.flatnonzero(before[number, touch.places] > moment.seen[number])
                if late.size == 0:
                    continue
                at = int(before[number, touch.places][late[0]])
                users = held.users[number, at]
                other = next(user for user in users if user.writes == writes and user.holds(touch.place(int(late[0]))))
                shared = f", which shares them with {other.tensor}" if other.tensor != touch.tensor else ""
                raise PlanRejected(
                    f"{_ran(parallel, moment.number, moment.position)} {'writes' if touch.writes else 'reads'} "
                    f"{late.size} B of {touch.tensor}{shared}, in {name}, while {_ran(parallel, number, at - 1)} may still run, and "
                    f"{'writes' if writes else 'reads'} them: no signal orders the two."
                )
    for name, touch in located:
        held = memories[name]
        (held.written if touch.writes else held.read)[moment.number, touch.places] = end
        held.users.setdefault((moment.number, end), []).append(touch)


def _ran(parallel: ParallelProgram, number: int, position: int) -> str:
    """The step at a position of a list."""
    steps = parallel.lists[number]
    entry = steps.entries[position]
    assert isinstance(entry, RunStep), "only steps touch bytes"
    return f"step {entry.index} ({parallel.program.steps[entry.index].name}) of {steps.processor}"


def _located(plan: MemoryPlan, touch: _Touch) -> tuple[str, _Touch]:
    """The memory, or tensor without a place, that bytes are in, and where there."""
    place = plan.placements.get(touch.whole)
    if place is None:
        return f"tensor {touch.whole}", touch
    places = touch.places
    if isinstance(places, slice):
        moved = slice(place.offset + places.start, place.offset + places.stop)
    else:
        moved = place.offset + places
    return f"memory {place.memory}", replace(touch, places=moved)


def _touches(program: Program, plan: MemoryPlan, step: Step) -> list[_Touch]:
    """Bytes that a step touches while it runs, its scratch among them."""
    found: list[_Touch] = []
    for call, rows in _calls_with_rows(step):
        found += _touches_of(program, call, rows)
    scratch = plan.placements.get(f"{step.name}_scratch")
    if scratch:
        found.append(_Touch(tensor=scratch.name, whole=scratch.name, places=slice(0, scratch.num_bytes), writes=True))
    return found


def _calls_with_rows(step: Step) -> Iterator[tuple[Call, range | None]]:
    """Calls of a step, with the output rows of those that compute some."""
    for call in calls(step):
        if not isinstance(call, KernelCall) or call.rows is None:
            yield call, None
            continue
        turns = range(step.count if isinstance(step, Loop) else 1)
        edges = [(call.rows.begin.at(turn), call.rows.end.at(turn)) for turn in turns]
        yield call, range(min(begin for begin, _ in edges), max(end for _, end in edges))


def _touches_of(program: Program, call: Call, rows: range | None) -> list[_Touch]:
    if not isinstance(call, KernelCall):
        moved = call.transfers if isinstance(call, Wait) else (call,)
        sources = [_whole(program, t.source, writes=False) for t in moved if not t.source_is_constant]
        return sources + [_whole(program, t.target, writes=True) for t in moved]
    spatial = call.implementation.spatial
    found = [_whole(program, tensor, writes=False) for _, tensor in call.fetched]
    if rows is None or spatial is None or spatial.accumulates:
        found += [_whole(program, name, writes=False) for name in call.inputs]
        return found + [_whole(program, name, writes=True) for name in call.outputs]
    for position, name in enumerate(call.inputs):
        if position >= len(spatial.inputs):
            found.append(_whole(program, name, writes=False))
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
) -> _Touch:
    """Bytes of rows of a tensor; all of them where rows are not runs of it."""
    whole, vectors = _whole(program, name, writes=writes), int(np.prod(shape[:-1], dtype=np.int64))
    tensor = program.tensors[name]
    one_image = shape[0] == 1 or num_rows == vectors
    if tensor.ring or program.turns(name) or num_rows == 0 or vectors % num_rows or not one_image:
        return whole
    if tensor.part and tensor.part.pitch and shape[-1] != tensor.shape[-1]:
        return whole
    if isinstance(whole.places, slice):
        size, first = tensor.num_bytes // num_rows, whole.places.start
        return replace(whole, places=slice(first + span[0] * size, first + span[1] * size))
    size = whole.places.size // num_rows
    return replace(whole, places=whole.places[span[0] * size : span[1] * size])


def _whole(program: Program, name: str, *, writes: bool) -> _Touch:
    """All bytes of a tensor; of rows that lie elsewhere in each run, those of their ring."""
    tensor = program.tensors[name]
    home: Tensor = program.tensors[tensor.part.tensor] if tensor.part else tensor
    item = np.dtype(tensor.dtype).itemsize
    if tensor.part is None or program.turns(name):
        places = slice(0, home.num_bytes)
    elif tensor.part.pitch is None:
        places = slice(tensor.part.first * item, tensor.part.first * item + tensor.num_bytes)
    else:
        pixels = np.arange(int(np.prod(tensor.shape[:-1], dtype=np.int64))) * tensor.part.pitch + tensor.part.first
        places = np.add.outer(pixels * item, np.arange(tensor.shape[-1] * item)).reshape(-1)
    return _Touch(tensor=name, whole=home.name, places=places, writes=writes)


def _check_made(program: Program) -> None:
    """Raises PlanRejected where a step reads bytes of which some rows or parts are computed later, or never."""
    made = {
        name: np.zeros(tensor.num_bytes, bool)
        for name, tensor in program.tensors.items()
        if tensor.part is None and tensor.role != "state"
    }
    for name in program.inputs:
        touch = _whole(program, name, writes=True)
        if touch.whole in made:
            made[touch.whole][touch.places] = True
    for index, step in enumerate(program.steps):
        several = isinstance(step, Loop | RowSteps)
        touches = [touch for call, rows in _calls_with_rows(step) for touch in _touches_of(program, call, rows)]
        touches = [touch for touch in touches if touch.whole in made]
        inside = {touch.whole for touch in touches if touch.writes and several}
        for touch in touches:
            missing = ~made[touch.whole][touch.places]
            if not touch.writes and touch.whole not in inside and missing.any():
                raise PlanRejected(
                    f"step {index} ({step.name}): {missing.sum()} B of {touch.tensor} are not made before it."
                )
        for touch in touches:
            if touch.writes:
                if not several and not isinstance(step, Wait) and made[touch.whole][touch.places].any():
                    raise PlanRejected(f"step {index} ({step.name}): {touch.tensor} was made before.")
                made[touch.whole][touch.places] = True
