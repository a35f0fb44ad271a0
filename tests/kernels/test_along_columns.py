"""Windows over images of one column are computed as images of one row, over their input as near as they promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen_c.arena.overlap import distances
from codegen_c.kernels.contract import Implementation, StoredRows, Target
from codegen_c.kernels.registry import kernels, select
from codegen_c.kernels.shared.sequences import along_columns, as_one_row
from codegen_c.operators.kinds import Conv2d, Operator, Pool2d, QConv2d, QPool2d, Quantization, TensorType, Window
from codegen_c.program.tensors import Tensor
from codegen_c.targets.registry import target_of
from tests.kernels.dsp import CORTEX_M4
from tests.kernels.float32 import floats
from tests.kernels.guarded import Guarded
from tests.kernels.harness import HOST, PORTABLE, Entry, call_rows, compile_kernels, run_kernel
from tests.kernels.quantized import limits
from tests.support.sweeps import some_of
from tvm_ext.core.platform import Platform

TARGETS = {
    "portable": PORTABLE, "host": HOST, "cortex_m4": CORTEX_M4,
    "cortex_m0plus": target_of(Platform.load("cortex_m0plus").processor),
}  # fmt: skip
SOME = some_of(["host", "cortex_m4"], sweep=["portable", "cortex_m0plus"])
ALWAYS = {"conv2d_f32", "depthwise_f32", "pool2d_f32", "qpool2d_i8"}
OWN = {"cortex_m4": {"qconv2d_dsp", "qdepthwise_dsp"}, "cortex_m0plus": {"qconv2d_armv6m", "qdepthwise_armv6m"}}


def drawn(seed: int) -> list[Operator]:
    """A convolution, a depthwise one and pools over one sequence, as floats and as int8."""
    rng = np.random.default_rng(seed)
    taps, stride, dilation = int(rng.integers(2, 6)), int(rng.integers(1, 3)), int(rng.integers(1, 3))
    before, after = (int(side) for side in rng.integers(0, taps, 2))
    steps, channels, results = int(rng.integers(20, 40)), 4 * int(rng.integers(1, 4)), int(rng.integers(1, 14))
    reach = (taps - 1) * dilation
    window = Window(kernel=(taps, 1), strides=(stride, 1), dilation=(dilation, 1), padding=(before, 0, after, 0))
    rows = (steps + before + after - reach - 1) // stride + 1
    pool = Window(kernel=(taps, 1), strides=(stride, 1))
    pooled = (steps - taps) // stride + 1

    def integers(*shape: int) -> TensorType:
        return TensorType(shape=shape, dtype="int8", quantization=Quantization(scale=0.05, zero_point=3))

    found: list[Operator] = []
    for output, groups, depth in ((results, 1, channels), (channels, channels, 1)):
        bias, weight = rng.normal(size=output), rng.normal(size=(output, taps, 1, depth))
        found += [
            Conv2d(
                inputs=(floats(1, steps, 1, channels),), outputs=(floats(1, rows, 1, output),), groups=groups,
                weight=weight.astype(np.float32), bias=bias.astype(np.float32), window=window,
            ),
            QConv2d(
                inputs=(integers(1, steps, 1, channels),), outputs=(integers(1, rows, 1, output),), groups=groups,
                weight=np.clip(weight * 40, -127, 127).astype(np.int8), bias=(bias * 500).astype(np.int32),
                weight_scale=np.full(output, 0.02, np.float32), window=window, low=-128, high=127,
            ),
        ]  # fmt: skip
    for method in ("max", "average"):
        shapes = (1, steps, 1, channels), (1, pooled, 1, channels)
        found += [
            Pool2d(inputs=(floats(*shapes[0]),), outputs=(floats(*shapes[1]),), method=method, window=pool),
            QPool2d(
                inputs=(integers(*shapes[0]),), outputs=(integers(*shapes[1]),), method=method, window=pool,
                low=-128, high=127,
            ),
        ]  # fmt: skip
    return found


def elements(tensor: TensorType, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if tensor.dtype == "float32":
        return rng.normal(size=tensor.shape).astype(np.float32)
    low, high = limits(tensor)
    return rng.integers(low, high + 1, tensor.shape).astype(tensor.dtype)


def tensor(kind: TensorType) -> Tensor:
    return Tensor(name="x", source="x", shape=kind.shape, dtype=kind.dtype, memory="sram")


def over_the_input(operator: Operator, made: Implementation, array: np.ndarray, entry: Entry, up: int) -> np.ndarray:
    """The output of a kernel whose input begins `up` bytes behind the begin of its output."""
    size = max(up + array.nbytes, operator.output.num_elements * array.itemsize)
    guarded = Guarded((size,), "uint8")
    source = guarded.array[up : up + array.nbytes].view(array.dtype).reshape(array.shape)
    source[...] = array
    output = guarded.array[: operator.output.num_elements * array.itemsize].view(array.dtype)
    output = output.reshape(operator.output.shape)
    call_rows(entry, made, [source], [output], 0, 1)
    assert guarded.is_intact(), "written outside the output"
    return output


def made_along_columns(operator: Operator, target: Target) -> list[Implementation]:
    """Every kernel of a target that takes an operator as an image of one row."""
    form = as_one_row(operator)
    assert form is not None
    asked = [kernel for kernel in kernels() if kernel.operator is type(form) and not kernel.refuses(form, target)]
    return [along_columns(operator, kernel.implement(form, target, StoredRows())) for kernel in asked]


@pytest.mark.parametrize("name", SOME)
def test_outputs_may_lie_over_the_input(name: str) -> None:
    found = [
        (operator, made)
        for seed in range(4)
        for operator in drawn(seed)
        for made in made_along_columns(operator, TARGETS[name])
    ]
    entries, overlaps = compile_kernels([made for _, made in found]), set[str]()
    for index, ((operator, made), entry) in enumerate(zip(found, entries, strict=True)):
        array = elements(operator.inputs[0], index)
        (apart,) = run_kernel(operator, replace(made, spatial=None), [array], entry=entry)
        up, _ = distances(made, 0, tensor(operator.inputs[0]), tensor(operator.output))
        np.testing.assert_array_equal(over_the_input(operator, made, array, entry, up), apart, made.kernel)
        if up < apart.nbytes:
            overlaps.add(made.kernel)
    assert overlaps >= ALWAYS | OWN.get(name, set()), "most outputs may lie over inputs"


@pytest.mark.parametrize("name", SOME)
def test_the_whole_and_its_rows_are_the_same_bits(name: str) -> None:
    """The selected kernels compute the same bits for the whole operator and for one row at a time."""
    operators = [operator for seed in range(2) for operator in drawn(seed)]
    found = [select(operator, TARGETS[name]) for operator in operators]
    assert all(isinstance(made, Implementation) for made in found)
    entries = compile_kernels([made for made in found if isinstance(made, Implementation)])
    for operator, made, entry in zip(operators, found, entries, strict=True):
        assert isinstance(made, Implementation)
        array = elements(operator.inputs[0], 5)
        (whole,) = run_kernel(operator, made, [array], entry=entry)
        (expected,) = made.reference([array])
        tolerance = 0 if made.exact else 1e-5
        np.testing.assert_allclose(whole.astype(np.float64), expected, rtol=tolerance, atol=tolerance)
        by_rows = made.in_rows or made.keeping
        assert by_rows is not None
        rows = by_rows(StoredRows(at_once=1))
        (in_rows,) = run_kernel(operator, rows, [array], [(h, h + 1) for h in range(operator.output.shape[1])])
        np.testing.assert_array_equal(in_rows, whole, made.kernel)


def test_a_batch_is_computed_as_images_of_one_row_too() -> None:
    (operator, *_) = drawn(1)
    shapes = [(2, *kind.shape[1:]) for kind in (*operator.inputs, operator.output)]
    batch = replace(operator, inputs=(floats(*shapes[0]),), outputs=(floats(*shapes[1]),))
    one, two = select(operator, CORTEX_M4), select(batch, CORTEX_M4)
    assert isinstance(one, Implementation) and isinstance(two, Implementation)
    assert two.instructions <= 2 * one.instructions, "of a batch, too, columns are computed several at a time"
    array = elements(batch.inputs[0], 3)
    (found,) = run_kernel(batch, two, [array])
    np.testing.assert_allclose(found, two.reference([array])[0], rtol=1e-5, atol=1e-5)
