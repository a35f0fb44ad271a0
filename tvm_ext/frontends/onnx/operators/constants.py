"""Operators whose result is known at import: Constant in all its forms, Shape, Size, NonZero of a constant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from relay_passes.dataflow import array_of, constant, static_shape
from tvm_ext.frontends.onnx.sub_byte import in_bytes
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]

_MAX_ELEMENTS = 1 << 22
_SCALARS = {"value_float": "float32", "value_int": "int64", "value_floats": "float32", "value_ints": "int64"}


class Constant(OnnxOpConverter):
    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        if isinstance(attr.get("value"), onnx.TensorProto):
            return constant(in_bytes(numpy_helper.to_array(attr["value"])))
        for name, dtype in _SCALARS.items():
            if name in attr:
                return constant(np.asarray(attr[name], dtype))
        raise Refused("constants of strings and sparse constants")


class Shape(OnnxOpConverter):
    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        dims = static_shape(inputs[0])
        return constant(np.array(dims[attr.get("start", 0) : attr.get("end", len(dims))], "int64"))


class Size(OnnxOpConverter):
    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return constant(np.array(np.prod(static_shape(inputs[0]), dtype=np.int64)))


class NonZero(OnnxOpConverter):
    @classmethod
    def _impl_v9(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        data = array_of(inputs[0])
        if data is None:
            raise Refused("the shape of its output depends on data")
        if data.size > _MAX_ELEMENTS:
            raise Refused(f"the places of what is not zero among {data.size} elements; {_MAX_ELEMENTS} are looked at")
        return constant(np.array(np.nonzero(np.atleast_1d(data)), "int64"))


class DataDependent(OnnxOpConverter):
    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        raise Refused("the shape of its output depends on data")


class NonMaxSuppression(OnnxOpConverter):
    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        raise Refused(
            "it gives as many boxes as it keeps, which no shape says; it is taken where nothing reads its result but a "
            "Cast to int32, int64 or floats. End the model there, and take boxes and scores by its rows in the "
            "application; or take a TensorFlow Lite file with TFLite_Detection_PostProcess: it gives a fixed number of "
            "boxes and says how many of them count (docs/operators.md)"
        )


CONVERTERS = {
    ("", "Constant"): Constant,
    ("", "Shape"): Shape,
    ("", "Size"): Size,
    ("", "NonZero"): NonZero,
    ("", "Unique"): DataDependent,
    **dict.fromkeys([("", "NonMaxSuppression"), ("com.microsoft", "AllClassNMS")], NonMaxSuppression),
}
