"""Join a product with the power of its real and imaginary parts, where a single kernel computes both.

Rewrite, for composites each of which has a single reader:
    a = product(x); b = reshape(a, [..., K, 2]); c = multiply(b, b); y = sum(c, axis=-1)   ->  y = c'(x)
    Operators that follow the sum in its composite follow it in the new one. A square may also be a power of 2.
Leaves alone: products for which a transform is not the cheapest kernel, results of the model, and spectra whose parts
others read.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from relay_passes.backend import Backend
from relay_passes.composites import attributes, call_new, composite_of, kind_of
from relay_passes.dataflow import (
    bindings,
    build,
    is_dataflow,
    op_name,
    static_shape,
    substitute,
    with_main,
    with_values,
)
from relay_passes.patterns import Dataflow
from tvm_ext.core.decisions.composites import SourceNodes

_VIEWS = frozenset({"relax.reshape"})
_STAGES = (
    frozenset({"relax.nn.conv2d", "relax.matmul"}), _VIEWS,
    frozenset({"relax.multiply", "relax.power"}), frozenset({"relax.sum"}),
)  # fmt: skip
"""Operators of the four composites, of which only the last may have more than one."""


@tvm.transform.module_pass(opt_level=0, name="JoinSpectra")
class JoinSpectra:
    """Form one composite of a product with windowed cosines and sines and of the powers of its results."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        main = mod["main"]
        if not is_dataflow(main):
            return mod
        flow, module = Dataflow(main), mod.clone()
        joined: dict[relax.Var, relax.Call] = {}
        for binding in flow.sequence:
            chain = _chain(mod, flow, binding)
            composite = _joined(mod, chain) if chain else None
            if composite is not None and self.backend.has_kernel(composite):
                first = chain[0][0].value
                joined[binding.var] = call_new(module, binding.value.op.name_hint + "_power", composite, first.args)
        return with_main(module, with_values(main, joined)) if joined else mod


def _chain(mod: tvm.IRModule, flow: Dataflow, last: relax.VarBinding) -> list[list[relax.VarBinding]]:
    """Return the bindings of each stage of a chain that ends at a binding; empty if it is no such chain.

    A view may be bound several times, because streams repeat views where they are read.
    """
    levels: list[list[relax.VarBinding]] = []
    level: list[relax.VarBinding] = [last]
    for names in reversed(_STAGES):
        readers = {binding.var for binding in levels[0]} if levels else set[relax.Var]()
        if not all(isinstance(binding.var.ty, relax.TensorType) for binding in level):
            return []  # a loop over time has several results
        is_alone = len({static_shape(binding.var) for binding in level}) == 1 and (len(level) == 1 or names is _VIEWS)
        if not is_alone or not all(_computes(mod, binding, names, several=not levels) for binding in level):
            return []
        if levels and not all(flow.is_inner(binding.var, readers) for binding in level):
            return []
        levels.insert(0, level)
        read = dict.fromkeys(
            argument for binding in level for argument in binding.value.args[:] if isinstance(argument, relax.Var)
        )
        if names is not _STAGES[0]:
            if not all(variable in flow.made for variable in read):
                return []
            level = [flow.made[variable] for variable in read]
    return levels


def _computes(mod: tvm.IRModule, binding: relax.VarBinding, names: frozenset[str], *, several: bool) -> bool:
    """Return True if a binding calls a composite of one of these operators. several: others may follow it."""
    composite = composite_of(mod, binding.value)
    inner = bindings(composite) if composite is not None else []
    return bool(inner) and op_name(inner[0].value) in names and (several or len(inner) == 1)


def _joined(mod: tvm.IRModule, levels: Sequence[Sequence[relax.VarBinding]]) -> relax.Function:
    """Return the composite of the operators of all stages."""
    composites = [mod[level[0].value.op] for level in levels]
    sequence: list[relax.VarBinding] = []
    inside: dict[relax.Var, relax.Var] = {}
    for level, composite in zip(levels, composites, strict=True):
        arguments = zip(composite.params, level[0].value.args, strict=True)
        replaced: dict[relax.Var, relax.Expr] = {
            param: inside[argument] for param, argument in arguments if argument in inside
        }
        for inner in bindings(composite):
            var = relax.Var(inner.var.name, inner.var.ty)
            sequence.append(relax.VarBinding(var, substitute(inner.value, replaced)))
            replaced[inner.var] = var
        inside |= dict.fromkeys((binding.var for binding in level), sequence[-1].var)
    nodes = dict.fromkeys(node for composite in composites for node in SourceNodes.read(composite).nodes)
    attrs = attributes(kind_of(sequence[0].value), list(nodes))
    return build(composites[0].params, sequence, [sequence[-1].var], attrs=attrs, as_tuple=False)
