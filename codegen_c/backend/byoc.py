"""The interface to TVM: queries of the passes, and the name of the code generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from codegen_c.arena.bound import shared_bytes
from codegen_c.composites.lower_operator import Lower, Lowered, has_kernel, lower_operator
from codegen_c.composites.scalar_calls import ELEMENTWISE
from codegen_c.costs.predict import constants_read, input_read, modelled, scratch_accessed
from codegen_c.kernels.contract import Implementation, Refusal, StoredRows, Target
from codegen_c.kernels.movement.permute import CHANNELS_LAST
from codegen_c.kernels.shared.lanes import native_lanes
from codegen_c.operators.kinds import (
    Concat,
    Conv2d,
    Conv2dTranspose,
    Convert,
    Elementwise,
    HalfCast,
    Operator,
    Permute,
    Pool2d,
    QBinary,
    QConv2d,
    QConv2dTranspose,
    QLstm,
    QPool2d,
    QSvdfFeatures,
    QUnary,
    Stream,
    TensorType,
    Window,
)
from codegen_c.program.sequences import in_sequence, row_reader
from codegen_c.program.tensors import Tensor
from tvm_ext.core.alignment import aligned
from tvm_ext.core.row_access import ColumnOperator, ColumnReader
from tvm_ext.core.row_sequence import RowAccumulation, RowOperator
from tvm_ext.core.time_model import CallCost, Footprint

CODEGEN = "tvm_ext"
Estimate = Callable[[Lowered], Footprint]
MOST_ROWS = 1 << 14
"""Most rows of a tensor that is computed by rows. Each row has an entry in several lists."""


def footprint_of(lowered: Lowered) -> Footprint:
    """Return the cost and scratch of an operator, and the bytes that its output can share with each parameter.

    A parameter shares bytes only if it is read here for the last time.
    """
    if lowered.implementation is None:
        return Footprint(instructions=0)
    implementation, operator = lowered.implementation, lowered.operator
    output = _tensor("output", operator.output)
    shared = {
        argument: shared_bytes(implementation, output, [(position, _tensor("input", operator.inputs[position]))])
        for position, argument in enumerate(lowered.arguments)
        if lowered.arguments.count(argument) == 1
    }
    rows = _rows(lowered)
    return Footprint(
        instructions=modelled(implementation, operator.inputs, operator.outputs),
        rows=rows,
        accumulation=_accumulation(implementation),
        scratch_bytes=implementation.scratch_bytes,
        shared_bytes=shared,
        columns=_columns(lowered, COLUMNS) if rows else None,
        bands=_columns(lowered, ROWS),
        kernel=implementation.kernel,
        computes_floats=implementation.computes_floats,
        read_bytes=_read_bytes(lowered),
        weights_bytes=sum(aligned(array.nbytes) for _, array in implementation.constants),
        weights_read_bytes=constants_read(implementation),
        scratch_access_bytes=scratch_accessed(implementation),
        weight_bits=operator.weight_bits,
        writes_apart=implementation.pitched and implementation.keeping is not None,
    )


@dataclass(frozen=True, kw_only=True)
class CodegenBackend:
    """Queries of the passes for one target (`relay_passes.backend.Backend`).

    Each query lowers the composite, including the choice of its kernel, as `lower_region` does later.

    lower, estimate: `lower_operator` and `footprint_of`, or cached versions of them, because passes ask often about the
    same composites.
    """

    target: Target
    lower: Lower = lower_operator
    estimate: Estimate = footprint_of

    @property
    def elementwise(self) -> frozenset[str]:
        """Names of Relax operators that are computed element by element."""
        return ELEMENTWISE

    def refuses(self, composite: relax.Function) -> str | None:
        """Return the reason why a composite cannot become C, or None if it can."""
        lowered = self.lower(composite, self.target)
        return lowered.reason if isinstance(lowered, Refusal) else None

    def has_kernel(self, composite: relax.Function) -> bool:
        """Return True if a kernel computes a composite, not plain C that is generated from its PrimFuncs."""
        return has_kernel(composite, self.target)

    def footprint(self, composite: relax.Function) -> Footprint:
        """Return the cost and scratch of a composite, and the bytes that its output can share with each parameter."""
        lowered = self.lower(composite, self.target)
        return Footprint(instructions=0) if isinstance(lowered, Refusal) else self.estimate(lowered)

    def may_grow_weights(self, composite: relax.Function) -> bool:
        """Return False if the kernel of a composite is surely the same where its weights may not grow.

        Kernels of vectors of floats may fill the last vector with weights of no channel. The kernels of an LSTM and of
        an SVDF contain kernels that are chosen for their products.
        """
        lowered = self.lower(composite, self.target)
        if isinstance(lowered, Refusal) or lowered.implementation is None:
            return False
        has_parts = isinstance(lowered.operator, QLstm | QSvdfFeatures)
        return lowered.implementation.grows_weights or has_parts or native_lanes(self.target).count > 1

    def call_costs(
        self, composite: relax.Function, rows_per_call: Sequence[int], input_rows: int = 0
    ) -> list[CallCost]:
        """Return the scratch and added instructions of a composite for each number of rows per call.

        A call computes, or accumulates, this number of rows. Instructions are the kernels' own estimates.
        """
        lowered = self.lower(composite, self.target)
        assert not isinstance(lowered, Refusal) and lowered.implementation is not None, "it has rows"
        keeping = in_sequence(lowered.implementation, input_rows).keeping
        assert keeping is not None, "a selected kernel can be implemented again"
        kinds, found = (lowered.operator.inputs, lowered.operator.outputs), lowered.implementation
        whole = modelled(found, *kinds)
        by_rows = [keeping(StoredRows(at_once=rows)) for rows in rows_per_call]
        return [
            CallCost(scratch_bytes=i.scratch_bytes, added_instructions=max(0, modelled(i, *kinds) - whole))
            for i in by_rows
        ]


def _read_bytes(lowered: Lowered) -> dict[int, int]:
    """Return the bytes that one run reads of each parameter."""
    assert lowered.implementation is not None, "it computes something"
    read: dict[int, int] = {}
    for position, parameter in enumerate(lowered.arguments):
        kind = lowered.operator.inputs[position]
        size = kind.num_elements * np.dtype(kind.dtype).itemsize
        read[parameter] = read.get(parameter, 0) + input_read(lowered.implementation, position, size)
    return read


def _rows(lowered: Lowered) -> RowOperator | None:
    """Return how the rows of a composite's result depend on rows of its parameters; None if it cannot run by rows.

    The result must be one image of equal rows, or a tensor that the kernel itself cuts into rows. Each parameter must
    be read as one operand.
    """
    assert lowered.implementation is not None, "it computes something"
    operator, implementation = lowered.operator, in_sequence(lowered.implementation)
    spatial, is_batch = implementation.spatial, lowered.implementation.spatial and operator.output.shape[0] != 1
    if spatial is None or len(operator.outputs) != 1 or is_batch:
        return None
    if len(spatial.inputs) != len(operator.inputs) or len(set(lowered.arguments)) < len(lowered.arguments):
        return None
    pairs = [(operator.output, spatial.output_rows)]
    pairs += [(kind, access.input_rows) for kind, access in zip(operator.inputs, spatial.inputs, strict=True)]
    if any(not 1 <= rows <= MOST_ROWS or kind.num_elements % rows for kind, rows in pairs):
        return None
    readers = [row_reader(implementation, position, None) for position in range(len(spatial.inputs))]
    by_parameter = sorted(zip(lowered.arguments, readers, strict=True), key=lambda pair: pair[0])
    return RowOperator(
        num_rows=spatial.output_rows, readers=tuple(reader for _, reader in by_parameter),
        tile_rows=spatial.tile_rows,
    )  # fmt: skip


def _columns(lowered: Lowered, axis: int) -> ColumnOperator | None:
    """Return how columns of a composite's result depend on columns of its parameters; rows if axis is ROWS."""
    found = columns_of(lowered.operator, axis)
    if found is None or len(set(lowered.arguments)) < len(lowered.arguments):
        return None
    by_parameter = sorted(zip(lowered.arguments, found.readers, strict=True), key=lambda pair: pair[0])
    return ColumnOperator(
        num_columns=found.num_columns,
        readers=tuple(reader for _, reader in by_parameter),
        writes_apart=axis == COLUMNS and lowered.implementation is not None and lowered.implementation.row_pitched,
    )


def _accumulation(implementation: Implementation) -> RowAccumulation | None:
    """Return how a composite accumulates its result from groups of input rows, or None if its kernel cannot."""
    accumulating = implementation.accumulating
    if accumulating is None:
        return None
    found = accumulating.implement(accumulating.row_counts[0], StoredRows())
    return RowAccumulation(
        row_counts=accumulating.row_counts,
        sums_bytes=_tensor("sums", found.sums).num_bytes if found.sums else 0,
    )


def _tensor(name: str, kind: TensorType) -> Tensor:
    return Tensor(name=name, source=name, shape=kind.shape, dtype=kind.dtype, memory="")


ROWS, COLUMNS = 1, 2
"""Axes along which an image can be cut."""


def columns_of(operator: Operator, axis: int = COLUMNS) -> ColumnOperator | None:
    """Return the columns of an operator.

    Returns None if a tensor is not a single image, if whole rows are read, or if columns repeat. axis: COLUMNS, or ROWS
    for the same dependence of rows.
    """
    if isinstance(operator, Permute):
        by_rows = operator.axes == CHANNELS_LAST and not operator.first and _is_image(operator.output)
        return ColumnOperator(num_columns=operator.output.shape[axis], readers=(None,)) if by_rows else None
    if isinstance(operator, Stream):
        by_rows = operator.direction == "read" and axis == COLUMNS and _is_image(operator.output)
        return ColumnOperator(num_columns=operator.output.shape[axis], readers=(None,)) if by_rows else None
    windows = _windows(operator)
    if windows is None or not all(_is_image(kind) for kind in (*operator.inputs, operator.output)):
        return None
    columns = operator.output.shape[axis]
    readers = tuple(
        ColumnReader(
            input_columns=kind.shape[axis], stride=window.strides[axis - 1], left=window.padding[axis - 1],
            extent=(window.kernel[axis - 1] - 1) * window.dilation[axis - 1] + 1,
        )
        for kind, window in zip(operator.inputs, windows, strict=True)
    )  # fmt: skip
    repeats = any(
        window.is_pointwise and kind.shape[axis] != columns
        for kind, window in zip(operator.inputs, windows, strict=True)
    )
    return None if repeats else ColumnOperator(num_columns=columns, readers=readers)


def _is_image(kind: TensorType) -> bool:
    return len(kind.shape) == 4 and kind.shape[0] == 1


def _windows(operator: Operator) -> list[Window] | None:
    """Return the window that slides over each input; None for an operator without columns."""
    each = Window(kernel=(1, 1))
    match operator:
        case Conv2dTranspose() | QConv2dTranspose():
            return None
        case Conv2d() | QConv2d() | Pool2d() | QPool2d():
            return [operator.window, *[each] * (len(operator.inputs) - 1)]
        case Elementwise() | QBinary() | QUnary() | Convert() | HalfCast():
            return [each] * len(operator.inputs)
        case Concat() if operator.axis == 3:
            return [each] * len(operator.inputs)
        case _:
            return None
