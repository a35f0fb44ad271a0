"""Branches that a network joins by channels write where the joined tensor lies: fewer bytes, the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper

import tvm_ext
from tests.support.onnx_models import model_of, saved, weights
from tests.support.poison import run_poisoned
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_model
from tvm_ext.verification.input_ranges import random_inputs

NODE = helper.make_node
JOIN = "concat"


def fire(blocks: int = 2) -> onnx.ModelProto:
    """A module like SqueezeNet's: few channels, from which three branches make many; among them an upsampled one."""
    nodes: list[NodeProto] = []
    constants: dict[str, np.ndarray] = {"scales": np.array([1, 1, 2, 2], np.float32)}

    def conv(source: str, target: str, channels: tuple[int, int], kernel: int, stride: int = 1, group: int = 1) -> str:
        constants[f"{target}_w"] = weights(channels[1], channels[0] // group, kernel, kernel, seed=len(constants))
        raw, pads = f"{target}_raw", [kernel // 2] * 4
        nodes.append(NODE("Conv", [source, f"{target}_w"], [raw], pads=pads, strides=[stride, stride], group=group))
        nodes.append(NODE("Relu", [raw], [target]))
        return target

    last, channels = conv("x", "stem", (3, 16), 3), 16
    for block in range(blocks):
        squeezed = conv(last, f"squeezed{block}", (channels, 16), 1)
        branches = [
            conv(squeezed, f"pointwise{block}", (16, 12), 1),
            conv(squeezed, f"square{block}", (16, 7), 3),
            conv(squeezed, f"depthwise{block}", (16, 16), 3, group=16),
        ]
        nodes.append(
            NODE(
                "Resize",
                [conv(squeezed, f"small{block}", (16, 5), 3, 2), "", "scales"],
                [f"large{block}"],
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            )
        )
        nodes.append(NODE("MaxPool", [squeezed], [f"pool{block}"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
        nodes.append(NODE("Concat", branches[:2], [f"inner{block}"], axis=1))
        joined = [f"inner{block}", branches[2], f"large{block}", f"pool{block}"]
        nodes.append(NODE("Concat", joined, [f"joined{block}"], axis=1))
        last, channels = f"joined{block}", 12 + 7 + 16 + 5 + 16
    nodes += [NODE("GlobalAveragePool", [last], ["gap"]), NODE("Flatten", ["gap"], ["y"])]
    return model_of(nodes, {"x": (1, 3, 12, 12)}, ["y"], constants)


@pytest.mark.parametrize("platform", some_of(["cortex_m55"], sweep=["host", "cortex_m4"]))
@pytest.mark.parametrize("quantize", ["none", "int8"])
def test_branches_are_born_in_the_joined_tensor(
    tmp_path: Path, platform: str, quantize: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tvm_ext.load(saved(fire(), tmp_path))
    samples = np.random.default_rng(5).normal(size=(4, 3, 12, 12)).astype(np.float32)
    calibration = {"x": samples} if quantize == "int8" else None
    options = BuildOptions(quantize=quantize)  # pyright: ignore[reportArgumentType]
    _, joined = compile_model(module, Platform.load(platform), options, calibration)
    monkeypatch.setattr("codegen_c.backend.build.with_views", lambda program, apart=(): program)
    _, copied = compile_model(module, Platform.load(platform), options, calibration)
    assert not [call.name for call in joined.program.kernel_calls() if call.implementation.kernel == JOIN]
    assert joined.plan.arena_bytes < copied.plan.arena_bytes
    inputs = random_inputs({port.source: (port.shape, port.dtype) for port in joined.interface.inputs}, 3)
    found, destroyed = run_poisoned(joined, inputs)
    expected, _ = run_poisoned(copied, inputs)
    assert destroyed > 0
    np.testing.assert_array_equal(found["y"], expected["y"])
