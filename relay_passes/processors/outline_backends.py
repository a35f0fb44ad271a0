"""Outline runs of composites of other back ends as functions, by the patterns that a back end accepts.

Rewrite:
    main: a = c1(x); b = c2(a); d = c3(b)     c1 and c2 carry processor = "llvm"
      ->  main: b = net_llvm(x); d = c3(b)    net_llvm(x): a = conv2d(x, w); b = relu(a)
    A function carries the `OperatorProcessor` of its composites. A function for a BYOC back end calls functions that
    carry the back end's name, in place of the operators that its patterns cover (`PartitionBackends`).
Leaves alone: composites of our C, from which `OutlineRegions` forms regions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import relax

from relay_passes.composites import added, call_new, composite_of, is_composite
from relay_passes.dataflow import bindings, build, is_dataflow, op_name, operands, outputs, rebuild, substitute
from tvm_ext.core.decisions.composites import CompositeKind, OperatorProcessor, PrimFuncs, Region, Symbol
from tvm_ext.core.names import unique


@tvm.transform.module_pass(opt_level=0, name="OutlineBackends")
class OutlineBackends:
    """Outline runs of composites as functions.

    processors: names of the processors that TVM compiles for.
    prefix: of the names of functions.
    """

    def __init__(self, processors: Sequence[str], prefix: str) -> None:
        self.processors, self.prefix = processors, prefix

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        main, module = mod["main"], mod.clone()
        taken = {var.name_hint for var in module.get_global_vars()}
        results = outputs(main)
        runs = self._runs(mod, bindings(main))
        sequence: list[relax.VarBinding] = []
        for index, (processor, run) in enumerate(runs):
            if processor not in self.processors:
                sequence += run
                continue
            after = [leaf for _, later in runs[index + 1 :] for b in later for leaf in operands(b.value)]
            used = {*after, *(leaf for result in results for leaf in operands(result))}
            given = [binding.var for binding in run if binding.var in used]
            arguments, function = _outlined(mod, run, given)
            function = OperatorProcessor(processor=processor).write(function)
            name = unique(f"{self.prefix}_{processor}", taken)
            sequence += _call(module, name, function, arguments, given)
        module.update_func(module.get_global_var("main"), rebuild(main, sequence, results))
        called = {b.value.op for b in sequence if isinstance(b.value, relax.Call)}
        for var, function in mod.functions_items():
            if is_composite(function) and var not in called:
                del module[var]
        return module

    def _runs(
        self, mod: tvm.IRModule, sequence: Sequence[relax.VarBinding]
    ) -> list[tuple[str, list[relax.VarBinding]]]:
        """Return runs of bindings with their processor.

        Tuple elements and aliases stay with the producer of their value.
        """
        runs: list[tuple[str, list[relax.VarBinding]]] = []
        maker: dict[relax.Var, str] = {}
        for binding in sequence:
            composite = composite_of(mod, binding.value)
            source = next(operands(binding.value), None)
            processor = OperatorProcessor.read(composite).processor if composite is not None else maker.get(source, "")
            maker[binding.var] = processor
            if not runs or runs[-1][0] != processor:
                runs.append((processor, []))
            runs[-1][1].append(binding)
        return runs


@tvm.transform.module_pass(opt_level=0, name="PartitionBackends")
class PartitionBackends:
    """Move operators that the patterns of a BYOC back end cover to functions for this back end.

    patterns: the patterns of each processor, by its name.
    """

    def __init__(self, patterns: Mapping[str, Patterns]) -> None:
        self.patterns = patterns

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        module = mod.clone()
        taken = {var.name_hint for var in module.get_global_vars()}
        for var, function in mod.functions_items():
            patterns = self.patterns.get(OperatorProcessor.read(function).processor)
            if isinstance(function, relax.Function) and patterns is not None:
                self._partition(module, var, function, patterns, taken)
        return module

    def _partition(
        self,
        module: tvm.IRModule,
        var: tvm.ir.GlobalVar,
        function: relax.Function,
        patterns: Patterns,
        taken: set[str],
    ) -> None:
        used = {leaf: module[leaf] for b in bindings(function) for leaf in operands(b.value) if _is_global(leaf)}
        parts = with_codegen_functions(function, used, patterns)
        calls = {}
        for inner, part in codegen_functions(parts).items():
            name = unique(f"{var.name_hint}_{Region.read(part).codegen}", taken)
            calls[inner] = added(module, name, Symbol(name=name).write(part))
        main = parts["main"]
        sequence = [relax.VarBinding(b.var, _renamed(b.value, calls)) for b in bindings(main)]
        module.update_func(var, Symbol.read(function).write(rebuild(main, sequence)))


def _is_global(leaf: relax.Expr) -> bool:
    return isinstance(leaf, tvm.ir.GlobalVar)


def _renamed(value: relax.Expr, calls: Mapping[tvm.ir.GlobalVar, tvm.ir.GlobalVar]) -> relax.Expr:
    if not isinstance(value, relax.Call) or value.op not in calls:
        return value
    return relax.BlockBuilder().normalize(relax.Call(calls[value.op], value.args, span=value.span))


def _outlined(
    mod: tvm.IRModule, run: Sequence[relax.VarBinding], given: Sequence[relax.Var]
) -> tuple[list[relax.Var], relax.Function]:
    """Return the arguments of the call, and a function of the operators inside the composites with results `given`."""
    inside = {binding.var for binding in run}
    leaves = dict.fromkeys(leaf for binding in run for leaf in operands(binding.value))
    arguments = [leaf for leaf in leaves if isinstance(leaf, relax.Var) and leaf not in inside]
    params = [relax.Var(var.name, var.ty) for var in arguments]
    known: dict[relax.Var, relax.Expr] = dict(zip(arguments, params, strict=True))
    sequence: list[relax.VarBinding] = []
    for binding in run:
        composite = composite_of(mod, binding.value)
        if composite is None:
            known[binding.var] = _bound(sequence, binding.var.name, substitute(binding.value, known))
        else:
            args = [substitute(arg, known) for arg in binding.value.args]
            known[binding.var] = _inlined(sequence, composite, args, binding.var.name)
    results = [known[var] for var in given]
    return arguments, build(params, sequence, results)


def _inlined(
    sequence: list[relax.VarBinding], composite: relax.Function, args: Sequence[relax.Expr], name: str
) -> relax.Expr:
    """Inline the operators of a composite into the sequence, and return the composite's result."""
    known: dict[relax.Var, relax.Expr] = dict(zip(composite.params, args, strict=True))
    results = outputs(composite)
    for inner in bindings(composite):
        own = name if inner.var in results else inner.var.name
        known[inner.var] = _bound(sequence, own, substitute(inner.value, known))
    return substitute(composite.body.body, known)


def _bound(sequence: list[relax.VarBinding], name: str, value: relax.Expr) -> relax.Expr:
    if not isinstance(value, relax.Call | relax.TupleGetItem):
        return value
    var = relax.DataflowVar(name, value.ty)
    sequence.append(relax.VarBinding(var, value))
    return var


def _call(
    module: tvm.IRModule, name: str, function: relax.Function, arguments: list[relax.Var], given: list[relax.Var]
) -> list[relax.VarBinding]:
    """Add a function to the module, and return the bindings that call it and bind its results to `given`."""
    call = call_new(module, name, function, arguments)
    if len(given) == 1:
        return [relax.VarBinding(given[0], call)]
    whole = relax.DataflowVar(f"{name}.results", call.ty)
    return [
        relax.VarBinding(whole, call),
        *(relax.VarBinding(v, relax.TupleGetItem(whole, i)) for i, v in enumerate(given)),
    ]


Patterns = Sequence[relax.transform.FusionPattern]


def takes_anchor(composite: relax.Function, patterns: Patterns) -> bool:
    """Return True where a pattern covers the operator that gives a composite its kind.

    TVM's own code may run the rest.
    """
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
    """Return a module whose `main` is the function with calls of functions for the back end.

    Neighbouring operators are merged into one function. Functions for the back end carry a `Region`, as TVM's own
    partitioning writes it.
    functions: the functions that the given function calls.
    """
    main = Symbol(name="main").write(function)
    module = tvm.IRModule({**functions, tvm.ir.GlobalVar("main"): main})
    fuse = relax.transform.FuseOpsByPattern(patterns, bind_constants=True, annotate_codegen=False)
    merge = relax.transform.MergeCompositeFunctions()
    return tvm.transform.Sequential([fuse, merge])(module)


def codegen_functions(module: tvm.IRModule) -> dict[tvm.ir.GlobalVar, relax.Function]:
    """Return the functions that a back end compiles, in the order of their names."""
    found = {var: func for var, func in module.functions_items() if isinstance(func, relax.Function)}
    named = sorted(found.items(), key=lambda pair: pair[0].name_hint)
    return {var: func for var, func in named if Region.read(func).codegen}


def _operators(function: relax.Function) -> list[str]:
    return [name for b in bindings(function) if (name := op_name(b.value))] if is_dataflow(function) else []


def _kind(name: str) -> str:
    return name.removeprefix("relax.").replace(".", "_")
