"""Runs of kernel calls that become one Sequence: their rows run in series, and what only they touch becomes a ring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from codegen_c.kernels.contract import RowAccess, Spatial, StoredRows
from codegen_c.program import KernelCall, Program, Ring, Step, Tensor, reads
from codegen_c.program import Sequence as RowSteps
from tvm_ext.core.row_sequence import RowOperator, RowReader, RowSequence


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
        kept = _rings(program, folded)
        tensors |= {tensor: replace(tensors[tensor], ring=ring) for tensor, ring in kept.items()}
        steps.append(replace(folded, body=tuple(_keeping(call, kept) for call in body)))
    return replace(program, steps=tuple(steps), tensors=tensors)


def row_sequence(step: RowSteps) -> RowSequence:
    """The step's kernels as plain numbers."""
    producers = {call.outputs[0]: index for index, call in enumerate(step.body)}
    operators: list[RowOperator] = []
    for call, rows in zip(step.body, step.rows_per_call, strict=True):
        spatial = spatial_of(call)
        readers = [
            row_reader(access, spatial.output_rows, producers.get(name))
            for access, name in zip(spatial.inputs, call.inputs, strict=True)
        ]
        operators.append(RowOperator(num_rows=spatial.output_rows, readers=tuple(readers), rows_per_call=rows))
    return RowSequence(tuple(operators))


def row_reader(access: RowAccess, output_rows: int, producer: int | None) -> RowReader:
    """What each output row reads of one input."""
    alone = Spatial(output_rows=output_rows, inputs=(access,))
    begins = [alone.needed_from(0, row) for row in range(output_rows)]
    return RowReader(
        producer=producer,
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


def spatial_of(call: KernelCall) -> Spatial:
    spatial = call.implementation.spatial
    assert spatial is not None, "only spatial kernels stand in a sequence"
    return spatial


def can_follow(spatial: Spatial, position: int, producer: Spatial) -> bool:
    """Whether an input's rows are those its producer computes."""
    return spatial.inputs[position].input_rows == producer.output_rows


def _rings(program: Program, step: RowSteps) -> dict[str, Ring]:
    """Rows kept of each tensor that nothing outside of the sequence reads."""
    outside = {
        name for other in program.steps if other.name not in {c.name for c in step.body} for name in reads(other)
    }
    rings: dict[str, Ring] = {}
    for call, stored in zip(step.body, row_sequence(step).ring_rows(), strict=True):
        name, rows = call.outputs[0], spatial_of(call).output_rows
        if spatial_of(call).accumulates:
            continue
        if name not in outside and name not in program.outputs and stored < rows:
            rings[name] = Ring(rows=rows, stored=max(stored, 1))
    return rings


def _keeping(call: KernelCall, rings: Mapping[str, Ring]) -> KernelCall:
    """The call of the same kernel for operands of which only some rows are stored."""
    stored = StoredRows(
        inputs=tuple(rings[name].stored if name in rings else None for name in call.inputs),
        output=rings[call.outputs[0]].stored if call.outputs[0] in rings else None,
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
