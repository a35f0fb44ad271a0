"""Files with int16 activations as Keras writes them: operators that only LiteRT runs, shared biases, sequences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.tflite_cases import elementwise, layers, movement
from benchmarks.tflite_cases.case import Case, ints, one_result
from tests.support.sweeps import some_of
from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_models import VALID, Network
from tests.support.tflite_runners import litert, referenced, saved_tflite, tflite_micro
from tvm_ext import BuildOptions, build
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.frontends.load import ModelNotice, load

WIDE = {"int8": Quantized(scale=0.03, zero_point=-100), "int16": Quantized(scale=1.3e-4)}
RESULT = {"int8": Quantized(scale=0.04, zero_point=-30), "int16": Quantized(scale=4.1e-4)}


def of_each(operator: str, dtype: str, options: str = "", **fields: object) -> tuple[bytes, list[np.ndarray]]:
    """A file of a function of an element, and all elements of its type."""
    limits, net = np.iinfo(dtype), Network()
    elements = np.arange(limits.min, limits.max + 1).astype(dtype)[None]
    x = net.writer.input("x", elements.shape, dtype, WIDE[dtype])
    y = net.writer.tensor("y", elements.shape, dtype, RESULT[dtype])
    return net.writer.finish([net.writer.operator(operator, [x], y, options, **fields)]), [elements]


FUNCTIONS: dict[str, Callable[[], tuple[bytes, list[np.ndarray]]]] = {
    "EXP int16": lambda: of_each("EXP", "int16", "ExpOptions"),
    "LOG int16": lambda: of_each("LOG", "int16"),
    "LOG int8": lambda: of_each("LOG", "int8"),
    "GELU int16": lambda: of_each("GELU", "int16", "GeluOptions", Approximate=False),
    "GELU int16 approximate": lambda: of_each("GELU", "int16", "GeluOptions", Approximate=True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_element(name: str, tmp_path: Path) -> None:
    data, arrays = FUNCTIONS[name]()
    found, _ = referenced(saved_tflite(data, tmp_path), arrays)
    np.testing.assert_array_equal(found[0], litert(data, arrays)[0])


_TILE = one_result(
    "TILE", "TileOptions", result=(1, 8, 6, 15), constants=[ints(1, 2, 1, 3)], scales="same"
)  # fmt: skip
_MOVES = "BATCH_TO_SPACE_ND FILL GATHER GATHER_ND MIRROR_PAD RESIZE_BILINEAR SPACE_TO_BATCH_ND"
CASES = {case.name: case for operator in _MOVES.split() for case in movement.CASES[operator]}
CASES |= {case.name: case for operator in ("REDUCE_MAX", "REDUCE_MIN") for case in layers.CASES[operator]}
CASES["TILE"] = Case(name="TILE", make=_TILE)


@pytest.mark.parametrize("name", CASES)
def test_words(name: str, tmp_path: Path) -> None:
    data, arrays = CASES[name].file("int16x8", 1)
    found, _ = referenced(saved_tflite(data, tmp_path), arrays)
    np.testing.assert_array_equal(found[0], litert(data, arrays)[0])


COMPARISONS = "EQUAL NOT_EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL".split()


def of_two_scales(operator: str, first: float, second: float) -> tuple[bytes, list[np.ndarray]]:
    """A comparison of int16, and elements of which many are equal."""
    net, random = Network(), np.random.default_rng(5)
    arrays = [random.integers(-40, 40, (1, 2000)).astype(np.int16) for _ in range(2)]
    x, z = (net.writer.input(name, (1, 2000), "int16", Quantized(scale=s)) for name, s in (("x", first), ("z", second)))
    options = f"{operator.title().replace('_', '')}Options"
    return net.writer.finish(
        [net.writer.operator(operator, [x, z], net.writer.tensor("y", (1, 2000), "bool"), options)]
    ), arrays


@pytest.mark.parametrize("operator", COMPARISONS)
def test_comparisons_of_words(operator: str, tmp_path: Path) -> None:
    """EQUAL and NOT_EQUAL compare 2^-8 of a real number, and the others the integers themselves."""
    for scales in (
        (0.3, 0.3),
        (2e-4, 2e-4),
        *([(0.2, 0.3)] if operator[-5:] == "EQUAL" and len(operator) < 10 else []),
    ):
        data, arrays = of_two_scales(operator, *scales)
        found, _ = referenced(saved_tflite(data, tmp_path), arrays)
        np.testing.assert_array_equal(found[0], litert(data, arrays)[0])


def test_orders_of_words_with_two_scales_are_refused(tmp_path: Path) -> None:
    data, _ = of_two_scales("LESS", 0.2, 0.3)
    with pytest.raises(UnsupportedModel, match=r"LESS.* LiteRT compares int16 without regard to scales"):
        load(saved_tflite(data, tmp_path))


def of_words(
    operator: str, first: int, scales: tuple[float, float], options: str = ""
) -> tuple[bytes, list[np.ndarray]]:
    """A file of a function of int16, and all elements from `first` on."""
    elements, net = np.arange(first, 1 << 15).astype(np.int16)[None], Network()
    x = net.writer.input("x", elements.shape, "int16", Quantized(scale=scales[0]))
    y = net.writer.tensor("y", elements.shape, "int16", Quantized(scale=scales[1]))
    return net.writer.finish([net.writer.operator(operator, [x], y, options)]), [elements]


SCALES = [(2e-4, 5e-4), (0.01, 0.002), (3e-5, 7e-5)]


@pytest.mark.parametrize("scales", SCALES)
def test_square_roots_of_words(scales: tuple[float, float], tmp_path: Path) -> None:
    data, arrays = of_words("SQRT", 0, scales)
    found, _ = referenced(saved_tflite(data, tmp_path), arrays)
    np.testing.assert_array_equal(found[0], litert(data, arrays)[0])


@pytest.mark.parametrize("scales", SCALES)
def test_reciprocal_roots_of_words(scales: tuple[float, float], tmp_path: Path) -> None:
    """LiteRT's table is far from the real results next to 0; `once` has the nearest elements."""
    data, arrays = of_words("RSQRT", 1, scales)
    path = saved_tflite(data, tmp_path)
    found, _ = referenced(path, arrays, "litert")
    np.testing.assert_array_equal(found[0], litert(data, arrays)[0])
    nearest, _ = referenced(path, arrays, "once")
    real = 1 / np.sqrt(arrays[0] * scales[0]) / scales[1]
    assert np.abs(nearest[0] - np.minimum(real, 32767)).max() < 0.51
    with pytest.raises(UnsupportedModel, match=r"RSQRT.* choose them by --rounding litert"):
        load(path)


def test_negations_of_words(tmp_path: Path) -> None:
    data, arrays = of_words("NEG", -(1 << 15), (2e-4, 2e-4), "NegOptions")
    found, _ = referenced(saved_tflite(data, tmp_path), arrays)
    np.testing.assert_array_equal(found[0], litert(data, arrays)[0])
    with pytest.raises(UnsupportedModel, match=r"NEG.* LiteRT negates int16 without regard to scales"):
        load(saved_tflite(of_words("NEG", 0, (2e-4, 3e-4), "NegOptions")[0], tmp_path))


@pytest.mark.parametrize("operator", some_of(["SQRT"], sweep=["GREATER"]))
def test_packages_of_words_are_verified(operator: str, tmp_path: Path) -> None:
    """TensorFlow Lite Micro leaves GREATER unwritten, and does not run SQRT: LiteRT verifies both."""
    data, _ = of_two_scales(operator, 0.3, 0.3) if operator == "GREATER" else of_words(operator, 0, SCALES[0])
    package = build(load(saved_tflite(data, tmp_path)), "host", tmp_path / "out", BuildOptions())
    host = package.report["verify"]["host"]
    assert (host["passed"], host["max_abs_error"]) == (True, 0)


def test_results_beyond_single_precision_are_refused(tmp_path: Path) -> None:
    net = Network(int16=True)
    x = net.writer.input("x", (1, 8), "int16", Quantized(scale=0.1))
    data = net.writer.finish([net.writer.operator("EXP", [x], net.output("y", (1, 8)), "ExpOptions")])
    with pytest.raises(UnsupportedModel, match=r"EXP.* its results from -3276.8 to 3276.7 exceed single precision"):
        load(saved_tflite(data, tmp_path))


def test_logarithms_of_unsigned_bytes_are_refused(tmp_path: Path) -> None:
    writer = TfliteWriter()
    x = writer.input("x", (1, 8), "uint8", Quantized(scale=0.1))
    data = writer.finish([writer.operator("LOG", [x], writer.tensor("y", (1, 8), "uint8", Quantized(scale=0.1)))])
    with pytest.raises(UnsupportedModel, match=r"LOG.* on quantized tensors it is not supported"):
        load(saved_tflite(data, tmp_path))


OTHERWISE = "ABS LEAKY_RELU MUL PRELU RELU SOFTMAX FULLY_CONNECTED SUM".split()
"""Operators on int16 that LiteRT's default interpreter computes in arithmetic that is not built here."""


@pytest.mark.parametrize("operator", OTHERWISE)
def test_arithmetic_of_words_that_only_litert_has_is_refused(operator: str, tmp_path: Path) -> None:
    cases = {**elementwise.CASES, **layers.CASES}[operator]
    path = saved_tflite(cases[0].file("int16x8", 1)[0], tmp_path)
    with pytest.raises(UnsupportedModel, match=rf"{operator}.* LiteRT computes it on int16 .* choose --rounding tflm"):
        load(path, rounding="litert")
    load(path)


def of_exact_scales(operator: str) -> tuple[bytes, list[np.ndarray]]:
    """An operator on two tensors of int16 whose scales are powers of two, and random elements."""
    writer, random = TfliteWriter(), np.random.default_rng(5)
    arrays = [random.integers(-(1 << 15), 1 << 15, (1, 2000)).astype(np.int16) for _ in range(2)]
    x, z = (writer.input(name, (1, 2000), "int16", Quantized(scale=2.0**-15)) for name in "xz")
    y = writer.tensor("y", (1, 2000), "int16", Quantized(scale=2.0**-15))
    return writer.finish([writer.operator(operator, [x, z], y, f"{operator.capitalize()}Options")]), arrays


def test_words_of_exact_scales(tmp_path: Path) -> None:
    """Such scales have the same product in single and in double precision; LiteRT shifts the terms of their sums."""
    data, arrays = of_exact_scales("MUL")
    found, _ = referenced(saved_tflite(data, tmp_path), arrays, "litert")
    np.testing.assert_array_equal(found[0], litert(data, arrays)[0])
    for operator in ("ADD", "SUB"):
        with pytest.raises(UnsupportedModel, match=rf"{operator}.* choose --rounding tflm"):
            load(saved_tflite(of_exact_scales(operator)[0], tmp_path), rounding="litert")


def test_gates_of_lstm_are_refused(tmp_path: Path) -> None:
    path = saved_tflite(layers.CASES["UNIDIRECTIONAL_SEQUENCE_LSTM"][0].file("int8", 0)[0], tmp_path)
    with pytest.raises(UnsupportedModel, match=r"LSTM.* LiteRT computes it on int8 .* choose --rounding tflm"):
        load(path, rounding="litert")


@pytest.mark.parametrize("scales", [(0.0617, 0.0411), (0.019, 0.0233), (0.11, 0.021), (0.047, 0.047)])
def test_hard_swish_of_unsigned_bytes(scales: tuple[float, float], tmp_path: Path) -> None:
    """Every element, in the fixed point that LiteRT has for both types of bytes."""
    writer, elements = TfliteWriter(), np.arange(256).astype(np.uint8)[None]
    x, y = (
        writer.tensor(name, (1, 256), "uint8", Quantized(scale=scale, zero_point=zero_point))
        for name, scale, zero_point in (("x", scales[0], 117), ("y", scales[1], 12))
    )
    writer.inputs.append(x)
    data = writer.finish([writer.operator("HARD_SWISH", [x], y)])
    for rounding in ("tflm", "litert"):
        found, kernels = referenced(saved_tflite(data, tmp_path), [elements], rounding)
        np.testing.assert_array_equal(found[0], litert(data, [elements])[0])
        assert kernels == ["qunary_i8"]


def shared_bias(net: Network, factor: float) -> list[int]:
    """A dense layer whose bias has the scale of another layer."""
    y = net.dense(net.input((1, 12)), 5, "d")
    bias = next(tensor for tensor in net.writer.tensors if tensor.name == "d/bias")
    assert bias.quantized is not None, "of integers"
    (scale,) = np.atleast_1d(bias.quantized.scale)
    bias.quantized = Quantized(scale=float(np.float32(scale) / np.float32(factor)))
    return [y]


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_bias_of_another_scale(dtype: str, tmp_path: Path) -> None:
    """Keras shares the bias of a GRU that it unrolls. Runtimes add its integers, so that the results are theirs."""
    net = Network(int8=dtype == "int8", int16=dtype == "int16", seed=3)
    data = net.writer.finish(shared_bias(net, 1.25))
    arrays = [net.sample(index) for index in net.writer.inputs]
    path = saved_tflite(data, tmp_path)
    found, _ = referenced(path, arrays)
    np.testing.assert_array_equal(found[0], tflite_micro(data, arrays))
    with pytest.warns(ModelNotice, match=r"1 layer adds its bias in another scale .* by 1\.25 times the number"):
        module = load(path)
    package = build(module, "host", tmp_path / "out", BuildOptions())
    assert package.report["verify"]["host"]["max_abs_error"] == 0


@pytest.mark.parametrize("shape", [(1, 1, 9, 6), (1, 9, 1, 6)])
def test_word_sequences_have_wide_biases(shape: tuple[int, ...], tmp_path: Path) -> None:
    """A Conv1D of Keras is an image of one row, whose bias of 64 bits is turned with it."""
    net = Network(int16=True)
    kernel = (1, 3) if shape[1] == 1 else (3, 1)
    data = net.writer.finish([net.conv(net.input(shape), 4, kernel, "c", padding=VALID)])
    arrays = [net.sample(index) for index in net.writer.inputs]
    package = build(load(saved_tflite(data, tmp_path)), "host", tmp_path / "out", BuildOptions())
    assert "generic" not in {step["kernel"] for step in package.report["steps"]}
    with package.session() as session:
        (found,) = session.run(dict(zip(package.inputs, arrays, strict=True))).values()
    np.testing.assert_array_equal(found, tflite_micro(data, arrays))
