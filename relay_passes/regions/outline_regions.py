"""Outline runs of composites as region functions, which a code generator compiles as a whole.

Rewrite:
    main: a = c1(x); b = c2(a); d = foreign(b); e = c3(d)
      Composites move into their region as local functions, and moves between memories as they are. The order is the
    schedule and stays the same.
    A region that is the whole model has the model's signature: every input, and every output that is not constant.
Leaves alone: bindings that call no composite, which stay in main for TVM.
"""

from __future__ import annotations

from dataclasses import replace

import tvm
from tvm import relax

from relay_passes.composites import call_new, composite_of, is_composite
from relay_passes.dataflow import bindings, build, is_dataflow, operands, outputs, rebuild, substitute
from relay_passes.own_operators import is_move
from tvm_ext.core.decisions.composites import ModelTensor, Region, Symbol
from tvm_ext.core.names import unique


@tvm.transform.module_pass(opt_level=0, name="OutlineRegions")
class OutlineRegions:
    """Outline runs of composites as region functions.

    codegen: the code generator.
    prefix: of the functions' names.
    """

    def __init__(self, codegen: str, prefix: str) -> None:
        self.codegen, self.prefix = codegen, prefix

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        if not is_dataflow(mod["main"]):
            return mod
        module = tvm.IRModule(
            {var: func for var, func in mod.functions_items() if not is_composite(func)}, attrs=mod.attrs
        )
        taken = {var.name_hint for var in module.get_global_vars()}
        main = _without_aliases(mod["main"])
        results = outputs(main)
        sequence: list[relax.VarBinding] = []
        runs = _runs(mod, bindings(main))
        if len(runs) == 1 and runs[0][0]:
            return self._outline_whole(mod, module, main, runs[0][1])
        for index, (is_region, run) in enumerate(runs):
            if not is_region:
                sequence.extend(run)
                continue
            after = [leaf for _, later in runs[index + 1 :] for b in later for leaf in operands(b.value)]
            used = {*after, *(leaf for result in results for leaf in operands(result))}
            escaping = [b.var for b in run if b.var in used]
            arguments, region = _region(mod, run, escaping, [])
            symbol = unique(f"{self.prefix}_region", taken)
            sequence += self._call(module, symbol, region, arguments, escaping)
        module.update_func(module.get_global_var("main"), rebuild(main, sequence, results))
        return module

    def _outline_whole(
        self, mod: tvm.IRModule, module: tvm.IRModule, main: relax.Function, run: list[relax.VarBinding]
    ) -> tvm.IRModule:
        """Outline a single region with the model's signature, where an output may be an input, or appear twice."""
        returned = [result for result in outputs(main) if isinstance(result, relax.Var)]
        arguments, region = _region(mod, run, returned, list(main.params))
        symbol = unique(self.prefix, {var.name_hint for var in module.get_global_vars()})
        given = [relax.Var(var.name, var.ty) for var in returned]
        sequence = self._call(module, symbol, region, arguments, given)
        fresh = iter(given)
        results = [next(fresh) if isinstance(result, relax.Var) else result for result in outputs(main)]
        module.update_func(module.get_global_var("main"), rebuild(main, sequence, results))
        return module

    def _call(
        self,
        module: tvm.IRModule,
        symbol: str,
        region: relax.Function,
        arguments: list[relax.Var],
        given: list[relax.Var],
    ) -> list[relax.VarBinding]:
        """Add the region to the module, and return the bindings that call it and bind its results to `given`."""
        region = Symbol(name=symbol).write(region)
        outlined = replace(Region.read(region), codegen=self.codegen).write(region)
        call = call_new(module, symbol, outlined, arguments)
        if len(given) == 1:
            return [relax.VarBinding(given[0], call)]
        whole = relax.DataflowVar(f"{symbol}.results", call.ty)
        elements = [relax.VarBinding(var, relax.TupleGetItem(whole, i)) for i, var in enumerate(given)]
        return [relax.VarBinding(whole, call), *elements]


def _without_aliases(main: relax.Function) -> relax.Function:
    """Return the function without bindings that only rename a value."""
    named: dict[relax.Var, relax.Expr] = {}
    sequence: list[relax.VarBinding] = []
    for binding in bindings(main):
        value = substitute(binding.value, named)
        if isinstance(value, relax.Var):
            named[binding.var] = value
        else:
            sequence.append(relax.VarBinding(binding.var, value))
    if not named:
        return main
    return rebuild(main, sequence, [substitute(result, named) for result in outputs(main)])


def _runs(mod: tvm.IRModule, sequence: list[relax.VarBinding]) -> list[tuple[bool, list[relax.VarBinding]]]:
    """Cut the schedule into maximal runs of composites (True) and of everything else (False)."""
    runs: list[tuple[bool, list[relax.VarBinding]]] = []
    composite_values: set[relax.Var] = set()
    for binding in sequence:
        value = binding.value
        inside = composite_of(mod, value) is not None or is_move(value)
        if isinstance(value, relax.TupleGetItem):  # an element of a tuple belongs where its composite is
            inside = value.tuple_value in composite_values
        if inside:
            composite_values.add(binding.var)
        if not runs or runs[-1][0] != inside:
            runs.append((inside, []))
        runs[-1][1].append(binding)
    return runs


def _region(
    mod: tvm.IRModule, run: list[relax.VarBinding], escaping: list[relax.Var], first: list[relax.Var]
) -> tuple[list[relax.Var], relax.Function]:
    """Return the arguments of the call, and the region with composites as local functions.

    The region returns the values that are read outside.
    first: arguments that come first, used or not, because a region that is the whole model keeps the model's signature.
    """
    inside = {binding.var for binding in run}
    leaves = dict.fromkeys([*first, *(leaf for binding in run for leaf in operands(binding.value))])
    arguments = [leaf for leaf in leaves if isinstance(leaf, relax.Var) and leaf not in inside]
    params = [relax.Var(var.name, var.ty) for var in arguments]
    # main keeps the variables that are read outside, because a variable may be bound only once.
    kinds = {binding.var: relax.Var if binding.var in set(escaping) else relax.DataflowVar for binding in run}
    own = {var: kind(var.name, var.ty) for var, kind in kinds.items()}
    sequence = []
    for binding in run:
        value = binding.value
        if isinstance(value, relax.Call) and not is_move(value):
            function = Symbol().write(mod[value.op])
            local = relax.DataflowVar(value.op.name_hint, function.ty)
            sequence.append(relax.VarBinding(local, function))
            value = relax.Call(local, value.args, value.attrs, value.ty_args, value.span, value.ty)
        sequence.append(relax.VarBinding(own[binding.var], value))
    region = build(params, sequence, escaping, replace=dict(zip(arguments, params, strict=True)) | own)
    names = {b.var: ModelTensor.read(composite_of(mod, b.value)).name or b.var.name for b in bindings(mod["main"])}
    named = tuple(names.get(var, var.name) for var in arguments)
    are_others = named != tuple(var.name for var in arguments)
    return arguments, Region(parameters=named if are_others else ()).write(region)
