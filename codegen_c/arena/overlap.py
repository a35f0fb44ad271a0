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
needs no distance at all. If such a kernel returns to a row for its other channels (`Spatial.rows_behind`), the two
tensors must have the same offset or not overlap. `too_near` finds pairs in a plan that break this rule; the planner
then plans again without overlap of these pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from codegen_c.kernels.contract import Implementation, Spatial
from codegen_c.program.program import Program, parts_of
from codegen_c.program.sequences import needed_and_written
from codegen_c.program.steps import KernelCall, RowSteps, reads
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


def overlaps(program: Program) -> list[Overlaps]:
    """Return the overlaps of every step that allows an overlap.

    An output may overlap only an input that its step reads once and that no later step reads. Tensors that are parts of
    other tensors, or have parts, do not overlap.
    """
    parts = parts_of(program)
    shared = {*parts, *(part.name for family in parts.values() for part in family)}
    found = [step.without(shared) for step in _overlaps(program)]
    return [step for step in found if step.ascending or step.descending]


def _overlaps(program: Program) -> list[Overlaps]:
    """Return the overlaps of every step, including tensors that are parts or have parts."""
    last_reader = {name: index for index, step in enumerate(program.steps) for name in reads(step)}
    found: list[Overlaps] = []
    for index, step in enumerate(program.steps):
        if isinstance(step, RowSteps):
            pairs = sequence_pairs(program, step)
            dying = [pair for pair in pairs if last_reader[pair[1]] == index]
            if dying:
                found.append(Overlaps(ascending=_sequence_distances(program, step, dying), descending={}))
            continue
        if not isinstance(step, KernelCall) or step.rows is not None:
            continue
        output, counts = program.tensors[step.outputs[0]], Counter(step.inputs)
        ascending: dict[tuple[str, str], int] = {}
        descending: dict[tuple[str, str], int] = {}
        for position, name in enumerate(step.inputs):
            source = program.tensors[name]
            dies = last_reader[name] == index and counts[name] == 1 and name not in program.outputs
            if not dies or source.memory != output.memory:
                continue
            seen = replace(source, shape=step.seen_shape(position, source))  # the kernel may see a reshaped tensor
            up, down = distances(step.implementation, position, seen, output)
            if up < output.num_bytes:
                ascending[output.name, name] = up
            if down < source.num_bytes:
                descending[name, output.name] = down
        if ascending or descending:
            found.append(Overlaps(ascending=ascending, descending=descending))
    return found


def too_near(program: Program, offsets: Mapping[str, int]) -> set[tuple[str, str]]:
    """Return the (output, input) pairs that overlap at different offsets though the kernel returns to rows."""
    found: set[tuple[str, str]] = set()
    for step in program.steps:
        spatial = step.implementation.spatial if isinstance(step, KernelCall) else None
        if not isinstance(step, KernelCall) or spatial is None or not spatial.rows_behind:
            continue
        output = program.tensors[step.outputs[0]]
        for position in step.implementation.in_place:
            source = program.tensors[step.inputs[position]]
            if output.memory != source.memory or not {output.name, source.name} <= offsets.keys():
                continue
            distance = offsets[source.name] - offsets[output.name]
            if distance and -source.num_bytes < distance < output.num_bytes:
                found.add((output.name, source.name))
    return found


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
    can_descend = spatial.descends and spatial.rows_behind == 0 and spatial.output_rows > 1
    return max(0, up), max(0, down) if can_descend else source.num_bytes
