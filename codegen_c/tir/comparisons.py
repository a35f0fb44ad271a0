"""What TVM lowers wrongly of truth values: comparisons of a tensor of floats with itself, arithmetic of bools.

By `x != x` programs find what is no number. LLVM has no product of bools, and compilers of C warn of one.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax, te, tirx, topi
from tvm.relax.transform.legalize_ops.common import LegalizeFunc

_OF_A_NUMBER = {
    "relax.equal": True, "relax.greater_equal": True, "relax.less_equal": True, "relax.not_equal": False,
    "relax.greater": False, "relax.less": False,
}  # fmt: skip
"""What each comparison of a number with itself gives; of NaN only `not_equal` is true."""


def _legalize(name: str) -> LegalizeFunc:
    """TVM's simplifier takes `x == x` for true, which it is of numbers alone; `isnan` stays as it is."""

    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        left, right = call.args
        if not left.same_as(right) or not str(left.ty.dtype).startswith("float"):
            return tvm.ir.Op.get(name).get_attr("FLegalize")(bb, call)
        return bb.call_te(_compared(name), left, primfunc_name_hint=name.removeprefix("relax."))

    return legalize


def _compared(name: str) -> Callable[[te.Tensor], te.Tensor]:
    def element(value: tirx.Expr) -> tirx.Expr:
        if name == "relax.not_equal":
            return tirx.isnan(value)
        return tirx.Not(tirx.isnan(value)) if _OF_A_NUMBER[name] else tirx.const(False, "bool")

    return lambda x: te.compute(x.shape, lambda *at: element(x(*at)), "compared", tag="elemwise")


def _logical(name: str, logic: Callable[..., te.Tensor]) -> LegalizeFunc:
    """Arithmetic of bools by logic, as numpy has it; of all else TVM's own."""

    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if str(call.args[0].ty.dtype) != "bool":
            return tvm.ir.Op.get(name).get_attr("FLegalize")(bb, call)
        return bb.call_te(logic, *call.args, primfunc_name_hint=name.removeprefix("relax."))

    return legalize


LEGALIZE: dict[str, LegalizeFunc] = {
    **{name: _legalize(name) for name in _OF_A_NUMBER},
    "relax.multiply": _logical("relax.multiply", topi.logical_and),
    "relax.add": _logical("relax.add", topi.logical_or),
}
