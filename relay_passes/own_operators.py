"""Relax operators of our own, of one operand: results have its type."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax
from tvm.ir import DictAttrs
from tvm.ir import op as ir_op
from tvm.relax.transform.legalize_ops.common import register_legalize

Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]


def define_operator(name: str, meaning: str, legalize: Legalize) -> None:
    """Makes an operator known to TVM. meaning: one sentence. legalize: a call of it as a call of a PrimFunc."""
    ir_op._ffi_api.RegisterOp(name, meaning)
    operator = ir_op.Op.get(name)
    operator.set_num_inputs(1)
    operator.add_argument("operand", "Tensor", "The tensor that it reads.")
    ir_op.register_op_attr(name, "FPurity", True)
    ir_op.register_op_attr(name, "FInferType", _infer)
    register_legalize(name, legalize)


def call_operator(name: str, operand: relax.Expr, attrs: DictAttrs) -> relax.Call:
    """A call of the operator, of its operand's type, which is known."""
    return relax.Call(ir_op.Op.get(name), [operand], attrs, [], None, operand.ty)


def _infer(call: relax.Call, _builder: relax.BlockBuilder) -> relax.TensorType:
    return relax.TensorType(call.args[0].ty.shape, call.args[0].ty.dtype)
