"""Converters of ATen operators that TVM's importer lacks or converts wrongly."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from relay_passes.dataflow import constant, static_shape
from tvm_ext.frontends.refusals import Refused

Converter = Callable[[Any, Any], relax.Expr]


def _elu(node: Any, importer: Any) -> relax.Expr:
    """Convert torch's node to scale * relu(x) - scale * alpha * relu(1 - exp(input_scale * x)).

    TVM's own converter computes the same sum without the two scales. `alpha` may be negative, `input_scale` may not.
    """
    given, emit = arguments_of(node), importer.block_builder.emit
    x = importer.env[given["self"]]
    dtype = str(x.ty.dtype)
    alpha, scale, input_scale = (float(given.get(name, 1)) for name in ("alpha", "scale", "input_scale"))
    if input_scale <= 0:
        raise Refused(f"elu whose input_scale is {input_scale:g}")

    def times(factor: float, value: relax.Expr) -> relax.Expr:
        return value if factor == 1 else emit(relax.op.multiply(constant(np.array(factor, dtype)), value))

    power = emit(relax.op.exp(times(input_scale, x)))
    below = emit(relax.op.nn.relu(emit(relax.op.subtract(constant(np.array(1, dtype)), power))))
    falling = emit(relax.op.multiply(constant(np.array(-alpha * scale, dtype)), below))
    return emit(relax.op.add(falling, times(scale, emit(relax.op.nn.relu(x)))))


def _group_norm(node: Any, importer: Any) -> relax.Expr:
    """Convert a group normalization. Missing weights count as 1, and missing biases as 0."""
    given = arguments_of(node)
    x = importer.env[given["input"]]
    shape, dtype = static_shape(x), str(x.ty.dtype)

    def factors(name: str, otherwise: float) -> relax.Expr:
        array = np.full(shape[1], otherwise, dtype)
        return constant(array) if given.get(name) is None else importer.env[given[name]]

    return importer.block_builder.emit(
        relax.op.nn.group_norm(
            x, factors("weight", 1), factors("bias", 0), num_groups=given.get("group", given.get("num_groups")),
            channel_axis=1, axes=list(range(2, len(shape))), epsilon=given.get("eps", 1e-5),
        )
    )  # fmt: skip


def _select(node: Any, importer: Any) -> relax.Expr:
    """Convert a selection of the elements at an index of an axis, which the result lacks."""
    given = arguments_of(node)
    x, axis = importer.env[given["self"]], given["dim"]
    index = given["index"] % static_shape(x)[axis]
    return importer.block_builder.emit(relax.op.take(x, relax.const(index, "int64"), axis))


def _index(node: Any, importer: Any) -> relax.Expr:
    """Convert a selection of the elements at the numbers of index tensors, with whole axes elsewhere."""
    given, emit = arguments_of(node), importer.block_builder.emit
    x, axes = importer.env[given["self"]], [axis for axis, index in enumerate(given["indices"]) if index is not None]
    shape = static_shape(x)
    indices = [from_zero(importer, importer.env[given["indices"][axis]], shape[axis]) for axis in axes]
    if len(axes) == 1:
        return emit(relax.op.take(x, indices[0], axes[0]))
    others = [axis for axis in range(len(shape)) if axis not in axes]
    ahead = x if axes == list(range(len(axes))) else emit(relax.op.permute_dims(x, [*axes, *others]))
    picked = emit(relax.op.index_tensor(ahead, indices))
    is_together = axes == list(range(axes[0], axes[0] + len(axes)))
    if not is_together or axes[0] == 0:
        return picked
    # Adjacent indexed axes keep their position: [indices, before, after] -> [before, indices, after].
    num_picked, num_before = len(static_shape(picked)) - len(others), axes[0]
    order = [*range(num_picked, num_picked + num_before), *range(num_picked)]
    return emit(relax.op.permute_dims(picked, [*order, *range(num_picked + num_before, num_picked + len(others))]))


def from_zero(importer: Any, index: relax.Expr, extent: int) -> relax.Expr:
    """Return an index tensor without negative numbers."""
    dtype, emit = str(index.ty.dtype), importer.block_builder.emit
    if not dtype.startswith("int"):
        raise Refused(f"an index tensor of {dtype}, by which the number of elements depends on data; give integers")
    is_negative = emit(relax.op.less(index, relax.const(0, dtype)))
    return emit(relax.op.where(is_negative, emit(relax.op.add(index, relax.const(extent, dtype))), index))


def _arithmetic(
    make: Callable[..., relax.Expr], plain: Callable[..., Any], logic: Callable[..., relax.Expr]
) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """Convert arithmetic, by logic where both operands are bools."""
        operands = [importer.env.get(arg) if hasattr(arg, "op") else None for arg in node.args[:2]]
        if all(value is not None and str(value.ty.dtype) == "bool" for value in operands):
            return importer.block_builder.emit(logic(*operands))
        return importer._binary_op(make, plain)(node)

    return convert


def _comparison(make: Callable[..., relax.Expr], plain: Callable[..., Any], *, of_nan: bool) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """Convert the comparison of a tensor with itself, which is True where it is NaN, or where it is not."""
        left, right = node.args[:2]
        if left is not right or not str(importer.env[left].ty.dtype).startswith("float"):
            return importer._binary_op(make, plain)(node)
        is_nan = importer.block_builder.emit(relax.op.isnan(importer.env[left]))
        return is_nan if of_nan else importer.block_builder.emit(relax.op.logical_not(is_nan))

    return convert


def _scaled(make: Callable[..., relax.Expr], plain: Callable[..., Any], *, is_reversed: bool = False) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """Convert a sum or difference of an operand and alpha times the other."""
        given, emit = arguments_of(node), importer.block_builder.emit
        alpha, first, second = given.get("alpha", 1), given["self"], given["other"]
        if alpha == 1 and not is_reversed:
            return importer._binary_op(make, plain)(node)
        if is_reversed:
            first, second = second, first
        types = {str(importer.env[operand].ty.dtype) for operand in (first, second) if hasattr(operand, "op")}
        dtype, numbers = min(types), [value for value in (alpha, first, second) if not hasattr(value, "op")]
        if len(types) > 1 or (not dtype.startswith("float") and any(isinstance(value, float) for value in numbers)):
            raise Refused(f"{node.target.__name__} of {', '.join(sorted(types))} and {numbers}; give all one type")
        x, y = (
            importer.env[operand] if hasattr(operand, "op") else relax.const(operand, dtype)
            for operand in (first, second)
        )
        return emit(make(x, y if alpha == 1 else emit(relax.op.multiply(y, relax.const(alpha, dtype)))))

    return convert


def _rounded_quotient(node: Any, importer: Any) -> relax.Expr:
    """Convert a quotient that is rounded toward zero or down, in the common type of both operands."""
    given, emit = arguments_of(node), importer.block_builder.emit
    x, divisor, mode = importer.env[given["self"]], given["other"], given.get("rounding_mode")
    if isinstance(divisor, float) and not str(x.ty.dtype).startswith("float"):
        x = emit(relax.op.astype(x, "float32"))
    y = relax.const(divisor, x.ty.dtype) if isinstance(divisor, int | float) else importer.env[divisor]
    if mode not in ("floor", "trunc") or str(x.ty.dtype) != str(y.ty.dtype):
        raise Refused(f"division of {x.ty.dtype} by {y.ty.dtype}, rounding_mode {mode}; divide equal types")
    if mode == "floor":
        return emit(relax.op.floor_divide(x, y))
    quotient = emit(relax.op.divide(x, y))
    return emit(relax.op.trunc(quotient)) if str(x.ty.dtype).startswith("float") else quotient


def _least_along(node: Any, importer: Any) -> relax.Expr:
    """Convert the least elements along an axis, and the index of each."""
    given, emit = arguments_of(node), importer.block_builder.emit
    x, axis, keeps = importer.env[given["self"]], given["dim"], bool(given.get("keepdim", False))
    return emit(relax.Tuple([emit(relax.op.min(x, axis, keeps)), emit(relax.op.argmin(x, axis, keeps))]))


def _product_along(node: Any, importer: Any) -> relax.Expr:
    given, emit = arguments_of(node), importer.block_builder.emit
    x = importer.env[given["self"]]
    if not str(x.ty.dtype).startswith("float") and str(x.ty.dtype) != "int64":
        x = emit(relax.op.astype(x, "int64"))
    return emit(relax.op.prod(x, [given["dim"]], bool(given.get("keepdim", False))))


def _hypotenuse(node: Any, importer: Any) -> relax.Expr:
    """Convert the root of a sum of squares, which do not overflow: the larger side is taken out of the root."""
    given, emit = arguments_of(node), importer.block_builder.emit
    sides = [emit(relax.op.abs(importer.env[given[name]])) for name in ("self", "other")]
    dtype = str(sides[0].ty.dtype)
    one, larger, smaller = relax.const(1, dtype), emit(relax.op.maximum(*sides)), emit(relax.op.minimum(*sides))
    divisor = emit(relax.op.where(emit(relax.op.equal(larger, relax.const(0, dtype))), one, larger))
    ratio = emit(relax.op.divide(smaller, divisor))
    return emit(
        relax.op.multiply(larger, emit(relax.op.sqrt(emit(relax.op.add(one, emit(relax.op.multiply(ratio, ratio)))))))
    )


def _power_of_two(node: Any, importer: Any) -> relax.Expr:
    x = importer.env[arguments_of(node)["self"]]
    if not str(x.ty.dtype).startswith("float"):
        raise Refused(f"exp2 of {x.ty.dtype}; give real numbers")
    return importer.block_builder.emit(relax.op.power(relax.const(2, x.ty.dtype), x))


def _variance_and_mean(node: Any, importer: Any) -> relax.Expr:
    given, emit = arguments_of(node), importer.block_builder.emit
    x, keeps, correction = importer.env[given["self"]], bool(given.get("keepdim", False)), given.get("correction")
    shape = static_shape(x)
    axes = sorted({axis % len(shape) for axis in given.get("dim") or range(len(shape))})
    count = math.prod(shape[axis] for axis in axes)
    freedom = count - (1 if correction is None else correction)
    if freedom <= 0:
        raise Refused(f"the variance of {count} elements with a correction of {count - freedom} is not a number")
    variance = emit(relax.op.variance(x, axes, keeps))
    scaled = emit(relax.op.multiply(variance, relax.const(count / freedom, x.ty.dtype)))
    return emit(relax.Tuple([scaled, emit(relax.op.mean(x, axes, keeps))]))


def _any_of_all(node: Any, importer: Any) -> relax.Expr:
    """Convert whether any element of a tensor is not 0."""
    x, emit = importer.env[arguments_of(node)["self"]], importer.block_builder.emit
    is_set = x if str(x.ty.dtype) == "bool" else emit(relax.op.not_equal(x, relax.const(0, x.ty.dtype)))
    return emit(relax.op.astype(emit(relax.op.max(emit(relax.op.astype(is_set, "int8")))), "bool"))


def in_type(emit: Callable[[relax.Expr], relax.Expr], x: relax.Expr, dtype: str) -> relax.Expr:
    """Return x in an element type."""
    return x if _dtype(x) == dtype else emit(relax.op.astype(x, dtype))


def _in_result_type(node: Any, importer: Any, *names: str) -> list[relax.Expr]:
    """Return the named operands, tensors or numbers, in the element type of the node's result."""
    given, dtype = arguments_of(node), _torch_name(node.meta["val"].dtype)
    return [
        in_type(importer.block_builder.emit, importer.env[given[name]], dtype)
        if hasattr(given[name], "op")
        else relax.const(given[name], dtype)
        for name in names
    ]


def _quotient(node: Any, importer: Any) -> relax.Expr:
    """Convert a quotient. Integers are divided as real numbers."""
    divisor, dtype = arguments_of(node)["other"], _torch_name(node.meta["val"].dtype)
    if not hasattr(divisor, "op") and divisor == 0:  # TVM refuses to divide by a number that it knows to be 0
        (x,) = _in_result_type(node, importer, "self")
        return importer.block_builder.emit(relax.op.multiply(x, relax.const(math.inf, dtype)))
    return importer.block_builder.emit(relax.op.divide(*_in_result_type(node, importer, "self", "other")))


def _chosen(node: Any, importer: Any) -> relax.Expr:
    """Convert a choice between two tensors or numbers, which get a common type."""
    condition = importer.env[arguments_of(node)["condition"]]
    return importer.block_builder.emit(relax.op.where(condition, *_in_result_type(node, importer, "self", "other")))


def _running(make: Callable[..., relax.Expr]) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """Convert sums or products of all elements up to each position. Those of integers have 64 bits."""
        (x,) = _in_result_type(node, importer, "self")
        return importer.block_builder.emit(make(x, arguments_of(node)["dim"]))

    return convert


def _bounded(node: Any, importer: Any) -> relax.Expr:
    """Convert a limitation to bounds, of which integers may lack one."""
    given, emit = arguments_of(node), importer.block_builder.emit
    (x,), dtype = _in_result_type(node, importer, "self"), _torch_name(node.meta["val"].dtype)
    least, most = given.get("min"), given.get("max")
    if dtype.startswith("float") or None not in (least, most):
        return emit(relax.op.clip(x, -math.inf if least is None else least, math.inf if most is None else most))
    if least is not None:
        return emit(relax.op.maximum(x, relax.const(least, dtype)))
    return emit(relax.op.minimum(x, relax.const(most, dtype)))


def _larger_number(make: Callable[..., relax.Expr]) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """Convert the larger or smaller of two numbers, or the only number where the other is NaN."""
        emit = importer.block_builder.emit
        x, y = _in_result_type(node, importer, "self", "other")
        found = emit(make(x, y))
        if not _dtype(x).startswith("float"):
            return found
        otherwise = emit(relax.op.where(emit(relax.op.isnan(y)), x, found))
        return emit(relax.op.where(emit(relax.op.isnan(x)), y, otherwise))

    return convert


def _joined(node: Any, importer: Any) -> relax.Expr:
    """Convert a concatenation. Tensors of shape [0] count for nothing, whatever the rank of the others."""
    given, emit = arguments_of(node), importer.block_builder.emit
    tensors, dtype = given["tensors"], _torch_name(node.meta["val"].dtype)
    kept = [importer.env[tensor] for tensor in tensors if tuple(tensor.meta["val"].shape) != (0,)]
    if not kept:
        raise Refused("a concatenation of empty tensors, which leaves nothing to compute")
    parts = [in_type(emit, part, dtype) for part in kept]
    return emit(relax.op.concat(parts, given.get("dim", 0))) if len(parts) > 1 else parts[0]


def _is_below_zero(emit: Callable[[relax.Expr], relax.Expr], x: relax.Expr) -> relax.Expr:
    """Return True where a number is negative, or is -0.0, whose reciprocal is below 0."""
    zero = relax.const(0, x.ty.dtype)
    is_below = emit(relax.op.less(x, zero))
    if not _dtype(x).startswith("float"):
        return is_below
    reciprocal = emit(relax.op.divide(relax.const(1, x.ty.dtype), x))
    return emit(relax.op.logical_or(is_below, emit(relax.op.less(reciprocal, zero))))


def _sign_bit(node: Any, importer: Any) -> relax.Expr:
    return _is_below_zero(importer.block_builder.emit, importer.env[arguments_of(node)["self"]])


def _with_sign(node: Any, importer: Any) -> relax.Expr:
    """Convert magnitudes with the signs of other numbers."""
    emit, (x, sign) = importer.block_builder.emit, _in_result_type(node, importer, "self", "other")
    magnitude = emit(relax.op.abs(x))
    return emit(relax.op.where(_is_below_zero(emit, sign), emit(relax.op.negative(magnitude)), magnitude))


def _times_power_of_two(node: Any, importer: Any) -> relax.Expr:
    emit, (x, exponent) = importer.block_builder.emit, _in_result_type(node, importer, "self", "other")
    return emit(relax.op.multiply(x, emit(relax.op.power(relax.const(2, x.ty.dtype), exponent))))


def _shifted(make: Callable[..., relax.Expr]) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """Convert a shift of integers."""
        return importer.block_builder.emit(make(*_in_result_type(node, importer, "self", "other")))

    return convert


def _sum_of_triple_products(node: Any, importer: Any) -> relax.Expr:
    """Convert the product of three tensors, summed over some axes: torch's form of a bilinear layer."""
    given, emit = arguments_of(node), importer.block_builder.emit
    factors = []
    for number in (1, 2, 3):
        factor = importer.env[given[f"i{number}"]]
        for axis in sorted(given[f"expand{number}"]):
            factor = emit(relax.op.expand_dims(factor, axis))
        factors.append(factor)
    product = emit(relax.op.multiply(emit(relax.op.multiply(factors[0], factors[2])), factors[1]))
    return emit(relax.op.sum(product, sorted(given["sumdim"])))


def _vector_norm(node: Any, importer: Any) -> relax.Expr:
    """Convert the norm along axes. Of order 0 it is the number of elements that are not 0."""
    given, emit = arguments_of(node), importer.block_builder.emit
    if given.get("ord", 2) != 0:
        return importer.create_convert_map()[node.target.__name__](node)
    (x,) = _in_result_type(node, importer, "self")
    is_set = emit(relax.op.not_equal(x, relax.const(0, x.ty.dtype)))
    counted = emit(relax.op.astype(is_set, x.ty.dtype))
    return emit(relax.op.sum(counted, given.get("dim"), bool(given.get("keepdim", False))))


def _unchecked(node: Any, importer: Any) -> relax.Expr:
    """Leave out a check of data, which C has no error for."""
    return importer.env[node.args[0]]


_QUANTIZED = ("int8", "uint8", "int16", "uint16")
_DEQUANTIZED = (*_QUANTIZED, "int32")


def register_operators() -> None:
    """Make torch register the operators, which it does when it imports a module of its own."""
    import torch.ao.quantization.fx._decomposed  # pyright: ignore[reportMissingImports] # noqa: F401


def _quantize(node: Any, importer: Any) -> relax.Expr:
    """Convert `quantize_per_tensor` and `quantize_per_channel` to integers."""
    x, scale, zero_point, axis, (least, most), dtype = _arguments(node, importer)
    if dtype not in _QUANTIZED or _dtype(x) != "float32":
        raise Refused(f"it quantizes {_dtype(x)} to {dtype}, not float32 to {', '.join(_QUANTIZED)}")
    emit = importer.block_builder.emit
    integers = emit(relax.op.quantize(x, scale, zero_point, axis, dtype))
    limits = np.iinfo(dtype)
    if least > most:
        raise Refused(f"its bounds {least} and {most} leave no integer")
    if least <= limits.min and most >= limits.max:
        return integers
    return emit(relax.op.clip(integers, max(least, int(limits.min)), min(most, int(limits.max))))


def _dequantize(node: Any, importer: Any) -> relax.Expr:
    """Convert `dequantize_per_tensor` and `dequantize_per_channel` to real numbers."""
    x, scale, zero_point, axis, _, dtype = _arguments(node, importer)
    wanted = _torch_name(node.kwargs.get("out_dtype") or "float32")
    if dtype not in _DEQUANTIZED or wanted != "float32":
        raise Refused(f"it dequantizes {dtype} to {wanted}, not one of {', '.join(_DEQUANTIZED)} to float32")
    return importer.block_builder.emit(relax.op.dequantize(x, scale, zero_point, axis, "float32"))


def _arguments(node: Any, importer: Any) -> tuple[Any, Any, Any, int, tuple[int, int], str]:
    """Return data, scale (float32), zero point (in the integers' type), axis, bounds, and the integers' type."""
    given = arguments_of(node)
    dtype = _torch_name(given["dtype"])
    values = [given.get("scale", given.get("scales")), given.get("zero_point", given.get("zero_points"))]
    kinds = [_read(value, kind, importer) for value, kind in zip(values, ("float32", dtype), strict=True)]
    bounds = (int(given["quant_min"]), int(given["quant_max"]))
    return importer.env[given["input"]], *kinds, int(given.get("axis", 0)), bounds, dtype


def _read(value: Any, dtype: str, importer: Any) -> relax.Expr:
    """Return a number, or a tensor of the graph, in the given type; None as 0. A single element loses its axes."""
    if value is None or isinstance(value, int | float):
        return constant(np.array(value or 0).astype(dtype))
    emit, tensor = importer.block_builder.emit, importer.env[value]
    if [int(dim) for dim in tensor.ty.shape.values] == [1]:
        tensor = emit(relax.op.reshape(tensor, ()))
    return tensor if _dtype(tensor) == dtype else emit(relax.op.astype(tensor, dtype))


def _dtype(value: relax.Expr) -> str:
    return str(value.ty.dtype)


def _torch_name(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def arguments_of(node: Any) -> dict[str, Any]:
    """Return the arguments that a node of an ATen operator gives, by the names of its schema, without defaults."""
    positional = zip(node.target._schema.arguments, node.args, strict=False)
    return {**{argument.name: value for argument, value in positional}, **node.kwargs}


CONVERTERS: dict[str, Converter] = {
    "elu.default": _elu,
    "group_norm.default": _group_norm,
    "native_group_norm.default": _group_norm,
    "select.int": _select,
    "index.Tensor": _index,
    "mul.Tensor": _arithmetic(relax.op.multiply, operator.mul, relax.op.logical_and),
    **{f"add.{kind}": _scaled(relax.op.add, operator.add) for kind in ("Tensor", "Scalar")},
    **{f"sub.{kind}": _scaled(relax.op.subtract, operator.sub) for kind in ("Tensor", "Scalar")},
    **{f"rsub.{kind}": _scaled(relax.op.subtract, operator.sub, is_reversed=True) for kind in ("Tensor", "Scalar")},
    "div.Tensor_mode": _rounded_quotient,
    "div.Scalar_mode": _rounded_quotient,
    **{f"div.{kind}": _quotient for kind in ("Tensor", "Scalar")},
    "where.self": _chosen,
    "cumsum.default": _running(relax.op.cumsum),
    "cumprod.default": _running(relax.op.cumprod),
    **{name: _bounded for name in ("clamp.default", "clamp_min.default", "clamp_max.default")},
    "fmax.default": _larger_number(relax.op.maximum),
    "fmin.default": _larger_number(relax.op.minimum),
    **{
        f"{name}.{kind}": _shifted(make)
        for way, make in (("left", relax.op.left_shift), ("right", relax.op.right_shift))
        for name in (f"__{way[0]}shift__", f"bitwise_{way}_shift")
        for kind in ("Tensor", "Scalar", "Tensor_Scalar")
    },
    "_trilinear.default": _sum_of_triple_products,
    "linalg_vector_norm.default": _vector_norm,
    "_assert_async.default": _unchecked,
    "_assert_async.msg": _unchecked,
    "any.default": _any_of_all,
    "cat.default": _joined,
    "copysign.Tensor": _with_sign,
    "copysign.Scalar": _with_sign,
    "signbit.default": _sign_bit,
    "ldexp.Tensor": _times_power_of_two,
    "exp2.default": _power_of_two,
    "hypot.default": _hypotenuse,
    "var_mean.correction": _variance_and_mean,
    "min.dim": _least_along,
    "prod.dim_int": _product_along,
    "eq.Tensor": _comparison(relax.op.equal, operator.eq, of_nan=False),
    "ne.Tensor": _comparison(relax.op.not_equal, operator.ne, of_nan=True),
    "quantize_per_tensor.default": _quantize,
    "quantize_per_tensor.tensor": _quantize,
    "quantize_per_channel.default": _quantize,
    "dequantize_per_tensor.default": _dequantize,
    "dequantize_per_tensor.tensor": _dequantize,
    "dequantize_per_channel.default": _dequantize,
}
