"""Convert older forms of operators to the newest form, and call TVM's converter for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter, onnx_input

from relay_passes.dataflow import constant, static_shape

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]
Convert = Callable[..., relax.Expr]

_FIRST_WITH_BROADCASTING = 7
_BINARY = ("Add", "Sub", "Mul", "Div", "And", "Or", "Xor", "Equal", "Less", "Greater")


class Slice(onnx_frontend.Slice):
    """Until opset 10, starts, ends and axes are attributes."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        starts, ends = attr["starts"], attr["ends"]
        axes = attr.get("axes", tuple(range(len(starts))))
        indices = [constant(np.array(values, "int64")) for values in (starts, ends, axes)]
        return cls._impl_v13(bb, onnx_input([inputs[0], *indices]), {}, params)

    @classmethod
    def _impl_v10(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return cls._impl_v13(bb, inputs, attr, params)


def with_alignment(converter: type[OnnxOpConverter]) -> type[OnnxOpConverter]:
    """Return a converter of a binary operator that aligns its operands in old models.

    Until opset 7, the attribute `axis` says where the second operand's axes start.
    """

    def get_converter(cls: type, opset: int) -> Convert:
        newer = converter.get_converter(max(opset, _FIRST_WITH_BROADCASTING))
        if opset >= _FIRST_WITH_BROADCASTING:
            return newer

        def convert(bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
            left, right = inputs[:2]
            rest = {key: value for key, value in attr.items() if key not in ("axis", "broadcast")}
            if "axis" in attr and attr.get("broadcast", 0):
                rank, shape = len(static_shape(left)), static_shape(right)
                behind = rank - int(attr["axis"]) % rank - len(shape)
                right = bb.normalize(relax.op.reshape(right, [*shape, *[1] * behind]))
            return newer(bb, onnx_input([left, right]), rest, params)

        return convert

    return type(converter.__name__, (OnnxOpConverter,), {"get_converter": classmethod(get_converter)})


CONVERTERS = {
    ("", "Slice"): Slice,
    **{("", name): with_alignment(getattr(onnx_frontend, name)) for name in _BINARY},
}
