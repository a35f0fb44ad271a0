"""Read a TensorFlow Lite file that nobody vouched for: every table touched once, and checked, before it is used."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tflite

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.limits import Limits
from tvm_ext.core.names import unique
from tvm_ext.frontends.mapped_file import mapped_file
from tvm_ext.frontends.tflite.check_scales import Scales, read_scales
from tvm_ext.frontends.tflite.file_sizes import FileSizes
from tvm_ext.frontends.tflite.four_bits import is_packed, unpacked
from tvm_ext.frontends.tflite.signatures import signature_names

_IDENTIFIER = b"TFL3"
# Offsets of a flatbuffer are 32 bits wide, and half of them point backwards.
_MAX_FILE_BYTES = (1 << 31) - 1
# Exceptions of the flatbuffers library and numpy on offsets that lead nowhere.
_DAMAGE = (struct.error, ValueError, TypeError, IndexError, OverflowError, AttributeError, AssertionError)

_DTYPES = {
    getattr(tflite.TensorType, name): dtype
    for name, dtype in [
        *((kind.upper(), kind) for kind in "float16 float32 int8 int16 int32 int64 uint8 uint32 uint64 bool".split()),
    ]
}
_TYPE_NAMES = {value: name for name, value in vars(tflite.TensorType).items() if not name.startswith("_")}
_TYPE_NAMES |= {19: "INT2", 20: "UINT4"}  # newer than the package's schema
_NEWER_CODE_SLOT = 10
"""Place of an operator code's newer field in its table's list of fields."""
ACTIVATIONS = ("int8", "uint8", "int16")
"""Element types of quantized activations."""
_OPERATOR_NAMES = {value: name for name, value in vars(tflite.BuiltinOperator).items() if not name.startswith("_")}


@dataclass(frozen=True, kw_only=True, eq=False)
class TfliteTensor:
    """A tensor of the graph. dims: the shape with None where the model leaves it open; data: None unless constant.

    dtype is None for a type that cannot be compiled, which type_name then names. Constants of 4 bits are int8 here.
    """

    name: str
    dtype: str | None
    type_name: str
    shape: tuple[int, ...]
    dims: tuple[int | None, ...]
    data: np.ndarray | None
    scales: Scales | None
    is_variable: bool
    is_sparse: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class TfliteNode:
    """An operator: `CONV_2D`, a custom one's own name, with the indices of its tensors (-1: left out).

    num_states: of a custom one, how many of the last inputs and of the last outputs are states, which no file has.
    graph: number of the subgraph that it stands in.
    """

    operator: str
    label: str
    is_custom: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    table: tflite.Operator
    num_states: int = 0
    graph: int = 0

    @property
    def own_tensors(self) -> tuple[int, ...]:
        """Its inputs and outputs as its subgraph numbers them."""
        return (*_numbers(self.table.InputsAsNumpy()), *_numbers(self.table.OutputsAsNumpy()))


@dataclass(frozen=True, kw_only=True, eq=False)
class TfliteGraph:
    """A subgraph: its tensors, operators in order, indices of inputs and outputs."""

    tensors: tuple[TfliteTensor, ...]
    nodes: tuple[TfliteNode, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class TfliteFile(TfliteGraph):
    """A model's first subgraph, and the sha256 of its file. called_once: the subgraphs that CALL_ONCE names.

    called: those that IF and WHILE name, by number.
    """

    model: tflite.Model
    sha256: str
    weights_bytes: int
    called_once: tuple[TfliteGraph, ...] = ()
    called: Mapping[int, TfliteGraph] = field(default_factory=dict)


def read_tflite(path: Path, limits: Limits) -> TfliteFile:
    """Read and check `path`. Raises BadModel, and UnsupportedModel for subgraphs that are called, and large files."""
    data = mapped_file(path, kind="a .tflite file", most_bytes=_MAX_FILE_BYTES)
    if len(data) < 8 or data[4:8] != _IDENTIFIER:
        raise BadModel(f"{path}: is not a TensorFlow Lite file: its bytes 4 to 8 are not 'TFL3'.")
    try:
        model = tflite.Model.GetRootAs(data, 0)
        if model.SubgraphsLength() == 0:
            raise BadModel(f"{path}: is not a complete TensorFlow Lite model: it has no subgraph.")
        return _file(path, model, data, FileSizes(path, limits))
    except _DAMAGE as error:
        raise BadModel(f"{path}: is truncated or damaged; its {len(data)} B cannot be followed: {error}.") from None


def _file(path: Path, model: tflite.Model, data: memoryview, sizes: FileSizes) -> TfliteFile:
    main = _graph(path, model, 0, sizes)
    initial = _called_once(main.nodes, model.SubgraphsLength())
    called = _called(path, model, main, sizes)
    others = model.SubgraphsLength() - 1 - len({*initial, *called})
    if others:
        raise UnsupportedModel(
            f"{path}: has {others + 1} subgraphs that nothing calls, which are several signatures; one can be "
            "compiled. Export one function."
        )
    called_once = tuple(_graph(path, model, index, sizes) for index in initial)
    return TfliteFile(
        model=model, sha256=hashlib.sha256(data).hexdigest(), tensors=main.tensors, nodes=main.nodes,
        inputs=main.inputs, outputs=main.outputs, weights_bytes=sizes.weights_bytes, called_once=called_once,
        called=called,
    )  # fmt: skip


def _graph(path: Path, model: tflite.Model, index: int, sizes: FileSizes) -> TfliteGraph:
    graph = model.Subgraphs(index)
    sizes.check_graph(model, graph)
    num_tensors = graph.TensorsLength()
    inputs, outputs = (_indices(array, num_tensors) for array in (graph.InputsAsNumpy(), graph.OutputsAsNumpy()))
    signed = signature_names(model, index, inputs, outputs)
    tensors = tuple(_tensors(path, model, graph, sizes, signed))
    nodes = tuple(_nodes(model, graph, num_tensors, index))
    return TfliteGraph(tensors=tensors, nodes=nodes, inputs=inputs, outputs=outputs)


def _called_once(nodes: Sequence[TfliteNode], num_subgraphs: int) -> list[int]:
    """Indices of the subgraphs that run before the first inference, which set variables."""
    found: list[int] = []
    for node in nodes:
        if node.operator == "CALL_ONCE":
            options = tflite.CallOnceOptions()
            table = node.table.BuiltinOptions()
            options.Init(table.Bytes, table.Pos)
            found.append(int(options.InitSubgraphIndex()))
    if any(not 0 < index < num_subgraphs for index in found):
        raise ValueError(f"CALL_ONCE names subgraph {max(found)}")
    return list(dict.fromkeys(found))


def _called(path: Path, model: tflite.Model, main: TfliteGraph, sizes: FileSizes) -> dict[int, TfliteGraph]:
    """Subgraphs that IF and WHILE of the first one call, and those that these call, by number."""
    found: dict[int, TfliteGraph] = {}
    pending = [main]
    while pending:
        for index in _branches(pending.pop().nodes):
            if not 0 < index < model.SubgraphsLength():
                raise ValueError(f"control flow names subgraph {index}")
            if index not in found:
                found[index] = _graph(path, model, index, sizes)
                pending.append(found[index])
    return found


def _branches(nodes: Sequence[TfliteNode]) -> Iterator[int]:
    for node in nodes:
        if node.operator == "IF" and (options := node_options(node, tflite.IfOptions)):
            yield from (options.ThenSubgraphIndex(), options.ElseSubgraphIndex())
        if node.operator == "WHILE" and (options := node_options(node, tflite.WhileOptions)):
            yield from (options.CondSubgraphIndex(), options.BodySubgraphIndex())


def node_options(node: TfliteNode, kind: type) -> Any:
    """An operator's options; None where the file has none, or those of another operator."""
    union = node.table.BuiltinOptions()
    if union is None or node.table.BuiltinOptionsType() != getattr(tflite.BuiltinOptions, kind.__name__):
        return None
    options = kind()
    options.Init(union.Bytes, union.Pos)
    return options


def _tensors(
    path: Path, model: tflite.Model, graph: tflite.SubGraph, sizes: FileSizes, signed: Mapping[int, str]
) -> Iterator[TfliteTensor]:
    """The tensors of a graph. signed: names that the file's signature gives to its inputs and outputs."""
    taken = set(signed.values())
    for index in range(graph.TensorsLength()):
        table = graph.Tensors(index)
        sizes.check_tensor(table, index)
        own = (table.Name() or b"").decode("utf-8", "replace") or f"tensor_{index}"
        name = signed[index] if index in signed else unique(own, taken, ".", 1)
        shape = _numbers(table.ShapeAsNumpy())
        signature = _numbers(table.ShapeSignatureAsNumpy())
        dims = tuple(None if extent < 0 else extent for extent in signature) if signature else shape
        if min(shape, default=0) < 0 or len(dims) != len(shape):
            raise BadModel(f"{path}: tensor {name!r} has the impossible shape {list(shape)}.")
        type_name = _TYPE_NAMES.get(table.Type(), str(table.Type()))
        dtype = "int8" if is_packed(model, table) else _DTYPES.get(table.Type())
        is_sparse = table.Sparsity() is not None
        yield TfliteTensor(
            name=name, dtype=dtype, type_name=type_name, shape=shape, dims=dims,
            data=None if is_sparse else _data(path, model, table, name, shape, dtype, sizes),
            scales=read_scales(path, table, name, shape, dtype), is_variable=bool(table.IsVariable()),
            is_sparse=is_sparse,
        )  # fmt: skip


def _data(
    path: Path,
    model: tflite.Model,
    table: tflite.Tensor,
    name: str,
    shape: tuple[int, ...],
    dtype: str | None,
    sizes: FileSizes,
) -> np.ndarray | None:
    """Numbers of a constant tensor; None for one that is computed, or has a type that cannot be compiled."""
    if table.Buffer() >= model.BuffersLength():
        raise BadModel(
            f"{path}: tensor {name!r} is kept in buffer {table.Buffer()}; there are {model.BuffersLength()}."
        )
    buffer = model.Buffers(table.Buffer())
    if buffer.Size() > 0:
        raise UnsupportedModel(
            f"{path}: tensor {name!r} is kept behind the model in the file; convert it to under 2 GB."
        )
    if buffer.DataLength() == 0 or dtype is None:
        return None
    raw, num_elements = buffer.DataAsNumpy(), int(np.prod(shape, dtype=object))
    packed = is_packed(model, table)
    stored = -(-num_elements // 2) if packed else num_elements * np.dtype(dtype).itemsize
    if len(raw) != stored:
        kind = "int4" if packed else dtype
        raise BadModel(f"{path}: tensor {name!r}, {kind}{list(shape)}, needs {stored} B; its buffer has {len(raw)}.")
    sizes.check_constant(name, shape, num_elements * np.dtype(dtype).itemsize)
    if packed:
        return unpacked(raw, num_elements).reshape(shape)
    return np.frombuffer(raw, np.dtype(dtype).newbyteorder("<")).astype(dtype, copy=False).reshape(shape)


def _nodes(model: tflite.Model, graph: tflite.SubGraph, num_tensors: int, graph_number: int) -> Iterator[TfliteNode]:
    for index in range(graph.OperatorsLength()):
        table = graph.Operators(index)
        if table.OpcodeIndex() >= model.OperatorCodesLength():
            raise ValueError(f"operator {index} has no code")
        code = model.OperatorCodes(table.OpcodeIndex())
        number = _operator_number(code)
        name = _OPERATOR_NAMES.get(number, f"operator {number}")
        is_custom = number == tflite.BuiltinOperator.CUSTOM
        if is_custom:
            name = (code.CustomCode() or b"custom").decode("utf-8", "replace")
        yield TfliteNode(
            operator=name, label=f"{name}_{index}", is_custom=is_custom, table=table, graph=graph_number,
            inputs=_indices(table.InputsAsNumpy(), num_tensors), outputs=_indices(table.OutputsAsNumpy(), num_tensors),
        )  # fmt: skip


def _operator_number(code: tflite.OperatorCode) -> int:
    """The larger of the older and the newer field, as runtimes take it; files from before 2020 have the older one only.

    The accessor of the newer one gives the older one for all numbers that this can hold, so the field is read here.
    """
    offset = code._tab.Offset(_NEWER_CODE_SLOT)
    (newer,) = struct.unpack_from("<i", code._tab.Bytes, code._tab.Pos + offset) if offset else (0,)
    return max(newer, code.DeprecatedBuiltinCode())


def _indices(array: np.ndarray | int, num_tensors: int) -> tuple[int, ...]:
    indices = _numbers(array)
    if any(not -1 <= index < num_tensors for index in indices):
        raise ValueError(f"there is no tensor {max(indices)}")
    return indices


def _numbers(array: np.ndarray | int) -> tuple[int, ...]:
    """A vector of the file; the flatbuffers library says 0 for one that is absent."""
    return tuple(int(number) for number in array) if isinstance(array, np.ndarray) else ()
