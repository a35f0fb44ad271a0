"""Arguments of the functions that start layers: a structure, inputs, constants, the output, by kind and elements."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_ext.core.platform import OffloadOperator

_WEIGHTS = (("weights", "int8_t"), ("bias", "int32_t"))
_FACTORS = (("multipliers", "int32_t"), ("shifts", "int32_t"))
_FLOATS = (("weights", "float"), ("bias", "float"))


@dataclass(frozen=True, kw_only=True)
class LayerForm:
    """struct: of the layer in C. inputs: names. constants: names and the types of their elements."""

    struct: str
    inputs: tuple[str, ...] = ("input",)
    constants: tuple[tuple[str, str], ...] = ()


FORMS = {
    "conv2d": LayerForm(struct="tvm_ext_offload_conv2d", constants=(*_WEIGHTS, *_FACTORS)),
    "depthwise": LayerForm(struct="tvm_ext_offload_conv2d", constants=(*_WEIGHTS, *_FACTORS)),
    "dense": LayerForm(struct="tvm_ext_offload_dense", constants=(*_WEIGHTS, *_FACTORS)),
    "max_pool": LayerForm(struct="tvm_ext_offload_pool"),
    "average_pool": LayerForm(struct="tvm_ext_offload_pool", constants=_FACTORS),
    "add": LayerForm(struct="tvm_ext_offload_add", inputs=("first", "second")),
    "conv2d_f32": LayerForm(struct="tvm_ext_offload_conv2d_f32", constants=_FLOATS),
    "depthwise_f32": LayerForm(struct="tvm_ext_offload_conv2d_f32", constants=_FLOATS),
    "dense_f32": LayerForm(struct="tvm_ext_offload_dense_f32", constants=_FLOATS),
    "max_pool_f32": LayerForm(struct="tvm_ext_offload_pool_f32"),
    "average_pool_f32": LayerForm(struct="tvm_ext_offload_pool_f32"),
    "add_f32": LayerForm(struct="tvm_ext_offload_add_f32", inputs=("first", "second")),
}
"""By kind; of floats by kind and `_f32`, which have functions of their own."""


def form_name(entry: OffloadOperator) -> str:
    """Name of the form in which an entry of a driver takes its layers."""
    return f"{entry.kind}_f32" if entry.takes_floats else entry.kind
