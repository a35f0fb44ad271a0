"""Demands that operators of an ONNX graph make of its inputs, beyond shape and type: indices inside an axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
from onnx import helper

from tvm_ext.frontends.onnx.sub_byte import SUB_BYTES

Range = tuple[float, float]
"""Least and largest value."""
Shape = Sequence[int]
_Demand = Callable[[Mapping[str, Any], list[Shape | None]], Range | None]

# Results that hold the elements of their first input, whatever else they do.
_PASSING = frozenset("Identity Cast Reshape Squeeze Unsqueeze Flatten Transpose Slice Expand Split Gather".split())
_POSITIVE: Range = (0.01, 0.1)


def input_demands(model: onnx.ModelProto, shapes: Mapping[str, Shape]) -> dict[str, Range]:
    """Range of each input that an operator demands one of; shapes: of the inputs, as they were fixed."""
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
    """Range from `first` to the extent of an axis, plus `more`."""

    def demand(attributes: Mapping[str, Any], given: list[Shape | None]) -> Range | None:
        shape = given[source] if source < len(given) else None
        if not shape:
            return None
        return (first, shape[int(attributes.get(attribute, default)) % len(shape)] + more)

    return demand


def _extent(axis: int, source: int = 0, first: int = 0, more: int = -1) -> _Demand:
    return _along(axis, "", source, first, more)


def _tuples(attributes: Mapping[str, Any], given: list[Shape | None]) -> Range | None:
    """Indices of GatherND and ScatterND, all within the shortest axis that they go along."""
    data, indices = given[:2]
    begin = int(attributes.get("batch_dims", 0))
    if not data or not indices:
        return None
    return (0, min(data[begin : begin + indices[-1]], default=1) - 1)


def _cache_places(attributes: Mapping[str, Any], given: list[Shape | None]) -> Range | None:
    """Range of indices at which an update of TensorScatter fits."""
    cache, update = given[:2]
    if not cache or not update:
        return None
    axis = int(attributes.get("axis", -2))
    return (0, cache[axis] - update[axis])


def _lengths(attributes: Mapping[str, Any], given: list[Shape | None]) -> Range | None:
    """Keys of Attention that are no padding: as many as queries, or a causal mask would leave some of these nothing."""
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
