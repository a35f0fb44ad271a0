"""QuantizeInt8 leaves spectra in float, from the samples of a signal to the logarithm of its bands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from codegen_c.kernels.fourier.fourier_f32 import is_transform
from relay_passes.analysis.choose_precision import Ratio
from relay_passes.analysis.spectra import IsTransform
from relay_passes.quantization.quantize_int8 import QuantizeInt8
from tests.passes.float_modules import OP, measured, operators, samples_of
from tests.passes.modules import module_of
from tests.passes.stub_backend import ELEMENTWISE
from tests.support.virtual_machine import run
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.frontends.load import load

FRAMES, LENGTH, BINS, BANDS = 4, 64, 33, 6
RNG = np.random.default_rng(7)
DENSE = RNG.normal(size=(BANDS, 3)).astype("float32")
MEL = np.maximum(RNG.normal(size=(BINS, BANDS)), 0).astype("float32")

OPERATORS = ELEMENTWISE | {"relax.log", "relax.maximum", "relax.subtract"}

Emit = Callable[[relax.Expr, str], relax.Var]


def basis() -> np.ndarray:
    """Cosines and sines, alternating: float32[LENGTH, 2 * BINS]."""
    turns = 2 * np.pi / LENGTH * np.outer(np.arange(LENGTH), np.arange(BINS))
    return np.stack([np.cos(turns), -np.sin(turns)], axis=2).reshape(LENGTH, 2 * BINS).astype("float32")


def network(body: Callable[[Emit, relax.Var], relax.Expr]) -> tvm.IRModule:
    x = relax.Var("x", relax.TensorType((FRAMES, LENGTH), "float32"))
    return load(module_of([x], lambda builder: body(lambda value, name: builder.emit(value, name), x)))


def quantized(mod: tvm.IRModule, **options: object) -> tvm.IRModule:
    return QuantizeInt8(samples_of(mod), elementwise=OPERATORS, is_transform=is_transform, **options)(mod)


def powers(emit: Emit, frames: relax.Var, matrix: np.ndarray | None = None) -> relax.Var:
    parts = emit(OP.matmul(frames, relax.const(basis() if matrix is None else matrix)), "parts")
    pairs = emit(OP.reshape(parts, (FRAMES, BINS, 2)), "pairs")
    return emit(OP.sum(emit(OP.multiply(pairs, pairs), "squares"), axis=[2]), "powers")


def scores(emit: Emit, x: relax.Var) -> relax.Var:
    bands = emit(OP.matmul(powers(emit, x), relax.const(MEL)), "bands")
    logs = emit(OP.log(emit(OP.maximum(bands, relax.const(1e-4)), "audible")), "logs")
    return emit(OP.matmul(logs, relax.const(DENSE)), "scores")


def wake_word(emit: Emit, x: relax.Var) -> relax.Expr:
    return emit(OP.sigmoid(scores(emit, x)), "likely")


def left(mod: tvm.IRModule) -> list[str]:
    return [unit["name"] for unit in measured(mod)["left_float"]]


def test_all_up_to_the_logarithm_stays_in_float() -> None:
    mod = quantized(network(wake_word))
    assert operators(mod) == [
        "matmul float32", "reshape float32", "multiply float32", "sum float32", "matmul float32", "maximum float32",
        "log float32", "quantize int8",
        "matmul float32", "add float32", "quantize int8", "sigmoid float32", "quantize int8",
    ]  # fmt: skip
    assert [str(param.ty.dtype) for param in mod["main"].params] == ["float32"]
    assert left(mod) == ["parts", "squares", "powers", "bands", "logs"]
    assert all("a transform computes it in float" in unit["reason"] for unit in measured(mod)["left_float"])


def test_small_powers_keep_their_logarithm() -> None:
    mod = network(scores)
    samples = [{"x": (10.0**-power * RNG.normal(size=(FRAMES, LENGTH))).astype("float32")} for power in (0, 1, 1, 2)]

    def reached(transforms: IsTransform) -> float:
        after = QuantizeInt8(
            samples, elementwise=OPERATORS, is_transform=transforms, float_io=True, min_snr_db=-100.0
        )(mod)  # fmt: skip
        ratio = Ratio()
        for sample in samples:
            ratio.add(run(mod, sample["x"]), run(after, sample["x"]))
        return ratio.db

    assert reached(lambda _: False) < 25
    assert reached(is_transform) > 35


def test_other_matrices_are_quantized() -> None:
    changed = basis()
    changed[3, 8] += 0.1
    mod = quantized(network(lambda emit, x: powers(emit, x, changed)), min_snr_db=-100.0)
    assert left(mod) == []


def test_what_is_computed_from_samples_ahead_of_the_transform_stays_in_float_too() -> None:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        later = emit(OP.strided_slice(x, [1], [1], [LENGTH]), "later")
        padded = emit(OP.concat([later, emit(OP.strided_slice(x, [1], [0], [1]), "first")], axis=1), "shifted")
        emphasized = emit(OP.subtract(x, emit(OP.multiply(padded, relax.const(0.97)), "earlier")), "emphasized")
        weights = relax.const(RNG.normal(size=(BINS, 3)).astype("float32"))
        return emit(OP.matmul(powers(emit, emphasized), weights), "scores")

    mod = quantized(network(body))
    assert left(mod) == ["earlier", "emphasized", "parts", "squares", "powers"]


def test_a_network_ahead_of_the_transform_is_quantized_and_so_is_its_mask_on_a_spectrum() -> None:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        weights = RNG.normal(size=(LENGTH, BINS)).astype("float32")
        mask = emit(OP.sigmoid(emit(OP.matmul(x, relax.const(weights)), "wanted")), "mask")
        return emit(OP.multiply(powers(emit, x), mask), "masked")

    mod = quantized(network(body))
    assert left(mod) == ["parts", "squares", "powers"]
    types = {unit["name"]: unit["dtype"] for unit in measured(mod)["operators"]}
    assert types["wanted"] == types["mask"] == types["gv"] == "int8"


def test_processors_without_an_fpu_compute_spectra_in_int8() -> None:
    network_without_log = network(lambda emit, x: powers(emit, x))
    mod = quantized(network_without_log, float_allowed=False)
    assert left(mod) == []


def test_a_model_of_spectra_alone_has_nothing_to_quantize() -> None:
    with pytest.raises(UnsupportedModel, match="no float operator of the model has an int8 form"):
        quantized(network(lambda emit, x: powers(emit, x)))


def test_16_bits_are_for_the_operators_that_may_be_integers() -> None:
    mod = quantized(network(wake_word), activations="int16")
    assert [unit["name"] for unit in measured(mod)["widths"]] == ["gv"]
