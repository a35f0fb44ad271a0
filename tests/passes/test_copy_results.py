"""CopyResults: constants, and inputs of a model that computes nothing, become composites that copy."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.composites import composite_of
from relay_passes.dataflow import array_of, bindings, outputs
from relay_passes.regions.copy_results import CopyResults


def test_constant_result_is_copied() -> None:
    table = np.arange(3, dtype="float32")
    x = relax.Var("x", relax.TensorType([2], "float32"))
    func = relax.Function([x], relax.SeqExpr([], relax.const(table)), relax.TensorType([3], "float32"))
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    after = CopyResults()(mod)
    relax.analysis.well_formed(after)
    (binding,) = bindings(after["main"])
    composite = composite_of(after, binding.value)
    assert composite is not None and not composite.params and not binding.value.args
    np.testing.assert_array_equal(array_of(outputs(composite)[0]), table)
    assert outputs(after["main"])[0].same_as(binding.var)


def test_input_of_a_model_that_computes_nothing_is_copied() -> None:
    x = relax.Var("x", relax.TensorType([2], "float32"))
    func = relax.Function([x], relax.SeqExpr([], x), x.ty)
    after = CopyResults()(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}))
    relax.analysis.well_formed(after)
    (binding,) = bindings(after["main"])
    composite = composite_of(after, binding.value)
    assert composite is not None and outputs(composite)[0].same_as(composite.params[0])


def test_computed_results_are_left_alone() -> None:
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
        def main(x: R.Tensor((2,), "float32")) -> R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32")):
            cls = Before
            with R.dataflow():
                y = cls.relu(x)
                R.output(y)
            return (y, x)

    tvm.ir.assert_structural_equal(CopyResults()(Before), Before, map_free_vars=True)
