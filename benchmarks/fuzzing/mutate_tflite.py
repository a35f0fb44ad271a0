"""Damage to TensorFlow Lite models: before they are written, and by the fields of the flatbuffer's tables after."""

from __future__ import annotations

import copy
import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import tflite

from benchmarks.fuzzing.mutate_tree import FLOATS, INTEGERS, STRINGS
from benchmarks.fuzzing.random_tflite import TfliteModel
from tests.support.tflite_file import Quantized

_INT32 = tuple(sorted({max(-(2**31), min(2**31 - 1, value)) for value in INTEGERS}))
_CODES = (
    "ADD MUL RELU SOFTMAX RESHAPE MEAN CONCATENATION GATHER GATHER_ND TRANSPOSE QUANTIZE DEQUANTIZE CAST "
    "SLICE STRIDED_SLICE PACK LOGISTIC TANH SQUEEZE WHILE LSTM Mine"
).split()


def mutate_model(model: TfliteModel, rng: random.Random) -> TfliteModel:
    """One to three changes of tensors, scales, edges, operators, options, buffers; still a well-formed flatbuffer."""
    model = TfliteModel(writer=copy.deepcopy(model.writer), outputs=model.outputs)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        model = rng.choice((_tensor, _tensor, _scales, _scales, _edge, _operator, _options, _buffer, _outputs))(
            model, rng
        )
    return model


def written(model: TfliteModel) -> bytes | None:
    """The file; None where a number does not go into its field."""
    try:
        return model.data()
    except (struct.error, OverflowError, TypeError, ValueError, AttributeError, KeyError, IndexError):
        return None


def _tensor(model: TfliteModel, rng: random.Random) -> TfliteModel:
    tensor = rng.choice(model.writer.tensors)
    way = rng.randrange(4)
    if way == 0:
        shape = list(tensor.shape) or [1]
        shape[rng.randrange(len(shape))] = rng.choice((*_INT32, 3, 5))
        tensor.shape = tuple(shape)
    elif way == 1:
        tensor.shape = rng.choice((tensor.shape[1:], (*tensor.shape, 1), (1, *tensor.shape), tensor.shape[::-1], ()))
    elif way == 2:
        tensor.dtype = rng.choice(("float32", "float16", "int32", "int64", "int8", "int16", "uint8", "bool", "string"))
    else:
        tensor.name = rng.choice((*STRINGS, rng.choice(model.writer.tensors).name))
    return model


def _scales(model: TfliteModel, rng: random.Random) -> TfliteModel:
    tensor = rng.choice(model.writer.tensors)
    old = tensor.quantized or Quantized(scale=0.1)
    scales = np.atleast_1d(np.array(old.scale, np.float64)).tolist()
    way = rng.randrange(5)
    if way == 0:
        tensor.quantized = None
    elif way == 1:
        scales[rng.randrange(len(scales))] = rng.choice(FLOATS)
        tensor.quantized = replace(old, scale=[float(np.clip(s, -3e38, 3e38)) if np.isfinite(s) else s for s in scales])
    elif way == 2:
        tensor.quantized = replace(old, zero_point=rng.choice((*_INT32, 2**62, 128, -129)))
    elif way == 3:
        tensor.quantized = replace(old, scale=rng.choice((scales[:-1] or [1.0], scales * 2, [0.1] * 3)))
    else:
        tensor.quantized = replace(old, axis=rng.choice((*_INT32, 3)))
    return model


def _edge(model: TfliteModel, rng: random.Random) -> TfliteModel:
    writer = model.writer
    if not writer.operators:
        return model
    _, inputs, outputs, *_ = rng.choice(writer.operators)
    ends = rng.choice((inputs, inputs, outputs))
    if ends and rng.random() < 0.8:
        ends[rng.randrange(len(ends))] = rng.choice(
            (rng.randrange(len(writer.tensors)), -1, len(writer.tensors), *_INT32)
        )
    elif ends and rng.random() < 0.5:
        del ends[rng.randrange(len(ends))]
    else:
        ends.append(rng.randrange(len(writer.tensors)))
    return model


def _operator(model: TfliteModel, rng: random.Random) -> TfliteModel:
    operators, codes = model.writer.operators, model.writer.codes
    if not operators:
        return model
    at = rng.randrange(len(operators))
    way = rng.randrange(5)
    if way == 0:
        del operators[at]
    elif way == 1:
        operators.insert(rng.randrange(len(operators)), copy.deepcopy(operators[at]))
    elif way == 2:
        operators.append(operators.pop(at))
    elif way == 3:
        name = rng.choice(_CODES)
        codes[operators[at][0] % len(codes)] = getattr(tflite.BuiltinOperator, name, name)
    else:
        operators[at] = (rng.choice((0, len(codes), 2**32 - 1)), *operators[at][1:])
    return model


def _options(model: TfliteModel, rng: random.Random) -> TfliteModel:
    operators = [index for index, operator in enumerate(model.writer.operators) if operator[3]]
    if not operators:
        return model
    at = rng.choice(operators)
    code, inputs, outputs, options, fields, *custom = model.writer.operators[at]
    fields = dict(fields)
    if fields and rng.random() < 0.85:
        name = rng.choice(list(fields))
        old = fields[name]
        edge = rng.choice(FLOATS) if isinstance(old, float) else rng.choice((*_INT32, 3, 4))
        fields[name] = [edge, *old[1:]] if isinstance(old, list) else (not old if isinstance(old, bool) else edge)
    elif fields and rng.random() < 0.5:
        del fields[rng.choice(list(fields))]
    else:
        options, fields = rng.choice((("", {}), ("Conv2DOptions", {}), ("Pool2DOptions", {}), ("SoftmaxOptions", {})))
    model.writer.operators[at] = (code, inputs, outputs, options, fields, *custom)
    return model


def _buffer(model: TfliteModel, rng: random.Random) -> TfliteModel:
    writer = model.writer
    if rng.random() < 0.4:
        rng.choice(writer.tensors).buffer = rng.choice((0, len(writer.buffers), len(writer.buffers) - 1, 2**31))
        return model
    at = rng.randrange(len(writer.buffers))
    data = writer.buffers[at]
    edge = rng.choice((b"\xff\xff\xff\x7f", b"\x00\x00\xc0\x7f", b"\xff\xff\xff\xff", b"\0\0\0\0"))
    writer.buffers[at] = rng.choice((b"", data[:-1], data + b"\0", edge + data[4:], data[:-4] + edge))
    return model


def _outputs(model: TfliteModel, rng: random.Random) -> TfliteModel:
    writer = model.writer
    other = rng.choice((rng.randrange(len(writer.tensors)), -1, len(writer.tensors)))
    if rng.random() < 0.5:
        outputs = list(model.outputs)
        outputs[rng.randrange(len(outputs)) if outputs else 0 :] = [other]
        return TfliteModel(writer=writer, outputs=tuple(outputs))
    writer.inputs[:] = rng.choice(([], [*writer.inputs, other], [other]))
    return model


def mutate_tables(data: bytes, rng: random.Random) -> bytes:
    """A field of one of the tables of a well-formed file: absent, at an edge, or pointing elsewhere."""
    tables = list(_tables(data))
    for _ in range(rng.choice((1, 1, 2))):
        table = rng.choice(tables)
        fields = _slots(data, table)
        if not fields:
            continue
        slot, place = rng.choice(fields)
        way = rng.random()
        if way < 0.2:
            data = data[:slot] + b"\0\0" + data[slot + 2 :]
        elif way < 0.35:
            data = data[:slot] + struct.pack("<H", rng.choice((1, 2, 4, 0xFFFF, place - table + 4))) + data[slot + 2 :]
        elif way < 0.8:
            old = int.from_bytes(data[place : place + 4], "little")
            new = rng.choice((*_INT32, old + 1, old + 4, old - 4, old * 2)) % (1 << 32)
            data = data[:place] + struct.pack("<I", new) + data[place + 4 :]
        else:  # the length of the vector that it may point at
            at = place + int.from_bytes(data[place : place + 4], "little")
            if at + 4 <= len(data):
                data = data[:at] + struct.pack("<I", rng.choice(_INT32) % (1 << 32)) + data[at + 4 :]
    return data


def _tables(data: bytes) -> Iterator[int]:
    """Positions of the tables that the format's reader finds."""
    model = tflite.Model.GetRootAs(data, 0)
    yield model._tab.Pos
    groups: list[Any] = [(model.OperatorCodesLength(), model.OperatorCodes), (model.BuffersLength(), model.Buffers)]
    for index in range(model.SubgraphsLength()):
        graph = model.Subgraphs(index)
        yield graph._tab.Pos
        groups += [(graph.TensorsLength(), graph.Tensors), (graph.OperatorsLength(), graph.Operators)]
    for count, get in groups:
        for index in range(count):
            item = get(index)
            yield item._tab.Pos
            for inner in ("Quantization", "BuiltinOptions"):
                found = getattr(item, inner, lambda: None)()
                if found is not None:
                    yield getattr(found, "_tab", found).Pos


def _slots(data: bytes, table: int) -> list[tuple[int, int]]:
    """(Position of the entry in the table's index, position of the field) of fields that are there."""
    if not 0 <= table <= len(data) - 4:
        return []
    index = table - struct.unpack_from("<i", data, table)[0]
    if not 0 <= index <= len(data) - 4:
        return []
    size = min(struct.unpack_from("<H", data, index)[0], len(data) - index)
    slots = [(index + at, table + struct.unpack_from("<H", data, index + at)[0]) for at in range(4, size - 1, 2)]
    return [(slot, place) for slot, place in slots if place != table and place + 4 <= len(data)]
