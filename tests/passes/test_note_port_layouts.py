"""NotePortLayouts: what a convolution or pooling says about axes is written into the module for inputs and outputs."""

from __future__ import annotations

import tvm
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.simplify.note_port_layouts import NotePortLayouts
from tvm_ext.core.decisions.models import PortLayouts, PortNames


@I.ir_module
class Image:
    @R.function
    def main(
        x: R.Tensor((1, 6, 6, 3), "float32"), w: R.Tensor((4, 3, 3, 3), "float32"), v: R.Tensor((6, 6), "float32")
    ) -> R.Tuple(R.Tensor((1, 4, 4, 4), "float32"), R.Tensor((1, 6, 6, 3), "float32"), R.Tensor((6, 6), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            t = R.permute_dims(a, axes=[0, 3, 1, 2])
            y = R.nn.conv2d(t, w, data_layout="NCHW", kernel_layout="OIHW")
            z = R.nn.relu(y)
            m = R.matmul(v, v)
            R.output(z, a, m)
        return (z, a, m)


@I.ir_module
class Sequence:
    @R.function
    def main(x: R.Tensor((1, 3, 8), "float32")) -> R.Tensor((1, 3, 4), "float32"):
        with R.dataflow():
            p = R.nn.pad(x, [0, 0, 0, 0, 1, 1], pad_value=0.0)
            y = R.nn.max_pool1d(p, pool_size=[3], strides=[2], layout="NCW")
            R.output(y)
        return y


def named(module: tvm.IRModule, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> tvm.IRModule:
    return PortNames(inputs=inputs, outputs=outputs).write(module)


def test_layouts_are_found_along_permutations() -> None:
    """Weights and matrices have none."""
    before = named(Image, ("image", "weights", "matrix"), ("features", "positive", "square"))
    after = NotePortLayouts()(before)
    tvm.ir.assert_structural_equal(after["main"], before["main"])
    found = PortLayouts.read(after)
    assert found.inputs == {"image": "NHWC"}
    assert found.outputs == {"features": "NCHW", "positive": "NHWC"}


def test_layouts_are_found_through_padding() -> None:
    found = PortLayouts.read(NotePortLayouts()(named(Sequence, ("x",), ("y",))))
    assert found == PortLayouts(inputs={"x": "NCW"}, outputs={"y": "NCW"})


def test_a_module_without_windows_is_left_alone() -> None:
    @I.ir_module
    class Plain:
        @R.function
        def main(x: R.Tensor((2, 8), "float32")) -> R.Tensor((2, 8), "float32"):
            with R.dataflow():
                y = R.add(x, x)
                R.output(y)
            return y

    before = named(Plain, ("x",), ("y",))
    tvm.ir.assert_structural_equal(NotePortLayouts()(before), before)
