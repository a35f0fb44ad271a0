"""Run a Relax module on TVM's virtual machine with LLVM, as the reference of generated C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx, topi
from tvm.ir import Call
from tvm.relax.transform.legalize_ops.common import LegalizeFunc

from codegen_c.tir.legalizations import COMPARISONS, GATHERS, NORMALIZATIONS, with_indices_inside, with_true_starts
from codegen_c.tir.legalize import alone

Array = np.ndarray


def compiled_with_llvm(mod: tvm.IRModule, *, optimized: bool = True) -> Callable[[Sequence[Array]], list[Array]]:
    """Return `main` as a function of its parameters' arrays; a tuple is returned as the list of its fields.

    optimized: False for modules that run for less time than LLVM needs to optimize them.
    """
    legal = relax.transform.LegalizeOps(_LEGALIZE)(mod)
    defined = _defined(with_true_starts(legal))
    # Use the module itself: for a model without loops, an executable would pass an empty C file to the compiler.
    target = tvm.target.Target("llvm" if optimized else {"kind": "llvm", "opt-level": 0})
    machine = relax.VirtualMachine(tvm.compile(defined, target=target).mod, tvm.cpu())

    def run(arrays: Sequence[Array]) -> list[Array]:
        # ascontiguousarray would turn scalars into vectors.
        result = machine["main"](*[tvm.runtime.tensor(np.array(array, order="C")) for array in arrays])
        fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return [field.numpy() for field in fields]

    return run


def _defined(mod: tvm.IRModule) -> tvm.IRModule:
    """Rewrite PrimFuncs to stay within their buffers, as the generated C does, and to call accurate C functions."""
    result = mod.clone()
    for var, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc):
            body = with_indices_inside(function.body, dict.fromkeys(function.params))
            result.update_func(var, function.with_body(tvm_ffi.structural_map(body, [(Call, _by_library)])))
    return result


_BY_LIBRARY = {"tirx.tanh": "tanh", "tirx.atanh": "atanh"}
"""C functions that replace TVM's formulas, which subtract nearly equal numbers: TVM's tanh of 1e-20 is 0."""


def _by_library(call: Call) -> tirx.Expr:
    name, dtype = _BY_LIBRARY.get(getattr(call.op, "name", "")), str(call.ty.dtype)
    if name is None or dtype not in ("float32", "float64"):
        return call
    return tirx.call_pure_extern(dtype, name if dtype == "float64" else f"{name}f", *call.args)


def _fmod(call: tirx.Call) -> tirx.Expr:
    """Return a call of C's fmod, because TVM does not lower `fmod` for LLVM."""
    dtype = str(call.ty.dtype)
    return tirx.call_pure_extern(dtype, "fmod" if dtype == "float64" else "fmodf", *call.args)


tirx.register_intrin_lowering("tirx.fmod", target="llvm", f=_fmod)


def _compare(name: str) -> LegalizeFunc:
    """Return a legalization that compares bools by logic; TVM compares them as floats, which LLVM rejects."""

    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if str(call.args[0].ty.dtype) != "bool":
            return COMPARISONS[name](bb, call)
        differ = bb.call_te(topi.logical_xor, *call.args)
        return differ if name == "relax.not_equal" else bb.call_te(topi.logical_not, bb.normalize(differ))

    return legalize


_LEGALIZE = {
    **COMPARISONS,
    **GATHERS,
    **NORMALIZATIONS,
    **{name: _compare(name) for name in ("relax.equal", "relax.not_equal")},
}


Reference = Callable[[list[np.ndarray]], list[np.ndarray]]


def reference_of(function: relax.Function, module: tvm.IRModule | None = None) -> Reference:
    """Return `function` on TVM's virtual machine, compiled at the first run; a tuple is returned as its fields."""
    machine = cache(lambda: compiled_with_llvm(alone(function, module)))
    return lambda inputs: machine()(inputs)
