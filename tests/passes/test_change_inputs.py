"""ChangeInputs: images with channels last and pixels of 8 bits become what the model takes, in the module itself."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.layout.change_inputs import ChangeInputs
from tvm_ext.core.changed_inputs import ChangedInput
from tvm_ext.core.decisions.models import ChangedPorts, PortLayouts, PortNames, PortScales
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.input_forms import InputForm


@I.ir_module
class Real:
    @R.function
    def main(x: R.Tensor((1, 3, 4, 5), "float32"), v: R.Tensor((2,), "int32")) -> R.Tensor((1, 3, 4, 5), "float32"):
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y


@I.ir_module
class RealMoved:
    @R.function
    def main(x: R.Tensor((1, 4, 5, 3), "uint8"), v: R.Tensor((2,), "int32")) -> R.Tensor((1, 3, 4, 5), "float32"):
        with R.dataflow():
            x_1 = R.dequantize(x, R.const(1.0, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="float32")
            x_2 = R.subtract(x_1, R.const(100.5, "float32"))
            x_3 = R.multiply(x_2, R.const(0.5, "float32"))
            x_4 = R.permute_dims(x_3, axes=[0, 3, 1, 2])
            y = R.nn.relu(x_4)
            R.output(y)
        return y


@I.ir_module
class RealPixels:
    @R.function
    def main(x: R.Tensor((1, 3, 4, 5), "uint8"), v: R.Tensor((2,), "int32")) -> R.Tensor((1, 3, 4, 5), "float32"):
        with R.dataflow():
            x_1 = R.dequantize(x, R.const(0.5, "float32"), R.const(100, "uint8"), axis=-1, out_dtype="float32")
            y = R.nn.relu(x_1)
            R.output(y)
        return y


@I.ir_module
class Quantizing:
    @R.function
    def main(x: R.Tensor((1, 3, 4, 5), "float32")) -> R.Tensor((1, 3, 4, 5), "int8"):
        with R.dataflow():
            q = R.quantize(x, R.const(0.5, "float32"), R.const(3, "int8"), axis=-1, out_dtype="int8")
            R.output(q)
        return q


@I.ir_module
class QuantizingMoved:
    @R.function
    def main(x: R.Tensor((1, 4, 5, 3), "float32")) -> R.Tensor((1, 3, 4, 5), "int8"):
        with R.dataflow():
            x_1 = R.quantize(x, R.const(0.5, "float32"), R.const(3, "int8"), axis=-1, out_dtype="int8")
            q = R.permute_dims(x_1, axes=[0, 3, 1, 2])
            R.output(q)
        return q


@I.ir_module
class Integers:
    @R.function
    def main(x: R.Tensor((2, 8), "int8")) -> R.Tensor((8, 2), "int8"):
        with R.dataflow():
            y = R.permute_dims(x, axes=[1, 0])
            R.output(y)
        return y


@I.ir_module
class IntegersLifted:
    @R.function
    def main(x: R.Tensor((2, 8), "uint8")) -> R.Tensor((8, 2), "int8"):
        with R.dataflow():
            x_1 = R.dequantize(x, R.const(0.25, "float32"), R.const(125, "uint8"), axis=-1, out_dtype="float32")
            x_2 = R.quantize(x_1, R.const(0.25, "float32"), R.const(-3, "int8"), axis=-1, out_dtype="int8")
            y = R.permute_dims(x_2, axes=[1, 0])
            R.output(y)
        return y


def known(module: tvm.IRModule, *inputs: str, layout: str = "", scale: tuple[float, int] | None = None) -> tvm.IRModule:
    """The module with names, and the layout and scale of the first input."""
    mod = PortNames(inputs=inputs, outputs=("y",)).write(module)
    mod = PortLayouts(inputs={inputs[0]: layout} if layout else None).write(mod)
    return PortScales(inputs={inputs[0]: scale} if scale else None).write(mod)


def assert_main(found: tvm.IRModule, expected: tvm.IRModule) -> None:
    tvm.ir.assert_structural_equal(found["main"], expected["main"], map_free_vars=True)


@pytest.mark.parametrize(
    ("before", "form", "after"),
    [
        (known(Real, "image", "v", layout="NCHW"), "nhwc,uint8,mean=100.5,std=2", RealMoved),
        (known(Real, "image", "v", layout="NCHW"), "uint8,mean=100,std=2", RealPixels),
        (known(Quantizing, "image", layout="NCHW"), "nhwc", QuantizingMoved),
        (known(Integers, "image", scale=(0.25, -3)), "uint8", IntegersLifted),
    ],
    ids=["channels last", "pixels", "quantized first", "integers"],
)
def test_the_module_takes_what_is_handed_over(before: tvm.IRModule, form: str, after: tvm.IRModule) -> None:
    assert_main(ChangeInputs({"image": InputForm.parse(form)})(before), after)


def test_the_module_says_what_it_changed() -> None:
    before = known(Integers, "image", layout="", scale=(0.25, -3))
    after = ChangeInputs({"image": InputForm.parse("uint8")})(before)
    assert PortScales.read(after).inputs == {"image": (0.25, 125)}
    change = ChangedInput(dtype="int8", pixels=True, scale=0.25, zero_point=-3)
    assert ChangedPorts.read(after).inputs == {"image": change}
    assert_main(ChangeInputs({"image": InputForm.parse("uint8")})(after), after)
    moved = ChangeInputs({"image": InputForm.parse("nhwc")})(known(Real, "image", "v", layout="NCHW"))
    assert PortLayouts.read(moved).inputs == {"image": "NHWC"}


def test_other_inputs_are_left_alone() -> None:
    """And so is an image that has its channels last, and pixels that the model takes itself."""
    before = known(Real, "image", "v", layout="NHWC")
    assert_main(ChangeInputs({"image": InputForm.parse("nhwc")})(before), before)
    assert_main(ChangeInputs({})(before), before)


@pytest.mark.parametrize(
    ("module", "forms", "message"),
    [
        (known(Real, "x", "v"), {"y": "nhwc"}, "input y: the model has no such input; its inputs are x, v"),
        (known(Real, "x", "v"), {"v": "nhwc"}, "input v=nhwc: v has 1 axes, so it has no channels axis to move"),
        (known(Real, "x", "v"), {"x": "nhwc"}, "input x=nhwc: x is not read by a convolution or pooling as an image"),
        (known(Real, "x", "v"), {"v": "uint8"}, "input v=uint8: pixels become float32, .* v is an input of int32"),
        (known(Integers, "x"), {"x": "uint8,std=2"}, "x is an input whose integers are plain numbers. Leave uint8 out"),
    ],
)
def test_refused_forms(module: tvm.IRModule, forms: dict[str, str], message: str) -> None:
    with pytest.raises(BadOptions, match=message):
        ChangeInputs({name: InputForm.parse(text) for name, text in forms.items()})(module)


@pytest.mark.parametrize("zero_point", [-1, 0])
def test_halves_go_up_so_that_each_pixel_has_an_integer_of_its_own(zero_point: int) -> None:
    """(value - 127.5) / 127.5 lies half way between two integers of a scale of 1 / 127.5, for every pixel."""
    change = ChangedInput(
        dtype="int8", pixels=True, mean=127.5, std=127.5, scale=float(np.float32(1 / 127.5)), zero_point=zero_point
    )  # fmt: skip
    pixels = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(change.to_file(pixels), np.clip(np.arange(256) - 127 + zero_point, -128, 127))
    np.testing.assert_array_equal(change.of_real((np.arange(256) - 127.5) / 127.5), pixels)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nchw", "'nchw' is not valid; choose from nhwc, uint8, mean=NUMBER and std=NUMBER"),
        ("uint8,mean=a", "'mean=a' is not valid"),
        ("uint8,uint8", "uint8 stands there twice"),
        ("std=2", "mean and std normalize pixels; add uint8"),
        ("uint8,std=0", "std = 0: give a number above 0"),
        ("uint8,mean=1e99", "mean = 1e\\+99: give a finite number"),
        ("", "'' is not valid"),
    ],
)
def test_forms_that_there_are_not(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InputForm.parse(text)
