"""The Relax operator `tvm_ext.move`: its operand, copied to another memory.

It stands where the copy begins. Where a DMA joins the two memories, what follows runs meanwhile, until the result is
first read; `within` waits for it earlier, behind so many operators, so that the bytes of a dying operand are free. In
TVM, which knows one memory only, it is a copy.
"""

from __future__ import annotations

import tvm
from tvm import relax, te

from relay_passes.dataflow import dict_attrs
from relay_passes.own_operators import call_operator, define_operator
from tvm_ext.core.decisions.places import MoveTarget
from tvm_ext.core.names import MOVE


def move(operand: relax.Expr, memory: str, within: int | None = None, processor: str = "") -> relax.Call:
    """A call of the operator, of its operand's type. within: operators behind which it is waited for. processor: the
    core that copies, where no DMA does; empty for the first one."""
    attrs = dict_attrs(MoveTarget(memory=memory, within=within, processor=processor))
    return relax.BlockBuilder().normalize(call_operator(MOVE, operand, attrs))


def is_move(expr: relax.Expr) -> bool:
    """True for a call of the operator."""
    return isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name == MOVE


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return builder.call_te(
        lambda x: te.compute(x.shape, lambda *i: x(*i), name="move"), call.args[0], primfunc_name_hint="move"
    )


define_operator(MOVE, "Its operand, copied to another memory.", _legalize)
