"""Replays a Sequence call by call over bytes that know which row of which tensor they hold; part of the validator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.kernels.contract import RowAccess
from codegen_c.program.program import KernelCall, Program, Sequence
from tvm_ext.core.errors import PlanRejected

FIRST_ROW_NUMBER = -2
"""Rows of rings carry numbers from here down: tensors have numbers from 0 up, and -1 is nobody."""


def replay_sequence(
    program: Program,
    plan: MemoryPlan,
    step: Sequence,
    owners: Mapping[str, np.ndarray],
    numbers: Mapping[str, int],
    where: str,
) -> None:
    """Raises PlanRejected where a call reads a row that is gone or was never made, or loses one while it writes.

    owners: per memory, the number of the tensor that each byte holds; changed as the sequence changes it.
    """
    rings = {name: ring for name in _touched(step) if (ring := program.tensors[name].ring)}
    base = {name: FIRST_ROW_NUMBER - sum(r.rows for r in list(rings.values())[:i]) for i, name in enumerate(rings)}

    def row(name: str, rows: int, index: int) -> tuple[np.ndarray, int] | None:
        """The bytes that hold a row, and the number they must carry; None for a tensor that the caller holds."""
        if name not in plan.placements:
            return None
        place = plan.placements[name]
        ring = rings.get(name)
        size, rest = divmod(place.num_bytes, ring.stored if ring else rows)
        slot = (index + ring.shift) % ring.stored if ring else index
        if rest:
            raise PlanRejected(f"{where}: {name} of {place.num_bytes} B is not made of {rows} equal rows.")
        begin = place.offset + slot * size
        return owners[place.memory][begin : begin + size], base[name] - index if ring else numbers[name]

    def require(call: KernelCall, begin: int, end: int, behind: bool = False) -> None:
        for constant, name in call.fetched:
            held = row(name, 1, 0)
            if held is not None and (held[0] != held[1]).any():
                raise PlanRejected(f"{where}: {call.name} reads {constant} from {name}, which is not there any more.")
        for position, (name, access) in enumerate(zip(call.inputs, _accesses(call), strict=True)):
            if behind and _lies_in_place(program, call, position):
                continue
            low, high = access.read(begin, end)
            for index in range(low, high):
                found = row(name, access.input_rows, index)
                if found is not None and (found[0] != found[1]).any():
                    raise PlanRejected(
                        f"{where}: {call.name} reads row {index} of {name}, which is not there any more."
                    )

    def accumulate(call: KernelCall, begin: int) -> None:
        """Sums lie in a kernel's outputs from its first call on, and each later one needs them."""
        if call is not step.body[-1]:
            raise PlanRejected(f"{where}: {call.name} adds up rows; nothing may follow it in its sequence.")
        for place in (plan.placements[name] for name in call.outputs if name in plan.placements):
            held = owners[place.memory][place.offset : place.offset + place.num_bytes]
            if begin > 0 and (held != numbers[place.name]).any():
                raise PlanRejected(f"{where}: {call.name} adds to {place.name}, which is not there any more.")
            held[:] = numbers[place.name]

    made = {call.outputs[0]: 0 for call in step.body}
    for call, begin, end in _replayed(step):
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
        require(call, begin, end, behind=True)  # a kernel reads while it writes
        made[call.outputs[0]] = end
    for call in step.body:
        spatial = call.implementation.spatial
        if spatial and call.outputs[0] not in rings and made[call.outputs[0]] != spatial.output_rows:
            raise PlanRejected(f"{where}: only {made[call.outputs[0]]} rows of {call.outputs[0]} are computed.")


def _replayed(step: Sequence) -> Iterator[tuple[KernelCall, int, int]]:
    """The calls as the generated loop makes them, derived anew from the windows."""
    rows = [call.implementation.spatial.output_rows if call.implementation.spatial else 0 for call in step.body]
    made = [0] * len(rows)
    while made[-1] < rows[-1]:
        want = [0] * len(rows)
        want[-1] = made[-1] + 1
        for maker in reversed(range(len(rows) - 1)):
            for later in range(maker + 1, len(rows)):
                if made[later] >= want[later]:
                    continue
                last = min(made[later] + _at_once(step, later, made[later]), rows[later]) - 1
                for name, access in zip(step.body[later].inputs, _accesses(step.body[later]), strict=True):
                    if name == step.body[maker].outputs[0]:
                        window = access.window
                        below = last * window.strides[0] - window.padding[0]
                        asked = below + (window.kernel[0] - 1) * window.dilation[0] + 1
                        want[maker] = max(want[maker], min(asked, access.input_rows))
        index = next(i for i in range(len(rows)) if made[i] < want[i])
        end = min(made[index] + _at_once(step, index, made[index]), rows[index])
        yield step.body[index], made[index], end
        made[index] = end


def _at_once(step: Sequence, index: int, made: int) -> int:
    """Rows of a kernel's next call."""
    return (
        step.first_rows[index] if step.first_rows and step.first_rows[index] and not made else step.rows_per_call[index]
    )


def _lies_in_place(program: Program, call: KernelCall, position: int) -> bool:
    """Whether the output lies in an input's ring, each row over one that later rows do not read, and read before."""
    tensor, source = program.tensors[call.outputs[0]], program.tensors[call.inputs[position]]
    home = source.part.tensor if source.part else source.name
    if tensor.part is None or tensor.part.tensor != home or tensor.ring is None or source.ring is None:
        return False
    window = _accesses(call)[position].window
    lag = (source.ring.shift - tensor.ring.shift) % tensor.ring.stored
    keeps = window.strides[0] == 1 and tensor.ring.stored == source.ring.stored
    return position in call.implementation.in_place and keeps and lag == window.padding[0]


def _accesses(call: KernelCall) -> tuple[RowAccess, ...]:
    if call.implementation.spatial is None:
        raise PlanRejected(f"{call.name}: stands in a sequence and has no rows.")
    return call.implementation.spatial.inputs


def _touched(step: Sequence) -> list[str]:
    return list(dict.fromkeys(name for call in step.body for name in (*call.inputs, *call.outputs)))
