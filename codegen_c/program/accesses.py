"""Bytes that a step reads and writes, in tensors or in the memories in which a plan places the tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from codegen_c.program.program import Program
from codegen_c.program.steps import Call, DriverWait, KernelCall, Loop, Step, calls, scratch_bytes, transfers_of
from codegen_c.program.tensors import Tensor

Places = Mapping[str, tuple[str, int]]
"""Memory and offset of whole tensors, and of scratch by its name. Tensors in the caller's memory have none."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """Bytes [low, high) of a space. With a pitch, only the first `run` bytes of every `pitch` bytes are touched.

    space: ("", tensor) for the bytes of a whole tensor, or (memory, "").
    """

    space: tuple[str, str]
    low: int
    high: int
    writes: bool
    run: int = 0
    pitch: int = 0

    def meets(self, other: Access) -> bool:
        """Return True if two accesses share a byte. For two different pitches, their ranges are compared."""
        if self.space != other.space or self.low >= other.high or other.low >= self.high:
            return False
        if not self.pitch and not other.pitch:
            return True
        if self.pitch and other.pitch and self.pitch != other.pitch:
            return True
        # Pitches are equal, or one access is contiguous: compare positions within one period of the pitch.
        spread, second = (self, other) if self.pitch else (other, self)
        length = second.run if second.pitch else second.high - second.low
        behind = (second.low - spread.low) % spread.pitch
        return behind < spread.run or behind + length > spread.pitch

    def conflicts(self, other: Access) -> bool:
        """Return True if the order of two accesses matters."""
        return (self.writes or other.writes) and self.meets(other)


def accesses(program: Program, step: Step, places: Places | None = None) -> list[Access]:
    """Return the bytes that a step touches, each once for reading and once for writing.

    places: offsets of tensors; if given, the result is bytes of memories and includes scratch.
    """
    found: dict[Access, None] = {}
    for call in calls(step):
        count = step.count if isinstance(step, Loop) else 1
        found |= dict.fromkeys(_of_call(program, call, count))
    if places is None:
        return list(found)
    placed = [_placed(access, places) for access in found]
    scratch = places.get(f"{step.name}_scratch")
    if scratch and scratch_bytes(step):
        memory, offset = scratch
        placed.append(Access(space=(memory, ""), low=offset, high=offset + scratch_bytes(step), writes=True))
    return placed


def _placed(access: Access, places: Places) -> Access:
    place = places.get(access.space[1])
    if place is None:
        return access
    memory, offset = place
    return replace(access, space=(memory, ""), low=access.low + offset, high=access.high + offset)


def _of_call(program: Program, call: Call, count: int) -> list[Access]:
    """Return the bytes that a call touches. count: iterations of the loop around it."""
    if isinstance(call, DriverWait):
        return _of_call(program, call.call, count)
    if not isinstance(call, KernelCall):
        transfers = transfers_of(call)
        sources = [transfer.source for transfer in transfers if not transfer.source_is_constant]
        targets = [transfer.target for transfer in transfers]
        return [
            *(_bytes(program, name, writes=False) for name in sources),
            *(_bytes(program, name, writes=True) for name in targets),
        ]
    found = [_bytes(program, tensor, writes=False) for _, tensor in call.prefetched]
    rows, spatial = _rows(call, count), call.implementation.spatial
    if rows is None or spatial is None or spatial.accumulates:
        found += [_bytes(program, name, writes=False) for name in call.inputs]
        return [*found, *(_bytes(program, name, writes=True) for name in call.outputs)]
    for position, name in enumerate(call.inputs):
        tensor = program.tensors[name]
        seen = replace(tensor, shape=call.seen_shape(position, tensor))
        is_spatial = position < len(spatial.inputs)
        input_rows = spatial.inputs[position].input_rows if is_spatial else 0
        read = spatial.inputs[position].read(*rows) if is_spatial else (0, 0)
        if not is_spatial or read != (0, 0):
            found.append(_some_rows(program, tensor, seen.shape, input_rows, read, writes=False))
    for name in call.outputs:
        tensor = program.tensors[name]
        found.append(_some_rows(program, tensor, tensor.shape, spatial.output_rows, rows, writes=True))
    return found


def _rows(call: KernelCall, count: int) -> tuple[int, int] | None:
    """Return the rows that a call computes in all iterations of its loop; None if it computes all rows."""
    if call.rows is None:
        return None
    ends = (0, count - 1)
    return min(call.rows.begin.at(i) for i in ends), max(call.rows.end.at(i) for i in ends)


def _some_rows(
    program: Program, tensor: Tensor, shape: tuple[int, ...], num_rows: int, rows: tuple[int, int], *, writes: bool
) -> Access:
    """Return the bytes of rows [begin, end) of a tensor, or of the whole tensor if its rows are not contiguous.

    shape: the shape in which the kernel sees the tensor. num_rows: the number of rows in which the kernel divides it.
    """
    whole = _bytes(program, tensor.name, writes=writes)
    pixels = tensor.num_elements // shape[-1]
    in_rows = num_rows > 0 and pixels % num_rows == 0 and (shape[0] == 1 or num_rows == pixels)
    if (
        not in_rows
        or tensor.ring
        or program.has_moving_offset(tensor.name)
        or (whole.pitch and shape[-1] != tensor.shape[-1])
    ):
        return whole
    run = tensor.run_elements if whole.pitch else shape[-1]
    runs = tensor.num_elements // run
    if runs % num_rows:
        return whole
    run_bytes = whole.pitch or run * tensor.element_bytes
    begin, end = (row * (runs // num_rows) * run_bytes for row in rows)
    spare = run_bytes - whole.run if whole.pitch else 0
    return replace(whole, low=whole.low + begin, high=whole.low + end - spare)


def _bytes(program: Program, name: str, *, writes: bool) -> Access:
    """Return the bytes of a tensor inside its whole, or all bytes of a ring for rows whose slot differs by run."""
    tensor = program.tensors[name]
    if tensor.part is None or program.has_moving_offset(name):
        whole = program.tensors[tensor.part.tensor] if tensor.part else tensor
        return Access(space=("", whole.name), low=0, high=whole.num_bytes, writes=writes)
    low = tensor.part.first * tensor.element_bytes
    pitch = (tensor.part.pitch or 0) * tensor.element_bytes
    return Access(
        space=("", tensor.part.tensor), low=low, high=low + tensor.num_bytes, writes=writes,
        run=tensor.run_elements * tensor.element_bytes if pitch else 0, pitch=pitch,
    )  # fmt: skip
