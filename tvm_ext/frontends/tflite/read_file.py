"""Read a TensorFlow Lite file that is not trusted: every table, size, scale and name is checked."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tflite

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.files.read_file import mapped_file
from tvm_ext.core.limits import Limits, text_of
from tvm_ext.core.names import unique

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Scales:
    """Scales by which a tensor's integers stand for real numbers: one, or one for each index of `axis`.

    scale: float32[n], zero_point: int64[n], n = 1 or the extent of `axis`.
    """

    scale: np.ndarray
    zero_point: np.ndarray
    axis: int

    def equals(self, other: Scales | None) -> bool:
        return (
            other is not None
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )


def read_scales(
    path: Path, table: tflite.Tensor, name: str, shape: tuple[int, ...], dtype: str | None
) -> Scales | None:
    """Scales of a tensor that has some. Raises BadModel."""
    quantization = table.Quantization()
    if quantization is None or quantization.ScaleLength() == 0:
        return None
    where = f"{path}: tensor {name!r}"
    scale = np.array(quantization.ScaleAsNumpy(), np.float32)
    zero_point = np.zeros(scale.shape, np.int64)
    if quantization.ZeroPointLength():
        zero_point = np.array(quantization.ZeroPointAsNumpy(), np.int64)
    if not np.isfinite(scale).all() or (scale <= 0).any():
        wrong = scale[~(np.isfinite(scale) & (scale > 0))][0]
        raise BadModel(f"{where} has a scale of {wrong}; scales are finite and above zero.")
    # Along the only axis there is no other one; older converters name that of the weights for a bias.
    axis = 0 if len(shape) == 1 else int(quantization.QuantizedDimension())
    if scale.size > 1 and not 0 <= axis < len(shape):
        raise BadModel(f"{where} has {scale.size} scales for axis {axis}; its shape {list(shape)} has no such axis.")
    if scale.size > 1 and shape[axis] != scale.size:
        raise BadModel(
            f"{where} has {scale.size} scales for axis {axis} of {list(shape)}; one for each index is needed."
        )
    if zero_point.size not in (1, scale.size):
        raise BadModel(f"{where} has {scale.size} scales and {zero_point.size} zero points; one for each is needed.")
    _check_range(where, zero_point, dtype)
    return Scales(scale=scale, zero_point=np.broadcast_to(zero_point, scale.shape), axis=axis if scale.size > 1 else 0)


def _check_range(where: str, zero_point: np.ndarray, dtype: str | None) -> None:
    """Raises BadModel for zero points that the tensor's own type cannot hold."""
    if dtype is None or not dtype.startswith(("int", "uint")):
        return
    limits = np.iinfo(dtype)
    outside = zero_point[(zero_point < limits.min) | (zero_point > limits.max)]
    if outside.size:
        raise BadModel(f"{where} has zero point {outside[0]}; a zero point lies within {dtype}.")


# Slots of what holds a text, in the order of the schema; the first one of a table is 4, the next 6.
_NAME_OF_TENSOR, _CUSTOM_CODE = 10, 6
_TENSORS_A_NODE = 4


class FileSizes:
    """Sizes that a file has reached so far; lives while it is read. Each method raises UnsupportedModel.

    weights_bytes: of the constants seen.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path, self._limits = path, limits
        self.weights_bytes = 0
        self._text_bytes = 0
        self._num_nodes = 0
        self._num_tensors = 0

    def check_graph(self, model: tflite.Model, graph: tflite.SubGraph) -> None:
        """The number of operators and of tensors, of this and all graphs before, and of operands of each operator."""
        num_nodes = graph.OperatorsLength()
        self._num_nodes, self._num_tensors = self._num_nodes + num_nodes, self._num_tensors + graph.TensorsLength()
        self._refuse("its operators", "nodes", self._num_nodes)
        if self._num_tensors > _TENSORS_A_NODE * self._limits.nodes:
            self._refuse("its tensors, four to a node", "nodes", -(-self._num_tensors // _TENSORS_A_NODE))
        self._refuse("its inputs", "operands", graph.InputsLength())
        self._refuse("its outputs", "operands", graph.OutputsLength())
        for index in range(num_nodes):
            table = graph.Operators(index)
            self._refuse(f"the inputs of operator {index}", "operands", table.InputsLength())
            self._refuse(f"the outputs of operator {index}", "operands", table.OutputsLength())
            if table.OpcodeIndex() < model.OperatorCodesLength():
                self._add_text(model.OperatorCodes(table.OpcodeIndex()), _CUSTOM_CODE)

    def check_tensor(self, table: tflite.Tensor, index: int) -> None:
        """The length of a tensor's name and its rank, or that of its signature."""
        self._add_text(table, _NAME_OF_TENSOR)
        rank = max(table.ShapeLength(), table.ShapeSignatureLength())
        self._refuse(f"the rank of tensor {index}", "rank", rank)

    def check_constant(self, name: str, shape: Sequence[int], num_bytes: int) -> None:
        """One more constant; those that share bytes of the file have copies of their own here."""
        self.weights_bytes += num_bytes
        self._refuse(f"constant {name!r}, {text_of(shape)}", "tensor_bytes", num_bytes)
        self._refuse(f"constant {name!r} and those before it", "weights_bytes", self.weights_bytes)

    def _add_text(self, table: Any, slot: int) -> None:
        offset = table._tab.Offset(slot)
        self._text_bytes += table._tab.VectorLen(offset) if offset else 0
        self._refuse("its names", "text_bytes", self._text_bytes)

    def _refuse(self, what: str, limit: str, value: int) -> None:
        reason = self._limits.excess(limit, value)
        if reason:
            raise UnsupportedModel(f"{self._path}: {what}: {reason}.")


def is_packed(model: tflite.Model, table: tflite.Tensor) -> bool:
    """True for a constant of 4 bits an element."""
    is_constant = table.Buffer() < model.BuffersLength() and model.Buffers(table.Buffer()).DataLength() > 0
    return table.Type() == tflite.TensorType.INT4 and is_constant


def unpacked(raw: np.ndarray, num_elements: int) -> np.ndarray:
    """int8[num_elements] of uint8[ceil(num_elements / 2)]."""
    signed = raw.view(np.int8)
    return np.stack([(signed << 4) >> 4, signed >> 4], axis=-1).reshape(-1)[:num_elements]


def signature_names(
    model: tflite.Model, graph_index: int, inputs: Sequence[int], outputs: Sequence[int]
) -> dict[int, str]:
    """Name of each input and output by the index of its tensor, as the first signature of the graph has them.

    No two names are equal: an output that is called as an input gets `.1` at its end. Tensors that the signature leaves
    out, or names by an empty text, have no entry. Entries for tensors that are no inputs or outputs are skipped: tools
    that renumber tensors leave the signature as it was.
    """
    signature = next(
        (one for one in map(model.SignatureDefs, range(model.SignatureDefsLength())) if _is_of(one, graph_index)), None
    )
    if signature is None:
        return {}
    entries = [*_entries(signature.Inputs, signature.InputsLength(), inputs)]
    entries += _entries(signature.Outputs, signature.OutputsLength(), outputs)
    taken: set[str] = set()
    names: dict[int, str] = {}
    for index, name in entries:
        if index not in names:
            names[index] = unique(name, taken, ".", 1)
    return names


def _is_of(signature: tflite.SignatureDef, graph_index: int) -> bool:
    return signature.SubgraphIndex() == graph_index


def _entries(entry: Callable[[int], tflite.TensorMap], count: int, ports: Sequence[int]) -> list[tuple[int, str]]:
    """Index and name of each tensor that a signature names among some ports. Raises ValueError for too many."""
    if count > len(ports):
        raise ValueError("a signature names more inputs or outputs than its subgraph has")
    found = [(int(one.TensorIndex()), one.Name() or b"") for one in map(entry, range(count))]
    return [(index, name.decode("utf-8", "replace")) for index, name in found if name and index in ports]
