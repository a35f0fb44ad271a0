"""Record the layouts of inputs and outputs before other passes change the operators that imply them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import tvm
from tvm import relax

from relay_passes.dataflow import bindings, is_dataflow, op_name, operands, outputs, permuted_axes, static_shape
from tvm_ext.core.decisions.models import PortLayouts, PortNames

_MIXING = frozenset({"relax.matmul", "relax.reshape", "relax.take", "relax.einsum"})
"""Operators whose axes may differ in meaning from the axes of their operands although the shapes are equal."""
_WINDOWS = re.compile(r"relax\.nn\.(conv|max_pool|avg_pool|adaptive_avg_pool)[123]d(_transpose)?$")
_SAME_AXES = frozenset({"relax.nn.pad", "relax.concat"})


@tvm.transform.module_pass(opt_level=0, name="NotePortLayouts")
class NotePortLayouts:
    """Write the layout of inputs and outputs that are images or sequences into the module, as `PortLayouts`.

    Rewrite:
        main(x) with conv2d(relu(x), data_layout="NCHW")   ->   the module says that the input x is NCHW
        conv2d(permute_dims(x, axes=[0, 3, 1, 2]))         ->   the module says that the input x is NHWC
    Leaves alone: every function; inputs and outputs that are not connected to a convolution or a pool.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        main, names = mod["main"], PortNames.read(mod)
        if not is_dataflow(main):
            return mod
        known = _layouts(bindings(main))
        found = PortLayouts(
            inputs=_named(names.inputs, main.params, known), outputs=_named(names.outputs, outputs(main), known)
        )
        return mod if found == PortLayouts.read(mod) else found.write(mod)


def _named(names: Sequence[str], values: Sequence[relax.Expr], known: dict[relax.Expr, str]) -> dict[str, str] | None:
    """Return layouts by name. States are the last values, and have no name."""
    return {name: known[value] for name, value in zip(names, values, strict=False) if value in known} or None


def _layouts(sequence: Sequence[relax.VarBinding]) -> dict[relax.Expr, str]:
    """Return the letters of the axes of each variable whose layout follows from a convolution or a pool."""
    known: dict[relax.Expr, str] = {}
    pairs = [pair for binding in sequence for pair in _pairs(binding)]
    for binding in sequence:
        if _WINDOWS.match(op_name(binding.value) or ""):
            attrs = binding.value.attrs
            layout = str(getattr(attrs, "data_layout", None) or attrs.layout)
            if layout.isalpha() and str(attrs.out_layout or layout) == layout:
                known.setdefault(binding.value.args[0], layout)
                known.setdefault(binding.var, layout)
    # A forward and a backward pass suffice, because each value is reached from both of its sides.
    for source, result, axes in [*pairs, *reversed(pairs)]:
        if source in known and len(known[source]) == len(axes):
            known.setdefault(result, "".join(known[source][axis] for axis in axes))
        elif result in known and len(known[result]) == len(axes):
            known.setdefault(source, "".join(known[result][axes.index(axis)] for axis in range(len(axes))))
    return known


def _pairs(binding: relax.VarBinding) -> Iterator[tuple[relax.Var, relax.Var, tuple[int, ...]]]:
    """Yield operands and results whose axes have the same meaning.

    The third item is the order of the operand's axes in the result.
    """
    name, value = op_name(binding.value), binding.value
    if name is None or name in _MIXING or not isinstance(binding.var.ty, relax.TensorType):
        return
    if name == "relax.permute_dims":
        if isinstance(value.args[0], relax.Var):
            yield value.args[0], binding.var, permuted_axes(value)
        return
    shape = static_shape(binding.var)
    for leaf in operands(value):
        if not isinstance(leaf, relax.Var) or not isinstance(leaf.ty, relax.TensorType):
            continue
        other = static_shape(leaf)
        if other == shape or (name in _SAME_AXES and len(other) == len(shape)):
            yield leaf, binding.var, tuple(range(len(shape)))
