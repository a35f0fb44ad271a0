"""FormComposites and ExposeInterpolations on float images: a resize becomes one composite for one kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_ext
from relay_passes.dataflow import bindings, op_name
from relay_passes.simplify.expose_interpolations import ExposeInterpolations
from tests.passes.forming import form, groups
from tests.support.onnx_models import model_of, saved
from tvm_ext.compilation.pipeline import compile_module

LINEAR = ["take", "take", "multiply", "multiply", "add"]


def resize(shape: tuple[int, ...], folder: Path) -> relax.Function:
    """Return the module of a linear resize after the pass. The resize doubles the last two axes."""
    scales = np.array([1] * (len(shape) - 2) + [2, 2], np.float32)
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    module = tvm_ext.load(saved(model_of([node], {"x": shape}, ["y"], {"scales": scales}), folder))
    return ExposeInterpolations()(module)


def test_resizes_of_images_are_exposed(tmp_path: Path) -> None:
    found = [op_name(binding.value) for binding in bindings(resize((1, 2, 3, 4), tmp_path)["main"])]
    assert found.count("relax.take") == 4 and "relax.call_tir" not in found


def test_other_ranks_are_left_alone(tmp_path: Path) -> None:
    found = [op_name(binding.value) for binding in bindings(resize((2, 3, 4), tmp_path)["main"])]
    assert found == ["relax.call_tir", "relax.call_tir"]


def test_one_kernel_computes_both_axes(tmp_path: Path) -> None:
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    model = model_of([node], {"x": (1, 2, 3, 4)}, ["y"], {"scales": np.array([1, 1, 2, 2], np.float32)})
    compiled = compile_module(
        tvm_ext.load(saved(model, tmp_path)), tvm_ext.Platform.load("host"), tvm_ext.BuildOptions()
    )
    assert [call.implementation.kernel for call in compiled.program.kernel_calls()] == ["interpolate_f32"]


@I.ir_module
class WeightedSum:
    @R.function
    def main(x: R.Tensor((1, 2, 4, 4), "float32"), z: R.Tensor((1, 2, 4, 4), "float32")) -> R.Tensor(
        (1, 2, 4, 4), "float32"
    ):
        with R.dataflow():
            a = R.take(x, R.const(np.array([0, 0, 1, 2], "int32")), axis=2)
            u = R.multiply(a, R.const(np.full((1, 1, 4, 1), 0.25, "float32")))
            b = R.take(x, R.const(np.array([0, 1, 2, 3], "int32")), axis=2)
            v = R.multiply(b, R.const(np.full((1, 1, 4, 1), 0.75, "float32")))
            s = R.add(u, v)
            y = R.add(s, z)
            R.output(y)
        return y


def test_a_sum_with_another_value_stays_apart() -> None:
    assert groups(form(WeightedSum)) == [("s", ["take", "multiply", "take", "multiply", "add"]), ("y", ["add"])]


@pytest.mark.parametrize("source", ["z", "x"])
def test_takes_of_two_values_are_no_interpolation(source: str) -> None:
    x, z = (relax.Var(name, relax.TensorType((1, 2, 4, 4), "float32")) for name in "xz")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, z]):
        with builder.dataflow():
            picked = [
                builder.emit(relax.op.take(value, relax.const(np.arange(4, dtype="int32")), axis=2))
                for value in (x, z if source == "z" else x)
            ]
            products = [builder.emit(relax.op.multiply(one, relax.const(np.float32(0.5)))) for one in picked]
            total = builder.emit_output(relax.op.add(*products))
        builder.emit_func_output(total)
    found = groups(form(builder.get()))
    assert (len(found) == 1) == (source == "x")
