"""Replay row sequences and states and track which row of which tensor each byte holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.lib.stride_tricks import as_strided

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.program.program import Program
from codegen_c.program.steps import Call, KernelCall, RowSteps, Transfer, Wait, calls
from codegen_c.program.tensors import KeptState, Tensor
from tvm_ext.core.errors import PlanRejected
from tvm_ext.core.platform import STATE_MEMORY
from tvm_ext.core.row_access import RowAccess
from tvm_ext.core.row_sequence import RowCall, Schedule

FIRST_ROW_NUMBER = -2
"""Owner number of the first row of a ring; other rows count down from it. Tensors count up from 0; -1 is no owner."""


def replay_sequence(
    program: Program,
    plan: MemoryPlan,
    step: RowSteps,
    owners: Mapping[str, np.ndarray],
    numbers: Mapping[str, int],
    where: str,
    arrive: Callable[[Wait], None],
) -> None:
    """Raise PlanRejected if a call reads a row that its bytes do not hold, or overwrites a row that it still needs.

    arrive: is called for each wait of the sequence, when the generated code waits.
    """
    rings = {name: ring for name in _touched(step) if (ring := program.tensors[name].ring)}
    base = {name: FIRST_ROW_NUMBER - sum(r.rows for r in list(rings.values())[:i]) for i, name in enumerate(rings)}

    in_place = {
        (call.name, position)
        for call in step.body
        for position in range(len(_accesses(call)))
        if _lies_in_place(program, call, position)
    }

    def row(name: str, rows: int, index: int) -> tuple[np.ndarray, int] | None:
        """Return the bytes that hold a row and the number they must carry; None for a tensor in the caller's memory."""
        if name not in plan.placements:
            return None
        place, tensor = plan.placements[name], program.tensors[name]
        if tensor.part and tensor.part.pitch and not tensor.ring:
            return _row_apart(tensor, owners[place.memory][place.offset :], rows, index, where), numbers[name]
        ring = rings.get(name)
        size, rest = divmod(place.num_bytes, ring.stored if ring else rows)
        slot = (index + ring.shift) % ring.stored if ring else index
        if rest:
            raise PlanRejected(f"{where}: {name} of {place.num_bytes} B cannot be divided into {rows} equal rows.")
        begin = place.offset + slot * size
        return owners[place.memory][begin : begin + size], base[name] - index if ring else numbers[name]

    def require(call: KernelCall, begin: int, end: int, behind: bool = False) -> None:
        for constant, name in call.prefetched:
            held = row(name, 1, 0)
            if held is not None and (held[0] != held[1]).any():
                raise PlanRejected(f"{where}: {call.name} reads {constant} from {name}, which was overwritten.")
        for position, (name, access) in enumerate(zip(call.inputs, _accesses(call), strict=True)):
            if behind and (call.name, position) in in_place:
                continue
            for index in sorted({row for at in range(begin, end) for row in range(access.begins[at], access.ends[at])}):
                found = row(name, access.input_rows, index)
                if found is not None and (found[0] != found[1]).any():
                    raise PlanRejected(
                        f"{where}: {call.name} reads row {index} of {name}, which its bytes do not hold."
                    )

    def accumulate(call: KernelCall, begin: int) -> None:
        """Check and mark accumulators: a kernel keeps them in its outputs, and each later call needs them unchanged."""
        if call is not step.body[-1]:
            raise PlanRejected(f"{where}: {call.name} accumulates rows, so no call may follow it in its sequence.")
        for place in (plan.placements[name] for name in call.outputs if name in plan.placements):
            held = owners[place.memory][place.offset : place.offset + place.num_bytes]
            if begin > 0 and (held != numbers[place.name]).any():
                raise PlanRejected(f"{where}: {call.name} accumulates in {place.name}, which was overwritten.")
            held[:] = numbers[place.name]

    made = {call.outputs[0]: 0 for call in step.body}
    for call, begin, end in _replayed(step, arrive):
        if begin != made[call.outputs[0]]:
            raise PlanRejected(
                f"{where}: {call.name} computes rows from {begin} on, but row {made[call.outputs[0]]} is next."
            )
        require(call, begin, end)
        spatial = call.implementation.spatial
        assert spatial is not None, "calls of a sequence have rows"
        if spatial.accumulates:
            accumulate(call, begin)
        for index in range(begin, end) if not spatial.accumulates else ():
            found = row(call.outputs[0], spatial.output_rows, index)
            if found is not None:
                found[0][:] = found[1]
        scratch = plan.placements.get(f"{step.name}_scratch")
        if scratch and call.implementation.scratch_bytes:
            owners[scratch.memory][scratch.offset : scratch.offset + scratch.num_bytes] = numbers[scratch.name]
        # A kernel reads its inputs while it writes its outputs, so the rows must survive its own writes.
        require(call, begin, end, behind=True)
        made[call.outputs[0]] = end
    for call in step.body:
        spatial = call.implementation.spatial
        if spatial and call.outputs[0] not in rings and made[call.outputs[0]] != spatial.output_rows:
            raise PlanRejected(f"{where}: only {made[call.outputs[0]]} rows of {call.outputs[0]} are computed.")


def _row_apart(tensor: Tensor, held: np.ndarray, rows: int, index: int, where: str) -> np.ndarray:
    """Return the bytes of a row of a part whose runs are not contiguous. held: bytes from the part's first byte on."""
    assert tensor.part and tensor.part.pitch, "its runs are not contiguous"
    item, axes = np.dtype(tensor.dtype).itemsize, tensor.part.run_axes
    run = item * int(np.prod(tensor.shape[len(tensor.shape) - axes :], dtype=np.int64))
    runs, rest = divmod(item * int(np.prod(tensor.shape, dtype=np.int64)), run * rows)
    if rest:
        raise PlanRejected(f"{where}: {tensor.name} with runs of {run} B cannot be divided into {rows} equal rows.")
    apart = tensor.part.pitch * item
    strides = (apart * held.itemsize, held.itemsize)
    return as_strided(held[index * runs * apart :], (runs, run), strides)


def _replayed(step: RowSteps, arrive: Callable[[Wait], None]) -> Iterator[tuple[KernelCall, int, int]]:
    """Yield the calls with their rows in the order of the generated code, and call `arrive` for the waits between."""
    for index, entry in enumerate(step.schedule):
        for wait in step.waits.get(index, ()):
            arrive(wait)
        for turn in _turns((entry,), {}):
            yield step.body[turn.operator], turn.begin, turn.end


def _turns(schedule: Schedule, ahead: Mapping[int, int]) -> Iterator[RowCall]:
    """Yield the calls in the order of the generated loops.

    ahead: by operator, the rows that the enclosing loops have advanced it.
    """
    for entry in schedule:
        if isinstance(entry, RowCall):
            rows = ahead.get(entry.operator, 0)
            yield RowCall(operator=entry.operator, begin=entry.begin + rows, end=entry.end + rows)
            continue
        for turn in range(entry.count):
            yield from _turns(entry.body, {o: ahead.get(o, 0) + turn * rows for o, rows in entry.advances.items()})


def _lies_in_place(program: Program, call: KernelCall, position: int) -> bool:
    """Return True if the output is in an input's ring buffer, each row in the slot of a row that no later row reads."""
    tensor, source = program.tensors[call.outputs[0]], program.tensors[call.inputs[position]]
    home = source.part.tensor if source.part else source.name
    if tensor.part is None or tensor.part.tensor != home or tensor.ring is None or source.ring is None:
        return False
    access, stored = _accesses(call)[position], tensor.ring.stored
    lag, needed = (source.ring.shift - tensor.ring.shift) % stored, access.input_rows
    for row in reversed(range(access.output_rows)):
        if row - lag >= needed:  # a later row still reads the row in this slot
            return False
        needed = min(needed, access.begins[row]) if access.begins[row] < access.ends[row] else needed
    return position in call.implementation.in_place and stored == source.ring.stored


def _accesses(call: KernelCall) -> tuple[RowAccess, ...]:
    if call.implementation.spatial is None:
        raise PlanRejected(f"{call.name}: is in a row sequence, but computes no rows.")
    return call.implementation.spatial.inputs


def _touched(step: RowSteps) -> list[str]:
    return list(dict.fromkeys(name for call in step.body for name in (*call.inputs, *call.outputs)))


def check_states(program: Program) -> None:
    """Raise PlanRejected if a step reads elements of a state that are overwritten or not yet written."""
    owners: dict[str, str] = {}
    for state in program.states:
        if state.tensor in owners:
            raise PlanRejected(f"{state.source} and {owners[state.tensor]} are kept in the same tensor {state.tensor}.")
        owners[state.tensor] = state.source
        tensor = program.tensors[state.tensor]
        if tensor.role != "state" or tensor.memory != STATE_MEMORY:
            raise PlanRejected(f"{state.source}: {state.tensor} is not in the memory of states.")
        _replay(program, state)


def _replay(program: Program, state: KeptState) -> None:
    """Replay a run for one state, and track which elements of its tensor this run has written."""
    tensor = program.tensors[state.tensor]
    fresh = np.zeros(tensor.num_elements, dtype=bool)
    for index, step in enumerate(program.steps):
        for call in calls(step):
            where = f"step {index} ({step.name})"
            for position, name in enumerate(_read(call)):
                _check_read(program, state, fresh, name, where)
                if (
                    name == state.tensor
                    and _overwrites(program, state, call)
                    and not _may_overwrite(program, call, position)
                ):
                    raise PlanRejected(f"{where}: writes state {state.source} while it still reads it.")
            for name in _written(call):
                part = program.tensors[name].part
                if name == state.tensor:
                    raise PlanRejected(f"{where}: overwrites all of state {state.source}, not a part of it.")
                if part and part.tensor == state.tensor:
                    fresh[part.first : part.first + program.tensors[name].num_elements] = True
    wanted = np.ones_like(fresh)
    if state.update == "none":
        wanted[:] = False
    elif state.update == "ring":
        wanted[: -(tensor.num_elements // _rows(tensor.shape) * state.pushed)] = False
    elif state.update == "shift":
        wanted = fresh  # the moved elements and the new ones
    if not np.array_equal(fresh, wanted) or (state.update != "none" and not fresh.any()):
        raise PlanRejected(
            f"state {state.source}: a run writes {int(fresh.sum())} of its {fresh.size} elements, not the elements "
            "that it must update."
        )


def _check_read(program: Program, state: KeptState, fresh: np.ndarray, name: str, where: str) -> None:
    """Check a read of a state: the old state before any write, a window with its new end, or a part after its write."""
    tensor = program.tensors[name]
    if name == state.tensor:
        old = not fresh.any()
        window = state.update in ("ring", "shift")
        if (window and (old or fresh[0])) or (not window and not old):
            raise PlanRejected(f"{where}: reads state {state.source} when it does not hold the needed value.")
    elif tensor.part and tensor.part.tensor == state.tensor:
        held = fresh[tensor.part.first : tensor.part.first + tensor.num_elements]
        moves_up = state.update == "shift" and not fresh[0]
        if not held.all() and not moves_up:
            raise PlanRejected(f"{where}: reads {name}, a part of state {state.source}, before it is written.")


def _rows(shape: tuple[int, ...]) -> int:
    return next((extent for extent in shape if extent > 1), 1)


def _overwrites(program: Program, state: KeptState, call: Call) -> bool:
    parts = (program.tensors[name].part for name in _written(call))
    return state.update not in ("ring", "shift") and any(part and part.tensor == state.tensor for part in parts)


def _may_overwrite(program: Program, call: Call, position: int) -> bool:
    """Return True if the outputs that lie in an input are written after the last read of each of its elements."""
    if not isinstance(call, KernelCall):
        return False
    parts = {index: program.tensors[name].part for index, name in enumerate(call.outputs)}
    own = [index for index, part in parts.items() if part and part.tensor == call.inputs[position]]
    in_place = {(place, 0) for place in call.implementation.in_place}
    return all((position, index) in in_place | set(call.implementation.next_states) for index in own)


def _read(call: Call) -> tuple[str, ...]:
    if isinstance(call, KernelCall):
        return call.inputs
    return (call.source,) if isinstance(call, Transfer) and not call.source_is_constant else ()


def _written(call: Call) -> tuple[str, ...]:
    if isinstance(call, KernelCall):
        return call.outputs
    return (call.target,) if isinstance(call, Transfer) else ()
