"""Evaluate calls on constants in numpy, bit for bit like TVM's own code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import array_of, constant, op_name, operands, static_shape
from tvm_ext.core.decisions.composites import Symbol

Array = np.ndarray
Rule = Callable[[relax.Call, Sequence[Array]], "Array | None"]


def _ints(expr: relax.Tuple) -> list[int]:
    return [int(field.value) for field in expr.fields]


def _strided_slice(call: relax.Call, a: Sequence[Array]) -> Array:
    index = [slice(None)] * a[0].ndim
    axes, begins, ends = (_ints(arg) for arg in call.args[1:4])
    strides = _ints(call.args[4]) if len(call.args) > 4 else [1] * len(axes)
    for axis, begin, end, stride in zip(axes, begins, ends, strides, strict=True):
        index[axis] = slice(begin, end, stride)
    return a[0][tuple(index)]


def _take(call: relax.Call, a: Sequence[Array]) -> Array | None:
    axis, data, indices = call.attrs.axis, a[0], a[1]
    extent = data.size if axis is None else data.shape[int(axis)]
    if indices.size and (indices.min() < 0 or indices.max() >= extent):
        return None
    return np.take(data, indices, axis=None if axis is None else int(axis))


def _gather_elements(call: relax.Call, a: Sequence[Array]) -> Array | None:
    axis = int(call.attrs.axis)
    if a[1].size and (a[1].min() < 0 or a[1].max() >= a[0].shape[axis]):
        return None
    return np.take_along_axis(a[0], a[1].astype("int64"), axis)


def _pad(call: relax.Call, a: Sequence[Array]) -> Array | None:
    width = [int(w) for w in call.attrs.pad_width]
    if call.attrs.pad_mode != "constant" or min(width, default=0) < 0:
        return None
    return np.pad(a[0], list(zip(width[::2], width[1::2], strict=True)), constant_values=call.attrs.pad_value)


def _astype(call: relax.Call, a: Sequence[Array]) -> Array | None:
    target = np.dtype(str(call.ty.dtype))
    if a[0].dtype.kind == "f" and target.kind in "iu" and a[0].size:
        whole, limits = np.trunc(a[0].astype("float64")), np.iinfo(target)
        # The largest 64-bit integers have no exact float, so such casts are left to TVM.
        if not np.isfinite(whole).all() or whole.min() < limits.min or whole.max() >= float(limits.max) + 1:
            return None
    return a[0].astype(target)


def _arange(call: relax.Call, a: Sequence[Array]) -> Array | None:
    start, _, step = (arg.value for arg in call.args)
    if str(call.ty.dtype).startswith("float"):
        return None
    return start + step * np.arange(static_shape(call)[0], dtype="int64")


def _reshaped(call: relax.Call, a: Sequence[Array]) -> Array:
    return a[0].reshape(static_shape(call))


# Rules by the name of the operator without `relax.`.
MOVES: dict[str, Rule] = {
    **dict.fromkeys(("reshape", "expand_dims", "squeeze", "flatten", "nn.batch_flatten"), _reshaped),
    "permute_dims": lambda call, a: a[0].transpose(call.attrs.axes and [int(x) for x in call.attrs.axes]),
    "broadcast_to": lambda call, a: np.broadcast_to(a[0], static_shape(call)),
    "concat": lambda call, a: np.concatenate(a, 0 if call.attrs.axis is None else int(call.attrs.axis)),
    "stack": lambda call, a: np.stack(a, 0 if call.attrs.axis is None else int(call.attrs.axis)),
    "strided_slice": _strided_slice,
    "take": _take,
    "gather_elements": _gather_elements,
    "tile": lambda call, a: np.tile(a[0], [int(r) for r in call.attrs.repeats]),
    "repeat": lambda call, a: np.repeat(a[0], int(call.attrs.repeats), call.attrs.axis),
    "flip": lambda call, a: np.flip(a[0], int(call.attrs.axis)),
    "nn.pad": _pad,
    "full": lambda call, a: np.full(static_shape(call), a[0].item(), str(call.ty.dtype)),
    "full_like": lambda call, a: np.full(static_shape(call), a[1].item(), str(call.ty.dtype)),
    **dict.fromkeys(("zeros", "zeros_like"), lambda call, a: np.zeros(static_shape(call), str(call.ty.dtype))),
    **dict.fromkeys(("ones", "ones_like"), lambda call, a: np.ones(static_shape(call), str(call.ty.dtype))),
    "arange": _arange,
    "where": lambda call, a: np.where(a[0], a[1], a[2]),
    "astype": _astype,
}


# A model can request any size in a few bytes (ConstantOfShape). Larger weights are not computed here.
_MAX_BYTES = 1 << 28
_INTEGERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
_DTYPES = frozenset(["bool", "float16", "float32", "float64", *_INTEGERS])


def evaluate(call: relax.Expr) -> relax.Expr | None:
    """Return the constant (or static shape) that a call computes, or None where it is not known here.

    None also for results over 256 MiB, integer division by zero, and casts from float to integer out of range.
    """
    name = op_name(call)
    if name == "relax.shape_of":
        return call.args[0].ty.shape if _is_static(call.args[0].ty) else None
    if name == "relax.shape_to_tensor" and isinstance(call.args[0], relax.ShapeExpr):
        return constant(np.array([int(dim) for dim in call.args[0].values], "int64"))
    if name == "relax.tensor_to_shape":
        dims = array_of(call.args[0])
        return None if dims is None else relax.ShapeExpr([int(dim) for dim in dims])
    rule = _RULES.get(name or "")
    if rule is None or not _is_static(call.ty):
        return None
    operands = _tensor_operands(call)
    shape, dtype = static_shape(call), str(call.ty.dtype)
    if operands is None or dtype not in _DTYPES or any(str(a.dtype) not in _DTYPES for a in operands):
        return None
    if int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize > _MAX_BYTES:
        return None
    with np.errstate(all="ignore"):
        result = rule(call, operands)
    if result is None or result.shape != shape:
        return None
    return constant(result.astype(dtype, copy=False))


def evaluate_by_tvm(call: relax.Call) -> relax.Expr | None:
    """Compile and run a single call on constants, which takes 30 ms and gives exactly the bits of the compiled model.

    Return None where an operand is not constant or the result is not one tensor.
    """
    tensors = [leaf for leaf in operands(call) if isinstance(leaf.ty, relax.TensorType)]
    is_known = all(array_of(leaf) is not None for leaf in tensors) if tensors else _is_short_range(call)
    if op_name(call) is None or not is_known:
        return None
    if not isinstance(call.ty, relax.TensorType):
        return None
    var = relax.Var("value", call.ty)
    block = relax.DataflowBlock([relax.VarBinding(var, call)])
    func = relax.BlockBuilder().normalize(relax.Function([], relax.SeqExpr([block], var), call.ty))
    passes = tvm.transform.Sequential([relax.transform.LegalizeOps(), relax.transform.FoldConstant()])
    with tvm.target.Target("llvm"):
        mod = passes(tvm.IRModule({"main": Symbol(name="main").write(func)}))
    result = relax.transform.CanonicalizeBindings()(mod)["main"].body
    result = result.body if isinstance(result, relax.SeqExpr) else result
    return result if array_of(result) is not None else None


def _is_short_range(call: relax.Call) -> bool:
    """Return True for a range of floats, of which windows and positions are computed."""
    if op_name(call) != "relax.arange" or not _is_static(call.ty):
        return False
    return static_shape(call)[0] * np.dtype(str(call.ty.dtype)).itemsize <= _MAX_BYTES


def _is_static(ty: relax.Type) -> bool:
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return False
    return all(isinstance(dim, tvm.tirx.IntImm) for dim in ty.shape.values)


def _tensor_operands(call: relax.Call) -> list[Array] | None:
    """Return the arrays of the tensor operands, including fields of tuples, or None when one is not constant."""
    fields = [f for arg in call.args for f in (arg.fields if isinstance(arg, relax.Tuple) else [arg])]
    tensors = [field for field in fields if isinstance(field.ty, relax.TensorType)]
    arrays = [array_of(tensor) for tensor in tensors]
    return None if any(array is None for array in arrays) else arrays


def _axes(call: relax.Call) -> tuple[int, ...] | None:
    axis = call.attrs.axis
    if axis is None:
        return None
    return (int(axis),) if isinstance(axis, int) else tuple(int(a) for a in axis)


def _divide(call: relax.Call, a: Sequence[Array]) -> Array | None:
    if a[0].dtype.kind == "f":
        return a[0] / a[1]
    if not a[1].all():
        return None
    # C's division rounds toward zero.
    quotient = a[0] // a[1]
    return (quotient + ((quotient < 0) & (quotient * a[1] != a[0]))).astype(a[0].dtype)


def _floored(function: Callable[[Array, Array], Array]) -> Rule:
    """Apply floor division or modulo to integers. TVM computes floats."""
    return lambda call, a: function(a[0], a[1]) if a[0].dtype.kind in "iu" and a[1].all() else None


def _clip(call: relax.Call, a: Sequence[Array]) -> Array | None:
    if np.isnan(a[0]).any():
        return None
    low, high = (np.asarray(bound.value, "float64") for bound in call.args[1:3])
    if a[0].dtype.kind in "iu":
        limits = np.iinfo(a[0].dtype)
        low, high = np.maximum(np.ceil(low), limits.min), np.minimum(np.floor(high), limits.max)
        return np.minimum(np.maximum(a[0], int(low)), int(high)).astype(a[0].dtype)
    low, high = low.astype(a[0].dtype), high.astype(a[0].dtype)
    # The comparison and selection follow TVM's order, so that a zero at a bound gets TVM's sign.
    capped = np.where(a[0] < high, a[0], high)
    return np.where(capped > low, capped, low)


def _choose(better: Callable[[Array, Array], Array]) -> Rule:
    """Compute maximum or minimum as a comparison and a selection. Operands with NaN are left to TVM."""

    def rule(call: relax.Call, a: Sequence[Array]) -> Array | None:
        unordered = any(np.isnan(x).any() for x in a if x.dtype.kind == "f")
        return None if unordered else np.where(better(a[0], a[1]), a[0], a[1])

    return rule


def _reduced(array: Array, axes: tuple[int, ...] | None) -> Array:
    """Merge the axes to reduce into the last axis, in order, because TVM visits them row by row."""
    chosen = sorted(range(array.ndim) if axes is None else {axis % array.ndim for axis in axes})
    kept = [axis for axis in range(array.ndim) if axis not in chosen]
    count = int(np.prod([array.shape[axis] for axis in chosen], dtype=np.int64))
    return array.transpose(kept + chosen).reshape([array.shape[axis] for axis in kept] + [count])


def _sequential(accumulate: np.ufunc, start: int) -> Rule:
    def rule(call: relax.Call, a: Sequence[Array]) -> Array | None:
        rows = _reduced(a[0], _axes(call))
        first = np.full((*rows.shape[:-1], 1), start, rows.dtype)
        running = accumulate.accumulate(np.concatenate([first, rows], -1), axis=-1, dtype=rows.dtype)
        return running[..., -1].reshape(static_shape(call))

    return rule


def _mean(call: relax.Call, a: Sequence[Array]) -> Array | None:
    total = _sequential(np.add, 0)(call, a)
    count = a[0].size // max(total.size, 1)
    return (total / np.asarray(count, total.dtype)).astype(total.dtype) if total.dtype.kind == "f" and count else None


def _extreme(function: Callable[..., Array]) -> Rule:
    def rule(call: relax.Call, a: Sequence[Array]) -> Array | None:
        rows = _reduced(a[0], _axes(call))
        if not rows.shape[-1] or np.isnan(rows).any():
            return None
        return function(rows, axis=-1).reshape(static_shape(call))

    return rule


def _unary(function: Callable[[Array], Array]) -> Rule:
    return lambda call, a: function(a[0])


def _binary(function: Callable[[Array, Array], Array]) -> Rule:
    return lambda call, a: function(a[0], a[1])


_ARITHMETIC: dict[str, Rule] = {
    **{name: _unary(getattr(np, name)) for name in ("negative", "abs", "sqrt", "square", "logical_not", "bitwise_not")},
    **{name: _unary(getattr(np, name)) for name in ("floor", "ceil", "trunc", "isnan", "isinf", "isfinite")},
    "round": _unary(np.rint),
    **{name: _binary(getattr(np, name)) for name in ("add", "subtract", "multiply")},
    "divide": _divide,
    "floor_divide": _floored(np.floor_divide),
    "floor_mod": _floored(np.mod),
    "mod": _floored(np.fmod),
    "maximum": _choose(np.greater),
    "minimum": _choose(np.less),
    "clip": _clip,
    **{name: _binary(getattr(np, name)) for name in ("equal", "not_equal", "less", "less_equal", "greater")},
    "greater_equal": _binary(np.greater_equal),
    **{f"logical_{name}": _binary(getattr(np, f"logical_{name}")) for name in ("and", "or", "xor")},
    **{f"bitwise_{name}": _binary(getattr(np, f"bitwise_{name}")) for name in ("and", "or", "xor")},
}
_REDUCTIONS: dict[str, Rule] = {
    "sum": _sequential(np.add, 0),
    "prod": _sequential(np.multiply, 1),
    "mean": _mean,
    "min": _extreme(np.min),
    "max": _extreme(np.max),
    "argmin": _extreme(np.argmin),
    "argmax": _extreme(np.argmax),
}
_RULES = {f"relax.{name}": rule for name, rule in (MOVES | _ARITHMETIC | _REDUCTIONS).items()}
