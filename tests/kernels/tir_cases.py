"""Single operators, and a few short chains, as composites: what `lower_composite` is held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import relax as R

IMAGE, MATRIX = (1, 3, 6, 5), (3, 5)


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """build: relax expression over the inputs. low, high: range the inputs are drawn from, half-open for integers."""

    name: str
    build: Callable[..., relax.Expr]
    inputs: tuple[tuple[tuple[int, ...], str], ...] = ((MATRIX, "float32"),)
    low: float = -3.0
    high: float = 3.0

    def function(self) -> relax.Function:
        """The composite."""
        builder = relax.BlockBuilder()
        params = [relax.Var(f"x{i}", R.Tensor(shape, dtype)) for i, (shape, dtype) in enumerate(self.inputs)]
        with builder.function("main", params):
            with builder.dataflow():
                value = builder.normalize(self.build(*params))
                result = builder.emit_output(value)
            builder.emit_func_output(result)
        return builder.get()["main"]

    def arrays(self) -> list[np.ndarray]:
        """Random inputs, the same at every call."""
        rng = np.random.default_rng(7)
        return [self._array(rng, shape, np.dtype(dtype)) for shape, dtype in self.inputs]

    def _array(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        if dtype == np.bool_:
            return rng.integers(0, 2, shape).astype(dtype)
        if np.issubdtype(dtype, np.integer):
            low = max(int(self.low), 0) if dtype.kind == "u" else int(self.low)
            return rng.integers(low, max(int(self.high), low + 1), shape).astype(dtype)
        return rng.uniform(self.low, self.high, shape).astype(dtype)


def _weights(*shape: int) -> relax.Expr:
    return relax.const(np.random.default_rng(3).standard_normal(shape).astype(np.float32))


def _quantized(x: relax.Expr) -> relax.Expr:
    return op.quantize(x, relax.const(np.float32(0.1)), relax.const(np.int8(3)), axis=0, out_dtype="int8")


def _dequantized(x: relax.Expr) -> relax.Expr:
    return op.dequantize(x, relax.const(np.float32(0.1)), relax.const(np.int8(3)), axis=0, out_dtype="float32")


def _two(shape: tuple[int, ...] = MATRIX, dtype: str = "float32") -> tuple[tuple[tuple[int, ...], str], ...]:
    return ((shape, dtype), (shape, dtype))


def _image(dtype: str = "float32") -> tuple[tuple[tuple[int, ...], str], ...]:
    return ((IMAGE, dtype),)


UNARY = """abs ceil floor round sign negative exp square tanh sigmoid sin cos sinh cosh atan asinh erf trunc
isnan isinf isfinite""".split()
POSITIVE = ["log", "sqrt", "rsqrt"]
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "equal",
    "less",
    "greater_equal",
    "not_equal",
    "floor_divide",
    "mod",
]
INTEGER = [
    "add",
    "subtract",
    "multiply",
    "maximum",
    "minimum",
    "floor_divide",
    "floor_mod",
    "mod",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
]
REDUCTIONS = ["sum", "mean", "max", "min", "prod", "variance", "std"]
ACTIVATIONS = ["relu", "gelu", "silu", "gelu_tanh", "selu", "leakyrelu", "relu6", "softplus", "softmax", "log_softmax"]
CASTS = ["int8", "uint8", "int32", "int64", "float32", "bool"]
RESIZE = (
    ("nearest_neighbor", "asymmetric", "floor"),
    ("nearest_neighbor", "half_pixel", "round_prefer_floor"),
    ("nearest_neighbor", "align_corners", "ceil"),
    ("linear", "half_pixel", ""),
    ("linear", "align_corners", ""),
    ("linear", "asymmetric", ""),
    ("cubic", "half_pixel", ""),
)


def _resize(x: relax.Expr, how: tuple[str, str, str]) -> relax.Expr:
    return op.image.resize2d(
        x, (9, 4), layout="NCHW", method=how[0], coordinate_transformation_mode=how[1], rounding_method=how[2]
    )


ELEMENTWISE = [
    *(Case(name=name, build=getattr(op, name)) for name in UNARY),
    *(Case(name=name, build=getattr(op, name), low=0.2) for name in POSITIVE),
    *(Case(name=name, build=getattr(op, name), low=-0.9, high=0.9) for name in ("acos", "asin", "atanh")),
    *(Case(name=name, build=getattr(op, name), inputs=_two()) for name in BINARY),
    Case(name="power", build=op.power, inputs=_two(), low=0.1),
    *(Case(name=f"{name}_i32", build=getattr(op, name), inputs=_two((40,), "int32"), low=1) for name in INTEGER),
    Case(
        name="floor_divide_signed",
        build=lambda x: op.floor_divide(x, relax.const(np.full((1,), -3, np.int32))),
        inputs=(((40,), "int32"),),
        low=-20,
        high=20,
    ),
    Case(
        name="floor_mod_signed",
        build=lambda x, y: op.floor_mod(x, op.add(op.multiply(y, relax.const(np.int32(2))), relax.const(np.int32(1)))),
        inputs=_two((40,), "int32"),
        low=-20,
        high=20,
    ),
    Case(name="add_i8_wraps", build=op.add, inputs=_two((40,), "int8"), low=-128, high=128),
    Case(name="multiply_u8_wraps", build=op.multiply, inputs=_two((40,), "uint8"), low=0, high=256),
    Case(name="left_shift", build=op.left_shift, inputs=_two((40,), "int32"), low=0, high=8),
    Case(name="right_shift", build=op.right_shift, inputs=_two((40,), "int32"), low=0, high=8),
    Case(name="bitwise_not", build=op.bitwise_not, inputs=(((40,), "int8"),), low=-128, high=128),
    *(
        Case(name=name, build=getattr(op, name), inputs=_two((40,), "bool"))
        for name in ("logical_and", "logical_or", "logical_xor")
    ),
    Case(name="logical_not", build=op.logical_not, inputs=(((40,), "bool"),)),
    Case(name="clip", build=lambda x: op.clip(x, -1.0, 1.5)),
    Case(name="where", build=op.where, inputs=((MATRIX, "bool"), (MATRIX, "float32"), ((5,), "float32"))),
    *(
        Case(
            name=f"cast_{source}_{target}",
            build=lambda x, t=target: op.astype(x, t),
            inputs=(((40,), source),),
            low=0,
            high=100,
        )
        for source, target in zip(CASTS, (*CASTS[2:], *CASTS[:2]), strict=True)
    ),
    *(Case(name=name, build=getattr(op.nn, name)) for name in ACTIVATIONS if hasattr(op.nn, name)),
    Case(name="prelu", build=lambda x: op.nn.prelu(x, _weights(3), axis=1), inputs=_image()),
    Case(name="mish", build=lambda x: op.multiply(x, op.tanh(op.log(op.add(op.exp(x), relax.const(np.float32(1))))))),
    Case(name="hardswish", build=lambda x: op.multiply(x, op.clip(op.add(x, relax.const(np.float32(3))), 0, 6))),
    Case(name="quantize", build=_quantized, low=-20, high=20),
    Case(name="dequantize", build=_dequantized, inputs=((MATRIX, "int8"),), low=-128, high=128),
    Case(
        name="quantized_add",
        build=lambda x, y: _quantized(op.add(_dequantized(x), _dequantized(y))),
        inputs=_two(MATRIX, "int8"),
        low=-128,
        high=128,
    ),
]
REDUCING = [
    *(
        Case(
            name=f"{name}_{'_'.join(map(str, axis or ('all',)))}",
            build=lambda x, n=name, a=axis: getattr(op, n)(x, a),
            inputs=_image(),
        )
        for name in REDUCTIONS
        for axis in (None, [1], [2, 3], [0, 2])
    ),
    *(
        Case(name=name, build=lambda x, n=name: getattr(op, n)(x, axis=1), inputs=_image())
        for name in ("argmax", "argmin")
    ),
    *(Case(name=name, build=lambda x, n=name: getattr(op, n)(x, axis=1)) for name in ("cumsum", "cumprod")),
    Case(name="softmax_channels", build=lambda x: op.nn.softmax(x, 1), inputs=_image()),
    Case(name="layer_norm", build=lambda x: op.nn.layer_norm(x, _weights(5), _weights(5), axes=-1)),
    Case(
        name="group_norm",
        build=lambda x: op.nn.group_norm(x, _weights(4), _weights(4), 2, 1, [2, 3]),
        inputs=(((1, 4, 6, 5), "float32"),),
    ),
    Case(
        name="instance_norm",
        build=lambda x: op.nn.instance_norm(x, _weights(3), _weights(3), 1, [2, 3]),
        inputs=_image(),
    ),
    Case(name="rms_norm", build=lambda x: op.nn.rms_norm(x, _weights(5), axes=-1)),
    Case(
        name="batch_norm",
        build=lambda x, v: op.nn.batch_norm(x, _weights(3), _weights(3), _weights(3), v, axis=1, training=False)[0],
        inputs=(*_image(), ((3,), "float32")),
        low=0.5,
    ),
]
LINEAR = [
    Case(name="matmul", build=op.matmul, inputs=((MATRIX, "float32"), ((5, 4), "float32"))),
    Case(name="matmul_batched", build=op.matmul, inputs=(((2, 1, 3, 5), "float32"), ((4, 5, 2), "float32"))),
    Case(
        name="matmul_i8",
        build=lambda x, y: op.matmul(x, y, out_dtype="int32"),
        inputs=((MATRIX, "int8"), ((5, 4), "int8")),
        low=-128,
        high=128,
    ),
    Case(name="dense_relu", build=lambda x: op.nn.relu(op.add(op.matmul(x, _weights(5, 7)), _weights(7)))),
    Case(name="beside_itself", build=lambda x: op.where(op.less(x, x), x, op.astype(op.less_equal(x, x), "float32"))),
    Case(
        name="beside_itself_i32",
        build=lambda x: op.where(op.greater_equal(x, x), x, op.astype(op.not_equal(x, x), "int32")),
        inputs=((MATRIX, "int32"),),
    ),
    Case(name="beside_itself_u8", build=lambda x: op.less(x, x), inputs=((MATRIX, "uint8"),)),
    Case(name="einsum", build=lambda x, y: op.einsum((x, y), "ij,kj->ik"), inputs=_two()),
    Case(name="attention", build=lambda q, k, v: op.nn.attention(q, k, v), inputs=(((1, 4, 2, 8), "float32"),) * 3),
    Case(
        name="conv1d", build=lambda x: op.nn.conv1d(x, _weights(4, 3, 3), padding=1), inputs=(((1, 3, 9), "float32"),)
    ),
    Case(name="conv2d", build=lambda x: op.nn.conv2d(x, _weights(4, 3, 3, 3), strides=2, padding=1), inputs=_image()),
    Case(
        name="conv2d_groups",
        build=lambda x: op.nn.conv2d(x, _weights(3, 1, 3, 2), dilation=2, groups=3),
        inputs=_image(),
    ),
    Case(
        name="conv2d_bias_relu",
        build=lambda x: op.nn.relu(op.add(op.nn.conv2d(x, _weights(4, 3, 3, 3), padding=1), _weights(1, 4, 1, 1))),
        inputs=_image(),
    ),
    Case(
        name="conv3d",
        build=lambda x: op.nn.conv3d(x, _weights(2, 3, 2, 2, 2), padding=1),
        inputs=(((1, 3, 4, 4, 4), "float32"),),
    ),
    Case(
        name="conv1d_transpose",
        build=lambda x: op.nn.conv1d_transpose(x, _weights(3, 2, 3), strides=2),
        inputs=(((1, 3, 5), "float32"),),
    ),
    Case(
        name="conv2d_transpose",
        build=lambda x: op.nn.conv2d_transpose(x, _weights(3, 2, 3, 3), strides=2, padding=1),
        inputs=_image(),
    ),
    *(
        Case(
            name=f"{kind}_pool{rank}d",
            build=lambda x, k=kind, r=rank: getattr(op.nn, f"{k}_pool{r}d")(
                x, pool_size=[2] * r, strides=[2] * r, padding=1
            ),
            inputs=((((1, 2) + (5,) * rank), "float32"),),
        )
        for kind in ("max", "avg")
        for rank in (1, 2, 3)
    ),
    *(
        Case(
            name=f"adaptive_avg_pool{rank}d",
            build=lambda x, r=rank: getattr(op.nn, f"adaptive_avg_pool{r}d")(x, [2] * r),
            inputs=((((1, 2) + (5,) * rank), "float32"),),
        )
        for rank in (1, 2, 3)
    ),
    Case(
        name="adaptive_avg_pool_of_fewer_rows",  # the loop over a window ends at a condition's value
        build=lambda x: op.nn.adaptive_avg_pool2d(x, [3, 4]),
        inputs=(((1, 2, 1, 10), "float32"),),
    ),
]
MOVING = [
    Case(name="dropout_unused_mask", build=lambda x: relax.TupleGetItem(op.nn.dropout(x, 0.5), 0)),
    Case(name="reshape", build=lambda x: op.reshape(x, (5, 3))),
    Case(name="permute", build=lambda x: op.permute_dims(x, [0, 2, 3, 1]), inputs=_image()),
    Case(name="flatten", build=op.flatten, inputs=_image()),
    Case(name="squeeze", build=lambda x: op.squeeze(x, [0]), inputs=_image()),
    Case(name="broadcast_to", build=lambda x: op.broadcast_to(x, (2, 3, 5))),
    Case(name="concat", build=lambda x, y: op.concat((x, y), axis=1), inputs=_two()),
    Case(name="split", build=lambda x: op.split(x, [2, 3], axis=1)),
    Case(name="stack", build=lambda x, y: op.stack((x, y), axis=1), inputs=_two()),
    Case(name="tile", build=lambda x: op.tile(x, (2, 3))),
    Case(name="repeat", build=lambda x: op.repeat(x, 2, axis=1)),
    *(
        Case(name=f"pad_{mode}", build=lambda x, m=mode: op.nn.pad(x, [1, 1, 2, 2], pad_mode=m, pad_value=0.5))
        for mode in ("constant", "reflect", "replicate")
    ),
    Case(name="flip", build=lambda x: op.flip(x, axis=1)),
    Case(name="strided_slice", build=lambda x: op.strided_slice(x, [1], [4], [0], [-2])),
    Case(name="take", build=lambda x, i: op.take(x, i, axis=1), inputs=((MATRIX, "float32"), ((2, 2), "int64")), low=0),
    Case(
        name="gather_elements",
        build=lambda x, i: op.gather_elements(x, i, axis=1),
        inputs=((MATRIX, "float32"), ((3, 2), "int64")),
        low=0,
    ),
    Case(name="gather_nd", build=op.gather_nd, inputs=((MATRIX, "float32"), ((4, 2), "int64")), low=0),
    Case(
        name="scatter_elements",
        build=lambda x, i, u: op.scatter_elements(x, i, u, axis=1, reduction="add"),
        inputs=((MATRIX, "float32"), ((3, 2), "int64"), ((3, 2), "float32")),
        low=0,
    ),
    Case(
        name="scatter_nd",
        build=lambda x, i, u: op.scatter_nd(x, i, u, "update"),
        inputs=((MATRIX, "float32"), ((1, 2), "int64"), ((1,), "float32")),
        low=0,
    ),
    Case(
        name="one_hot",
        build=lambda i: op.one_hot(i, tirx.const(1.0, "float32"), tirx.const(0.0, "float32"), 4, -1),
        inputs=(((6,), "int64"),),
        low=0,
    ),
    Case(name="triu", build=lambda x: op.triu(x, 1)),
    Case(name="tril", build=lambda x: op.tril(x, -1)),
    Case(
        name="meshgrid",
        build=lambda x, y: op.meshgrid((x, y), indexing="ij"),
        inputs=(((3,), "float32"), ((2,), "float32")),
    ),
    Case(name="identity", build=lambda x: relax.Tuple([x, x, op.negative(x)])),
    *(
        Case(name="resize2d_" + "_".join(how[:2]), build=lambda x, h=how: _resize(x, h), inputs=_image())
        for how in RESIZE
    ),
    Case(
        name="grid_sample",
        build=lambda x, g: op.image.grid_sample(x, g),
        inputs=(*_image(), ((1, 2, 4, 4), "float32")),
        low=-1,
        high=1,
    ),
]
CASES = [*ELEMENTWISE, *REDUCING, *LINEAR, *MOVING]
