"""Writes TensorFlow Lite files: tensors, operators with options by name, further subgraphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import tflite

TYPES = {
    "float32": tflite.TensorType.FLOAT32,
    "float16": tflite.TensorType.FLOAT16,
    "int32": tflite.TensorType.INT32,
    "int64": tflite.TensorType.INT64,
    "int8": tflite.TensorType.INT8,
    "int16": tflite.TensorType.INT16,
    "uint8": tflite.TensorType.UINT8,
    "uint32": tflite.TensorType.UINT32,
    "uint64": tflite.TensorType.UINT64,
    "float64": tflite.TensorType.FLOAT64,
    "bool": tflite.TensorType.BOOL,
    "string": tflite.TensorType.STRING,
    "resource": tflite.TensorType.RESOURCE,
    "variant": tflite.TensorType.VARIANT,
}


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """Scale and zero point of a tensor; `scale` may be one for each index of `axis`."""

    scale: float | Sequence[float]
    zero_point: int = 0
    axis: int = 0


@dataclass(kw_only=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: str
    buffer: int
    quantized: Quantized | None
    signature: tuple[int, ...] | None
    is_variable: bool = False
    sparsity: Sparsity | None = None


@dataclass(frozen=True, kw_only=True)
class Sparsity:
    """Levels of a sparse constant, in order: the extent of a dense one, or segments and indices of a compressed one."""

    order: Sequence[int]
    levels: Sequence[int | tuple[Sequence[int], Sequence[int]]]
    blocked: Sequence[int] = ()
    indices: str = "int32"


@dataclass(frozen=True, kw_only=True)
class Signature:
    """Names of inputs and outputs, by the indices of their tensors, of a subgraph."""

    key: str = "serving_default"

    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    graph: int = 0


@dataclass(kw_only=True)
class TfliteWriter:
    """Collects a model; tensors are their indices."""

    tensors: list[_Tensor] = field(default_factory=list)
    buffers: list[bytes] = field(default_factory=lambda: [b""])
    codes: list[int | str] = field(default_factory=list)
    operators: list[tuple[Any, ...]] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    signature: Signature | None = None
    more_signatures: Sequence[Signature] = ()

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "float32",
        quantized: Quantized | None = None,
        *,
        signature: Sequence[int] | None = None,
        is_variable: bool = False,
    ) -> int:
        self.tensors.append(
            _Tensor(
                name=name, shape=tuple(shape), dtype=dtype, buffer=0, quantized=quantized,
                signature=tuple(signature) if signature else None, is_variable=is_variable,
            )
        )  # fmt: skip
        return len(self.tensors) - 1

    def input(self, name: str, shape: Sequence[int], *args: Any, **named: Any) -> int:
        self.inputs.append(self.tensor(name, shape, *args, **named))
        return self.inputs[-1]

    def constant(self, name: str, array: np.ndarray, quantized: Quantized | None = None) -> int:
        index = self.tensor(name, array.shape, str(array.dtype), quantized)
        self.buffers.append(np.ascontiguousarray(array).tobytes())
        self.tensors[index].buffer = len(self.buffers) - 1
        return index

    def sparse(
        self,
        name: str,
        shape: Sequence[int],
        stored: np.ndarray,
        sparsity: Sparsity,
        quantized: Quantized | None = None,
    ) -> int:
        """A constant of a shape whose stored elements are given."""
        index = self.constant(name, stored, quantized)
        self.tensors[index].shape, self.tensors[index].sparsity = tuple(shape), sparsity
        return index

    def operator(
        self,
        name: str,
        inputs: Sequence[int],
        output: int | Sequence[int],
        options: str = "",
        custom: bytes = b"",
        **fields: Any,
    ) -> int:
        """A built-in operator by its name, or a custom one (`Flex...`, anything else); its first output.

        custom: options of a custom one.
        """
        code = getattr(tflite.BuiltinOperator, name, name)
        if code not in self.codes:
            self.codes.append(code)
        outputs = [output] if isinstance(output, int) else list(output)
        self.operators.append((self.codes.index(code), list(inputs), outputs, options, fields, custom))
        return outputs[0]

    def finish(self, outputs: Sequence[int], *, num_subgraphs: int = 1, others: Sequence[TfliteWriter] = ()) -> bytes:
        """The file. num_subgraphs: how often the graph is there. others: subgraphs behind it, with their results."""
        b = flatbuffers.Builder(1024)
        written = [(self, list(outputs))] * num_subgraphs + [(other, other.results) for other in others]
        every = list(dict.fromkeys(code for writer, _ in written for code in writer.codes))
        first = {id(writer): sum(len(w.buffers) for w in [self, *others][:place]) for place, writer in
                 enumerate([self, *others])}  # fmt: skip
        buffers = [self._buffer(b, data) for writer in (self, *others) for data in writer.buffers]
        codes = [self._code(b, code) for code in every]
        graphs = []
        for writer, results in written:
            tensors = [self._tensor(b, tensor, first[id(writer)]) for tensor in writer.tensors]
            numbers = [every.index(code) for code in writer.codes]
            operators = [self._operator(b, numbers[code], *rest) for code, *rest in writer.operators]
            graphs.append(self._graph(b, tensors, operators, results, writer.inputs))
        description = b.CreateString("written by a test")
        tables = [_offsets(b, table) for table in (codes, graphs, buffers)]
        signed = [*([self.signature] if self.signature else []), *self.more_signatures]
        signatures = _offsets(b, [_signature(b, one) for one in signed]) if signed else None
        tflite.ModelStart(b)
        tflite.ModelAddVersion(b, 3)
        tflite.ModelAddOperatorCodes(b, tables[0])
        tflite.ModelAddSubgraphs(b, tables[1])
        tflite.ModelAddBuffers(b, tables[2])
        tflite.ModelAddDescription(b, description)
        if signatures is not None:
            tflite.ModelAddSignatureDefs(b, signatures)
        b.Finish(tflite.ModelEnd(b), file_identifier=b"TFL3")
        return bytes(b.Output())

    def _graph(
        self, b: Any, tensors: list[int], operators: list[int], outputs: Sequence[int], inputs: Sequence[int]
    ) -> int:
        parts = [_offsets(b, tensors), _ints(b, inputs), _ints(b, outputs), _offsets(b, operators)]
        tflite.SubGraphStart(b)
        tflite.SubGraphAddTensors(b, parts[0])
        tflite.SubGraphAddInputs(b, parts[1])
        tflite.SubGraphAddOutputs(b, parts[2])
        tflite.SubGraphAddOperators(b, parts[3])
        return tflite.SubGraphEnd(b)

    def _buffer(self, b: Any, data: bytes) -> int:
        vector = b.CreateNumpyVector(np.frombuffer(data, np.uint8)) if data else None
        tflite.BufferStart(b)
        if vector is not None:
            tflite.BufferAddData(b, vector)
        return tflite.BufferEnd(b)

    def _code(self, b: Any, code: int | str) -> int:
        custom = b.CreateString(code) if isinstance(code, str) else None
        number = tflite.BuiltinOperator.CUSTOM if isinstance(code, str) else code
        tflite.OperatorCodeStart(b)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(b, min(number, 127))
        tflite.OperatorCodeAddBuiltinCode(b, number)
        tflite.OperatorCodeAddVersion(b, 1)
        if custom is not None:
            tflite.OperatorCodeAddCustomCode(b, custom)
        return tflite.OperatorCodeEnd(b)

    def _tensor(self, b: Any, tensor: _Tensor, first_buffer: int) -> int:
        name, shape = b.CreateString(tensor.name), _ints(b, tensor.shape)
        signature = _ints(b, tensor.signature) if tensor.signature else None
        quantization = self._quantization(b, tensor.quantized) if tensor.quantized else None
        sparsity = _sparsity(b, tensor.sparsity) if tensor.sparsity else None
        tflite.TensorStart(b)
        tflite.TensorAddShape(b, shape)
        tflite.TensorAddType(b, TYPES[tensor.dtype])
        tflite.TensorAddBuffer(b, first_buffer + tensor.buffer)
        tflite.TensorAddName(b, name)
        tflite.TensorAddIsVariable(b, tensor.is_variable)
        if signature is not None:
            tflite.TensorAddShapeSignature(b, signature)
        if quantization is not None:
            tflite.TensorAddQuantization(b, quantization)
        if sparsity is not None:
            tflite.TensorAddSparsity(b, sparsity)
        return tflite.TensorEnd(b)

    def _quantization(self, b: Any, quantized: Quantized) -> int:
        scales = np.atleast_1d(np.array(quantized.scale, np.float32))
        scale = b.CreateNumpyVector(scales)
        zero_point = b.CreateNumpyVector(np.full(scales.shape, quantized.zero_point, np.int64))
        tflite.QuantizationParametersStart(b)
        tflite.QuantizationParametersAddScale(b, scale)
        tflite.QuantizationParametersAddZeroPoint(b, zero_point)
        tflite.QuantizationParametersAddQuantizedDimension(b, quantized.axis)
        return tflite.QuantizationParametersEnd(b)

    def _operator(
        self,
        b: Any,
        code: int,
        inputs: list[int],
        outputs: list[int],
        options: str,
        fields: Mapping[str, Any],
        custom: bytes = b"",
    ) -> int:
        union = self._options(b, options, fields) if options else None
        raw = b.CreateByteVector(custom) if custom else None
        vectors = _ints(b, inputs), _ints(b, outputs)
        tflite.OperatorStart(b)
        tflite.OperatorAddOpcodeIndex(b, code)
        tflite.OperatorAddInputs(b, vectors[0])
        tflite.OperatorAddOutputs(b, vectors[1])
        if union is not None:
            tflite.OperatorAddBuiltinOptionsType(b, getattr(tflite.BuiltinOptions, options))
            tflite.OperatorAddBuiltinOptions(b, union)
        if raw is not None:
            tflite.OperatorAddCustomOptions(b, raw)
        return tflite.OperatorEnd(b)

    def _options(self, b: Any, options: str, fields: Mapping[str, Any]) -> int:
        values = {key: _ints(b, value) if isinstance(value, list | tuple) else value for key, value in fields.items()}
        values |= {key: b.CreateString(value) for key, value in fields.items() if isinstance(value, str)}
        getattr(tflite, f"{options}Start")(b)
        for key, value in values.items():
            getattr(tflite, f"{options}Add{key}")(b, value)
        return getattr(tflite, f"{options}End")(b)


_INDICES = {"int32": ("Int32Vector", 1), "uint16": ("Uint16Vector", 2), "uint8": ("Uint8Vector", 3)}


def _sparsity(b: Any, sparsity: Sparsity) -> int:
    """Write the levels. A tuple is a compressed one: its segments and indices."""
    levels = []
    table, number = _INDICES[sparsity.indices]
    for level in sparsity.levels:
        unions = []
        for numbers in () if isinstance(level, int) else level:
            vector = b.CreateNumpyVector(np.array(numbers, sparsity.indices))
            getattr(tflite, f"{table}Start")(b)
            getattr(tflite, f"{table}AddValues")(b, vector)
            unions.append(getattr(tflite, f"{table}End")(b))
        tflite.DimensionMetadataStart(b)
        if isinstance(level, int):
            tflite.DimensionMetadataAddDenseSize(b, level)
        else:
            tflite.DimensionMetadataAddFormat(b, 1)
            tflite.DimensionMetadataAddArraySegmentsType(b, number)
            tflite.DimensionMetadataAddArraySegments(b, unions[0])
            tflite.DimensionMetadataAddArrayIndicesType(b, number)
            tflite.DimensionMetadataAddArrayIndices(b, unions[1])
        levels.append(tflite.DimensionMetadataEnd(b))
    order, blocked, metadata = _ints(b, sparsity.order), _ints(b, sparsity.blocked), _offsets(b, levels)
    tflite.SparsityParametersStart(b)
    tflite.SparsityParametersAddTraversalOrder(b, order)
    if sparsity.blocked:
        tflite.SparsityParametersAddBlockMap(b, blocked)
    tflite.SparsityParametersAddDimMetadata(b, metadata)
    return tflite.SparsityParametersEnd(b)


def _ints(b: Any, numbers: Sequence[int]) -> int:
    return b.CreateNumpyVector(np.array(numbers, np.int32))


def _offsets(b: Any, offsets: list[int]) -> int:
    b.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        b.PrependUOffsetTRelative(offset)
    return b.EndVector()


def _signature(b: Any, signature: Signature) -> int:
    maps = []
    for names in (signature.inputs, signature.outputs):
        entries = []
        for name, index in names.items():
            text = b.CreateString(name)
            tflite.TensorMapStart(b)
            tflite.TensorMapAddName(b, text)
            tflite.TensorMapAddTensorIndex(b, index)
            entries.append(tflite.TensorMapEnd(b))
        maps.append(_offsets(b, entries))
    key = b.CreateString(signature.key)
    tflite.SignatureDefStart(b)
    tflite.SignatureDefAddInputs(b, maps[0])
    tflite.SignatureDefAddOutputs(b, maps[1])
    tflite.SignatureDefAddSignatureKey(b, key)
    tflite.SignatureDefAddSubgraphIndex(b, signature.graph)
    return tflite.SignatureDefEnd(b)
