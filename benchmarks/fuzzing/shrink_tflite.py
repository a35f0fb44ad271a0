"""Smaller TensorFlow Lite files: fewer operators, one output, no scales that differ by channel, plain options."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from benchmarks.fuzzing.mutate_tflite import written
from benchmarks.fuzzing.random_tflite import TfliteModel
from benchmarks.fuzzing.read_tflite import read_tflite
from tests.support.tflite_file import TfliteWriter


def smaller_files(data: bytes) -> Iterator[bytes]:
    model = read_tflite(data)
    for candidate in _candidates(model) if model else ():
        smaller = written(candidate)
        if smaller is not None and smaller != data:
            yield smaller


def _candidates(model: TfliteModel) -> Iterator[TfliteModel]:
    writer = model.writer
    made = [index for _, _, outputs, *_ in writer.operators for index in outputs]
    if len(writer.operators) > 1 or len(model.outputs) > 1:
        for index in made:  # up to a value
            yield pruned(writer, outputs=(index,), inputs=writer.inputs)
    for index in reversed(made):  # from a value on
        if index not in model.outputs:
            yield pruned(writer, outputs=model.outputs, inputs=[*writer.inputs, index])
    for at, tensor in enumerate(writer.tensors):
        if tensor.quantized is not None and tensor.buffer == 0 and tensor.quantized.zero_point:
            other = copy.deepcopy(writer)
            other.tensors[at].quantized = type(tensor.quantized)(scale=tensor.quantized.scale)
            yield TfliteModel(writer=other, outputs=model.outputs)
    for at, (code, inputs, outputs, options, fields) in enumerate(writer.operators):
        for name in fields:
            other = copy.deepcopy(writer)
            other.operators[at] = (code, inputs, outputs, options, {k: v for k, v in fields.items() if k != name})
            yield TfliteModel(writer=other, outputs=model.outputs)


def pruned(writer: TfliteWriter, *, outputs: tuple[int, ...], inputs: list[int]) -> TfliteModel:
    """The operators, tensors and buffers that these outputs need."""
    wanted, kept = {*outputs}, []
    for operator in reversed(writer.operators):
        if wanted & {*operator[2]} - {*inputs}:
            kept.insert(0, operator)
            wanted |= {*operator[1], *operator[2]}
    order = [index for index in range(len(writer.tensors)) if index in wanted]
    place = {index: new for new, index in enumerate(order)}
    other = TfliteWriter()
    other.codes = list(dict.fromkeys(writer.codes[operator[0]] for operator in kept))
    for index in order:
        tensor = copy.deepcopy(writer.tensors[index])
        if tensor.buffer:
            other.buffers.append(writer.buffers[tensor.buffer])
            tensor.buffer = len(other.buffers) - 1
        other.tensors.append(tensor)
    for code, read, made, options, fields in kept:
        ends = ([place.get(index, -1) for index in part] for part in (read, made))
        other.operators.append((other.codes.index(writer.codes[code]), *ends, options, fields))
    other.inputs = [place[index] for index in dict.fromkeys(inputs) if index in place]
    return TfliteModel(writer=other, outputs=tuple(place[index] for index in outputs))
