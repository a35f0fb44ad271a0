"""PackWeights: layers that a code generator stores in 4 bits, for twice the instructions at most, say so."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.regions.pack_weights import PackWeights
from tests.passes.stub_backend import StubBackend
from tvm_ext.core.decisions.composites import CompositeKind, StoredWeights
from tvm_ext.core.time_model import Footprint


@dataclass(frozen=True, kw_only=True)
class PackingBackend(StubBackend):
    """Stores the weights of `nn_relu` in 4 bits, by so many of 100 instructions."""

    packed_instructions: int = 200

    def footprint(self, composite: relax.Function) -> Footprint:
        bits = StoredWeights.read(composite).bits
        if bits == 4 and CompositeKind.read(composite).kind == "nn_relu":
            return Footprint(instructions=self.packed_instructions, weight_bits=4)
        return Footprint(instructions=100)


@I.ir_module
class Before:
    @R.function(private=True)
    def relu(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        R.func_attr({"Composite": "tvm_ext.nn_relu", "Primitive": True})
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y

    @R.function(private=True)
    def exp(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        R.func_attr({"Composite": "tvm_ext.exp", "Primitive": True})
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        cls = Before
        with R.dataflow():
            y = cls.relu(x)
            z = cls.exp(y)
            R.output(z)
        return z


@I.ir_module
class Expected:
    @R.function(private=True)
    def relu(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        R.func_attr({"Composite": "tvm_ext.nn_relu", "Primitive": True, "weight_bits": 4})
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y

    @R.function(private=True)
    def exp(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        R.func_attr({"Composite": "tvm_ext.exp", "Primitive": True})
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        cls = Expected
        with R.dataflow():
            y = cls.relu(x)
            z = cls.exp(y)
            R.output(z)
        return z


@pytest.mark.parametrize(("instructions", "expected"), [(200, Expected), (201, Before)])
def test_layers_that_have_a_kernel_for_it(instructions: int, expected: tvm.IRModule) -> None:
    after = PackWeights(PackingBackend(packed_instructions=instructions))(Before)
    tvm.ir.assert_structural_equal(after, expected, map_free_vars=True)


def test_a_module_without_such_layers_is_left_alone() -> None:
    after = PackWeights(PackingBackend())(PackWeights(PackingBackend(packed_instructions=1000))(Before))
    tvm.ir.assert_structural_equal(after, Expected, map_free_vars=True)
    module = tvm.IRModule({var: func for var, func in Before.functions_items() if var.name_hint == "exp"})
    module["main"] = Before["exp"].without_attr("Composite").with_attr("global_symbol", "main")
    tvm.ir.assert_structural_equal(PackWeights(PackingBackend())(module), module, map_free_vars=True)
