"""MediaPipe's Convolution2DTransposeBias, against TRANSPOSE_CONV with a bias in LiteRT, which lacks the operator."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests.support.tflite_file import TfliteWriter
from tests.support.tflite_runners import litert, referenced, saved_tflite
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.custom import CustomOperator

SAME, VALID = 1, 2


def options(padding: int = SAME, width: int = 2, height: int = 2) -> bytes:
    return struct.pack("<iii", padding, width, height)


def network(
    raw: bytes, size: tuple[int, ...], *, kernel: tuple[int, int] = (3, 4), built_in: bool = False, **changes: Any
) -> bytes:
    """A layer of 5 x 6 pixels and 4 channels to 3 channels, and an ADD to its result.

    size: of the output. built_in: with TRANSPOSE_CONV. changes: of the shape of weights or bias, or of the data's type.
    """
    random, net = np.random.default_rng(3), TfliteWriter()
    x = net.input("x", (1, 5, 6, 4), changes.get("dtype", "float32"))
    weight = net.constant("w", random.normal(size=changes.get("weight", (3, *kernel, 4))).astype(np.float32))
    bias = net.constant("b", random.normal(size=changes.get("bias", (3,))).astype(np.float32))
    t = net.tensor("t", size)
    if built_in:
        padding, width, height = struct.unpack("<iii", raw[:12])
        shape = net.constant("size", np.array(size, np.int32))
        net.operator(
            "TRANSPOSE_CONV", [shape, weight, x, bias], t, "TransposeConvOptions",
            Padding=padding - 1, StrideH=height, StrideW=width,
        )  # fmt: skip
    else:
        net.operator("Convolution2DTransposeBias", changes.get("inputs", [x, weight, bias]), t, custom=raw)
    one = net.constant("one", np.float32([0.5]))
    y = net.operator("ADD", [t, one], net.tensor("y", size), "AddOptions")
    return net.finish([y])


@pytest.mark.parametrize(
    ("raw", "kernel", "size"),
    [
        (options(), (2, 2), (9, 12)),
        (options(), (3, 4), (9, 12)),
        (options(SAME, 3, 2), (5, 4), (9, 18)),
        (options(VALID, 2, 3), (3, 4), (15, 14)),
        (options(SAME, 3, 3), (2, 1), (14, 16)),
        (options(VALID, 1, 1) + bytes(8), (3, 3), (7, 8)),
    ],
)
def test_sums_are_those_of_transpose_conv(
    raw: bytes, kernel: tuple[int, int], size: tuple[int, int], tmp_path: Path
) -> None:
    """A kernel of one tap in strides of three leaves pixels that have only the bias."""
    shape = (1, *size, 3)
    x = np.random.default_rng(0).normal(size=(1, 5, 6, 4)).astype(np.float32)
    found, kernels = referenced(saved_tflite(network(raw, shape, kernel=kernel), tmp_path), [x])
    expected = litert(network(raw, shape, kernel=kernel, built_in=True), [x])
    assert found[0].shape == shape and len(kernels) <= 2
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=2e-6)


def test_litert_verifies_a_package(tmp_path: Path) -> None:
    """It gets the file with TRANSPOSE_CONV."""
    path = saved_tflite(network(options(), (1, 9, 12, 3)), tmp_path)
    package = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out")
    assert package.report["verify"]["host"]["reference"] == "LiteRT"


@pytest.mark.parametrize(
    ("raw", "changes", "reason"),
    [
        (b"", {}, r"its options have 0 B; a TfLiteTransposeConvParams of 12 B is needed"),
        (options()[:11], {}, r"its options have 11 B"),
        (options(0), {}, r"its padding is 0; it is SAME \(1\) or VALID \(2\)"),
        (options(SAME, 0), {}, r"its strides are 2 and 0; they must be 1 to 65536"),
        (options(SAME, 2, -1), {}, r"its strides are -1 and 2"),
        (options(VALID, 65536, 65536), {"weight": (3, 1, 1, 4)}, r"its output would have 262145 rows and 327681 col"),
        (options(SAME, 3, 3), {}, r"its output is \[1, 9, 12, 3\] in the file; .* give \[1, 1[0-9], [0-9]+, 3\]"),
        (options() + struct.pack("<i", 1), {}, r"it has a fused activation, which MediaPipe ignores"),
        (options(), {"weight": (3, 3, 4, 5)}, r"data \[1, 5, 6, 4\], weights \[3, 3, 4, 5\] and bias \[3\] do not fit"),
        (options(), {"bias": (4,)}, r"bias \[4\] do not fit together"),
        (options(), {"inputs": [0, 1]}, r"it has 2 inputs and 1 outputs; 3 and 1 are needed"),
        (options(), {"dtype": "int32"}, r"its tensor 'x' is of type INT32; MediaPipe defines it for float32 only"),
    ],
)
def test_refusals(raw: bytes, changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path = saved_tflite(network(raw, (1, 9, 12, 3), **changes), tmp_path)
    with pytest.raises(UnsupportedModel, match=rf"Convolution2DTransposeBias, once \S+: .*{reason}"):
        tvm_ext.load(path)


def test_an_operator_of_the_user_comes_first(tmp_path: Path) -> None:
    own = CustomOperator(
        name="Convolution2DTransposeBias", outputs=lambda call: call.outputs, reference=lambda _, arrays: [],
        code=lambda _: pytest.fail("refused before"), refuses=lambda _: "it is the user's own",
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for module in ("mediapipe", "custom"):
            patch.setattr(f"tvm_ext.frontends.tflite.{module}.custom_operator", {own.name: own}.get)
        with pytest.raises(UnsupportedModel, match="it is the user's own"):
            tvm_ext.load(saved_tflite(network(options(), (1, 9, 12, 3)), tmp_path))
