"""Normalization over groups of channels, also without weight and bias, which TVM's importer demands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from relay_passes.dataflow import constant, static_shape
from tvm_ext.frontends.pytorch.node_arguments import arguments_of

Converter = Callable[[Any, Any], relax.Expr]


def _group_norm(node: Any, importer: Any) -> relax.Expr:
    """torch's node, TVM's importer -> the normalized tensor; weights of 1 and biases of 0 where there are none."""
    given = arguments_of(node)
    x = importer.env[given["input"]]
    shape, dtype = static_shape(x), str(x.ty.dtype)

    def factors(name: str, otherwise: float) -> relax.Expr:
        array = np.full(shape[1], otherwise, dtype)
        return constant(array) if given.get(name) is None else importer.env[given[name]]

    return importer.block_builder.emit(
        relax.op.nn.group_norm(
            x, factors("weight", 1), factors("bias", 0), num_groups=given.get("group", given.get("num_groups")),
            channel_axis=1, axes=list(range(2, len(shape))), epsilon=given.get("eps", 1e-5),
        )
    )  # fmt: skip


CONVERTERS: dict[str, Converter] = {"group_norm.default": _group_norm, "native_group_norm.default": _group_norm}
