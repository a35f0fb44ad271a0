"""The table of rules, by operator of Relax, and the rule of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax

from relay_passes.dataflow import op_name
from relay_passes.streams.across_rows import cut_rule, padded_rule, windowed_rule
from relay_passes.streams.row_by_row import (
    along_channels_rule,
    concatenated_rule,
    joined_rule,
    multiplied_rule,
    permuted_rule,
    reduced_rule,
    reshaped_rule,
    same_rows_rule,
)
from relay_passes.streams.time_rule import Known, Rule, Unruly

_UNARY = frozenset(
    "nn.relu nn.relu6 nn.leakyrelu nn.gelu nn.gelu_tanh nn.silu nn.selu clip sigmoid tanh exp log sqrt rsqrt negative "
    "abs square erf floor ceil round sign sin cos astype quantize dequantize nn.prelu".split()
)
_VIEWS = frozenset(["dequantize", "astype"])
_JOINING = frozenset("add subtract multiply divide power maximum minimum floor_divide mod where".split())
_RULES: Mapping[str, Callable[[Any, Known], Rule | Unruly]] = {
    "nn.softmax": along_channels_rule,
    "nn.log_softmax": along_channels_rule,
    "nn.layer_norm": along_channels_rule,
    "nn.rms_norm": along_channels_rule,
    "mean": reduced_rule,
    "sum": reduced_rule,
    "max": reduced_rule,
    "min": reduced_rule,
    "permute_dims": permuted_rule,
    "reshape": reshaped_rule,
    "expand_dims": reshaped_rule,
    "squeeze": reshaped_rule,
    "strided_slice": cut_rule,
    "nn.pad": padded_rule,
    "matmul": multiplied_rule,
    "concat": concatenated_rule,
    "nn.conv1d": windowed_rule,
    "nn.conv2d": windowed_rule,
    "nn.max_pool1d": windowed_rule,
    "nn.max_pool2d": windowed_rule,
    "nn.avg_pool1d": windowed_rule,
    "nn.avg_pool2d": windowed_rule,
}


def rule_of(call: relax.Expr, known: Known) -> Rule | Unruly:
    """The rule by which a call that reads something over time goes along with it, or the reason why it cannot."""
    name = (op_name(call) or "").removeprefix("relax.")
    if isinstance(call, relax.TupleGetItem):
        return Unruly(reason="is an element of a tuple")
    if name in _UNARY:
        return same_rows_rule(call, known, is_view=name in _VIEWS)
    if name in _JOINING:
        return joined_rule(call, known)
    found = _RULES.get(name)
    return found(call, known) if found else Unruly(reason=f"has no rule for {name or 'this expression'} over time")
