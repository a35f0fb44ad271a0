"""Composites of column strips: composites that compute some columns of a result, cut columns out, or join them.

Each function takes the axis of the columns. With the axis of rows, the same functions work on rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tvm import relax

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.composites import attributes
from relay_passes.dataflow import (
    bindings,
    build,
    infer,
    op_name,
    operands,
    outputs,
    static_shape,
    substitute,
    with_span,
)  # fmt: skip
from relay_passes.layout.channels_last import WINDOWS
from relay_passes.solvers.split.patches import columns_read, strips_of
from tvm_ext.core.decisions.composites import StorageLayout
from tvm_ext.core.row_access import ColumnOperator, Columns

ROW_AXIS, COLUMN_AXIS = 1, 2
"""Axes of an NHWC image."""


def columns_of(operators: OperatorGraph) -> list[ColumnOperator | None]:
    """Return how the columns of each operator depend on its operands.

    None for an operator that cannot compute some columns alone.
    """
    views = {binding.var for step in operators.steps for binding in step[1:]}
    found: list[ColumnOperator | None] = []
    for step, composite, columns in zip(operators.steps, operators.composites, operators.columns, strict=True):
        reads = {leaf for leaf in operands(step[0].value) if isinstance(leaf, relax.Var)}
        if columns is None or composite is None or len(step) > 1 or reads & views:
            found.append(None)
            continue
        halves = strips_of(columns.num_columns, 2)  # border strips have padding on different sides
        found.append(columns if all(computing_strip(composite, columns, half) for half in halves) else None)
    return found


def computing_strip(
    composite: relax.Function, operator: ColumnOperator, made: Columns, axis: int = COLUMN_AXIS
) -> relax.Function | None:
    """Return the composite for some columns of its result, reading only the columns it needs, or None."""
    reads = [columns_read(operator, position, made) for position in range(len(operator.readers))]
    return computing(composite, operator, made, reads, axis)


def computing(
    composite: relax.Function,
    operator: ColumnOperator,
    made: Columns,
    reads: Sequence[Columns | None],
    axis: int = COLUMN_AXIS,
) -> relax.Function | None:
    """Return the composite for some columns of its result, or None where a part of it needs all columns.

    reads: for each parameter, the columns that are passed; None for all columns.
    """
    params = [
        param if columns is None else relax.Var(param.name, _of_columns(param, columns, axis))
        for param, columns in zip(composite.params, reads, strict=True)
    ]
    new: dict[relax.Var, relax.Expr] = dict(zip(composite.params, params, strict=True))
    sequence: list[relax.VarBinding] = []
    for binding in bindings(composite):
        try:
            value = substitute(binding.value, new)
        except ValueError:  # TVM rejects operands of different shapes: a constant has all the columns
            return None
        if op_name(value) in WINDOWS:
            position = _position(composite, binding)
            reader = operator.readers[position] if position is not None else None
            value = _padded(value, reader.padding(made), axis) if reader else None
            if value is None:
                return None
        new[binding.var] = var = relax.Var(binding.var.name, value.ty, binding.var.span)
        sequence.append(relax.VarBinding(var, value))
    results = [new[result] for result in outputs(composite)]
    if not any(operator.readers):  # the composite computes all columns, and these are sliced
        value = _some(results[0], made, axis)
        results = [relax.Var("columns", value.ty)]
        sequence.append(relax.VarBinding(results[0], value))
    shape = static_shape(results[0])
    if len(shape) <= axis or shape[axis] != made[1] - made[0]:  # a mean may drop the axis
        return None
    return build(params, sequence, results, attrs=composite.attrs)


def cutting(source: relax.Var, columns: Columns, layout: StorageLayout, axis: int = COLUMN_AXIS) -> relax.Function:
    """Return a composite that copies some columns of an image."""
    param = relax.Var(source.name, source.ty)
    value = _some(param, columns, axis)
    result = relax.Var("columns", value.ty)
    attrs = attributes("strided_slice", [], layout)
    return build([param], [relax.VarBinding(result, value)], [result], attrs=attrs)


def joining(
    strips: Sequence[relax.Var], source_nodes: Sequence[str], layout: StorageLayout, axis: int = COLUMN_AXIS
) -> relax.Function:
    """Return a composite that concatenates strips. source_nodes: as in `attributes`."""
    params = [relax.Var(strip.name, strip.ty) for strip in strips]
    value = infer(relax.op.concat(params, axis=axis))
    result = relax.Var("joined", value.ty)
    attrs = attributes("concat", source_nodes, layout)
    return build(params, [relax.VarBinding(result, value)], [result], attrs=attrs)


def _some(image: relax.Expr, columns: Columns, axis: int) -> relax.Call:
    return infer(relax.op.strided_slice(image, [axis], [columns[0]], [columns[1]]))


def _of_columns(image: relax.Var, columns: Columns, axis: int) -> relax.TensorType:
    shape = list(static_shape(image))
    shape[axis] = columns[1] - columns[0]
    return relax.TensorType(shape, image.ty.dtype)


def _position(composite: relax.Function, window: relax.VarBinding) -> int | None:
    """Return the number of the parameter over which a window slides, through element-wise operators only, or None."""
    values = {binding.var: binding.value for binding in bindings(composite)}
    source = window.value.args[0]
    while source in values:
        source = values[source].args[0]
    return list(composite.params).index(source) if source in composite.params else None


def _padded(call: relax.Call, sides: tuple[int, int], axis: int) -> relax.Call | None:
    """Return a window with other padding at both ends of an axis, or None where an average would count more padding."""
    attrs = call.attrs
    padding = [int(width) for width in attrs.padding]  # order: top, left, bottom, right
    before, behind = axis - 1, axis + 1
    if op_name(call) == "relax.nn.conv2d":
        make = partial(
            relax.op.nn.conv2d, weight=call.args[1], groups=attrs.groups, data_layout=attrs.data_layout,
            kernel_layout=attrs.kernel_layout, out_dtype=attrs.out_dtype or None,
        )  # fmt: skip
    else:
        if attrs.count_include_pad and (sides[0] > padding[before] or sides[1] > padding[behind]):
            return None
        pool = relax.op.nn.max_pool2d if op_name(call) == "relax.nn.max_pool2d" else relax.op.nn.avg_pool2d
        make = partial(
            pool, pool_size=attrs.pool_size, ceil_mode=attrs.ceil_mode, count_include_pad=attrs.count_include_pad,
            layout=attrs.layout,
        )  # fmt: skip
    padding[before], padding[behind] = sides
    made = make(
        call.args[0], strides=attrs.strides, padding=padding, dilation=attrs.dilation, out_layout=attrs.out_layout
    )
    return with_span(infer(made), call.span)
