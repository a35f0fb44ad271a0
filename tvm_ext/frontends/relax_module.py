"""Check a Relax module that is passed in memory, fix its shapes, and reduce it to one dataflow block."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import tvm
from tvm import relax

from codegen_c.backend.byoc import CODEGEN
from relay_passes.dataflow import bindings, is_dataflow, outputs, rebuild, with_span
from tvm_ext.core.decisions.composites import InputCount, Region
from tvm_ext.core.decisions.models import KeptStates, MemoryScopes, ModelOrigin
from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.loaded import Loaded, distinct_names
from tvm_ext.frontends.memory_scopes import without_scopes
from tvm_ext.frontends.shapes import DeclaredInput, fix_shapes
from tvm_ext.frontends.size_limits import check_folding, check_results
from tvm_ext.frontends.source_lines import binding_text, blocking_binding, lines_of


def load_relax(mod: tvm.IRModule, shapes: Mapping[str, Sequence[int]] | None, limits: Limits) -> Loaded:
    """Check `mod` and make it static. Raises BadModel, BadOptions, UnsupportedModel."""
    main = _main(mod)
    inputs = [DeclaredInput(name=param.name, dims=_dims(param)) for param in main.params]
    fixed = fix_shapes(inputs, shapes)
    symbols = {
        dim: value
        for param in main.params
        for dim, value in zip(param.ty.shape.values, fixed[param.name], strict=True)
        if isinstance(dim, tvm.tirx.Var)
    }
    static = relax.transform.BindSymbolicVars(symbols, "main")(mod) if symbols else mod
    static = relax.transform.CanonicalizeBindings()(relax.transform.Normalize()(static))
    if not is_dataflow(static["main"]):
        static = relax.transform.ConvertToDataflow(1)(static)
    if not is_dataflow(static["main"]):
        raise _not_dataflow(static["main"])
    lines = lines_of(bindings(static["main"]))
    func = _without_source_lines(_with_results_opened(static["main"]))
    _check_calls(static, func, lines)
    _check_static(func, lines)
    check_results(func, limits)
    known = ModelOrigin.read(mod)
    if not known.is_known:  # otherwise it was read from a file, whose operators were counted and folded
        check_folding(func, limits)
    static = static.clone()
    states = KeptStates.read(mod).states
    names = distinct_names([getattr(result, "name", f"output_{i}") for i, result in enumerate(outputs(func))])
    if not len(states) < min(len(func.params) + 1, len(names)):
        raise BadModel(f"the module lists {len(states)} states; 'main' has {len(func.params)} parameters and "
                       f"{len(names)} results, of which the last are the states.")  # fmt: skip
    func, scopes = without_scopes(func, names)
    static.update_func(static.get_global_var("main"), func)
    return Loaded(
        mod=scopes.write(static) if scopes != MemoryScopes() else static,
        sha256=hashlib.sha256(mod.script(show_meta=True).encode()).hexdigest() if not known.is_known else known.sha256,
        input_names=tuple(param.name for param in func.params[: len(func.params) - len(states)]),
        output_names=names[: len(names) - len(states)],
        states=states,
        lines=lines,
    )


def _main(mod: tvm.IRModule) -> relax.Function:
    if "main" not in {var.name_hint for var in mod.get_global_vars()}:
        names = ", ".join(sorted(var.name_hint for var in mod.get_global_vars())) or "none"
        raise BadModel(f"the module has no function 'main'; functions: {names}.")
    main = mod["main"]
    if not isinstance(main, relax.Function):
        raise BadModel(f"'main' is a {type(main).__name__}; a Relax function is needed.")
    for param in main.params:
        if not isinstance(param.ty, relax.TensorType) or not isinstance(param.ty.shape, relax.ShapeExpr):
            raise BadModel(f"parameter {param.name!r} of 'main' is {param.ty}; tensors of known rank are needed.")
    num_input = InputCount.read(main).count
    if num_input is not None and num_input < len(main.params):
        unbound = ", ".join(param.name for param in main.params[num_input:][:3])
        raise BadModel(f"weights are parameters of 'main' ({unbound} ...); bind them with relax.transform.BindParams.")
    if len({param.name for param in main.params}) < len(main.params):
        raise BadModel("two parameters of 'main' have one name; inputs are found by name.")
    return main


def _dims(param: relax.Var) -> tuple[int | str | None, ...]:
    return tuple(
        int(dim) if isinstance(dim, tvm.tirx.IntImm) else dim.name if isinstance(dim, tvm.tirx.Var) else None
        for dim in param.ty.shape.values
    )


def _not_dataflow(main: relax.Function) -> UnsupportedModel:
    """Return the error about a function with control flow, impure calls or match_cast; it names the first of these."""
    blocking = blocking_binding(main)
    where = f": {binding_text(blocking)}" if blocking is not None else ""
    return UnsupportedModel(
        f"'main' is not a single dataflow block of plain bindings{where}. Control flow, impure calls and match_cast "
        "cannot be compiled. Remove them, or let relax.transform.ConvertToDataflow() form one block."
    )


def _with_results_opened(func: relax.Function) -> relax.Function:
    """Rewrite `gv = (a, b); return gv` to `return (a, b)`."""
    sequence = bindings(func)
    by_var = {binding.var: binding.value for binding in sequence}
    value = by_var.get(func.body.body)
    if not isinstance(value, relax.Tuple):
        return func
    kept = [binding for binding in sequence if binding.var is not func.body.body and binding.value is not value]
    return rebuild(func, kept, list(value.fields), as_tuple=True)


def _without_source_lines(func: relax.Function) -> relax.Function:
    """Drop spans that name a line of a TVMScript file instead of a node, because its path must not get into C."""

    def strip(binding: relax.VarBinding) -> relax.VarBinding:
        span = binding.value.span
        is_line = span is not None and span.line > 0
        return relax.VarBinding(binding.var, with_span(binding.value, None)) if is_line else binding

    return rebuild(func, [strip(binding) for binding in bindings(func)])


def _check_calls(mod: tvm.IRModule, func: relax.Function, lines: Mapping[str, str]) -> None:
    """Raise UnsupportedModel for calls of functions, which other passes put in place of operators.

    A function that another back end compiles is no such function: its call stays as it is.
    """
    counts: dict[str, int] = {}
    first = ""
    for binding in bindings(func):
        value = binding.value
        callee = value.op if isinstance(value, relax.Call) else None
        if callee is None or isinstance(callee, tvm.ir.Op):
            continue
        codegen = Region.read(mod[callee]).codegen if isinstance(callee, tvm.ir.GlobalVar) else ""
        if codegen == CODEGEN:
            raise UnsupportedModel(
                f"'main' calls {callee.name_hint}, which is partitioned for {CODEGEN} already. Compile the module with "
                "relax.transform.RunCodegen, or give the module from before its partition."
            )
        if codegen:
            continue
        name = callee.name_hint if isinstance(callee, tvm.ir.GlobalVar | relax.Var) else f"a {type(callee).__name__}"
        counts[name] = counts.get(name, 0) + 1
        first = first or binding_text(binding, lines.get(binding.var.name, ""))
    if counts:
        listed = ", ".join(f"{name} ({count} times)" for name, count in [*counts.items()][:5])
        more = f" and {len(counts) - 5} more" if len(counts) > 5 else ""
        raise UnsupportedModel(
            f"'main' calls functions in place of operators: {listed}{more}. The first is {first}. Passes such as "
            "FuseOps and CallTIRRewrite create these calls. Give the module from before these passes, and let "
            "tvm.compile run them with tvm_ext.relax_pipeline. LegalizeOps and FuseTIR may run before."
        )


def _check_static(func: relax.Function, lines: Mapping[str, str]) -> None:
    if any(isinstance(result.ty, relax.TupleType) for result in outputs(func)):
        raise UnsupportedModel("'main' returns a tuple inside a tuple; return all tensors in a single tuple.")
    for binding in bindings(func):
        for ty in binding.var.ty.fields if isinstance(binding.var.ty, relax.TupleType) else [binding.var.ty]:
            dims = ty.shape.values if isinstance(ty, relax.TensorType) and ty.shape is not None else [None]
            if not all(isinstance(dim, tvm.tirx.IntImm) for dim in dims):
                said = binding_text(binding, lines.get(binding.var.name, ""))
                raise UnsupportedModel(
                    f"{binding.var.name!r} has no static shape: {ty}, from {said}; only static shapes compile."
                )
