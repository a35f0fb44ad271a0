"""Partial overlap of an output with an input that dies in the same step, from declared row accesses.

A spatial kernel computes output rows in order. While it writes output row r it may still read some input rows, and it
never reads the earlier rows again. If it computes rows in ascending order, the output may begin below the input; in
descending order, the output may begin above the input:

    input             |   row 0   |   row 1   |   row 2   |
    output    |   row 0   |   row 1   |   row 2   |             ascending: row r ends before the first row needed
              <- distance ->
    output                  |   row 0   |   row 1   |   row 2   |   descending: row r begins after the last row needed
                      <- distance ->

A kernel that reads each element for the last time before it writes the element of the same position (`in_place`)
needs no distance at all. If such a kernel returns to earlier elements (`Implementation.goes_back`), the two
tensors must have the same offset or not overlap. `too_near` finds pairs in a plan that break this rule; the planner
then plans again without overlap of these pairs, and with the same offset for them where that takes more bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from codegen_c.arena.lifetimes import lifetimes
from codegen_c.kernels.contract import Implementation, Spatial
from codegen_c.program.program import Program, parts_of
from codegen_c.program.sequences import needed_and_written
from codegen_c.program.steps import KernelCall, RowSteps, Step, reads
from codegen_c.program.tensors import Tensor


@dataclass(frozen=True, kw_only=True)
class Overlaps:
    """Overlaps in one step: (lower, upper) -> least bytes from the begin of the lower tensor to that of the upper.

    One tensor of each pair is the step's output, the other is an input that dies in the step. `ascending` holds if the
    kernel computes rows from first to last, `descending` if it computes them from last to first. A pair that is missing
    must not overlap: it needs the whole size of the lower tensor.
    """

    ascending: dict[tuple[str, str], int]
    descending: dict[tuple[str, str], int]

    def without(self, kept: Collection[str], apart: Collection[tuple[str, str]] = ()) -> Overlaps:
        """Return the overlaps without pairs that contain a tensor of `kept`, and without the pairs of `apart`."""
        directions = [
            {pair: n for pair, n in direction.items() if not set(kept) & set(pair) and pair not in apart}
            for direction in (self.ascending, self.descending)
        ]
        return Overlaps(ascending=directions[0], descending=directions[1])


@dataclass(frozen=True, kw_only=True)
class _Ends:
    """First and last steps of tensors.

    spans: steps [begin, end) of each tensor; of a whole tensor with all its parts. last_reader: of each tensor itself.
    families: whole tensors with parts.
    """

    program: Program
    spans: Mapping[str, tuple[int, int]]
    last_reader: Mapping[str, int]
    families: Collection[str]

    @classmethod
    def of(cls, program: Program) -> _Ends:
        last_reader = {name: index for index, step in enumerate(program.steps) for name in reads(step)}
        return cls(
            program=program, spans=lifetimes(program), last_reader=last_reader, families=frozenset(parts_of(program))
        )

    def whole(self, name: str) -> tuple[str, int] | None:
        """Return the tensor that is placed for a tensor, and the bytes ahead in it; None for pixels or rows apart."""
        tensor = self.program.tensors[name]
        if tensor.part is None:
            return name, 0
        return None if tensor.part.pitch else (tensor.part.tensor, tensor.part.first * tensor.element_bytes)

    def taken_over(self, step: Step, index: int, source: str, output: str) -> tuple[str, str, int] | None:
        """Return the whole tensors of an output and an input, and the bytes by which the output lies further inside.

        None if the input does not die, or if the whole tensors are both live in another step.
        """
        inner, outer = self.whole(source), self.whole(output)
        if inner is None or outer is None or self.last_reader[source] != index or source in self.program.outputs:
            return None
        if inner[0] in self.families or outer[0] in self.families:
            family = [name for name in reads(step) if (whole := self.whole(name)) is None or whole[0] == inner[0]]
            ends = self.spans[inner[0]][1] == index + 1 and inner[0] not in {*self.program.outputs, *self.program.kept}
            begins = self.spans[outer[0]][0] == index and outer[0] not in {*self.program.inputs, *self.program.kept}
            if inner[0] == outer[0] or set(family) != {source} or not (ends and begins):
                return None
        return outer[0], inner[0], outer[1] - inner[1]


def overlaps(program: Program) -> list[Overlaps]:
    """Return the overlaps of every step that allows an overlap.

    An output may overlap only an input that its step reads once and that no later step reads. If one of them is a part
    of a tensor or has parts, the pair names the whole tensors, which no other step needs together.
    """
    ends = _Ends.of(program)
    found: list[Overlaps] = []
    for index, step in enumerate(program.steps):
        if isinstance(step, RowSteps):
            found.append(_of_sequence(program, step, index, ends))
        elif isinstance(step, KernelCall) and step.rows is None:
            found.append(_of_call(program, step, index, ends))
    return [step for step in found if step.ascending or step.descending]


def _of_sequence(program: Program, step: RowSteps, index: int, ends: _Ends) -> Overlaps:
    """Return the overlaps of a sequence, which computes rows in ascending order."""
    wholes = {pair: ends.taken_over(step, index, pair[1], pair[0]) for pair in sequence_pairs(program, step)}
    dying = {pair: whole for pair, whole in wholes.items() if whole is not None}
    apart = _sequence_distances(program, step, dying.keys()) if dying else {}
    ascending = {
        (of_output, of_input): max(0, apart[pair] + further)
        for pair, (of_output, of_input, further) in dying.items()
        if apart[pair] < program.tensors[pair[0]].num_bytes
    }
    return Overlaps(ascending=ascending, descending={})


def _of_call(program: Program, step: KernelCall, index: int, ends: _Ends) -> Overlaps:
    """Return the overlaps of a call of a kernel that computes its whole output."""
    output, counts = program.tensors[step.outputs[0]], Counter(step.inputs)
    ascending: dict[tuple[str, str], int] = {}
    descending: dict[tuple[str, str], int] = {}
    for position, name in enumerate(step.inputs):
        source = program.tensors[name]
        pair = ends.taken_over(step, index, name, output.name)
        if pair is None or counts[name] > 1 or source.memory != output.memory:
            continue
        seen = replace(source, shape=step.seen_shape(position, source))  # the kernel may see a reshaped tensor
        up, down = distances(step.implementation, position, seen, output)
        of_output, of_input, further = pair
        if up < output.num_bytes:
            ascending[of_output, of_input] = max(0, up + further)
        if down < source.num_bytes:
            descending[of_input, of_output] = max(0, down - further)
    return Overlaps(ascending=ascending, descending=descending)


def too_near(program: Program, offsets: Mapping[str, int]) -> set[tuple[str, str]]:
    """Return the (output, input) pairs that overlap at different offsets though the kernel returns to earlier elements.

    offsets: of whole tensors, which the pairs name.
    """
    found: set[tuple[str, str]] = set()
    for step in program.steps:
        if not isinstance(step, KernelCall) or not step.implementation.goes_back:
            continue
        output = program.tensors[step.outputs[0]]
        for position in step.implementation.in_place:
            source = program.tensors[step.inputs[position]]
            (of_output, begin), (of_source, source_begin) = _placed(output, offsets), _placed(source, offsets)
            if output.memory != source.memory or begin is None or source_begin is None or of_output == of_source:
                continue
            distance = source_begin - begin
            if distance and -source.num_bytes < distance < output.num_bytes:
                found.add((of_output, of_source))
    return found


def _placed(tensor: Tensor, offsets: Mapping[str, int]) -> tuple[str, int | None]:
    """Return the whole tensor of a tensor, and the tensor's own offset; None if the whole tensor has none."""
    whole, ahead = (tensor.part.tensor, tensor.part.first * tensor.element_bytes) if tensor.part else (tensor.name, 0)
    return whole, offsets[whole] + ahead if whole in offsets else None


def sequence_pairs(program: Program, step: RowSteps) -> list[tuple[str, str]]:
    """Return the (output, input) pairs of a sequence that may overlap: whole tensors of equal rows in the same memory.

    Outputs of kernels that accumulate are excluded, because their accumulators may be in the output from the first call
    on.
    """
    made = {call.outputs[0] for call in step.body}
    whole = [
        (call.outputs[0], call.implementation.spatial)
        for call in step.body
        if not program.tensors[call.outputs[0]].ring
    ]
    outputs = [
        name for name, spatial in whole
        if spatial and not spatial.accumulates and not program.tensors[name].num_bytes % spatial.output_rows
    ]  # fmt: skip
    inputs = [name for name in reads(step) if name not in made and name not in program.outputs]
    return [
        (output, name)
        for output in outputs
        for name in inputs
        if program.tensors[output].memory == program.tensors[name].memory and _has_rows(step, program.tensors[name])
    ]


def _has_rows(step: RowSteps, tensor: Tensor) -> bool:
    """Return True if all readers of a tensor in the step divide it into the same number of equal rows."""
    rows = {
        call.implementation.spatial.inputs[position].input_rows if call.implementation.spatial else 0
        for call in step.body
        for position, name in enumerate(call.inputs)
        if name == tensor.name
    }
    return len(rows) == 1 and 0 not in rows and tensor.num_bytes % min(rows) == 0


def _sequence_distances(
    program: Program, step: RowSteps, pairs: Collection[tuple[str, str]]
) -> dict[tuple[str, str], int]:
    """Return the least distance of each output of a sequence below an input, by pair.

    At this distance no input row is overwritten before its last read.
    """
    outputs, inputs = ({pair[side] for pair in pairs} for side in (0, 1))
    moments = needed_and_written(step, program.tensors, sorted(outputs), sorted(inputs))
    return {
        (output, name): max(0, *(written[output] - needed[name] for written, needed in moments if written[output]))
        for output, name in pairs
    }


def row_bytes(spatial: Spatial, position: int, source: Tensor, output: Tensor) -> tuple[int, int] | None:
    """Return the bytes of a row of one input and of the output, or None if they are not equal rows of one image.

    source: the input in the shape that the kernel sees.
    """
    rows = spatial.inputs[position].input_rows if position < len(spatial.inputs) else 0
    if (
        rows == 0
        or spatial.accumulates
        or (source.shape[:1], output.shape[:1]) != ((1,), (1,))
        or source.num_bytes % rows
        or output.num_bytes % spatial.output_rows
    ):
        return None
    return source.num_bytes // rows, output.num_bytes // spatial.output_rows


def _has_places_of(source: Tensor, output: Tensor) -> bool:
    """Return True if the output has the layout of the input's first rows, so that elements have the same offsets."""
    rows = (source.shape[:1], source.shape[2:], source.dtype) == (output.shape[:1], output.shape[2:], output.dtype)
    return rows and len(source.shape) == 4 and output.shape[1] <= source.shape[1]


def keeps_places(program: Program, step: KernelCall, position: int) -> bool:
    """Return True if each output element may replace the input element at its position: `Implementation.in_place`."""
    source, output = program.tensors[step.inputs[position]], program.tensors[step.outputs[0]]
    seen = replace(source, shape=step.seen_shape(position, source))
    return position in step.implementation.in_place and (
        seen.num_bytes == output.num_bytes or _has_places_of(seen, output)
    )


def distances(implementation: Implementation, position: int, source: Tensor, output: Tensor) -> tuple[int, int]:
    """Return the least distance with the output below the input, and with the output above the input.

    The distance is the whole size of the lower tensor if the two must not overlap.
    """
    spatial = implementation.spatial
    if position in implementation.in_place and (source.num_bytes == output.num_bytes or _has_places_of(source, output)):
        return 0, source.num_bytes
    sizes = row_bytes(spatial, position, source, output) if spatial else None
    if spatial is None or sizes is None:
        return output.num_bytes, source.num_bytes
    read, written = sizes
    rows = range(spatial.output_rows)
    up = max((r + 1) * written - spatial.needed_from(position, r) * read for r in rows)
    down = max(spatial.inputs[position].needed_to[r] * read - r * written for r in rows)
    can_descend = spatial.descends and spatial.rows_still_read == 0 and spatial.output_rows > 1
    return max(0, up), max(0, down) if can_descend else source.num_bytes
