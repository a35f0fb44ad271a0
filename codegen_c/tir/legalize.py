"""Legalize a fused Relax function: the PrimFuncs that it calls, in order, over named values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import tvm
from tvm import relax, tirx

from codegen_c.c_text.text import C_TYPES
from codegen_c.tir.legalizations import COMPARISONS, EXTREMES, GATHERS, NORMALIZATIONS, SCATTERS
from codegen_c.tir.plain_c import CannotLowerError
from tvm_ext.core.decisions.composites import Symbol

_LEGALIZE = {**COMPARISONS, **EXTREMES, **GATHERS, **NORMALIZATIONS, **SCATTERS}


@dataclass(frozen=True, kw_only=True, eq=False)
class StageValue:
    """A tensor that the stages of a fused operator read or write. data: of a constant only."""

    kind: Literal["input", "constant", "intermediate"]
    name: str
    shape: tuple[int, ...]
    dtype: str
    data: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """One call of a PrimFunc; values are in the order of its parameters: inputs, then outputs."""

    name: str
    function: tirx.PrimFunc
    inputs: tuple[StageValue, ...]
    outputs: tuple[StageValue, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class PrimFuncStages:
    """A fused operator as a straight line of PrimFuncs."""

    inputs: tuple[StageValue, ...]
    stages: tuple[Stage, ...]
    results: tuple[StageValue, ...]


Bound = StageValue | tuple["Bound", ...]


def legalize_composite(function: relax.Function, module: tvm.IRModule | None = None) -> PrimFuncStages:
    """Legalise `function` alone and list its stages. module: contains the PrimFuncs that it already calls.

    Raises CannotLowerError for operators without a PrimFunc (shapes that depend on data, calls of TVM's runtime) and
    for element types that C11 lacks.
    """
    module = _legalized(alone(function, module))
    main = module["main"]
    inputs = tuple(_value_of(var.ty, kind="input", name=var.name) for var in main.params)
    bound: dict[tvm.ir.Var, Bound] = dict(zip(main.params, inputs, strict=True))
    stages: list[Stage] = []
    for block in main.body.blocks:
        for binding in block.bindings:
            bound[binding.var] = _bind(binding, bound, module, stages)
    return PrimFuncStages(inputs=inputs, stages=tuple(stages), results=_flatten(_resolve(main.body.body, bound)))


def operator_names(function: relax.Function) -> tuple[str, ...]:
    """Return the Relax operators that `function` calls, each once, in order."""
    names: list[str] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            names.append(expr.op.name.removeprefix("relax."))

    relax.analysis.post_order_visit(function.body, visit)
    return tuple(dict.fromkeys(names))


def alone(function: relax.Function, module: tvm.IRModule | None = None) -> tvm.IRModule:
    """Return a module with `function`, public and without the fused operator's attributes, and with PrimFuncs."""
    bare = relax.Function(function.params, function.body, function.ret_ty, function.is_pure)
    others = module.functions.items() if module is not None else ()
    functions = {name: other for name, other in others if isinstance(other, tirx.PrimFunc)}
    return tvm.IRModule({**functions, tvm.ir.GlobalVar("main"): Symbol(name="main").write(bare)})


def _legalized(module: tvm.IRModule) -> tvm.IRModule:
    passes = [
        relax.backend.DispatchSortScan(),
        relax.transform.LegalizeOps(_LEGALIZE),
        relax.transform.Normalize(),
    ]
    with tvm.target.Target("c"):
        return tvm.transform.Sequential(passes)(module)


def _bind(binding: relax.Binding, bound: dict[tvm.ir.Var, Bound], module: tvm.IRModule, stages: list[Stage]) -> Bound:
    value = binding.value
    if not isinstance(value, relax.Call):
        return _resolve(value, bound)
    name = value.op.name if isinstance(value.op, tvm.ir.Op) else str(value.op)
    if name == "relax.shape_of":
        return ()  # a shape is not a tensor: the types of its uses contain its values
    if name == "relax.shape_to_tensor":
        return _constant(np.array(_static(value.args[0].ty.values, name="a shape"), np.int64))
    if name in ("relax.call_pure_packed", "relax.call_dps_packed"):
        raise CannotLowerError(f"a call of TVM's runtime ({value.args[0].global_symbol})")
    if name != "relax.call_tir":
        raise CannotLowerError(f"{name.removeprefix('relax.')}, which has no PrimFunc")
    if len(value.args) > 2:
        raise CannotLowerError("a PrimFunc that takes shape variables")
    callee = value.args[0]
    outputs = _outputs(binding.var.ty, name=binding.var.name)
    stages.append(
        Stage(
            name=callee.name_hint,
            function=module[callee],
            inputs=_flatten(_resolve(value.args[1], bound)),
            outputs=_flatten(outputs),
        )
    )
    return outputs


def _resolve(expr: relax.Expr, bound: dict[tvm.ir.Var, Bound]) -> Bound:
    if isinstance(expr, relax.Var):
        return bound[expr]
    if isinstance(expr, relax.Tuple):
        return tuple(_resolve(item, bound) for item in expr.fields)
    if isinstance(expr, relax.TupleGetItem):
        whole = _resolve(expr.tuple_value, bound)
        assert isinstance(whole, tuple)
        return whole[expr.index]
    if isinstance(expr, tvm.ir.GenericConst):
        return _constant(expr.value.numpy())
    raise CannotLowerError(f"{type(expr).__name__}, which no PrimFunc gives")


def _flatten(bound: Bound) -> tuple[StageValue, ...]:
    return (bound,) if isinstance(bound, StageValue) else tuple(leaf for item in bound for leaf in _flatten(item))


def _outputs(ty: tvm.ir.Type, *, name: str) -> Bound:
    if isinstance(ty, relax.TupleType):
        return tuple(_outputs(field, name=f"{name}_{index}") for index, field in enumerate(ty.fields))
    return _value_of(ty, kind="intermediate", name=name)


def _value_of(ty: tvm.ir.Type, *, kind: Literal["input", "intermediate"], name: str) -> StageValue:
    if not isinstance(ty, relax.TensorType):
        raise CannotLowerError(f"{name}, which is not a tensor,")
    shape = _static(ty.shape.values if isinstance(ty.shape, relax.ShapeExpr) else None, name=name)
    return _typed(StageValue(kind=kind, name=name, shape=shape, dtype=str(ty.dtype)))


def _constant(data: np.ndarray) -> StageValue:
    return _typed(StageValue(kind="constant", name="constant", shape=data.shape, dtype=str(data.dtype), data=data))


def _typed(value: StageValue) -> StageValue:
    if value.dtype not in C_TYPES:
        raise CannotLowerError(f"values of type {value.dtype} ({value.name}); C11 has {', '.join(C_TYPES)}")
    return value


def _static(shape: Sequence[relax.Expr] | None, *, name: str) -> tuple[int, ...]:
    if shape is None or not all(isinstance(extent, tirx.IntImm) for extent in shape):
        raise CannotLowerError(f"the shape of {name}, which is not known before it runs")
    return tuple(int(extent) for extent in shape)
