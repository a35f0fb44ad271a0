"""The stand-in for a driver computes what the kernels do, bit for bit; some layers a driver is not given."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.emit.banner import Origin
from codegen_c.emit.offload import emit_offload
from codegen_c.kernels.contract import Implementation, Refusal, Target
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import Operator, QConv2d, Rounding
from codegen_c.targets.registry import target_of
from tests.arena.programs import call, program
from tests.kernels.harness import FLAGS, HOST, source_text
from tests.kernels.quantized import FEW, elements, seeds
from tests.kernels.test_qconv2d import convolutions
from tests.kernels.test_qdense import dense_layers
from tests.support.offload_platforms import with_accelerator
from tests.support.runtime_headers import INCLUDE_FLAGS

PLATFORM = with_accelerator("host")
roundings = st.sampled_from(("onnx", "tflite"))


def target(**kinds: dict[str, Any]) -> Target:
    platform = with_accelerator("host", kinds) if kinds else PLATFORM
    return target_of(platform.processor_named("npu"))


def has_one_type(operator: Operator) -> bool:
    return operator.inputs[0].dtype == operator.output.dtype


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
            source = elements(operator.inputs[0], seed)
            (expected,) = one.reference([source])
            output = np.full(operator.output.shape, 77, operator.output.dtype)
            held = [source, output, *(array for _, array in one.constants)]
            library[f"kernel{index}"](*(array.ctypes.data_as(ctypes.c_void_p) for array in held))
            if not early:
                assert (output == 77).all(), "computed before the wait"
            assert early == 0 or np.array_equal(output, expected)
            assert library.npu_wait() == 0
            np.testing.assert_array_equal(output, expected)
        assert library.tvm_ext_offload_starts() == library.tvm_ext_offload_waits() == len(implementations)
        assert library.npu_wait() == 101, "nothing was started"
        for _ in range(2):
            library.kernel0(*(array.ctypes.data_as(ctypes.c_void_p) for array in operands(implementations, operators)))
        assert library.npu_wait() == 102, "started twice"


def operands(implementations: Sequence[Implementation], operators: Sequence[Operator]) -> list[np.ndarray]:
    """Arrays for the first of the kernels."""
    one, operator = implementations[0], operators[0]
    return [
        elements(operator.inputs[0], 1), np.zeros(operator.output.shape, operator.output.dtype),
        *(array for _, array in one.constants),
    ]  # fmt: skip


def implemented(operators: Sequence[Operator]) -> tuple[list[Implementation], list[Operator]]:
    """Layers that the accelerator takes, each with its kernel; others no core takes either."""
    found = [(select(operator, target()), operator) for operator in operators]
    for made, operator in found:
        assert isinstance(made, Implementation) or not isinstance(select(operator, HOST), Implementation)
    taken = [(made, operator) for made, operator in found if isinstance(made, Implementation)]
    return [made for made, _ in taken], [operator for _, operator in taken]


LAYERS = st.one_of(
    convolutions().filter(lambda one: one.groups == 1), convolutions(depthwise=True),
    dense_layers(shapes=st.just((1,))),
).filter(has_one_type)  # fmt: skip


@settings(parent=FEW, max_examples=3)
@given(st.lists(LAYERS, min_size=6, max_size=8), roundings, st.sampled_from((0, 1)), seeds)
def test_stand_in_computes_what_kernels_do(layers: list[Operator], rounding: Rounding, early: int, seed: int) -> None:
    operators = [replace(layer, rounding=rounding) for layer in layers]  # pyright: ignore[reportCallIssue]
    implementations, operators = implemented(operators)
    if implementations:
        run(implementations, operators, early, seed)


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
    ],
)
def test_refused_by_drivers(operator: QConv2d, kinds: dict[str, dict[str, Any]]) -> None:
    refusals = select(operator, target(**kinds))
    assert isinstance(refusals, tuple) and all(isinstance(refusal, Refusal) for refusal in refusals)
    assert {refusal.kernel for refusal in refusals} >= {"offload_conv2d", "offload_depthwise"}


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
