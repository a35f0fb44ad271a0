"""Drop a rounding to 16 bits whose result is only clamped before it is rounded to 16 bits again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    bindings,
    live,
    map_dataflow,
    op_name,
    operands,
    outputs,
    rebuild,
    substitute,
    users,
)

NARROW = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
_BOUNDS = frozenset(f"relax.{name}" for name in ("nn.relu", "clip", "maximum", "minimum"))


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
    sequence, results = bindings(func), outputs(func)
    facts = _Facts(
        values={binding.var: binding.value for binding in sequence},
        readers=users(sequence),
        returned=frozenset(leaf for result in results for leaf in operands(result)),
    )
    rewritten: list[relax.VarBinding] = []
    for binding in sequence:
        before = facts.before_rounding(binding)
        if before is None:
            rewritten.append(binding)
        else:
            widened, real = before
            rewritten.append(relax.VarBinding(binding.var, substitute(binding.value, {widened: real})))
    return rebuild(func, live(rewritten, results))


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """The values of variables, their readers, and the variables that the function returns."""

    values: Mapping[relax.Var, relax.Expr]
    readers: Mapping[relax.Var, Sequence[relax.VarBinding]]
    returned: frozenset[relax.Expr]

    def before_rounding(self, bounded: relax.VarBinding) -> tuple[relax.Var, relax.Var] | None:
        """Return the widened operand of a clamp and the float32 value under it, or None where rounding must stay."""
        if op_name(bounded.value) not in _BOUNDS:
            return None
        variables = [leaf for leaf in operands(bounded.value) if isinstance(leaf, relax.Var)]
        if len(variables) != 1 or not self._is_read_once(variables[0]):
            return None
        widened, narrow = variables[0], self._cast_of(variables[0], "float32")
        if narrow is None or not self._is_read_once(narrow):
            return None
        dtype = str(narrow.ty.dtype)
        real = self._cast_of(narrow, dtype) if dtype in NARROW else None
        if real is None or str(real.ty.dtype) != "float32":
            return None
        is_rounded = bounded.var not in self.returned and all(
            op_name(reader.value) == "relax.astype" and str(reader.var.ty.dtype) == dtype
            for reader in self.readers.get(bounded.var, [])
        )
        return (widened, real) if is_rounded and _holds_bounds(bounded.value, NARROW[dtype]) else None

    def _is_read_once(self, var: relax.Var) -> bool:
        return var not in self.returned and len(self.readers.get(var, [])) == 1

    def _cast_of(self, var: relax.Var, dtype: str) -> relax.Var | None:
        """Return the variable that `var` is cast from, or None where `var` is no cast to `dtype`."""
        value = self.values.get(var)
        if op_name(value) != "relax.astype" or str(var.ty.dtype) != dtype or not isinstance(value.args[0], relax.Var):
            return None
        return value.args[0]


def _holds_bounds(call: relax.Call, kind: np.dtype) -> bool:
    """Return True where 16 bits represent every constant of a call exactly."""
    bounds = [np.float32(arg.value) for arg in call.args if isinstance(arg, tvm.tirx.FloatImm | tvm.tirx.IntImm)]
    bounds += [array for arg in call.args if (array := array_of(arg)) is not None]
    with np.errstate(over="ignore"):
        return all(np.array_equal(np.asarray(bound, kind).astype(np.float32), bound) for bound in bounds)
