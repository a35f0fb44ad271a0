"""Reads a TensorFlow Lite file back into what the writer of the tests writes, to change or to print it."""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite

from benchmarks.fuzzing.random_tflite import TfliteModel
from tests.support.tflite_file import TYPES, Quantized, TfliteWriter

_TYPE_NAMES = {number: name for name, number in TYPES.items()}
_OPTIONS = {number: name for name, number in vars(tflite.BuiltinOptions).items() if isinstance(number, int)}


def read_tflite(data: bytes) -> TfliteModel | None:
    """The model of a file; None where it says less than the writer needs, or writing would lose something."""
    try:
        return _read(data)
    except Exception:  # the format's reader raises what it likes on damaged files
        return None


def _read(data: bytes) -> TfliteModel:
    model = tflite.Model.GetRootAs(data, 0)
    graph: Any = model.Subgraphs(0)
    writer = TfliteWriter()
    writer.buffers = [_bytes(model.Buffers(index)) for index in range(model.BuffersLength())]
    for index in range(graph.TensorsLength()):
        _tensor(writer, graph.Tensors(index))
    writer.codes = [_code(model.OperatorCodes(index)) for index in range(model.OperatorCodesLength())]
    for index in range(graph.OperatorsLength()):
        operator = graph.Operators(index)
        name = _OPTIONS[operator.BuiltinOptionsType()] if operator.BuiltinOptions() is not None else ""
        fields = _fields(operator.BuiltinOptions(), name) if name else {}
        inputs, outputs = (_ints(operator, kind) for kind in ("Inputs", "Outputs"))
        writer.operators.append((operator.OpcodeIndex(), inputs, outputs, name, fields))
    writer.inputs = _ints(graph, "Inputs")
    return TfliteModel(writer=writer, outputs=tuple(_ints(graph, "Outputs")))


def _bytes(buffer: Any) -> bytes:
    return buffer.DataAsNumpy().tobytes() if buffer.DataLength() else b""


def _ints(table: Any, name: str) -> list[int]:
    return getattr(table, f"{name}AsNumpy")().tolist() if getattr(table, f"{name}Length")() else []


def _code(code: Any) -> int | str:
    custom = code.CustomCode()
    return custom.decode() if custom else max(code.BuiltinCode(), code.DeprecatedBuiltinCode())


def _tensor(writer: TfliteWriter, tensor: Any) -> None:
    found, quantized = tensor.Quantization(), None
    if found is not None and found.ScaleLength():
        scales = found.ScaleAsNumpy().astype(np.float64).tolist()
        zero = int(found.ZeroPoint(0)) if found.ZeroPointLength() else 0
        quantized = Quantized(
            scale=scales if len(scales) > 1 else scales[0], zero_point=zero, axis=found.QuantizedDimension()
        )
    index = writer.tensor(
        tensor.Name().decode(), _ints(tensor, "Shape"), _TYPE_NAMES[tensor.Type()], quantized,
        signature=_ints(tensor, "ShapeSignature"), is_variable=tensor.IsVariable(),
    )  # fmt: skip
    writer.tensors[index].buffer = tensor.Buffer()


def _fields(union: Any, name: str) -> dict[str, Any]:
    """Fields of an operator's options, as the format's writer names them."""
    options = getattr(tflite, name)()
    options.Init(union.Bytes, union.Pos)
    adders = [key for key in dir(tflite) if key.startswith(f"{name}Add")]
    found: dict[str, Any] = {}
    for key in adders:
        field = key.removeprefix(f"{name}Add")
        if hasattr(options, f"{field}Length"):
            found[field] = _ints(options, field)
        elif isinstance(value := getattr(options, field)(), int | float | bool):
            found[field] = value
    return found
