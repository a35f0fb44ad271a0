"""NotePortScales: scales that a quantize or dequantize gives inputs and outputs are written into the module."""

from __future__ import annotations

import tvm
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.simplify.note_port_scales import NotePortScales
from tvm_ext.core.decisions.models import PortNames, PortScales


@I.ir_module
class Moved:
    @R.function
    def main(x: R.Tensor((2, 8), "int8"), other: R.Tensor((4,), "uint8"), index: R.Tensor((3,), "int32")) -> R.Tuple(
        R.Tensor((8, 2), "int16"), R.Tensor((2, 8), "int8"), R.Tensor((3,), "float32")
    ):
        with R.dataflow():
            p = R.permute_dims(x, axes=[1, 0])
            r = R.dequantize(p, R.const(0.25, "float32"), R.const(3, "int8"), out_dtype="float32", axis=-1)
            s = R.add(r, r)
            q = R.quantize(s, R.const(0.5, "float32"), R.const(-7, "int16"), out_dtype="int16", axis=-1)
            y = R.reshape(q, (8, 2))
            f = R.flip(x, axis=0)
            d = R.dequantize(
                other, R.const([0.5, 0.25, 1.0, 2.0], "float32"), R.const([0, 0, 0, 0], "uint8"), out_dtype="float32",
                axis=0,
            )  # fmt: skip
            t = R.take(d, index, axis=0)
            R.output(y, f, t)
        return (y, f, t)


def named(module: tvm.IRModule, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> tvm.IRModule:
    return PortNames(inputs=inputs, outputs=outputs).write(module)


def test_scales_are_found_along_moved_elements() -> None:
    """Not those that differ by channel, and none for indices."""
    before = named(Moved, ("in", "table", "index"), ("sum", "flipped", "rows"))
    after = NotePortScales()(before)
    tvm.ir.assert_structural_equal(after["main"], before["main"])
    assert PortScales.read(after) == PortScales(
        inputs={"in": (0.25, 3)}, outputs={"sum": (0.5, -7), "flipped": (0.25, 3)}
    )


def test_what_the_file_declares_stays() -> None:
    before = named(Moved, ("in", "table", "index"), ("sum", "flipped", "rows"))
    declared = PortScales(inputs={"in": (0.125, 1)}, outputs={"rows": (2.0, 0)}).write(before)
    found = PortScales.read(NotePortScales()(declared))
    assert found.inputs == {"in": (0.125, 1)}
    assert found.outputs == {"sum": (0.5, -7), "flipped": (0.25, 3), "rows": (2.0, 0)}


def test_a_module_of_floats_is_left_alone() -> None:
    @I.ir_module
    class Floats:
        @R.function
        def main(x: R.Tensor((2, 8), "float32")) -> R.Tensor((2, 8), "float32"):
            with R.dataflow():
                y = R.nn.relu(x)
                R.output(y)
            return y

    before = named(Floats, ("x",), ("y",))
    after = NotePortScales()(before)
    assert after.same_as(before)
    assert PortScales.read(after) == PortScales()
