"""The exponential linear unit with all its factors, which SELU and CELU are decomposed to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from relay_passes.dataflow import constant
from tvm_ext.frontends.pytorch.node_arguments import arguments_of
from tvm_ext.frontends.refusals import Refused

Converter = Callable[[Any, Any], relax.Expr]


def _elu(node: Any, importer: Any) -> relax.Expr:
    """torch's node, TVM's importer -> scale * relu(x) - scale * alpha * relu(1 - exp(input_scale * x)).

    The same sum as TVM's own, which leaves both scales out. `alpha` may be negative, `input_scale` may not.
    """
    given, emit = arguments_of(node), importer.block_builder.emit
    x = importer.env[given["self"]]
    dtype = str(x.ty.dtype)
    alpha, scale, input_scale = (float(given.get(name, 1)) for name in ("alpha", "scale", "input_scale"))
    if input_scale <= 0:
        raise Refused(f"elu whose input_scale is {input_scale:g}")

    def times(factor: float, value: relax.Expr) -> relax.Expr:
        return value if factor == 1 else emit(relax.op.multiply(constant(np.array(factor, dtype)), value))

    power = emit(relax.op.exp(times(input_scale, x)))
    below = emit(relax.op.nn.relu(emit(relax.op.subtract(constant(np.array(1, dtype)), power))))
    falling = emit(relax.op.multiply(constant(np.array(-alpha * scale, dtype)), below))
    return emit(relax.op.add(falling, times(scale, emit(relax.op.nn.relu(x)))))


CONVERTERS: dict[str, Converter] = {"elu.default": _elu}
"""Converters for TVM's importer by operator."""
