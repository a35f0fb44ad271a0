"""IndexOutputs: an output becomes the index of its largest element."""

from __future__ import annotations

import pytest
import tvm
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.layout.index_outputs import IndexOutputs
from tvm_ext.core.decisions.models import ChangedPorts, PortNames, PortScales
from tvm_ext.core.errors import BadOptions


@I.ir_module
class Scores:
    @R.function
    def main(x: R.Tensor((2, 8), "float32")) -> R.Tuple(R.Tensor((2, 8), "float32"), R.Tensor((2, 8), "float32")):
        with R.dataflow():
            q = R.quantize(x, R.const(0.5, "float32"), R.const(3, "int8"), axis=-1, out_dtype="int8")
            y = R.dequantize(q, R.const(0.5, "float32"), R.const(3, "int8"), axis=-1, out_dtype="float32")
            z = R.nn.relu(x)
            R.output(y, z)
        return (y, z)


@I.ir_module
class Index:
    @R.function
    def main(x: R.Tensor((2, 8), "float32")) -> R.Tuple(R.Tensor((2,), "int32"), R.Tensor((2, 8), "float32")):
        with R.dataflow():
            q = R.quantize(x, R.const(0.5, "float32"), R.const(3, "int8"), axis=-1, out_dtype="int8")
            z = R.nn.relu(x)
            y_argmax = R.argmax(q, axis=-1, keepdims=False)
            y_index = R.astype(y_argmax, "int32")
            R.output(y_index, z)
        return (y_index, z)


def named(module: tvm.IRModule) -> tvm.IRModule:
    scaled = PortScales(outputs={"y": (0.5, 3), "z": (0.5, 3)}).write(module)
    return PortNames(inputs=("x",), outputs=("y", "z")).write(scaled)


def test_the_index_is_that_of_the_integers_ahead_of_a_dequantize() -> None:
    after = IndexOutputs(("y",))(named(Scores))
    tvm.ir.assert_structural_equal(after["main"], Index["main"], map_free_vars=True)
    assert ChangedPorts.read(after).indexed == ("y",) and PortScales.read(after).outputs == {"z": (0.5, 3)}
    tvm.ir.assert_structural_equal(IndexOutputs(("y",))(after)["main"], after["main"])


def test_a_module_without_such_outputs_is_left_alone() -> None:
    tvm.ir.assert_structural_equal(IndexOutputs(())(named(Scores))["main"], Scores["main"])


def test_an_output_that_is_not_there() -> None:
    with pytest.raises(BadOptions, match="argmax w: the model has no such output; its outputs are y, z"):
        IndexOutputs(("w",))(named(Scores))


def test_an_output_without_an_axis() -> None:
    @I.ir_module
    class Scalar:
        @R.function
        def main(x: R.Tensor((), "float32")) -> R.Tensor((), "float32"):
            with R.dataflow():
                y = R.nn.relu(x)
                R.output(y)
            return y

    mod = PortNames(inputs=("x",), outputs=("y",)).write(Scalar)
    with pytest.raises(BadOptions, match=r"argmax y: float32\[\] has no last axis of numbers"):
        IndexOutputs(("y",))(mod)
