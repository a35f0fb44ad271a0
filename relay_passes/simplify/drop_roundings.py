"""Drop a rounding to 16 bits whose result is only clamped before it is rounded to 16 bits again."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    live,
    map_dataflow,
    op_name,
    operands,
    outputs,
    rebuild,
    substitute,
)
from relay_passes.patterns import Dataflow, Pattern, any_value, op

NARROW = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
_BOUNDS = frozenset(f"relax.{name}" for name in ("nn.relu", "clip", "maximum", "minimum"))


def _cast(source: Pattern, *dtypes: str) -> Pattern:
    return op("relax.astype", source, where=lambda call: str(call.ty.dtype) in dtypes, read_once=True)


_REAL = any_value(lambda expr: isinstance(expr, relax.Var) and str(expr.ty.dtype) == "float32")
_NARROW = _cast(_REAL, *NARROW)
_WIDENED = _cast(_NARROW, "float32")


@tvm.transform.module_pass(opt_level=0, name="DropRoundings")
class DropRoundings:
    """Clamp float32 values before they are rounded to 16 bits, so that layers can fuse the clamp.

    Rewrite:
        n = astype(x, "float16")
        w = astype(n, "float32")
        r = relu(w)                       r = relu(x)
        y = astype(r, "float16")     ->   y = astype(r, "float16")
        The rewrite is exact: rounding is monotonic, and a bound that 16 bits represent is rounded to itself.
    Leaves alone: bounds that 16 bits cannot represent, other operators, and a rounded value with another reader.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _drop)


def _drop(func: relax.Function) -> relax.Function:
    flow = Dataflow(func)
    rewritten = [relax.VarBinding(b.var, substitute(b.value, _before_rounding(b, flow))) for b in flow.sequence]
    return rebuild(func, live(rewritten, outputs(func)))


def _before_rounding(bounded: relax.VarBinding, flow: Dataflow) -> dict[relax.Var, relax.Var]:
    """Return the float32 value under the rounding by the widened operand of a clamp, or nothing where it must stay."""
    variables = [leaf for leaf in operands(bounded.value) if isinstance(leaf, relax.Var)]
    if op_name(bounded.value) not in _BOUNDS or len(variables) != 1:
        return {}
    match = flow.match(_WIDENED, variables[0])
    if match is None:
        return {}
    dtype = str(match[_NARROW].ty.dtype)
    is_rounded = bounded.var not in flow.returned and all(
        op_name(reader.value) == "relax.astype" and str(reader.var.ty.dtype) == dtype
        for reader in flow.readers.get(bounded.var, [])
    )
    return {variables[0]: match[_REAL]} if is_rounded and _holds_bounds(bounded.value, NARROW[dtype]) else {}


def _holds_bounds(call: relax.Call, kind: np.dtype) -> bool:
    """Return True where 16 bits represent every constant of a call exactly."""
    bounds = [np.float32(arg.value) for arg in call.args if isinstance(arg, tvm.tirx.FloatImm | tvm.tirx.IntImm)]
    bounds += [array for arg in call.args if (array := array_of(arg)) is not None]
    with np.errstate(over="ignore"):
        return all(np.array_equal(np.asarray(bound, kind).astype(np.float32), bound) for bound in bounds)
