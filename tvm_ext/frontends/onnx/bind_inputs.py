"""Inputs of a model that only select, bound to constants: branches that they choose between become one."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import helper, numpy_helper

from tvm_ext.core.errors import BadOptions
from tvm_ext.frontends.onnx.element_types import dtype_of

Bindings = Mapping[str, ArrayLike]
_FIRST_IR_WITHOUT_INITIALIZERS_AS_INPUTS = 4


def bind_inputs(model: onnx.ModelProto, values: Bindings) -> dict[str, np.ndarray]:
    """Turn inputs of the model into initializers, in place; one number fills an input of any static shape.

    Returns what each one is now. Raises BadOptions for what is no input, and for values that its type or shape lacks.
    """
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in constants}
    bound = {name: _array(inputs, name, value) for name, value in values.items()}
    if model.ir_version >= _FIRST_IR_WITHOUT_INITIALIZERS_AS_INPUTS:
        kept = [value for value in graph.input if value.name not in bound]
        del graph.input[:]
        graph.input.extend(kept)
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in bound.items())
    return bound


def _array(inputs: Mapping[str, onnx.ValueInfoProto], name: str, value: ArrayLike) -> np.ndarray:
    """The value in the type and shape of the input."""
    if name not in inputs:
        near = get_close_matches(name, inputs, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise BadOptions(f"bind: the model has no input {name!r}.{hint} Inputs: {', '.join(inputs) or 'none'}.")
    kind = inputs[name].type.tensor_type
    if dtype_of(kind.elem_type) is None:
        raise BadOptions(f"bind: input {name!r} is no tensor of numbers that can be compiled.")
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    given = np.asarray(value)
    try:
        with np.errstate(all="ignore"):
            array = given.astype(dtype)
            is_exact = dtype.kind not in "iub" or np.array_equal(array.astype("float64"), given.astype("float64"))
    except (TypeError, ValueError):
        raise BadOptions(f"bind: {name} = {str(value)[:40]}: numbers are needed.") from None
    if not is_exact:
        raise BadOptions(f"bind: {name} = {str(value)[:40]}: {name!r} is of type {dtype}, which has no such value.")
    return _shaped(name, array, kind)


def _shaped(name: str, array: np.ndarray, kind: onnx.TypeProto.Tensor) -> np.ndarray:
    dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
    if not kind.HasField("shape"):
        return array
    if array.ndim == 0 and None not in dims:
        return np.full(dims, array)
    extents = zip(dims, array.shape, strict=False)
    if len(dims) != array.ndim or any(dim is not None and dim != extent for dim, extent in extents):
        wanted = ", ".join("?" if dim is None else str(dim) for dim in dims)
        raise BadOptions(f"bind: {name} is given the shape {list(array.shape)}; the model's is [{wanted}].")
    return array
