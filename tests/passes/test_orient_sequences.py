"""WidenConvolutions: convolutions over one axis become convolutions of images of one row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from relay_passes.dataflow import array_of, bindings, op_name, static_shape
from relay_passes.simplify.orient_sequences import OrientSequences, TimeAxis
from tests.passes.modules import module_of
from tests.support.virtual_machine import run

OP = relax.op
RANDOM = np.random.default_rng(3)
WEIGHT = RANDOM.standard_normal((6, 2, 3)).astype("f4")
CHANNELS = RANDOM.standard_normal((1, 6, 1)).astype("f4")
OPTIONS = {"strides": 2, "padding": (1, 0), "dilation": 2, "groups": 2}


Body = Callable[[relax.BlockBuilder, relax.Expr], relax.Expr]


def module_with(body: Body) -> tvm.IRModule:
    x = relax.Var("x", relax.TensorType((1, 4, 9), "float32"))
    return module_of([x], lambda builder: body(builder, x))


def const(array: np.ndarray) -> relax.Expr:
    return relax.const(array)


def on_grid(builder: relax.BlockBuilder, value: relax.Expr, scale: float) -> relax.Expr:
    parameters = const(np.float32(scale)), const(np.int8(3))
    integers = builder.emit(OP.quantize(value, *parameters, out_dtype="int8"))
    return builder.emit(OP.dequantize(integers, *parameters))


def real(builder: relax.BlockBuilder, integers: np.ndarray, scales: np.ndarray, axis: int) -> relax.Expr:
    zeros = const(np.zeros(scales.shape, integers.dtype))
    return builder.emit(OP.dequantize(const(integers), const(scales), zeros, axis=axis))


def plain(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """A convolution, numbers of channels, itself beside it, and a reader of three axes."""
    y = builder.emit(OP.nn.conv1d(x, const(WEIGHT), **OPTIONS))
    y = builder.emit(OP.nn.relu(builder.emit(OP.add(y, const(CHANNELS)))))
    y = builder.emit(OP.multiply(y, builder.emit(OP.nn.conv1d(x, const(2 * WEIGHT), **OPTIONS))))
    return OP.nn.softmax(y, 2)


def quantized(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """The same in QDQ form, weights and bias with a scale for each channel."""
    scales = np.linspace(0.01, 0.03, 6, dtype="f4")
    weight = real(builder, np.rint(WEIGHT * 30).astype("i1"), scales, 0)
    bias = real(builder, np.rint(CHANNELS * 300).astype("i4"), scales / 50, 1)
    y = builder.emit(OP.nn.conv1d(on_grid(builder, x, 0.02), weight, **OPTIONS))
    return OP.nn.softmax(on_grid(builder, builder.emit(OP.nn.relu(builder.emit(OP.add(y, bias)))), 0.05), 2)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (plain, "expand_dims nn.conv2d add nn.relu nn.conv2d multiply squeeze nn.softmax"),
        (
            quantized,
            "quantize dequantize dequantize dequantize expand_dims nn.conv2d add nn.relu quantize dequantize squeeze "
            "nn.softmax",
        ),
    ],
)
def test_what_follows_works_on_images(body: Body, names: str) -> None:
    before = module_with(body)
    after = OrientSequences()(before)
    relax.analysis.well_formed(after)
    found = [(op_name(b.value) or "").removeprefix("relax.") for b in bindings(after["main"])]
    assert sorted(found) == sorted(names.split()), "one reshape before the images and one behind them"
    array = RANDOM.standard_normal((1, 4, 9)).astype("f4")
    np.testing.assert_allclose(run(after, array), run(before, array), rtol=1e-5, atol=1e-6)


def test_transposed_convolutions_are_of_images_too() -> None:
    weight = const(RANDOM.standard_normal((4, 6, 3)).astype("f4"))
    options = {"strides": 2, "padding": (1, 0), "output_padding": 1}

    def body(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return OP.nn.relu(builder.emit(OP.nn.conv1d_transpose(x, weight, **options)))

    before = module_with(body)
    after = OrientSequences()(before)
    relax.analysis.well_formed(after)
    names = [op_name(b.value) for b in bindings(after["main"])]
    assert "relax.nn.conv2d_transpose" in names and "relax.nn.conv1d_transpose" not in names
    array = RANDOM.standard_normal((1, 4, 9)).astype("f4")
    np.testing.assert_allclose(run(after, array), run(before, array), rtol=1e-5, atol=1e-6)


def test_scales_stay_with_their_channels() -> None:
    after = bindings(OrientSequences()(module_with(quantized))["main"])
    constants = [b for b in after if op_name(b.value) == "relax.dequantize" and array_of(b.value.args[0]) is not None]
    assert {(static_shape(b.var), int(b.value.attrs.axis)) for b in constants} == {((6, 2, 3, 1), 0), ((1, 6, 1, 1), 1)}


def test_others_are_left_alone() -> None:
    """Another layout, a kernel that is no constant, and functions without such convolutions."""
    shapes = {"x": (1, 9, 4), "w": (6, 4, 3), "square": (1, 4, 9)}
    x, w, square = (relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items())
    for given, body in (
        ([x], lambda b: OP.nn.conv1d(x, const(np.ones((6, 4, 3), "f4")), data_layout="NWC")),
        ([square, w], lambda b: OP.nn.conv1d(square, w)),
        ([x], lambda b: OP.nn.relu(x)),
    ):
        before = module_of(given, body)
        tvm.ir.assert_structural_equal(OrientSequences()(before), before, map_free_vars=True)


@pytest.mark.parametrize("shape", [(), (1,), (2, 1, 6, 1)])
def test_dequantized_constants_of_other_axes(shape: tuple[int, ...]) -> None:
    """A number has no axis for scales; what repeats over more axes than three is no image."""

    def body(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = builder.emit(OP.nn.conv1d(x, const(WEIGHT), **OPTIONS))
        integers = const(np.full(shape, 7, np.int8))
        added = builder.emit(OP.dequantize(integers, const(np.float32(0.5)), const(np.int8(1)), axis=-1))
        return OP.nn.relu(builder.emit(OP.add(y, added)))

    before = module_with(body)
    after = OrientSequences()(before)
    relax.analysis.well_formed(after)
    array = RANDOM.standard_normal((1, 4, 9)).astype("f4")
    np.testing.assert_allclose(run(after, array), run(before, array), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("time_axis", ["rows", "columns"])
def test_values_of_several_rows_have_no_image(time_axis: TimeAxis) -> None:
    """A reshape exchanges rows and columns of a single row only, so a stream's cache joins the row as it is."""

    def turned(*shape: int) -> tuple[int, ...]:
        return shape if time_axis == "rows" else (*shape[:2], shape[3], shape[2])

    x = relax.Var("x", relax.TensorType(turned(1, 4, 1, 9), "float32"))
    cache = const(RANDOM.standard_normal(turned(1, 6, 2, 9)).astype("f4"))
    kernel, padding = const(WEIGHT.reshape(turned(6, 2, 1, 3))), turned(0, 0, 0, 1)[2:]

    def body(builder: relax.BlockBuilder) -> relax.Expr:
        y = builder.emit(OP.nn.conv2d(x, kernel, padding=padding, groups=2))
        along = 2 if time_axis == "rows" else 3
        return OP.nn.relu(builder.emit(OP.concat([builder.emit(OP.nn.relu(cache)), y], along)))

    before = module_of([x], body)
    after = OrientSequences(time_axis)(before)
    array = RANDOM.standard_normal(static_shape(x)).astype("f4")
    np.testing.assert_allclose(run(after, array), run(before, array), rtol=1e-5, atol=1e-6)
