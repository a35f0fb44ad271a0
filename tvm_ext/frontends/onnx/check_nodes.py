"""Check an ONNX graph: types and shapes by ONNX's inference, and the attributes and inputs that inference ignores."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tvm_ext.core.errors import BadModel
from tvm_ext.frontends.onnx.read_file import undeclared_nodes

Array = np.ndarray
_PADDINGS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_DIRECTIONS = ("forward", "reverse", "bidirectional")
_MODES_OF = {
    "DepthToSpace": ("DCR", "CRD"),
    "Pad": ("constant", "reflect", "edge", "wrap"),
    "Resize": ("nearest", "linear", "cubic"),
    "Upsample": ("nearest", "linear"),
}
_WINDOWS = frozenset("Conv ConvTranspose QLinearConv ConvInteger MaxPool AveragePool LpPool".split())
_WEIGHTS = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3}
_RECURRENT = {"RNN": 1, "GRU": 3, "LSTM": 4}
# Input indices of scales, and of the zero points beside them.
_SCALES = {
    "QuantizeLinear": ((1, 2),),
    "DequantizeLinear": ((1, 2),),
    "QLinearConv": ((1, 2), (4, 5), (6, 7)),
    "QLinearMatMul": ((1, 2), (4, 5), (6, 7)),
}
_INDEXED = {"Gather": 1, "GatherElements": 1, "ScatterElements": 1, "Scatter": 1}


@dataclass(frozen=True, kw_only=True)
class _Node:
    """A node with the known shapes (None: unknown) and constants of its inputs."""

    kind: str
    attributes: Mapping[str, Any]
    shapes: tuple[tuple[int, ...] | None, ...]
    constants: tuple[Array | None, ...]

    def shape(self, index: int) -> tuple[int, ...] | None:
        return self.shapes[index] if index < len(self.shapes) else None

    def constant(self, index: int) -> Array | None:
        return self.constants[index] if index < len(self.constants) else None


def check_nodes(path: Path, model: onnx.ModelProto, types: Types) -> None:
    """Raise BadModel that names the first node with impossible attributes, scales, axes or indices."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    known = {name: _shape(kind) for name, kind in types.items()}
    known |= {value.name: _shape(types.get(value.name, value.type.tensor_type)) for value in model.graph.input}
    known |= {name: tuple(tensor.dims) for name, tensor in constants.items()}
    for index, node in enumerate(model.graph.node):
        _check_texts(path, node, index)
        if node.domain not in ("", "ai.onnx"):
            continue
        found = _Node(
            kind=node.op_type,
            attributes=_attributes(path, node),
            shapes=tuple(known.get(name) for name in node.input),
            constants=tuple(_array(path, constants.get(name)) for name in node.input),
        )
        for check in _CHECKS:
            reason = check(found)
            if reason:
                raise BadModel(f"{path}: node {node.name or f'{node.op_type}_{index}'} ({node.op_type}): {reason}.")


def _check_texts(path: Path, node: onnx.NodeProto, index: int) -> None:
    """Check that names are text, and that attributes have values.

    Only functions may refer to attributes of a caller.
    """
    # ONNX returns names that are not UTF-8 as bytes.
    names: list[object] = [node.name, node.op_type, node.domain, *node.input, *node.output]
    odd = next((name for name in names if isinstance(name, bytes)), None)
    if odd is not None:
        raise BadModel(f"{path}: node {index}: a name of it is no UTF-8 text: {odd[:20]!r}.")
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            raise BadModel(
                f"{path}: node {index} ({node.op_type}): attribute {attribute.name!r} refers to another, "
                f"{attribute.ref_attr_name!r}; outside of functions there is none."
            )


def _attributes(path: Path, node: onnx.NodeProto) -> dict[str, Any]:
    values = {}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            try:
                value = value.decode("utf-8")
            except UnicodeDecodeError:
                raise BadModel(
                    f"{path}: attribute {attribute.name!r} of a {node.op_type} is no UTF-8 text: {value[:20]!r}."
                ) from None
        values[attribute.name] = value
    return values


def _array(path: Path, tensor: onnx.TensorProto | None) -> Array | None:
    if tensor is None or tensor.data_type == onnx.TensorProto.STRING:
        return None
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, RuntimeError) as error:
        raise BadModel(f"{path}: initializer {tensor.name!r} is broken: {error}") from None


def _shape(kind: onnx.TypeProto.Tensor) -> tuple[int, ...] | None:
    if not kind.HasField("shape") or not all(dim.HasField("dim_value") for dim in kind.shape.dim):
        return None
    return tuple(dim.dim_value for dim in kind.shape.dim)


def _modes(node: _Node) -> str | None:
    allowed = {"auto_pad": _PADDINGS} | ({"mode": _MODES_OF[node.kind]} if node.kind in _MODES_OF else {})
    allowed |= {"direction": _DIRECTIONS} if node.kind in _RECURRENT else {}
    for name, words in allowed.items():
        if name in node.attributes and node.attributes[name] not in words:
            return f"{name} is {node.attributes[name]!r}; it is one of {', '.join(words)}"
    if node.kind == "Mod" and node.attributes.get("fmod", 0) not in (0, 1):
        return f"fmod is {node.attributes['fmod']}; it is 0 or 1"
    if node.kind == "LRN" and node.attributes.get("size", 1) < 1:
        return f"size is {node.attributes['size']}; it is at least 1"
    if node.kind == "LpNormalization" and node.attributes.get("p", 2) not in (1, 2):
        return f"p is {node.attributes['p']}; it is 1 or 2"
    if node.kind == "ReverseSequence" and {
        node.attributes.get("batch_axis", 1),
        node.attributes.get("time_axis", 0),
    } != {0, 1}:
        return "batch_axis and time_axis are not 0 and 1, or 1 and 0"
    if node.kind in ("DepthToSpace", "SpaceToDepth") and node.attributes.get("blocksize", 1) < 1:
        return f"blocksize is {node.attributes['blocksize']}; it is at least 1"
    return None


def _axis(node: _Node) -> str | None:
    shape, axis = node.shape(0), node.attributes.get("axis")
    if node.kind == "CumSum":
        given = node.constant(1)
        axis = int(given.reshape(-1)[0]) if given is not None and given.size == 1 else None
    if shape is None or not isinstance(axis, int):
        return None
    rank, beyond = len(shape), 1 if node.kind in ("Flatten", "OneHot", "Unsqueeze") else 0
    if node.kind in ("QuantizeLinear", "DequantizeLinear") and node.shape(1) in ((), (1,), None):
        return None  # a single scale has no axis
    low, high = -rank - (node.kind == "OneHot"), rank + beyond
    if node.kind in ("Softmax", "LogSoftmax", "Hardmax", "Flatten"):
        high = rank + 1  # older versions flatten ahead of an axis, which may be one after the last
    if rank and not low <= axis < high:
        return f"axis {axis} lies outside [{low}, {high}) of {list(shape)}"
    return None


def _window(node: _Node) -> str | None:
    shape = node.shape(0)
    if node.kind not in _WINDOWS or shape is None:
        return None
    weight = node.shape(_WEIGHTS[node.kind]) if node.kind in _WEIGHTS else None
    rank = len(shape) - 2
    if rank < 1:
        return f"its input is {list(shape)}; a batch, channels and at least one more axis are needed"
    for name, length in (("kernel_shape", rank), ("strides", rank), ("dilations", rank), ("pads", 2 * rank)):
        values = node.attributes.get(name)
        if values is None:
            continue
        if len(values) != length:
            return f"{name} {list(values)} has {len(values)} numbers; an input of shape {list(shape)} needs {length}"
        if min(values, default=1) < (0 if name == "pads" else 1):
            return f"{name} {list(values)} has a number below {0 if name == 'pads' else 1}"
    kernel, pads = node.attributes.get("kernel_shape"), node.attributes.get("pads")
    if node.kind.endswith("Pool") and kernel and pads:
        late = [pad for pad, extent in zip(pads, [*kernel, *kernel], strict=True) if pad >= extent]
        if late:
            return f"pads {list(pads)} reach past the kernel {list(kernel)}"
    if weight is None:
        return None
    if len(weight) != len(shape):
        return f"its weights are {list(weight)}, its input {list(shape)}; both have one rank"
    if kernel is not None and tuple(kernel) != weight[2:]:
        return f"kernel_shape is {list(kernel)}, its weights are {list(weight)}"
    return _group(node, shape[1], weight)


def _group(node: _Node, channels: int, weight: tuple[int, ...]) -> str | None:
    group = node.attributes.get("group", 1)
    if group < 1:
        return f"group is {group}; it is at least 1"
    if node.kind == "ConvTranspose":
        fits = channels == weight[0] and channels % group == 0
    else:
        fits = channels == weight[1] * group and weight[0] % group == 0
    return None if fits else f"{channels} input channels in {group} groups do not fit weights of shape {list(weight)}"


def _recurrent(node: _Node) -> str | None:
    if node.kind not in _RECURRENT:
        return None
    hidden, gates = node.attributes.get("hidden_size"), _RECURRENT[node.kind]
    if hidden is None or hidden < 1:
        return f"hidden_size is {hidden}; it is at least 1"
    if node.attributes.get("linear_before_reset", 0) not in (0, 1):
        return f"linear_before_reset is {node.attributes['linear_before_reset']}; it is 0 or 1"
    directions = 2 if node.attributes.get("direction") == "bidirectional" else 1
    x = node.shape(0)
    wanted = {1: (directions, gates * hidden, x[2] if x and len(x) == 3 else None)}
    wanted |= {2: (directions, gates * hidden, hidden), 3: (directions, 2 * gates * hidden)}
    for index, expected in wanted.items():
        shape = node.shape(index)
        if shape is None or shape == () or None in expected:
            continue
        if shape != expected:
            return f"{'XWRB'[index]} has shape {list(shape)}; {list(expected)} is needed"
    return None


def _scales(node: _Node) -> str | None:
    for scale_index, zero_index in _SCALES.get(node.kind, ()):
        scale, zero = node.constant(scale_index), node.constant(zero_index)
        if scale is not None and scale.dtype.kind == "f" and not (np.isfinite(scale) & (scale > 0)).all():
            return (
                f"a scale of {scale[~(np.isfinite(scale) & (scale > 0))].reshape(-1)[0]}; they are finite and above 0"
            )
        if scale is not None and zero is not None and scale.size != zero.size:
            return f"{scale.size} scales and {zero.size} zero points; one for each is needed"
    x, count, axis = node.shape(0), node.shape(1), node.attributes.get("axis", 1)
    casts = node.kind in ("QuantizeLinear", "DequantizeLinear") and not node.attributes.get("block_size")
    if not (casts and x and count and len(count) == 1 and count != (1,)):
        return None
    fits = -len(x) <= axis < len(x) and x[axis] == count[0]
    return None if fits else f"it has {count[0]} scales for axis {axis} of {list(x)}"


def _indices(node: _Node) -> str | None:
    data, places = node.shape(0), node.constant(_INDEXED.get(node.kind, 1))
    if data is None or places is None or not places.size or places.dtype.kind != "i":
        return None
    if node.kind in _INDEXED:
        axis = node.attributes.get("axis", 0)
        extents = np.array(data[axis]) if -len(data) <= axis < len(data) else None
    elif node.kind in ("GatherND", "ScatterND") and places.ndim and places.shape[-1] <= len(data):
        batch = node.attributes.get("batch_dims", 0)
        extents = np.array(data[batch : batch + places.shape[-1]])
    else:
        return None
    if extents is None or extents.shape not in ((), places.shape[-1:]):
        return None
    outside = places[(places < -extents) | (places >= extents)]
    return f"index {outside[0]} lies outside {list(data)}" if outside.size else None


_CHECKS: tuple[Callable[[_Node], str | None], ...] = (
    _modes,
    _axis,
    _window,
    _recurrent,
    _scales,
    _indices,
)


Types = dict[str, onnx.TypeProto.Tensor]
# Domains whose operators ONNX knows. Only a model of these domains alone can be judged.
_STANDARD = frozenset(["", "ai.onnx"])
# Operators for which ONNX infers wrong types or shapes, or refuses valid models.
_INFERRED_WRONG = frozenset(["STFT", "Loop", "Scan", "If", "SequenceMap", "MeanVarianceNormalization"])

# With data propagation, ONNX's inference materializes every element of a vector, known or not.
_LONGEST_VECTOR = 1 << 16


def inferred_types(
    path: Path, model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], *, longest_vector: int | None = None
) -> Types:
    """Return the types of tensors that can be inferred for inputs of the given shapes, by name. Raises BadModel.

    Shapes that the file states for other tensors may be stale and are ignored; their types are used.
    longest_vector: elements of the longest tensor of rank 1. Where it is known and not too long, computed shapes are
    followed too.
    """
    data_prop = longest_vector is not None and longest_vector <= _LONGEST_VECTOR
    try:
        graph = _inferred(model, shapes, data_prop=data_prop)
    except _INFERENCE_ERRORS as error:
        if not _is_standard(model):
            return {}
        place, reason = _place_and_reason(str(error))
        raise BadModel(
            f"{path}: types or shapes do not fit together{place} (ONNX's inference: {reason})"
            f"{_shape_hint(model, shapes)}."
        ) from None
    return {value.name: value.type.tensor_type for value in [*graph.value_info, *graph.output] if _is_tensor(value)}


_INFERENCE_ERRORS = (onnx.shape_inference.InferenceError, ValueError, RuntimeError)
_INFERENCE_ERROR = re.compile(r"\(op_type:(\w+)(?:, node name: ([^)]*))?\): (?:\[\w+\] )?(.*?)(?=$|\(op_type:)")
"""An error of one node in the text of ONNX: operator, node, reason."""


def _place_and_reason(text: str) -> tuple[str, str]:
    """Return ` at <operator> <node>` of the first error of ONNX's inference, if it names one, and its reason."""
    text = " ".join(text.split()).removeprefix("[ShapeInferenceError] ")
    found = _INFERENCE_ERROR.search(text)
    if found is None:
        return "", text[:400].rstrip(".")
    operator, node, reason = found.groups()
    return f" at {operator} {node or 'without a name'}", reason[:400].rstrip(". ")


def _inferred(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], *, data_prop: bool) -> onnx.GraphProto:
    """Return the graph with inferred types, from inputs of these shapes. Raises `_INFERENCE_ERRORS`."""
    static = onnx.ModelProto()
    static.CopyFrom(model)
    for value in static.graph.input:
        if value.name in shapes:
            dims = [onnx.TensorShapeProto.Dimension(dim_value=dim) for dim in shapes[value.name]]
            value.type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto(dim=dims))
    del static.graph.value_info[:]
    for value in static.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    is_standard = _is_standard(model)
    return onnx.shape_inference.infer_shapes(
        static, check_type=is_standard, strict_mode=is_standard, data_prop=data_prop
    ).graph


_MOST_EXTENTS = 24
"""Number of extents that are tried for an open dimension."""


def _shape_hint(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return the way out of a failed inference: an extent of an open dimension, other than 1, with which it succeeds.

    The extents of the model's constants are tried, one for one dimension at a time.
    """
    extents = sorted({dim for constant in model.graph.initializer for dim in constant.dims if dim > 1})[:_MOST_EXTENTS]
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim if value.name in shapes else ()
        open_axes = [axis for axis, dim in enumerate(dims) if dim.dim_value <= 0]
        for axis, extent in itertools.product(open_axes, extents):
            shape = shapes[value.name]
            tried = (*shape[:axis], extent, *shape[axis + 1 :])
            if _infers(model, {**shapes, value.name: tried}):
                given = f"{value.name}={','.join(map(str, tried))}"
                return f". The model leaves the shape of {value.name!r} open; it fits with --shape {given}"
    return ""


def _infers(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    try:
        _inferred(model, shapes, data_prop=False)
    except _INFERENCE_ERRORS:
        return False
    return True


def _is_standard(model: onnx.ModelProto) -> bool:
    """Return True for a model of standard operators alone, all of which ONNX infers correctly."""
    known = all(node.domain in _STANDARD and node.op_type not in _INFERRED_WRONG for node in model.graph.node)
    return known and not model.functions and not undeclared_nodes(model)


def _is_tensor(value: onnx.ValueInfoProto) -> bool:
    return value.type.HasField("tensor_type") and value.type.tensor_type.elem_type != onnx.TensorProto.UNDEFINED


Formal = onnx.defs.OpSchema.FormalParameter
ElementTypes = Mapping[str, int]
_DOMAINS = {"": "", "ai.onnx": ""}


def check_types(path: Path, model: onnx.ModelProto, types: Types) -> None:
    """Raise BadModel that names the first node with a tensor of a type that its operator does not take."""
    known = {name: kind.elem_type for name, kind in types.items()}
    known |= {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    known |= {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    versions = {_DOMAINS.get(entry.domain, entry.domain): entry.version for entry in model.opset_import}
    for index, node in enumerate(model.graph.node):
        reason = _mistyped(node, known, versions.get("", 1)) if node.domain in _DOMAINS else None
        if reason:
            raise BadModel(f"{path}: node {node.name or f'{node.op_type}_{index}'} ({node.op_type}): {reason}.")


def _mistyped(node: onnx.NodeProto, known: ElementTypes, version: int) -> str | None:
    try:
        schema = onnx.defs.get_schema(node.op_type, version)
    except onnx.defs.SchemaError:
        return None  # unknown operators are reported elsewhere
    bound: dict[str, tuple[str, str]] = {}
    for name, formal in _tensors(node, schema):
        word = _type_string(known.get(name, 0))
        if word is None:
            continue
        if word not in formal.types:
            return f"{name!r} is {word}, which its {formal.name} cannot be"
        first, other = bound.setdefault(formal.type_str, (name, word)) if formal.is_homogeneous else (name, word)
        if other != word:
            return f"{first!r} is {other} and {name!r} {word}; both have one type"
    return None


def _tensors(node: onnx.NodeProto, schema: onnx.defs.OpSchema) -> Iterator[tuple[str, Formal]]:
    """Yield a node's tensors and the operator's parameters for them. The last parameter repeats where it may."""
    for names, formals in ((node.input, schema.inputs), (node.output, schema.outputs)):
        for index, name in enumerate(names):
            if name and formals and (index < len(formals) or _repeats(formals[-1])):
                yield name, formals[min(index, len(formals) - 1)]


def _repeats(formal: Formal) -> bool:
    return formal.option == onnx.defs.OpSchema.FormalParameterOption.Variadic


def _type_string(element_type: int) -> str | None:
    """Return `tensor(float)` for onnx.TensorProto.FLOAT, or None for an unknown type."""
    if element_type == onnx.TensorProto.UNDEFINED:
        return None
    return f"tensor({onnx.TensorProto.DataType.Name(element_type).lower()})"


Key = tuple[str, str]

MOST = 1 << 62
"""Ceiling of counts. A recursive function reaches it."""


class NodeCounter:
    """Counts the nodes of a model. Nodes inside branches and loops are counted when these are imported.

    functions: the model's own, by domain and name.
    """

    def __init__(self, functions: Mapping[Key, onnx.FunctionProto]) -> None:
        self._functions = functions
        self._known: dict[Key, int] = {}

    def count(self, nodes: Iterable[onnx.NodeProto]) -> int:
        """Count nodes. A call of a function counts as its nodes plus itself."""
        return min(MOST, sum(1 + self._held_by((node.domain, node.op_type)) for node in nodes))

    def _held_by(self, key: Key) -> int:
        """Return the nodes of a function, after those of its callees.

        The loop avoids recursion, because chains may be long.
        """
        pending, open_calls = [key], set[Key]()
        while pending:
            current = pending[-1]
            function = self._functions.get(current)
            if current in self._known or function is None:
                pending.pop()
                continue
            called = [(node.domain, node.op_type) for node in function.node]
            unknown = [inner for inner in called if inner in self._functions and inner not in self._known]
            if current in open_calls or not unknown:
                pending.pop()
                open_calls.discard(current)
                held = sum(1 + self._known.get(inner, 0) for inner in called)
                self._known[current] = MOST if unknown else min(MOST, held)
                continue
            open_calls.add(current)
            pending += dict.fromkeys(unknown)
        return self._known.get(key, 0)
