"""Patterns of a BYOC back end over operators: which composites it takes, and its functions set apart in a region."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from relay_passes.dataflow import bindings, is_dataflow, op_name
from tvm_ext.core.decisions.composites import CompositeKind, PrimFuncs, Region, Symbol

Patterns = Sequence[relax.transform.FusionPattern]


def takes_anchor(composite: relax.Function, patterns: Patterns) -> bool:
    """True where a pattern covers the operator that a composite is named for; TVM's own code may run the others."""
    functions = dict(PrimFuncs.read(composite).functions or {})
    plain = PrimFuncs().write(CompositeKind().write(composite))
    kind = CompositeKind.read(composite).kind
    before = _operators(plain)
    anchors = {name for name in before if kind in (_kind(name), f"q{_kind(name)}")}
    left = _operators(with_codegen_functions(plain, functions, patterns)["main"])
    return any(left.count(name) < before.count(name) for name in anchors)


def with_codegen_functions(
    function: relax.Function, functions: dict[tvm.ir.GlobalVar, object], patterns: Patterns
) -> tvm.IRModule:
    """A module whose `main` is the function, with calls of functions for the back end; neighbours are one function.

    functions: those that it calls. Bodies for the back end carry a `Region`, as TVM's own partitioning writes it.
    """
    main = Symbol(name="main").write(function)
    module = tvm.IRModule({**functions, tvm.ir.GlobalVar("main"): main})
    fuse = relax.transform.FuseOpsByPattern(patterns, bind_constants=True, annotate_codegen=False)
    merge = relax.transform.MergeCompositeFunctions()
    return tvm.transform.Sequential([fuse, merge])(module)


def codegen_functions(module: tvm.IRModule) -> dict[tvm.ir.GlobalVar, relax.Function]:
    """Functions that a back end compiles, in the order of their names."""
    found = {var: func for var, func in module.functions_items() if isinstance(func, relax.Function)}
    named = sorted(found.items(), key=lambda pair: pair[0].name_hint)
    return {var: func for var, func in named if Region.read(func).codegen}


def _operators(function: relax.Function) -> list[str]:
    return [name for b in bindings(function) if (name := op_name(b.value))] if is_dataflow(function) else []


def _kind(name: str) -> str:
    return name.removeprefix("relax.").replace(".", "_")
