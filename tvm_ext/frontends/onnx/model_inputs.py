"""Inputs of an ONNX model: inputs that only select a branch, bound values, and the ranges that operators demand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import helper, numpy_helper

from tvm_ext.core.errors import BadOptions
from tvm_ext.frontends.onnx.element_types import SUB_BYTES, dtype_of
from tvm_ext.frontends.onnx.read_file import graphs_of

Bindings = Mapping[str, ArrayLike]
_FIRST_IR_WITHOUT_INITIALIZERS_AS_INPUTS = 4


def bind_inputs(model: onnx.ModelProto, values: Bindings) -> dict[str, np.ndarray]:
    """Turn inputs of the model into initializers, in place. A single number fills an input of any static shape.

    Return the values. Raises BadOptions for names that are no input, and for values outside its type or shape.
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
    """Return the value in the type and shape of the input."""
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


_MOST_ELEMENTS = 16
_SELECTING = frozenset((onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL))


def selecting_inputs(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], tensors: Sequence[str]) -> list[str]:
    """Return the inputs from which these tensors are computed, if nothing else in them varies.

    shapes: of the model's inputs.
    tensors: names, in the graph or inside branches and loops.
    """
    made = {name: node for graph in graphs_of(model) for node in graph.node for name in node.output}
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    found: list[str] = []
    for tensor in tensors:
        reached = _reached(tensor, made) & {*shapes}
        small = all(kinds[name] in _SELECTING and math.prod(shapes[name]) <= _MOST_ELEMENTS for name in reached)
        found += sorted(reached) if small else []
    return list(dict.fromkeys(found))


def bind_hint(names: Sequence[str]) -> str:
    """Return a clause on what to do about inputs that only select, or an empty string."""
    if not names:
        return ""
    options = " ".join(f"--bind {name}=VALUE" for name in names)
    many = len(names) > 1
    return (
        f": input{'s' if many else ''} {', '.join(names)} select{'' if many else 's'} it; give "
        f"{'them their values' if many else 'it its value'} for good ({options})"
    )


def _reached(tensor: str, made: Mapping[str, onnx.NodeProto]) -> set[str]:
    """Return all tensors from which a tensor is computed, including itself."""
    seen, pending = {tensor}, [tensor]
    while pending:
        node = made.get(pending.pop())
        new = {*node.input} - seen if node is not None and node.op_type != "Shape" else set[str]()
        seen |= new
        pending += sorted(new)
    return seen


Range = tuple[float, float]
"""Least and largest value."""
Shape = Sequence[int]
_Demand = Callable[[Mapping[str, Any], list[Shape | None]], Range | None]

# Operators whose results are elements of their first input.
_PASSING = frozenset("Identity Cast Reshape Squeeze Unsqueeze Flatten Transpose Slice Expand Split Gather".split())
_POSITIVE: Range = (0.01, 0.1)


def input_demands(model: onnx.ModelProto, shapes: Mapping[str, Shape]) -> dict[str, Range]:
    """Return the range of each input for which an operator demands one.

    shapes: of the inputs, as they were fixed.
    """
    known: dict[str, Shape] = dict(shapes)
    kinds = {value.name: SUB_BYTES.get(value.type.tensor_type.elem_type) for value in model.graph.input}
    known |= {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for value in model.graph.value_info:
        dims = value.type.tensor_type.shape.dim
        if all(dim.HasField("dim_value") for dim in dims):
            known.setdefault(value.name, tuple(dim.dim_value for dim in dims))
    origin = {name: name for name in shapes}
    found: dict[str, Range] = {name: (kind.low, kind.high) for name in shapes if (kind := kinds.get(name)) is not None}
    for node in model.graph.node:
        if node.op_type in _PASSING and node.input and node.input[0] in origin:
            origin |= dict.fromkeys(node.output, origin[node.input[0]])
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        given = [known.get(name) for name in node.input]
        for index, name in enumerate(node.input):
            demand = _DEMANDS.get((node.op_type, index))
            if demand is None or name not in origin:
                continue
            wanted = demand(attributes, given)
            if wanted is not None:
                low, high = found.get(origin[name], wanted)
                found[origin[name]] = (max(low, wanted[0]), min(high, wanted[1]))
    return found


def _always(low: float, high: float) -> _Demand:
    return lambda attributes, given: (low, high)


def _along(default: int, attribute: str = "axis", source: int = 0, first: int = 0, more: int = -1) -> _Demand:
    """Return the range from `first` to the extent of an axis, plus `more`."""

    def demand(attributes: Mapping[str, Any], given: list[Shape | None]) -> Range | None:
        shape = given[source] if source < len(given) else None
        if not shape:
            return None
        return (first, shape[int(attributes.get(attribute, default)) % len(shape)] + more)

    return demand


def _extent(axis: int, source: int = 0, first: int = 0, more: int = -1) -> _Demand:
    return _along(axis, "", source, first, more)


def _tuples(attributes: Mapping[str, Any], given: list[Shape | None]) -> Range | None:
    """Return the range of indices of GatherND and ScatterND, within the shortest axis that they index."""
    data, indices = given[:2]
    begin = int(attributes.get("batch_dims", 0))
    if not data or not indices:
        return None
    return (0, min(data[begin : begin + indices[-1]], default=1) - 1)


def _cache_places(attributes: Mapping[str, Any], given: list[Shape | None]) -> Range | None:
    """Return the range of indices at which an update of TensorScatter fits."""
    cache, update = given[:2]
    if not cache or not update:
        return None
    axis = int(attributes.get("axis", -2))
    return (0, cache[axis] - update[axis])


def _lengths(attributes: Mapping[str, Any], given: list[Shape | None]) -> Range | None:
    """Return the range of Attention's valid keys.

    It is at least the number of queries, because a causal mask would otherwise leave a query without keys.
    """
    queries, keys = given[:2]
    return (min(queries[-2], keys[-2]), keys[-2]) if queries and keys else None


_DEMANDS: dict[tuple[str, int], _Demand] = {
    **{(name, 1): _along(0) for name in ("Gather", "GatherElements", "Scatter", "ScatterElements")},
    ("GatherND", 1): _tuples,
    ("ScatterND", 1): _tuples,
    ("TensorScatter", 2): _cache_places,
    **{(name, 1): _always(0, 0) for name in ("CumSum", "CumProd", "Trilu")},
    **{(name, 1): _always(1, 9) for name in ("Div", "Mod")},
    ("BitShift", 1): _always(0, 7),
    ("Pow", 1): _always(0, 3),
    ("Dropout", 1): _always(0, 0.5),
    ("Dropout", 2): _always(0, 0),
    ("BatchNormalization", 4): _always(0.5, 2),
    ("RoiAlign", 1): _always(0, 4),
    ("RoiAlign", 2): _extent(0),
    ("MaxRoiPool", 1): _always(0, 0),
    **{(name, 4): _extent(0, first=1, more=0) for name in ("LSTM", "GRU", "RNN")},
    ("ReverseSequence", 1): _along(0, "time_axis", first=1, more=0),
    ("Attention", 6): _lengths,
    ("RotaryEmbedding", 3): _extent(0, source=1),
    **{(name, 1): _extent(1) for name in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")},
    **{(name, 1): _always(*_POSITIVE) for name in ("QuantizeLinear", "DequantizeLinear")},
    **{(name, index): _always(*_POSITIVE) for name in ("QLinearConv", "QLinearMatMul") for index in (1, 4, 6)},
}
