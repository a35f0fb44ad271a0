"""Operators that have no kernel of their own, or not in every form, at sizes of small networks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax, tirx
from tvm.relax import op

from benchmarks.measure.generic_steps import TensorOf
from tests.kernels.tir_cases import Case

IMAGE, ROWS, VECTOR = ((1, 6, 24, 20), "float32"), ((24, 30), "float32"), (600,)
VOLUME, SEQUENCE = ((1, 4, 8, 10, 12), "float32"), ((1, 6, 60), "float32")
_UNARY = """abs ceil floor round sign exp log sqrt rsqrt square tanh sigmoid sin cos sinh cosh atan asinh erf trunc
isnan isfinite""".split()
_BINARY = ("add", "multiply", "divide", "maximum", "equal", "less", "floor_divide", "power")
_INTEGERS = ("add", "multiply", "maximum", "floor_divide", "bitwise_and", "left_shift")
_ACTIVATIONS = ("relu", "gelu", "silu", "gelu_tanh", "leakyrelu", "softplus", "log_softmax", "softmax")
_REDUCTIONS = ("sum", "mean", "max", "prod", "variance", "std")

Definition = tuple[Callable[..., relax.Expr], tuple[TensorOf, ...]]
"""Expression over inputs, and their shapes and types."""


def cases() -> list[Case]:
    """All of them, in the order of the result."""
    named = elementwise() | reducing() | moving() | linear()
    return [Case(name=name, build=build, inputs=inputs) for name, (build, inputs) in named.items()]


def elementwise() -> dict[str, Definition]:
    """One result for each element, by name."""
    one, two, bytes_ = (ROWS,), (ROWS, ROWS), ((24, 30), "int8")
    return {
        **{name: (getattr(op, name), one) for name in _UNARY},
        **{name: (getattr(op, name), two) for name in _BINARY},
        **{f"{name}_i32": (getattr(op, name), ((VECTOR, "int32"),) * 2) for name in _INTEGERS},
        **{name: (getattr(op.nn, name), one) for name in _ACTIVATIONS},
        "prelu": (lambda x: op.nn.prelu(x, _weights(6), axis=1), (IMAGE,)),
        "clip": (lambda x: op.clip(x, -0.5, 0.5), one),
        "hardswish": (lambda x: op.multiply(x, op.clip(op.add(x, relax.const(np.float32(3))), 0, 6)), one),
        "mish": (lambda x: op.multiply(x, op.tanh(op.nn.softplus(x))), one),
        "where": (op.where, (((24, 30), "bool"), *two)),
        **{f"cast_{source}_{target}": (lambda x, t=target: op.astype(x, t), ((VECTOR, source),))
           for source, target in (("int8", "float32"), ("float32", "int8"), ("int32", "float32"), ("int64", "int32"))},
        "quantize": (_quantized, one),
        "dequantize": (_dequantized, (bytes_,)),
        "quantized_add": (lambda x, y: _quantized(op.add(_dequantized(x), _dequantized(y))), (bytes_, bytes_)),
    }  # fmt: skip


def reducing() -> dict[str, Definition]:
    """Results of many elements, and what is made with them, by name."""
    return {
        **{f"{name}_{'_'.join(map(str, axes))}": (lambda x, n=name, a=axes: getattr(op, n)(x, a), (IMAGE,))
           for name in _REDUCTIONS for axes in ([1], [2, 3], [0, 2])},
        **{f"{name}_{axis}": (lambda x, n=name, a=axis: getattr(op.nn, n)(x, a), (IMAGE,))
           for name in ("softmax", "log_softmax") for axis in (1, 2)},
        "layer_norm": (lambda x: op.nn.layer_norm(x, _weights(30), _weights(30), axes=-1), (ROWS,)),
        "layer_norm_1_2_3": (
            lambda x: op.nn.layer_norm(x, _weights(6, 24, 20), _weights(6, 24, 20), axes=[1, 2, 3]), (IMAGE,)),
        "rms_norm": (lambda x: op.nn.rms_norm(x, _weights(30), axes=-1), (ROWS,)),
        "group_norm": (lambda x: op.nn.group_norm(x, _weights(6), _weights(6), 2, 1, [2, 3]), (IMAGE,)),
        "instance_norm": (lambda x: op.nn.instance_norm(x, _weights(6), _weights(6), 1, [2, 3]), (IMAGE,)),
        "argmax": (lambda x: op.argmax(x, axis=1), (IMAGE,)),
        "argmin_3": (lambda x: op.argmin(x, axis=3), (IMAGE,)),
        "cumsum": (lambda x: op.cumsum(x, axis=1), (ROWS,)),
        "cumsum_0": (lambda x: op.cumsum(x, axis=0), (ROWS,)),
        "cumprod_1": (lambda x: op.cumprod(x, axis=1), (IMAGE,)),
    }  # fmt: skip


def moving() -> dict[str, Definition]:
    """Elements at other places, and mixtures of neighbours, by name."""
    one, indices = (ROWS,), "int64"
    return {
        **{f"permute_{''.join(map(str, axes))}": (lambda x, a=axes: op.permute_dims(x, a), (IMAGE,))
           for axes in ([0, 2, 3, 1], [0, 3, 1, 2], [0, 1, 3, 2], [0, 2, 1, 3])},
        "concat": (lambda x, y: op.concat((x, y), axis=1), (ROWS, ROWS)),
        "concat_3": (lambda x: op.concat((x, x, x), axis=3), (IMAGE,)),
        "stack": (lambda x, y: op.stack((x, y), axis=2), (ROWS, ROWS)),
        "tile": (lambda x: op.tile(x, (2, 3)), one),
        "repeat": (lambda x: op.repeat(x, 2, axis=1), one),
        "repeat_0": (lambda x: op.repeat(x, 2, axis=0), one),
        "flip": (lambda x: op.flip(x, axis=1), one),
        "flip_2": (lambda x: op.flip(x, axis=2), (IMAGE,)),
        "strided_slice": (lambda x: op.strided_slice(x, [2, 3], [1, 2], [24, 20], [2, 3]), (IMAGE,)),
        "broadcast_to": (lambda x: op.broadcast_to(x, (24, 30)), (((24, 1), "float32"),)),
        "triu": (lambda x: op.triu(x, 1), one),
        "take": (lambda x, i: op.take(x, i, axis=0), (ROWS, ((16,), indices))),
        "take_1": (lambda x, i: op.take(x, i, axis=1), (ROWS, ((16,), indices))),
        "gather_elements": (lambda x, i: op.gather_elements(x, i, axis=1), (ROWS, ((24, 16), indices))),
        "gather_nd": (op.gather_nd, (IMAGE, ((40, 3), indices))),
        "scatter_elements": (
            lambda x, i, u: op.scatter_elements(x, i, u, axis=1),
            (ROWS, ((24, 16), indices), ((24, 16), "float32"))),
        "one_hot": (
            lambda i: op.one_hot(i, tirx.const(1.0, "float32"), tirx.const(0.0, "float32"), 20, -1),
            (((30,), indices),)),
        **{f"pad_{mode}": (lambda x, m=mode: op.nn.pad(x, [1, 1, 2, 2], pad_mode=m), one)
           for mode in ("constant", "reflect", "replicate")},
        **{f"resize_{method}": (
            lambda x, m=method: op.image.resize2d(
                x, (36, 30), layout="NCHW", method=m, coordinate_transformation_mode="half_pixel"), (IMAGE,))
           for method in ("nearest_neighbor", "linear", "cubic")},
        "resize_nearest_twice": (
            lambda x: op.image.resize2d(x, (48, 40), layout="NCHW", method="nearest_neighbor",
                                        coordinate_transformation_mode="asymmetric"), (IMAGE,)),
    }  # fmt: skip


def linear() -> dict[str, Definition]:
    """Sums of products, and windows, by name."""
    return {
        "matmul": (op.matmul, (ROWS, ((30, 12), "float32"))),
        "matmul_batched": (op.matmul, (((4, 12, 16), "float32"), ((4, 16, 10), "float32"))),
        "einsum": (lambda x, y: op.einsum((x, y), "ij,kj->ik"), (ROWS, ((12, 30), "float32"))),
        "conv2d": (lambda x: op.nn.conv2d(x, _weights(4, 6, 3, 3), padding=1), (IMAGE,)),
        "conv2d_depthwise": (lambda x: op.nn.conv2d(x, _weights(6, 1, 3, 3), padding=1, groups=6), (IMAGE,)),
        "conv2d_transpose": (lambda x: op.nn.conv2d_transpose(x, _weights(6, 2, 3, 3), strides=2), (IMAGE,)),
        "conv1d": (lambda x: op.nn.conv1d(x, _weights(4, 6, 3), padding=1), (SEQUENCE,)),
        "conv1d_transpose": (lambda x: op.nn.conv1d_transpose(x, _weights(6, 2, 3), strides=2), (SEQUENCE,)),
        "conv3d": (lambda x: op.nn.conv3d(x, _weights(4, 4, 3, 3, 3), padding=1), (VOLUME,)),
        "max_pool2d": (lambda x: op.nn.max_pool2d(x, (3, 3), strides=(2, 2), padding=1), (IMAGE,)),
        "avg_pool2d": (lambda x: op.nn.avg_pool2d(x, (3, 3), strides=(2, 2), padding=1), (IMAGE,)),
        "max_pool3d": (lambda x: op.nn.max_pool3d(x, (2, 2, 2), strides=(2, 2, 2)), (VOLUME,)),
        "avg_pool1d": (lambda x: op.nn.avg_pool1d(x, 3, strides=2, padding=1), (SEQUENCE,)),
        "adaptive_avg_pool2d": (lambda x: op.nn.adaptive_avg_pool2d(x, [6, 5]), (IMAGE,)),
    }  # fmt: skip


def _quantized(x: relax.Expr) -> relax.Expr:
    return op.quantize(x, relax.const(np.float32(0.1)), relax.const(np.int8(3)), axis=0, out_dtype="int8")


def _dequantized(x: relax.Expr) -> relax.Expr:
    return op.dequantize(x, relax.const(np.float32(0.1)), relax.const(np.int8(3)), axis=0, out_dtype="float32")


def _weights(*shape: int) -> relax.Expr:
    return relax.const(np.random.default_rng(3).standard_normal(shape).astype(np.float32))
