"""Runs of kernel calls that become one Sequence: their rows run in series, and what only they touch becomes a ring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from codegen_c.kernels.contract import Implementation, Kept, RowAccess, Spatial, StoredRows
from codegen_c.program.program import KernelCall, Program, Ring, Step, Tensor, reads
from codegen_c.program.program import Part as TensorPart
from codegen_c.program.program import Sequence as RowSteps
from tvm_ext.core.row_rings import RowRings, possible_guests
from tvm_ext.core.row_sequence import RowOperator, RowReader, RowSequence, in_step


@dataclass(frozen=True, kw_only=True)
class Part:
    """A kernel call's place in a split: which sequence it belongs to, and how many rows it computes at a time."""

    sequence: str
    rows_per_call: int


def fold_sequences(program: Program, parts: Mapping[str, Part]) -> Program:
    """The program with neighbouring steps of one sequence folded. parts: by step name; other steps stay as they are."""
    steps: list[Step] = []
    tensors = dict(program.tensors)
    grouped = groupby(program.steps, lambda step: parts[step.name].sequence if step.name in parts else None)
    for name, group in grouped:
        run = list(group)
        if name is None or len(run) == 1:
            steps += run
            continue
        body = tuple(step for step in run if isinstance(step, KernelCall))
        folded = RowSteps(name=name, body=body, rows_per_call=tuple(parts[s.name].rows_per_call for s in run))
        folded = replace(folded, first_rows=tuple(o.first_rows for o in row_sequence(folded).operators))
        kept = _rings(program, folded)
        tensors |= kept
        keeping = [_keeping(c, rows, kept) for c, rows in zip(body, folded.rows_per_call, strict=True)]
        steps.append(replace(folded, body=tuple(keeping)))
    return replace(program, steps=tuple(steps), tensors=tensors)


def row_sequence(step: RowSteps) -> RowSequence:
    """The step's kernels as plain numbers."""
    producers = {call.outputs[0]: index for index, call in enumerate(step.body)}
    operators: list[RowOperator] = []
    for call, rows in zip(step.body, step.rows_per_call, strict=True):
        spatial = spatial_of(call)
        readers = [
            row_reader(call.implementation, position, producers.get(name)) for position, name in enumerate(call.inputs)
        ]
        operators.append(RowOperator(num_rows=spatial.output_rows, readers=tuple(readers), rows_per_call=rows))
    return RowSequence(in_step(operators))


def row_reader(implementation: Implementation, position: int, producer: int | None) -> RowReader:
    """What each output row of a spatial kernel reads of one input."""
    spatial = implementation.spatial
    assert spatial is not None, "only spatial kernels have rows"
    access, output_rows = spatial.inputs[position], spatial.output_rows
    in_place = position in implementation.in_place and access.window.strides[0] == 1
    return replace(
        window_reader(access, output_rows), producer=producer, lag=access.window.padding[0] if in_place else None
    )


def window_reader(access: RowAccess, output_rows: int) -> RowReader:
    """What each of so many output rows reads."""
    alone = Spatial(output_rows=output_rows, inputs=(access,))
    begins = [alone.needed_from(0, row) for row in range(output_rows)]
    return RowReader(
        input_rows=access.input_rows,
        begins=(*begins, access.input_rows),
        ends=tuple(rows_asked_for(access, row) for row in range(output_rows)),
    )


def rows_asked_for(access: RowAccess, row: int) -> int:
    """End of the input rows that must be there before an output row is computed; the generated code asks the same."""
    return min(max(row * access.window.strides[0] + reach(access), 0), access.input_rows)


def reach(access: RowAccess) -> int:
    """End of the input rows that output row 0 reads, were there no borders."""
    window = access.window
    return (window.kernel[0] - 1) * window.dilation[0] + 1 - window.padding[0]


def in_sequence(implementation: Implementation, input_rows: int = 0) -> Implementation:
    """A kernel as a sequence runs it: by rows of its output, or adding up so many rows of its input."""
    by_rows, accumulating = implementation.in_rows, implementation.accumulating
    if input_rows:
        assert accumulating is not None, "what adds up rows has a kernel for it"
        by_rows = partial(accumulating.implement, input_rows)
    if by_rows is None:
        return implementation
    return replace(by_rows(StoredRows()), alternatives=implementation.alternatives, keeping=by_rows)


def spatial_of(call: KernelCall) -> Spatial:
    spatial = call.implementation.spatial
    assert spatial is not None, "only spatial kernels stand in a sequence"
    return spatial


def can_follow(spatial: Spatial, position: int, producer: Spatial) -> bool:
    """Whether an input's rows are those its producer computes."""
    return spatial.inputs[position].input_rows == producer.output_rows


def _rings(program: Program, step: RowSteps) -> dict[str, Tensor]:
    """The tensors of which only some rows are kept: those that nothing outside of the sequence reads.

    What may lie in the ring of its input does, where that takes no more rows.
    """
    inside = {call.name for call in step.body}
    outside = {name for other in program.steps if other.name not in inside for name in reads(other)}
    tensors = [program.tensors[call.outputs[0]] for call in step.body]
    apart = [
        tensor.name in outside or tensor.name in program.outputs or spatial_of(call).accumulates
        for tensor, call in zip(tensors, step.body, strict=True)
    ]
    sequence = row_sequence(step)
    row_bytes = [t.num_bytes // o.num_rows for t, o in zip(tensors, sequence.operators, strict=True)]
    rings = RowRings(sequence, possible_guests(sequence, row_bytes, apart))
    stored, shared = rings.rows(), rings.shared()
    found: dict[str, Tensor] = {}
    for index, tensor in enumerate(tensors):
        rows = sequence.operators[index].num_rows
        if index in shared:
            host = found[tensors[shared[index].host].name]
            assert host.ring is not None, "guests lie in rings"
            shift = (host.ring.shift - shared[index].lag) % host.ring.stored
            part = host.part or TensorPart(tensor=host.name, first=0)
            ring = Ring(rows=rows, stored=host.ring.stored, shift=shift)
            found[tensor.name] = replace(tensor, ring=ring, part=part)
        elif not apart[index] and stored[index] < rows:
            found[tensor.name] = replace(tensor, ring=Ring(rows=rows, stored=max(stored[index], 1)))
    return found


def _keeping(call: KernelCall, rows_per_call: int, rings: Mapping[str, Tensor]) -> KernelCall:
    """The call of the same kernel for operands of which only some rows are stored."""

    def kept(name: str) -> Kept | None:
        ring = rings[name].ring if name in rings else None
        return Kept(stored=ring.stored, shift=ring.shift) if ring else None

    stored = StoredRows(
        inputs=tuple(kept(name) for name in call.inputs), output=kept(call.outputs[0]), at_once=rows_per_call
    )
    again = call.implementation.keeping
    assert again is not None, "a selected kernel can be implemented again"
    return replace(call, implementation=again(stored))


def needed_and_written(
    step: RowSteps, tensors: Mapping[str, Tensor], outputs: Sequence[str], dying: Iterable[str]
) -> list[tuple[dict[str, int], dict[str, int]]]:
    """At each call of a sequence: bytes written of some outputs when it ends, first byte still read of dying inputs."""
    rows = row_sequence(step)
    made = {name: 0 for name in outputs}
    first = {name: [n for _, n in rows.needed_rows(_readers(step, name))] for name in dying}
    moments: list[tuple[dict[str, int], dict[str, int]]] = []
    for index, call in enumerate(rows.calls):
        name = step.body[call.operator].outputs[0]
        if name in made:
            made[name] = call.end * (tensors[name].num_bytes // rows.operators[call.operator].num_rows)
        needed = {n: first[n][index] * _row_bytes(step, n, tensors[n]) for n in first}
        moments.append((dict(made), needed))
    return moments


def _readers(step: RowSteps, name: str) -> list[tuple[int, int]]:
    return [(i, position) for i, call in enumerate(step.body) for position, n in enumerate(call.inputs) if n == name]


def _row_bytes(step: RowSteps, name: str, tensor: Tensor) -> int:
    index, position = _readers(step, name)[0]
    return tensor.num_bytes // spatial_of(step.body[index]).inputs[position].input_rows
