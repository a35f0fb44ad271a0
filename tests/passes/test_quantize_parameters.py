"""Parameters that QuantizeInt8 gives: ranges of activations, weights, biases and their correction."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relay_passes.analysis.calibrate import calibrate, choose_range
from relay_passes.analysis.correct_biases import correct_biases
from relay_passes.analysis.int8_parameters import affine_of_range, quantize_linear
from relay_passes.analysis.quantization_units import units_of
from relay_passes.analysis.run_units import IntegerChoice, UnitRunner
from tests.passes.float_modules import (
    IMAGE,
    OP,
    WEIGHTS,
    build,
    conv,
    quantized,
    samples_of,
)
from tests.passes.modules import module_of
from tests.passes.stub_backend import ELEMENTWISE
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.frontends.load import load


def test_infinite_activations_are_named() -> None:
    mod = build(lambda b, x: b.emit(conv(b.emit(OP.exp(b.emit(OP.multiply(x, relax.const(1e4)))), "huge"))))
    with pytest.raises(UnsupportedModel, match="'huge' is not finite"):
        quantized(mod)


def test_ranges_are_clipped_where_that_helps() -> None:
    even = choose_range(np.full(4096, 10, "int64"), -1.0, 1.0)
    assert even == affine_of_range(-1.0, 1.0)
    outlier = np.zeros(4096, "int64")
    outlier[:400], outlier[-1] = 10000, 1
    assert choose_range(outlier, 0.0, 10.0).scale < affine_of_range(0.0, 10.0).scale / 5
    assert choose_range(np.zeros(4096, "int64"), 0.0, 0.0).scale == 1.0


@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (-1.0, 1.0), (-3.0, -1.0), (2.0, 3.0), (-1e-3, 1e3), (0, 1e-44)])
def test_zero_is_exact(low: float, high: float) -> None:
    affine = affine_of_range(low, high)
    assert affine.rounded(np.zeros(1, "float32")) == 0
    ends = np.array([min(low, 0.0), max(high, 0.0)], "float32")
    assert np.abs(affine.rounded(ends) - ends).max() <= affine.scale


def test_weights_and_biases() -> None:
    """A channel of zeros, and one whose bias would not fit 32 bits at the scale its weights ask for."""
    weight = np.array([[0.0, 0.0], [1.0, -0.5], [1e-9, 0.0]], "float32")
    linear = quantize_linear(weight, 0, np.array([0.0, 0.25, 8.0], "float32"), 0.1)
    assert linear.weight.tolist()[:2] == [[0, 0], [127, -64]]
    np.testing.assert_allclose(linear.real_bias, [0.0, 0.25, 8.0], rtol=1e-6, atol=1e-3)
    assert np.abs(linear.bias.astype("int64")).max() <= 1 << 29 and (linear.weight_scale > 0).all()


def test_bias_correction_takes_back_the_mean_error() -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(2, 2, 3, 3)).astype("float32")
    weight[:, 0, 0, 0] = 12.0  # one large weight a channel: the others are rounded coarsely
    mod = build(lambda b, x: b.emit(OP.nn.conv2d(x, relax.const(weight))))
    samples = [{"x": rng.uniform(0.5, 1.5, IMAGE).astype("float32")} for _ in range(16)]
    runner = UnitRunner(mod, units_of(mod["main"], ELEMENTWISE))
    activations = calibrate(runner, samples).narrow
    inputs = frozenset(mod["main"].params)
    integer = IntegerChoice(units=frozenset({0}), activations=activations, inputs=inputs)
    corrected = correct_biases(runner, samples, integer)
    plain = {0: quantize_linear(weight, 0, np.zeros(2, "float32"), activations[mod["main"].params[0]].scale)}

    def mean_error(linear: dict[int, object]) -> float:
        choice = IntegerChoice(units=frozenset({0}), activations=activations, linear=linear)
        errors = [
            runner.compute(0, runner.start(s)).before_clamps - runner.compute(0, runner.start(s), choice).before_clamps
            for s in samples
        ]
        return float(np.abs(np.mean(errors, axis=(0, 1, 3, 4))).max())

    assert mean_error(corrected) < mean_error(plain) / 10


def test_bias_correction_of_one_channel_and_several_images() -> None:
    x = relax.Var("x", relax.TensorType((2, 2, 4, 4), "float32"))
    mod = load(module_of([x], lambda b: b.emit(OP.nn.conv2d(x, relax.const(WEIGHTS[:1])))))
    samples = samples_of(mod)
    runner = UnitRunner(mod, units_of(mod["main"], ELEMENTWISE))
    choice = IntegerChoice(
        units=frozenset({0}), activations=calibrate(runner, samples).narrow, inputs=frozenset(mod["main"].params)
    )
    (linear,) = correct_biases(runner, samples, choice).values()
    assert linear.bias.shape == (1,) and linear.weight.shape == (1, 2, 3, 3)
