"""Damage to ONNX models by fields of their protocol buffers: attributes, dims, types, names, edges, weights."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from benchmarks.fuzzing.mutate_tree import FLOATS, INTEGERS, special

_RANGES = {FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1), FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
           FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1), FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1)}  # fmt: skip


def mutate_onnx(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """One to three changes, some of any field, some such as tend to stay well-formed."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice((_field, _field, _field, _attribute, _attribute, _edge, _dim, _type, _weight, _name, _node))
        change(result, rng)
    return result


def _messages(message: Message) -> list[Message]:
    """A message and all within it, but for weights' numbers."""
    found = [message]
    for field, value in message.ListFields():
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                found += _messages(inner)
    return found


def _field(model: onnx.ModelProto, rng: random.Random) -> None:
    """Any field of any message: at an edge, away, twice, or as another of its kind has it."""
    everything = _messages(model)
    message = rng.choice(everything)
    field = rng.choice(list(message.DESCRIPTOR.fields))
    name, is_set = field.name, any(f.name == field.name for f, _ in message.ListFields())
    if is_set and rng.random() < 0.25:
        message.ClearField(name)
        return
    if field.is_repeated:
        _repeated(getattr(message, name), field, rng)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        alike = [m for m in everything if m.DESCRIPTOR is field.message_type and m is not getattr(message, name)]
        if alike:
            copied = type(alike[0])()
            copied.CopyFrom(rng.choice(alike))
            getattr(message, name).CopyFrom(copied)
    else:
        _set(message, name, _scalar(getattr(message, name), field, rng))


def _repeated(values: Any, field: FieldDescriptor, rng: random.Random) -> None:
    is_message = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
    way = rng.random()
    if len(values) and way < 0.3:
        del values[rng.randrange(len(values))]
    elif len(values) and way < 0.6 and not is_message:
        at = rng.randrange(len(values))
        values[at] = _scalar(values[at], field, rng)
    elif len(values) and way < 0.8:
        copied = values[rng.randrange(len(values))]
        values.extend([copied])
    elif len(values) > 1 and way < 0.9:
        a, b = rng.sample(range(len(values)), 2)
        first, second = values[a], values[b]
        rest = [second if i == a else first if i == b else v for i, v in enumerate(values)]
        rest = [type(v).FromString(v.SerializeToString()) for v in rest] if is_message else rest
        del values[:]
        values.extend(rest)
    elif not is_message:
        values.append(_scalar(_default(field), field, rng))


def _default(field: FieldDescriptor) -> Any:
    kinds = {
        FieldDescriptor.CPPTYPE_STRING: "",
        FieldDescriptor.CPPTYPE_FLOAT: 0.0,
        FieldDescriptor.CPPTYPE_DOUBLE: 0.0,
    }
    return b"" if field.type == FieldDescriptor.TYPE_BYTES else kinds.get(field.cpp_type, 0)


def _scalar(value: Any, field: FieldDescriptor, rng: random.Random) -> Any:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return rng.choice((b"", value[: len(value) // 2], value + b"\0" * 8, value[:-1], b"\xff" * len(value)))
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        new = special(value, rng)
        return new if isinstance(new, str) else "y"
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return rng.choice((*FLOATS, value * 2, -value))
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice(list(field.enum_type.values)).number
    low, high = _RANGES.get(field.cpp_type, (0, 1))
    near = (value + 1, value - 1, value * 2, 3, 5, 7, 11)
    return min(high, max(low, rng.choice((*INTEGERS, *near, *near))))


def _set(message: Message, name: str, value: Any) -> None:
    try:
        setattr(message, name, value)
    except (ValueError, TypeError, OverflowError, UnicodeEncodeError):
        message.ClearField(name)


def _attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    """A number or string of an attribute."""
    attributes = [a for node in model.graph.node for a in node.attribute]
    if not attributes:
        return _field(model, rng)
    attribute = rng.choice(attributes)
    for field, value in attribute.ListFields():
        if field.name in ("i", "f", "s"):
            _set(attribute, field.name, _scalar(value, field, rng))
        elif field.name in ("ints", "floats", "strings"):
            _repeated(value, field, rng)


def _edge(model: onnx.ModelProto, rng: random.Random) -> None:
    """An input of a node, or an output of the graph, becomes another value; perhaps one made later."""
    graph = model.graph
    names = [*(n for node in graph.node for n in (*node.input, *node.output)), *(v.name for v in graph.input), ""]
    nodes = [node for node in graph.node if node.input]
    if nodes and rng.random() < 0.8:
        node = rng.choice(nodes)
        node.input[rng.randrange(len(node.input))] = rng.choice(names)
    elif graph.output:
        rng.choice(graph.output).name = rng.choice(names)


def _dim(model: onnx.ModelProto, rng: random.Random) -> None:
    """A dimension of an input, an output, or a weight."""
    graph = model.graph
    shapes = [value.type.tensor_type.shape.dim for value in (*graph.input, *graph.output, *graph.value_info)]
    holders: list[Any] = [dims for dims in shapes if dims] + [t.dims for t in graph.initializer if t.dims]
    if not holders:
        return
    dims = rng.choice(holders)
    at = rng.randrange(len(dims))
    if isinstance(dims[at], int):
        dims[at] = min(2**63 - 1, max(-(2**63), rng.choice((*INTEGERS, dims[at] + 1, dims[at] - 1))))
    elif rng.random() < 0.2:
        dims[at].dim_param = rng.choice(("N", "", "日本", "N*2", "a" * 300))
    else:
        value = dims[at].dim_value
        dims[at].dim_value = min(2**63 - 1, max(-(2**63), rng.choice((*INTEGERS, value + 1, value - 1, value * 2))))


def _type(model: onnx.ModelProto, rng: random.Random) -> None:
    """The element type of an input, an output, or a weight."""
    graph = model.graph
    kind = rng.randrange(0, 24)
    if graph.initializer and rng.random() < 0.4:
        rng.choice(graph.initializer).data_type = kind
    elif graph.input or graph.output:
        rng.choice([*graph.input, *graph.output]).type.tensor_type.elem_type = kind


def _weight(model: onnx.ModelProto, rng: random.Random) -> None:
    """An element of a weight, as raw bytes have it."""
    weights = [t for t in model.graph.initializer if t.raw_data]
    if not weights:
        return
    tensor = rng.choice(weights)
    try:
        array = onnx.numpy_helper.to_array(tensor).copy()
    except Exception:  # damaged already
        return
    if array.size and array.dtype.kind in "fiu":
        if array.dtype.kind == "f":
            edge: Any = rng.choice(FLOATS)
        else:
            info = np.iinfo(array.dtype)
            edge = min(info.max, max(info.min, rng.choice((*INTEGERS, int(array.flat[0]) + 1, -int(array.flat[0])))))
        with np.errstate(over="ignore"):
            array.flat[rng.randrange(array.size)] = edge
        tensor.raw_data = array.tobytes()


def _name(model: onnx.ModelProto, rng: random.Random) -> None:
    """A value's name, everywhere, or the operator that a node names."""
    graph = model.graph
    if graph.node and rng.random() < 0.3:
        node = rng.choice(graph.node)
        others = [n.op_type for n in graph.node]
        node.op_type = rng.choice((*others, "Relu", "Conv", "MatMul", "Softmax", "If", "Loop", "Nothing", ""))
        return
    names = sorted({n for node in graph.node for n in (*node.input, *node.output)} | {v.name for v in graph.input})
    if not names:
        return
    old = rng.choice(names)
    new = special(old, rng)
    new = new if isinstance(new, str) and rng.random() < 0.8 else rng.choice(names)
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = new if value.name == old else value.name


def _node(model: onnx.ModelProto, rng: random.Random) -> None:
    """A node twice, or a long chain of nodes behind an output."""
    graph = model.graph
    if not graph.node:
        return
    if rng.random() < 0.5:
        graph.node.add().CopyFrom(rng.choice(list(graph.node)))
        return
    last = graph.output[0].name if graph.output else graph.node[-1].output[0] if graph.node[-1].output else ""
    for index in range(rng.choice((2, 20, 200))):
        graph.node.add(op_type=rng.choice(("Relu", "Neg", "Identity")), input=[last], output=[f"chain_{index}"])
        last = f"chain_{index}"
    if graph.output:
        graph.output[0].name = last
