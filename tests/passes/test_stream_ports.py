"""StreamPorts: inputs come in and outputs go out through composites that say so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_ext
from codegen_c.backend.byoc import CodegenBackend
from codegen_c.targets.registry import target_of
from relay_passes.composites import composite_of
from relay_passes.dataflow import bindings, outputs
from relay_passes.layout.convert_layout import ConvertLayout
from relay_passes.layout.stream_ports import StreamPorts
from relay_passes.memory.split_sequences import SplitSequences
from relay_passes.regions.form_composites import FormComposites
from relay_passes.simplify.duplicate_dequantize import DuplicateDequantize
from relay_passes.simplify.fold_constants import FoldConstants
from relay_passes.simplify.slice_splits import SliceSplits
from tests.golden.models import integer_network
from tests.support.onnx_models import model_of, saved
from tvm_ext.core.decisions.composites import StreamDirection
from tvm_ext.core.platform import Platform

BACKEND = CodegenBackend(target=target_of(Platform.load("host").processor))


def test_an_input_and_an_output() -> None:
    @I.ir_module
    class Before:
        @R.function(private=True)
        def relu(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            R.func_attr({"Composite": "tvm_ext.nn_relu", "Primitive": True})
            with R.dataflow():
                y = R.nn.relu(x)
                R.output(y)
            return y

        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            cls = Before
            with R.dataflow():
                y = cls.relu(x)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def relu(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            R.func_attr({"Composite": "tvm_ext.nn_relu", "Primitive": True, "tensor": "y"})
            with R.dataflow():
                y = R.nn.relu(x)
                R.output(y)
            return y

        @R.function(private=True)
        def read_x(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            R.func_attr({"Composite": "tvm_ext.read_rows", "Primitive": True, "stream": "read", "tensor": "x"})
            with R.dataflow():
                y = R.permute_dims(x, [0])
                R.output(y)
            return y

        @R.function(private=True)
        def write_y(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            R.func_attr({"Composite": "tvm_ext.write_rows", "Primitive": True, "stream": "write"})
            with R.dataflow():
                y = R.permute_dims(x, [0])
                R.output(y)
            return y

        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            cls = Expected
            with R.dataflow():
                x_rows = cls.read_x(x)
                y_rows = cls.relu(x_rows)
                y = cls.write_y(y_rows)
                R.output(y)
            return y

    after = StreamPorts()(Before)
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(after, Expected, map_free_vars=True)
    assert [binding.var.name for binding in bindings(after["main"])] == ["x.rows", "y.rows", "y"]


def formed(nodes: list[object], shape: tuple[int, ...], results: list[str], folder: Path) -> tvm.IRModule:
    channels = shape[1]
    constants = {"w": np.ones((channels, channels, 3, 3), np.float32)}
    path = saved(model_of(nodes, {"x": shape}, results, constants), folder)  # type: ignore[arg-type]
    stages = [FoldConstants(), FormComposites(BACKEND), ConvertLayout(), StreamPorts()]
    after = tvm.transform.Sequential(stages)(tvm_ext.load(path))
    relax.analysis.well_formed(after)
    return after


def streams(mod: tvm.IRModule) -> list[str | None]:
    """Per call of main, the direction in which it streams; None without."""
    calls = [b.value for b in bindings(mod["main"]) if isinstance(b.value, relax.Call)]
    return [StreamDirection.read(composite_of(mod, call)).direction or None for call in calls]


CONV = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)


@pytest.mark.parametrize("channels", [1, 3])
def test_permutations_at_the_border_become_the_streams(channels: int, tmp_path: Path) -> None:
    after = formed([CONV], (1, channels, 8, 6), ["y"], tmp_path)
    assert streams(after) == ["read", None, "write"]
    first, _, last = bindings(after["main"])
    assert [int(n) for n in first.var.ty.shape.values] == [1, 8, 6, channels]
    assert [int(n) for n in last.var.ty.shape.values] == [1, channels, 8, 6]


def test_what_stands_before_the_permutation_is_turned_with_it(tmp_path: Path) -> None:
    """A quantize, as models of other tools begin with: float rows come in pixel by pixel."""
    path = tmp_path / "qdq.onnx"
    onnx.save(integer_network(), path)
    stages = [
        FoldConstants(), DuplicateDequantize(), SliceSplits(), FormComposites(BACKEND), ConvertLayout(), StreamPorts(),
    ]  # fmt: skip
    after = tvm.transform.Sequential(stages)(tvm_ext.load(path))
    relax.analysis.well_formed(after)
    assert streams(after)[:2] == ["read", None] and streams(after)[-1] == "write"
    shapes = [[int(n) for n in binding.var.ty.shape.values] for binding in bindings(after["main"])]
    assert shapes[:3] == [[1, 5, 5, 3]] * 3 and shapes[-1] == [1, 3, 5, 5]
    assert composite_of(after, bindings(after["main"])[1].value).attrs["layout"] == [0, 2, 3, 1]


def test_what_is_read_in_both_layouts_comes_as_the_model_has_it(tmp_path: Path) -> None:
    flat = helper.make_node("Flatten", ["x"], ["f"])
    relu = helper.make_node("Relu", ["f"], ["z"])
    after = formed([CONV, flat, relu], (1, 3, 8, 6), ["y", "z"], tmp_path)
    assert streams(after).count("read") == 1 and streams(after).count("write") == 2
    first = bindings(after["main"])[0]
    assert [int(n) for n in first.var.ty.shape.values] == [1, 3, 8, 6]


def test_batches_come_as_the_model_has_them(tmp_path: Path) -> None:
    after = formed([CONV], (2, 3, 8, 6), ["y"], tmp_path)
    assert streams(after) == ["read", None, None, None, "write"]


def test_an_input_that_is_an_output_goes_through(tmp_path: Path) -> None:
    after = formed([CONV], (1, 3, 8, 6), ["y", "x"], tmp_path)
    assert streams(after).count("read") == 1 and streams(after).count("write") == 2
    assert not any(result.same_as(param) for result in outputs(after["main"]) for param in after["main"].params)


def test_what_nothing_reads_and_what_is_no_dataflow_is_left_alone() -> None:
    x, unread = (relax.Var(name, relax.TensorType([2], "float32")) for name in ("x", "unread"))
    func = relax.Function([x, unread], relax.SeqExpr([], x), x.ty).with_attr("global_symbol", "main")
    after = StreamPorts()(tvm.IRModule({"main": func}))
    assert streams(after) == ["read", "write"]
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.nn.relu(x)))
    mod = builder.get()
    tvm.ir.assert_structural_equal(StreamPorts()(mod), mod)


def test_a_streamed_input_is_split_whatever_the_budget(tmp_path: Path) -> None:
    """The read and the convolution behind it run in series, though all would fit whole."""
    mod = formed([CONV, helper.make_node("Relu", ["y"], ["z"])], (1, 3, 24, 6), ["z"], tmp_path)
    after = SplitSequences(BACKEND, 1 << 30)(mod)
    calls = [composite_of(after, binding.value) for binding in bindings(after["main"])]
    labels = [str(call.attrs["sequence"]) if call and "sequence" in call.attrs else None for call in calls]
    assert labels[:2] == ["sequence_0", "sequence_0"]


def test_an_input_read_late_again_is_held(tmp_path: Path) -> None:
    """Nothing is gained by rows of what is needed whole anyway, and the split says what it costs, not more."""
    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["m"]), helper.make_node("Mul", ["x", "m"], ["y"])]
    after = SplitSequences(BACKEND, 1 << 30)(formed(nodes, (1, 3, 24, 6), ["y"], tmp_path))
    assert int(after["main"].attrs["split_instructions"]) < 1 << 30
