"""Relax modules that cannot be compiled, each with an error that names the function or parameter."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import tirx as T

from tests.passes.modules import module_of
from tvm_ext.core.decisions.models import KeptStates
from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.model_nodes import ModelState
from tvm_ext.frontends.load import load


def relax_module(**types: relax.Type) -> tvm.IRModule:
    params = [relax.Var(name, ty) for name, ty in types.items()]
    return module_of(params, lambda _: relax.op.abs(params[0]))


def test_relax_module_without_main() -> None:
    mod = relax_module(x=relax.TensorType((1,), "float32"))
    with pytest.raises(BadModel, match="no function 'main'; functions: other"):
        load(tvm.IRModule({"other": mod["main"].with_attr("global_symbol", "other")}))


def test_relax_module_with_main_of_another_kind() -> None:
    @T.prim_func
    def main(x: T.Buffer((4,), "float32")):
        x[0] = T.float32(0)

    with pytest.raises(BadModel, match="'main' is a PrimFunc"):
        load(tvm.IRModule({"main": main}))


def test_relax_module_without_rank() -> None:
    with pytest.raises(BadModel, match="parameter 'x' of 'main'"):
        load(relax_module(x=relax.TensorType(dtype="float32", ndim=2)))


def test_relax_module_with_unbound_weights() -> None:
    ty = relax.TensorType((1,), "float32")
    mod = relax_module(x=ty, weight=ty)
    mod.update_func(mod.get_global_var("main"), mod["main"].with_attr("num_input", 1))
    with pytest.raises(BadModel, match=r"weight.*BindParams"):
        load(mod)


def test_relax_module_with_one_name_twice() -> None:
    params = [relax.Var("x", relax.TensorType((1,), "float32")) for _ in range(2)]
    with pytest.raises(BadModel, match="have one name"):
        load(module_of(params, lambda _: relax.op.add(*params)))


def test_relax_module_with_data_dependent_shape() -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with pytest.raises(UnsupportedModel, match="no static shape"):
        load(module_of([x], lambda _: relax.op.nonzero(x)))


def test_relax_module_with_control_flow() -> None:
    x = relax.Var("x", relax.TensorType((), "bool"))
    choice = relax.If(x, relax.SeqExpr([], relax.const(1.0)), relax.SeqExpr([], relax.const(2.0)))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(choice))
    with pytest.raises(UnsupportedModel, match="not a single dataflow block"):
        load(builder.get())


@pytest.mark.parametrize("num_states", [1, 2])
def test_relax_module_that_lists_states_it_does_not_have(num_states: int) -> None:
    """One parameter and one result: a state more would leave no output, or no parameter."""
    mod = relax_module(x=relax.TensorType((2,), "float32"))
    states = tuple(ModelState(name=f"s{place}", initial=np.zeros(2, "float32")) for place in range(num_states))
    message = rf"lists {num_states} states; 'main' has 1 parameters and 1 results, of which the last are the states"
    with pytest.raises(BadModel, match=message):
        load(KeptStates(states=states).write(mod))
