"""Fold runs of kernel calls into row sequences, whose inner tensors become ring buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from codegen_c.kernels.contract import Implementation, Kept, Spatial, StoredRows
from codegen_c.program.program import Program
from codegen_c.program.share_functions import with_rings
from codegen_c.program.steps import KernelCall, RowSteps, Step, Wait, reads
from codegen_c.program.tensors import Part, Ring, Tensor
from tvm_ext.core.decisions.composites import RowSplit
from tvm_ext.core.row_access import RowAccess
from tvm_ext.core.row_sequence import (
    RowOperator,
    RowReader,
    RowRings,
    RowSequence,
    in_step,
    merged,
    possible_guests,
    with_loops,
)


def fold_sequences(program: Program, splits: Mapping[str, RowSplit]) -> Program:
    """Return the program with neighbouring steps of a sequence folded into one. splits: by step name."""
    steps: list[Step] = []
    tensors = dict(program.tensors)
    stored: dict[str, StoredRows] = {}
    labels = _labels(program.steps, splits)
    for name, group in groupby(zip(labels, program.steps, strict=True), lambda pair: pair[0]):
        run = [step for _, step in group]
        if name is None or len(run) == 1:
            steps += run
            continue
        body = tuple(step for step in run if isinstance(step, KernelCall))
        rows_per_call = [splits[step.name].rows_per_call for step in body]
        kept = _rings(program, body, row_sequence(body, rows_per_call))
        tensors |= kept
        step = replace(in_series(name, body, rows_per_call), awaited=_awaited(run))
        counts = [set[int]() for _ in body]
        for call in step.calls:
            counts[call.operator].add(call.end - call.begin)
        stored |= {
            call.name: replace(_stored(call, rows, kept), call_rows=frozenset(found))
            for call, rows, found in zip(body, rows_per_call, counts, strict=True)
        }
        steps.append(step)
    keeping = with_rings([(call, stored[call.name]) for call in program.kernel_calls() if call.name in stored])
    folded = [
        replace(step, body=tuple(keeping[call.name] for call in step.body)) if isinstance(step, RowSteps) else step
        for step in steps
    ]
    return replace(program, steps=tuple(folded), tensors=tensors)


def _labels(steps: Sequence[Step], splits: Mapping[str, RowSplit]) -> list[str | None]:
    """Return the sequence of each step, None for none. A wait between two steps of a sequence belongs to it."""
    labels = [splits[step.name].sequence or None if step.name in splits else None for step in steps]
    for index, step in enumerate(steps):
        if isinstance(step, Wait) and index:
            following = next(
                (label for label, one in zip(labels[index:], steps[index:], strict=True) if not isinstance(one, Wait)),
                None,
            )
            labels[index] = following if following == labels[index - 1] else None
    return labels


def _awaited(run: Sequence[Step]) -> tuple[tuple[int, Wait], ...]:
    """Return the waits in a sequence, each with the number of kernels ahead of it."""
    return tuple(
        (sum(isinstance(other, KernelCall) for other in run[:index]), step)
        for index, step in enumerate(run)
        if isinstance(step, Wait)
    )


def in_series(name: str, body: Sequence[KernelCall], rows_per_call: Sequence[int]) -> RowSteps:
    """Return kernels as one step.

    Each kernel computes its number of rows per call, or more if no other kernel runs between two of its calls. The last
    kernel never computes more, because its rows may overlap an input. The application's function never hands over more,
    because more rows need more memory.
    """
    together = [index for index, call in enumerate(body[:-1]) if not call.implementation.callback]
    calls = merged(row_sequence(body, rows_per_call).calls, together)
    return RowSteps(name=name, body=tuple(body), schedule=with_loops(calls))


def row_sequence(body: Sequence[KernelCall], rows_per_call: Sequence[int]) -> RowSequence:
    """Return kernels that run in series as plain numbers."""
    producers = {call.outputs[0]: index for index, call in enumerate(body)}
    operators: list[RowOperator] = []
    for call, rows in zip(body, rows_per_call, strict=True):
        spatial = spatial_of(call)
        readers = [
            row_reader(call.implementation, position, producers.get(name)) for position, name in enumerate(call.inputs)
        ]
        operators.append(
            RowOperator(
                num_rows=spatial.output_rows, readers=tuple(readers), rows_per_call=rows,
                tile_rows=spatial.tile_rows,
            )
        )  # fmt: skip
    return RowSequence(in_step(operators))


def row_reader(implementation: Implementation, position: int, producer: int | None) -> RowReader:
    """Return the rows of one input that a spatial kernel reads."""
    spatial = implementation.spatial
    assert spatial is not None, "only spatial kernels have rows"
    access = spatial.inputs[position]
    in_place = position in implementation.in_place and access.input_rows == spatial.output_rows
    return RowReader(access=access, producer=producer, lag=access.lag if in_place else None)


def in_sequence(implementation: Implementation, input_rows: int = 0) -> Implementation:
    """Return a kernel as a sequence runs it: by rows of its output, or accumulating `input_rows` rows per call."""
    by_rows, accumulating = implementation.in_rows or implementation.keeping, implementation.accumulating
    if input_rows:
        assert accumulating is not None, "what adds up rows has a kernel for it"
        by_rows = partial(accumulating.implement, input_rows)
    if by_rows is None:
        return implementation
    # Implement the kernel for one row per call: some of its properties may hold for whole images only.
    one_row = StoredRows(at_once=1)
    return replace(by_rows(one_row), alternatives=implementation.alternatives, keeping=by_rows)


def spatial_of(call: KernelCall) -> Spatial:
    """Return the row accesses of a call's kernel."""
    spatial = call.implementation.spatial
    assert spatial is not None, "only spatial kernels stand in a sequence"
    return spatial


def can_follow(spatial: Spatial, position: int, producer: Spatial) -> bool:
    """Return True if an input has the same rows as its producer computes."""
    return spatial.inputs[position].input_rows == producer.output_rows


def _rings(program: Program, body: Sequence[KernelCall], sequence: RowSequence) -> dict[str, Tensor]:
    """Return the tensors that only need some of their rows stored, because nothing outside of the sequence reads them.

    A tensor shares the ring buffer of its input if that is possible without more rows.
    """
    inside = {call.name for call in body}
    outside = {name for other in program.steps if other.name not in inside for name in reads(other)}
    tensors = [program.tensors[call.outputs[0]] for call in body]
    apart = [
        tensor.name in outside or tensor.name in program.outputs or spatial_of(call).accumulates
        for tensor, call in zip(tensors, body, strict=True)
    ]
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
            part = host.part or Part(tensor=host.name, first=0)
            ring = Ring(rows=rows, stored=host.ring.stored, shift=shift)
            found[tensor.name] = replace(tensor, ring=ring, part=part)
        elif not apart[index] and stored[index] < rows:
            found[tensor.name] = replace(tensor, ring=Ring(rows=rows, stored=max(stored[index], 1)))
    return found


def _stored(call: KernelCall, rows_per_call: int, rings: Mapping[str, Tensor]) -> StoredRows:
    """Return the stored rows of a kernel's operands."""

    def kept(name: str) -> Kept | None:
        ring = rings[name].ring if name in rings else None
        return Kept(stored=ring.stored, shift=ring.shift) if ring else None

    return StoredRows(
        inputs=tuple(kept(name) for name in call.inputs), output=kept(call.outputs[0]), at_once=rows_per_call
    )


def needed_and_written(
    step: RowSteps, tensors: Mapping[str, Tensor], outputs: Sequence[str], dying: Iterable[str]
) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Return for each call of a sequence the bytes written and the bytes still needed after it.

    The first dictionary has, for each output, the bytes written so far. The second has, for each dying input, the first
    byte that is still read.
    """
    written, made = dict.fromkeys(outputs, 0), [0] * len(step.body)
    readers = {name: _readers(step, name) for name in dying}
    row_bytes = {name: tensors[name].num_bytes // found[0][1].input_rows for name, found in readers.items()}
    moments: list[tuple[dict[str, int], dict[str, int]]] = []
    for call in step.calls:
        needed = {
            name: min(access.needed_from[made[index]] for index, access in found) * row_bytes[name]
            for name, found in readers.items()
        }
        made[call.operator] = call.end
        name = step.body[call.operator].outputs[0]
        if name in written:
            written[name] = call.end * (tensors[name].num_bytes // spatial_of(step.body[call.operator]).output_rows)
        moments.append((dict(written), needed))
    return moments


def _readers(step: RowSteps, name: str) -> list[tuple[int, RowAccess]]:
    """Return the readers of a tensor in the body: the index of the call, and the rows it reads."""
    return [
        (index, access)
        for index, call in enumerate(step.body)
        for access, read in zip(spatial_of(call).inputs, call.inputs, strict=True)
        if read == name
    ]
