"""Elements that programs select by number: single ones along an axis, and those of index tensors.

Negative numbers count from the end of an axis, which TVM's operators do not know. Of several index tensors PyTorch
reads the elements at their numbers together, where TVM's importer reads each combination of them.
Source: https://pytorch.org/docs/stable/generated/torch.Tensor.index_put_.html and NumPy's rules of advanced indexing,
https://numpy.org/doc/stable/user/basics.indexing.html#combining-advanced-and-basic-indexing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from relay_passes.dataflow import static_shape
from tvm_ext.frontends.pytorch.node_arguments import arguments_of
from tvm_ext.frontends.refusals import Refused

Converter = Callable[[Any, Any], relax.Expr]


def _select(node: Any, importer: Any) -> relax.Expr:
    """torch's node, TVM's importer -> the elements at one number of an axis, which is left out."""
    given = arguments_of(node)
    x, axis = importer.env[given["self"]], given["dim"]
    index = given["index"] % static_shape(x)[axis]
    return importer.block_builder.emit(relax.op.take(x, relax.const(index, "int64"), axis))


def _index(node: Any, importer: Any) -> relax.Expr:
    """torch's node, TVM's importer -> the elements at the numbers of index tensors, whole axes elsewhere."""
    given, emit = arguments_of(node), importer.block_builder.emit
    x, axes = importer.env[given["self"]], [axis for axis, index in enumerate(given["indices"]) if index is not None]
    shape = static_shape(x)
    indices = [_from_zero(importer, importer.env[given["indices"][axis]], shape[axis]) for axis in axes]
    if len(axes) == 1:
        return emit(relax.op.take(x, indices[0], axes[0]))
    others = [axis for axis in range(len(shape)) if axis not in axes]
    ahead = x if axes == list(range(len(axes))) else emit(relax.op.permute_dims(x, [*axes, *others]))
    picked = emit(relax.op.index_tensor(ahead, indices))
    is_together = axes == list(range(axes[0], axes[0] + len(axes)))
    if not is_together or axes[0] == 0:
        return picked
    # Axes that stand together keep their position: [indices, before, after] -> [before, indices, after].
    num_picked, num_before = len(static_shape(picked)) - len(others), axes[0]
    order = [*range(num_picked, num_picked + num_before), *range(num_picked)]
    return emit(relax.op.permute_dims(picked, [*order, *range(num_picked + num_before, num_picked + len(others))]))


def _from_zero(importer: Any, index: relax.Expr, extent: int) -> relax.Expr:
    """An index tensor without negative numbers."""
    dtype, emit = str(index.ty.dtype), importer.block_builder.emit
    if not dtype.startswith("int"):
        raise Refused(f"an index tensor of {dtype}, by which the number of elements depends on data; give integers")
    is_negative = emit(relax.op.less(index, relax.const(0, dtype)))
    return emit(relax.op.where(is_negative, emit(relax.op.add(index, relax.const(extent, dtype))), index))


CONVERTERS: dict[str, Converter] = {"select.int": _select, "index.Tensor": _index}
