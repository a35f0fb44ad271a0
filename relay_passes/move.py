"""The Relax operator `tvm_ext.move`: its operand, copied to another memory.

It stands where the copy begins. Where a DMA joins the two memories, what follows runs meanwhile, until the result is
first read; `within` waits for it earlier, behind so many operators, so that the bytes of a dying operand are free. In
TVM, which knows one memory only, it is a copy.
"""

from __future__ import annotations

import tvm
from tvm import relax, te
from tvm.ir import op as ir_op
from tvm.relax.transform.legalize_ops.common import register_legalize

from relay_passes.dataflow import dict_attrs
from tvm_ext.core.decisions.places import MoveTarget
from tvm_ext.core.names import MOVE


def move(operand: relax.Expr, memory: str, within: int | None = None, processor: str = "") -> relax.Call:
    """A call of the operator, of its operand's type. within: operators behind which it is waited for. processor: the
    core that copies, where no DMA does; empty for the first one."""
    attrs = dict_attrs(MoveTarget(memory=memory, within=within, processor=processor))
    call = relax.Call(ir_op.Op.get(MOVE), [operand], attrs, [], None, operand.ty)
    return relax.BlockBuilder().normalize(call)


def is_move(expr: relax.Expr) -> bool:
    """True for a call of the operator."""
    return isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name == MOVE


def _infer(call: relax.Call, _builder: relax.BlockBuilder) -> relax.TensorType:
    return relax.TensorType(call.args[0].ty.shape, call.args[0].ty.dtype)


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return builder.call_te(
        lambda x: te.compute(x.shape, lambda *i: x(*i), name="move"), call.args[0], primfunc_name_hint="move"
    )


def _register() -> None:
    ir_op._ffi_api.RegisterOp(MOVE, "Its operand, copied to another memory.")
    operator = ir_op.Op.get(MOVE)
    operator.set_num_inputs(1)
    operator.add_argument("operand", "Tensor", "The tensor that is copied.")
    ir_op.register_op_attr(MOVE, "FPurity", True)
    ir_op.register_op_attr(MOVE, "FInferType", _infer)
    register_legalize(MOVE, _legalize)


_register()
