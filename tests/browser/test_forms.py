"""The forms of input that a page offers for a model, by the shapes and types of its inputs."""

from __future__ import annotations

import pytest

from codegen_c.operators.kinds import Quantization
from codegen_c.program.interface import Interface, Port
from tvm_ext.browser.forms import forms_of, needs_features, real_range


def interface_of(*shape: int, dtype: str = "float32", layout: str = "", state_bytes: int = 0) -> Interface:
    port = Port(name="x", source="x", shape=shape, dtype=dtype, layout=layout)
    output = Port(name="y", source="y", shape=(1, 3), dtype="float32")
    return Interface(model="m", io="arena", inputs=(port,), outputs=(output,), state_bytes=state_bytes)


@pytest.mark.parametrize(
    ("interface", "kinds"),
    [
        (interface_of(1, 1, 8, 8, layout="NCHW"), ["draw", "vectors"]),
        (interface_of(1, 28, 28, 1, layout="NHWC"), ["draw", "picture", "vectors"]),
        (interface_of(1, 784), ["draw", "picture", "vectors"]),
        (interface_of(1, 96, 96, 3, layout="NHWC", dtype="int8"), ["picture", "vectors"]),
        (interface_of(1, 96, 96, 1, layout="NHWC"), ["picture", "vectors"]),
        (interface_of(1, 49, 10, 1, layout="NHWC", dtype="int8"), ["vectors"]),
        (interface_of(1, 32, 32, 5, layout="NHWC"), ["vectors"]),
        (interface_of(1, 16000), ["sound", "vectors"]),
        (interface_of(1, 640), ["vectors"]),
        (interface_of(1, 320, state_bytes=64), ["sound", "vectors"]),
        (interface_of(1, 480, dtype="int16"), ["sound", "vectors"]),
        (interface_of(1, 4), ["values", "vectors"]),
        (interface_of(1, 0), ["vectors"]),
    ],
)
def test_forms_of_a_model(interface: Interface, kinds: list[str]) -> None:
    assert [form.kind for form in forms_of(interface)] == kinds


def test_a_model_of_features_says_so() -> None:
    assert needs_features(forms_of(interface_of(1, 49, 10, 1, layout="NHWC")))
    assert not needs_features(forms_of(interface_of(1, 1, 8, 8, layout="NCHW")))


def test_the_second_input_can_be_the_picture() -> None:
    numbers = Port(name="n", source="n", shape=(1, 5), dtype="float32")
    (picture,) = interface_of(1, 1, 64, 64, layout="NCHW").inputs
    found = forms_of(Interface(model="m", io="arena", inputs=(numbers, picture), outputs=()))
    assert [(form.kind, form.port) for form in found] == [("draw", 1), ("picture", 1), ("vectors", 0)]


@pytest.mark.parametrize(
    ("dtype", "scale", "zero_point", "expected"),
    [
        ("float32", None, None, (0.0, 1.0)),
        ("uint8", None, None, (0.0, 255.0)),
        ("int8", 1 / 255, -128, (0.0, 1.0)),
        ("int8", 1 / 127.5, 0, (-1.0, 1.0)),
        ("int8", 1.0, -128, (0.0, 255.0)),
        ("int8", 1.0, 0, (-128.0, 127.0)),
        ("uint8", 1 / 255, 0, (0.0, 1.0)),
    ],
)
def test_pixels_are_in_the_range_that_the_scale_can_hold(
    dtype: str, scale: float | None, zero_point: int | None, expected: tuple[float, float]
) -> None:
    known = None if scale is None or zero_point is None else Quantization(scale=scale, zero_point=zero_point)
    assert real_range(Port(name="x", source="x", shape=(1, 4), dtype=dtype, quantization=known)) == expected
