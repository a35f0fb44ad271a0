"""The stand-in for a driver computes what the kernels do, bit for bit; some layers a driver is not given."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.emit.banner import Origin
from codegen_c.emit.offload import emit_offload
from codegen_c.kernels.contract import Implementation, Refusal, Target
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import (
    Elementwise,
    Operator,
    QBinary,
    QConv2d,
    QPool2d,
    Quantization,
    Rounding,
    TensorType,
    Window,
)
from codegen_c.operators.scalar import Instruction, Operand, ScalarProgram
from codegen_c.targets.registry import target_of
from tests.arena.programs import call, program
from tests.kernels.float32 import TOLERANCE, floats, number, value
from tests.kernels.float32 import elements as float_elements
from tests.kernels.float32 import program as scalar_program
from tests.kernels.harness import FLAGS, HOST, source_text
from tests.kernels.quantized import FEW, elements, seeds
from tests.kernels.test_f32_conv2d import convolutions as float_convolutions
from tests.kernels.test_f32_dense import layers as float_dense_layers
from tests.kernels.test_f32_pool2d import pools as float_pools
from tests.kernels.test_qbinary import binaries
from tests.kernels.test_qconv2d import convolutions
from tests.kernels.test_qdense import dense_layers
from tests.kernels.test_qpool2d import pools
from tests.support.offload_platforms import ALL_KINDS, COSTS, with_accelerator
from tests.support.runtime_headers import INCLUDE_FLAGS

PLATFORM = with_accelerator("host", dict.fromkeys(ALL_KINDS, COSTS))
roundings = st.sampled_from(("onnx", "tflite"))


def target(**kinds: dict[str, Any]) -> Target:
    platform = with_accelerator("host", kinds) if kinds else PLATFORM
    return target_of(platform.processor_named("npu"))


def has_one_type(operator: Operator) -> bool:
    return {tensor.dtype for tensor in operator.inputs} == {operator.output.dtype}


def run(implementations: Sequence[Implementation], operators: Sequence[Operator], early: int, seed: int) -> None:
    """Starts and waits for each layer once; its bytes are there behind the wait, and at the start only where early."""
    steps = [replace(call(f"c{i}", "x", "y"), implementation=one) for i, one in enumerate(implementations)]
    origin = Origin(generator="g", model="m", sha256="", platform="p")
    texts = emit_offload(program({"x": 1, "y": 1}, *steps), "net", origin, PLATFORM)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in {**texts, "kernels.c": f'#include "npu_driver.h"\n{source_text(implementations)}'}.items():
            (folder / file).write_text(text, encoding="utf-8")
        sources = [str(folder / "kernels.c"), str(folder / "net_offload_reference.c")]
        flags = [*FLAGS, *INCLUDE_FLAGS, f"-I{name}", f"-DTVM_EXT_OFFLOAD_EARLY={early}"]
        subprocess.run(["gcc", *flags, *sources, "-o", str(folder / "k.so"), "-lm"], check=True)
        library = ctypes.CDLL(str(folder / "k.so"))
        for index, (one, operator) in enumerate(zip(implementations, operators, strict=True)):
            sources = [drawn_elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)]
            (expected,) = one.reference(sources)
            output = np.full(operator.output.shape, 77, operator.output.dtype)
            held = [*sources, output, *(array for _, array in one.constants)]
            library[f"kernel{index}"](*(array.ctypes.data_as(ctypes.c_void_p) for array in held))
            if not early:
                assert (output == 77).all(), "computed before the wait"
            at_start = output.copy()
            assert library.npu_wait() == 0
            assert early == 0 or np.array_equal(output, at_start)
            if one.exact:
                np.testing.assert_array_equal(output, expected)
            else:
                np.testing.assert_allclose(output, expected, rtol=TOLERANCE, atol=TOLERANCE)
        assert library.tvm_ext_offload_starts() == library.tvm_ext_offload_waits() == len(implementations)
        assert library.npu_wait() == 101, "nothing was started"
        for _ in range(2):
            library.kernel0(*(array.ctypes.data_as(ctypes.c_void_p) for array in operands(implementations, operators)))
        assert library.npu_wait() == 102, "started twice"


def operands(implementations: Sequence[Implementation], operators: Sequence[Operator]) -> list[np.ndarray]:
    """Arrays for the first of the kernels."""
    one, operator = implementations[0], operators[0]
    return [
        *(drawn_elements(tensor, 1) for tensor in operator.inputs),
        np.zeros(operator.output.shape, operator.output.dtype), *(array for _, array in one.constants),
    ]  # fmt: skip


def drawn_elements(tensor: TensorType, seed: int) -> np.ndarray:
    return float_elements(tensor, seed) if tensor.dtype == "float32" else elements(tensor, seed)


def implemented(operators: Sequence[Operator]) -> tuple[list[Implementation], list[Operator]]:
    """Layers that the accelerator takes, each with its kernel; others no core takes either."""
    found = [(select(operator, target()), operator) for operator in operators]
    for made, operator in found:
        assert isinstance(made, Implementation) or not isinstance(select(operator, HOST), Implementation)
    taken = [(made, operator) for made, operator in found if isinstance(made, Implementation)]
    return [made for made, _ in taken], [operator for _, operator in taken]


def of_image(operator: QBinary) -> QBinary:
    """The same of elements in one row of an image."""
    inputs, outputs = (
        tuple(replace(tensor, shape=(1, 1, 1, tensor.num_elements)) for tensor in tensors)
        for tensors in (operator.inputs, operator.outputs)
    )
    return replace(operator, inputs=inputs, outputs=outputs, function="add")


LAYERS = st.one_of(
    convolutions().filter(lambda one: one.groups == 1), convolutions(depthwise=True),
    dense_layers(shapes=st.just((1,))), pools(), binaries().map(of_image),
).filter(has_one_type)  # fmt: skip
BOUNDS = (
    scalar_program(),
    scalar_program(("maximum", value(), number(0.0))),
    scalar_program(("maximum", value(), number(-0.5)), ("minimum", value(1), number(0.5))),
)
FLOAT_LAYERS = st.one_of(
    float_convolutions().filter(lambda one: one.groups == 1), float_convolutions("depthwise"),
    float_dense_layers(shapes=st.just((1,))), float_pools(),
).map(lambda one: replace(one, inputs=one.inputs[:1]))  # fmt: skip
FIRST, SECOND = Operand(kind="input", index=0), Operand(kind="input", index=1)


def sum_of(bounds: ScalarProgram) -> Elementwise:
    """A sum of two images, with bounds behind it."""
    behind = [
        replace(one, operands=(value(index), one.operands[1])) for index, one in enumerate(bounds.instructions, start=1)
    ]
    finish = ScalarProgram(instructions=(Instruction(function="add", operands=(FIRST, SECOND)), *behind))
    return Elementwise(inputs=(floats(1, 2, 3, 5),) * 2, outputs=(floats(1, 2, 3, 5),), finish=finish)


@settings(parent=FEW, max_examples=3)
@given(st.lists(LAYERS, min_size=6, max_size=8), roundings, st.sampled_from((0, 1)), seeds)
def test_stand_in_computes_what_kernels_do(layers: list[Operator], rounding: Rounding, early: int, seed: int) -> None:
    operators = [replace(layer, rounding=rounding) for layer in layers]  # pyright: ignore[reportCallIssue]
    implementations, operators = implemented(operators)
    if implementations:
        run(implementations, operators, early, seed)


@settings(parent=FEW, max_examples=3)
@given(st.lists(FLOAT_LAYERS, min_size=4, max_size=6), st.sampled_from(BOUNDS), st.sampled_from((0, 1)), seeds)
def test_stand_in_computes_floats(layers: list[Operator], bounds: ScalarProgram, early: int, seed: int) -> None:
    operators = [*(replace(layer, finish=bounds) for layer in layers), sum_of(bounds)]  # pyright: ignore[reportCallIssue]
    implementations, operators = implemented(operators)
    assert len(operators) == len(layers) + 1 and not any(one.computes_floats for one in implementations)
    run(implementations, operators, early, seed)


@pytest.mark.parametrize("method", ["max", "average"])
@pytest.mark.parametrize("rounding", ["onnx", "tflite"])
@pytest.mark.parametrize("is_mean", [False, True])
def test_every_kind_of_pool(method: Literal["max", "average"], rounding: Rounding, is_mean: bool) -> None:
    """Padding on two sides only, so that windows have several numbers of elements; on one scale, and to another one."""
    pool, other = drawn_pool(), Quantization(scale=0.37, zero_point=3)
    operator = replace(pool, method=method, rounding=rounding, is_mean=is_mean)
    far = replace(operator, outputs=(replace(pool.output, quantization=other),))
    implementations, operators = implemented([operator, far])
    assert implementations and len(implementations) == 1 + (method == "average" and (rounding == "onnx" or is_mean))
    run(implementations, operators, 0, 5)


def drawn_pool() -> QPool2d:
    image = Quantization(scale=0.25, zero_point=-7)
    return QPool2d(
        inputs=(TensorType(shape=(1, 5, 4, 3), dtype="int8", quantization=image),),
        outputs=(TensorType(shape=(1, 3, 2, 3), dtype="int8", quantization=image),),
        method="max", window=Window(kernel=(3, 3), strides=(2, 2), padding=(1, 0, 1, 1)), low=-100, high=90,
    )  # fmt: skip


def drawn(strategy: st.SearchStrategy[QConv2d]) -> QConv2d:
    found: list[QConv2d] = []

    @FEW
    @given(strategy)
    def draw(one: QConv2d) -> None:
        found.append(one)  # the first one is the simplest

    draw()
    return found[0]


IMAGES = convolutions().filter(lambda one: has_one_type(one) and min(one.output.shape[1:]) > 1)
CONV = drawn(IMAGES.filter(lambda one: one.groups == 1))
GROUPED = drawn(IMAGES.filter(lambda one: one.groups == 2 < one.inputs[0].shape[3]))


@pytest.mark.parametrize(
    ("operator", "kinds"),
    [
        (CONV, {"dense": {}}),
        (CONV, {"conv2d": {"most_shape": (1, 1, 1, 1), "most_kernel": (11, 11)}, "depthwise": {}}),
        (replace(CONV, window=replace(CONV.window, kernel=(12, 1))), {"conv2d": {}}),
        (CONV, {"conv2d": {"roundings": ("tflite",)}}),
        (replace(CONV, outputs=(replace(CONV.output, dtype="int16"),)), {"conv2d": {}}),
        (GROUPED, {"conv2d": {}, "depthwise": {}}),
        (CONV, {"conv2d_f32": {}, "depthwise_f32": {}}),
    ],
)
def test_refused_by_drivers(operator: QConv2d, kinds: dict[str, dict[str, Any]]) -> None:
    refusals = select(operator, target(**kinds))
    assert isinstance(refusals, tuple) and all(isinstance(refusal, Refusal) for refusal in refusals)
    assert {refusal.kernel for refusal in refusals} >= {"offload_conv2d", "offload_depthwise"}


LAST = Operand(kind="value", index=1)


@pytest.mark.parametrize(
    ("operator", "kinds", "reason"),
    [
        (replace(drawn_pool(), method="average"), {"max_pool": {}}, "must support a pool of its method"),
        (drawn_pool(), {"max_pool": {"most_kernel": (3, 2)}}, "must support a pool of its method"),
        (replace(drawn_pool(), method="average"), {"average_pool": {"roundings": ("tflite",)}}, "and rounding"),
        (drawn_pool(), {"max_pool": {"roundings": ("tflite",)}}, ""),
        (sum_of(BOUNDS[1]), {"add": {}}, "must support a sum of floats"),
        (sum_of(BOUNDS[1]), {"add_f32": {"most_shape": (1, 2, 3, 4)}}, "must support a sum of floats of its shape"),
        (sum_of(scalar_program(("maximum", value(), SECOND))), {"add_f32": {}}, "clamped to bounds and nothing"),
        (sum_of(scalar_program(("multiply", value(), number(2.0)))), {"add_f32": {}}, "clamped to bounds"),
        (
            sum_of(scalar_program(("maximum", value(), number(1.0)), ("minimum", LAST, number(0.0)))),
            {"add_f32": {}}, "clamped to bounds",
        ),
        (replace(sum_of(BOUNDS[0]), inputs=(floats(1, 2, 3, 5), floats(5))), {"add_f32": {}}, "of one shape"),
    ],
)  # fmt: skip
def test_reasons_of_refusals(operator: Operator, kinds: dict[str, dict[str, Any]], reason: str) -> None:
    """None for a maximum, which is not rounded."""
    found = select(operator, target(**kinds))
    if not reason:
        assert isinstance(found, Implementation)
        return
    assert isinstance(found, tuple) and any(reason in refusal.reason for refusal in found), found


def test_elements_that_count_as_products() -> None:
    costs = {"cycles_per_call": 7, "cycles_per_mac": 2.0, "cycles_per_byte": 3.0}
    pool, added = select(drawn_pool(), target(max_pool=costs)), select(sum_of(BOUNDS[0]), target(add_f32=costs))
    assert isinstance(pool, Implementation) and isinstance(added, Implementation)
    assert pool.macs == added.macs == 0
    assert pool.instructions == 7 + 2 * 9 * 18 + 3 * (60 + 18)
    assert added.instructions == 7 + 2 * 30 + 3 * 4 * 90


def test_cores_run_no_driver() -> None:
    made = select(CONV, HOST)
    assert isinstance(made, Implementation) and made.driver is None
    assert not any("offload" in other.kernel for other in made.alternatives)


def test_plain_weights_and_costs() -> None:
    costs = {"cycles_per_call": 7, "cycles_per_mac": 2.0, "cycles_per_byte": 3.0}
    made = select(CONV, target(conv2d=costs))
    assert isinstance(made, Implementation) and made.spatial is None and made.driver is not None
    constants = dict(made.constants)
    np.testing.assert_array_equal(constants["weights"], CONV.weight)
    np.testing.assert_array_equal(constants["bias"], CONV.bias)
    channels = CONV.weight.shape[0]
    assert constants["multipliers"].shape == constants["shifts"].shape == (channels,)
    moved = CONV.inputs[0].num_elements + CONV.output.num_elements + CONV.weight.size + 12 * channels
    assert made.instructions == 7 + 2 * made.macs + 3 * moved
