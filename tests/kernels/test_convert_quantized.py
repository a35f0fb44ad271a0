"""Float to integers and back: C against reference, whole, in parts and in rings; ties, borders, not a number."""

from __future__ import annotations

import numpy as np
import pytest

from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.elementwise import convert_quantized
from codegen_c.operators.kinds import Convert, Quantization, TensorType
from tests.kernels.harness import HOST, run_kernel, run_ring, smallest_rings

SHAPES = [(1, 5, 4, 3), (2, 3, 2, 5), (7,), ()]
QUANTIZATIONS = [
    ("int8", Quantization(scale=0.1, zero_point=-5)),
    ("uint8", Quantization(scale=3.5, zero_point=130)),
    ("int8", Quantization(scale=1 / 128, zero_point=0)),
]


def convert(shape: tuple[int, ...], source: str, output: str, quantization: Quantization) -> Convert:
    types = [TensorType(shape=shape, dtype=dtype) for dtype in (source, output)]
    return Convert(inputs=(types[0],), outputs=(types[1],), quantization=quantization)


def sample(operator: Convert) -> np.ndarray:
    random, source = np.random.default_rng(0), operator.inputs[0]
    if source.dtype != "float32":
        info = np.iinfo(source.dtype)
        return random.integers(info.min, info.max + 1, source.shape).astype(source.dtype)
    scale = operator.quantization.scale
    return (random.normal(size=source.shape) * 90 * scale).astype(np.float32)


@pytest.mark.parametrize(("dtype", "quantization"), QUANTIZATIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_both_ways(shape: tuple[int, ...], dtype: str, quantization: Quantization) -> None:
    for source, output in (("float32", dtype), (dtype, "float32")):
        operator = convert(shape, source, output, quantization)
        implementation = convert_quantized.KERNEL.implement(operator, HOST, StoredRows())
        x = sample(operator)
        (wanted,) = implementation.reference([x])
        assert wanted.dtype == output
        np.testing.assert_array_equal(run_kernel(operator, implementation, [x])[0], wanted)
        if implementation.spatial is None:
            continue
        parts = run_kernel(operator, implementation, [x], rows=[(0, 2), (2, 3), (3, shape[1])])
        np.testing.assert_array_equal(parts[0], wanted)
        stored = smallest_rings(implementation)
        ring = convert_quantized.KERNEL.implement(operator, HOST, stored)
        np.testing.assert_array_equal(run_ring(operator, ring, stored, [x])[0], wanted)


def test_ties_borders_and_what_is_no_number() -> None:
    quantization = Quantization(scale=0.5, zero_point=1)
    x = np.array([0.25, 0.75, -0.25, 63.0, 63.5, 1e30, -1e30, np.inf, -np.inf, np.nan, -64.5, -65.0], np.float32)
    operator = convert(x.shape, "float32", "int8", quantization)
    implementation = convert_quantized.KERNEL.implement(operator, HOST, StoredRows())
    expected = [1, 3, 1, 127, 127, 127, -128, 127, -128, -128, -128, -128]
    np.testing.assert_array_equal(run_kernel(operator, implementation, [x])[0], np.array(expected, np.int8))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(implementation.reference([x])[0], np.array(expected, np.int8))
