"""Multiply-accumulates of a model over time: for a whole window, for new frames, and for what is recomputed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from types import MappingProxyType

import numpy as np
from tvm import relax

from relay_passes.dataflow import bindings, live, op_name, outputs, static_shape

_NAMED = 3
"""Most operators that a message names."""
_TIR = "relax.call_tir"
NOT_COUNTED: Mapping[str, int] = MappingProxyType({})
"""Multiply-accumulates of TIR functions where they are not counted."""


def label(binding: relax.VarBinding) -> str:
    """Return the model's operator that a binding comes from, with the Relax operator that it became."""
    span, name = binding.value.span, op_name(binding.value) or type(binding.value).__name__
    own = span.source_name.name if span is not None else binding.var.name
    return f"{own} ({name.removeprefix('relax.').removeprefix('nn.')})"


def multiply_accumulates(binding: relax.VarBinding, of_tir: Mapping[str, int] = NOT_COUNTED) -> int:
    """Return the multiply-accumulates of a convolution, a matrix product or a counted TIR call, or else 0."""
    name, call = op_name(binding.value) or "", binding.value
    if name == _TIR:
        return of_tir.get(call.args[0].name_hint, 0)
    if name in ("relax.nn.conv1d", "relax.nn.conv2d"):
        weight = static_shape(call.args[1])
        each = int(np.prod(weight)) // weight[str(call.attrs.kernel_layout).index("O")]
    elif name == "relax.matmul":
        each = static_shape(call.args[0])[-1]
    else:
        return 0
    return each * int(np.prod(static_shape(binding.var)))


def total(sequence: Iterable[relax.VarBinding], of_tir: Mapping[str, int] = NOT_COUNTED) -> int:
    return sum(multiply_accumulates(binding, of_tir) for binding in sequence)


def reached(main: relax.Function) -> list[relax.VarBinding]:
    """Return the bindings that the results depend on."""
    return live(bindings(main), outputs(main))


def cost_of_window(main: relax.Function, param: relax.Var) -> str:
    """Describe the bytes and the work of each run without streaming. Calls of TIR are not counted."""
    num_bytes = int(np.prod(static_shape(param))) * np.dtype(str(param.ty.dtype)).itemsize
    sequence = reached(main)
    more = " or more" if any(op_name(binding.value) == _TIR for binding in sequence) else ""
    return f"{num_bytes} B of {param.name} and {total(sequence):,}{more} multiply-accumulates in each run"


def named(labels: Sequence[str]) -> list[str]:
    """Return the operators that a message names, and how many more there are."""
    more = [f"{len(labels) - _NAMED} more"] if len(labels) > _NAMED else []
    return [*labels[:_NAMED], *more]


def remarks(
    sequence: Sequence[relax.VarBinding],
    reasons: Mapping[str, str],
    whole: Set[relax.Var],
    borders: Mapping[relax.Var, str],
    of_tir: Mapping[str, int] = NOT_COUNTED,
) -> tuple[str, ...]:
    """Return sentences on what a run computes again although the window only moved on.

    sequence: the bindings of a run.
    reasons: why an operator cannot be computed by rows of time, by operator.
    whole: values that are computed for the whole window.
    borders: values that are rows touched by padding, with their operator.
    of_tir: the multiply-accumulates of each TIR function.
    """
    found: list[str] = []
    if reasons:
        named = "; ".join(f"{name} {reason}" for name, reason in list(reasons.items())[:_NAMED])
        count = total((binding for binding in sequence if binding.var in whole), of_tir)
        found.append(f"{named}: computed for the whole window in each run, {count:,} multiply-accumulates")
    again: Counter[str] = Counter()
    for binding in sequence:
        if binding.var in borders and multiply_accumulates(binding):
            again[borders[binding.var]] += multiply_accumulates(binding)
    if again.total():
        most = ", ".join(f"{name} {count:,}" for name, count in again.most_common(_NAMED))
        found.append(f"rows that padding touches are computed again in each run, {again.total():,} "
                     f"multiply-accumulates, most of them by {most}")  # fmt: skip
    return tuple(found)
