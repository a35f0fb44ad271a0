"""Read a composite once: its calls in order, its constants as numpy arrays, its types as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import tvm
from tvm import relax

from codegen_c.operators.kinds import TensorType


@dataclass(frozen=True)
class NoMatch:
    """Reason why a composite cannot be lowered to a certain kind of operator."""

    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class CallOperand:
    """Operand of a call: a parameter (index), a constant (array) or the result of another call (variable)."""

    var: relax.Var | None = None
    parameter: int | None = None
    array: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Call:
    """Call of an operator. name: without `relax.`. operands: elements of tuples are separate operands."""

    name: str
    var: relax.Var
    operands: tuple[CallOperand, ...]
    attrs: Any
    type: TensorType | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Composite:
    """A composite function of Relax."""

    function: relax.Function
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    calls: tuple[Call, ...]

    @classmethod
    def read(cls, function: relax.Function) -> Self:
        """Read the calls, operands and types of a composite function."""
        parameters = {param: index for index, param in enumerate(function.params)}

        def value(expr: relax.Expr) -> list[CallOperand]:
            if isinstance(expr, relax.Tuple):
                return [v for field in expr.fields for v in value(field)]
            if isinstance(expr, tvm.ir.GenericConst):
                return [CallOperand(array=expr.value.numpy())]
            if isinstance(expr, relax.Var):
                return [CallOperand(var=expr, parameter=parameters.get(expr))]
            if isinstance(expr, tvm.tirx.IntImm | tvm.tirx.FloatImm):  # the bounds of clip
                return [CallOperand(array=np.array(expr.value, np.float32))]
            return []

        calls = []
        for block in function.body.blocks:
            for binding in block.bindings:
                call = binding.value
                if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.Op):
                    continue
                operands = tuple(v for arg in call.args[:] for v in value(arg))
                name = call.op.name.removeprefix("relax.")
                calls.append(
                    Call(name=name, var=binding.var, operands=operands, attrs=call.attrs, type=type_of(binding.var))
                )
        result = function.ret_ty
        results = result.fields if isinstance(result, relax.TupleType) else [result]
        inputs = tuple(tensor_type(param.ty) for param in function.params)
        outputs = tuple(tensor_type(ty) for ty in results)
        return cls(function=function, inputs=inputs, outputs=outputs, calls=tuple(calls))


def tensor_type(ty: relax.TensorType) -> TensorType:
    """Return the shape and element type of a static tensor."""
    return TensorType(shape=tuple(int(dim) for dim in ty.shape.values[:]), dtype=str(ty.dtype))


def type_of(var: relax.Var) -> TensorType | None:
    """Return the type of a variable, or None if it is not a tensor."""
    return tensor_type(var.ty) if isinstance(var.ty, relax.TensorType) else None
