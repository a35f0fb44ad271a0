"""A module of the statements that an ONNX graph became."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import relax

from relay_passes.dataflow import build, dict_attrs, live, substitute
from tvm_ext.core.decisions.composites import InputCount, Symbol
from tvm_ext.frontends.name_variables import name_variables
from tvm_ext.frontends.statements import Statements


def finished_module(
    params: Sequence[relax.Var], statements: Statements, tensors: Mapping[str, relax.Expr], outputs: Sequence[str]
) -> tvm.IRModule:
    """One function `main` under the model's own names, without what no output needs; loops that it calls beside it."""
    sequence, renamed = name_variables(statements.list, tensors, outputs)
    results = [substitute(tensors[name], renamed) for name in outputs]
    attrs = dict_attrs(Symbol(name="main"), InputCount(count=len(params)))
    main = build(params, live(sequence, results), results, attrs=attrs)
    return tvm.IRModule({tvm.ir.GlobalVar("main"): main, **statements.helpers(main)})
