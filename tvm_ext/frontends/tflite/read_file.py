"""Read a TensorFlow Lite file that is not trusted: every table, size, scale and name is checked."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tflite

from tvm_ext.core.errors import BadModel, BadOptions, UnsupportedModel
from tvm_ext.core.files.read_file import mapped_file
from tvm_ext.core.limits import Limits, text_of
from tvm_ext.core.names import unique

_IDENTIFIER = b"TFL3"
# Offsets of a flatbuffer have 32 bits, and some are signed.
_MAX_FILE_BYTES = (1 << 31) - 1
# Exceptions that the flatbuffers library and numpy raise for offsets outside of the file.
DAMAGE = (struct.error, ValueError, TypeError, IndexError, OverflowError, AttributeError, AssertionError)

_DTYPES = {
    getattr(tflite.TensorType, name): dtype
    for name, dtype in [
        *((kind.upper(), kind) for kind in "float16 float32 int8 int16 int32 int64 uint8 uint32 uint64 bool".split()),
    ]
}
_TYPE_NAMES = {value: name for name, value in vars(tflite.TensorType).items() if not name.startswith("_")}
_TYPE_NAMES |= {19: "INT2", 20: "UINT4"}  # newer than the package's schema
_NEWER_CODE_SLOT = 10
"""Slot of the newer field of an operator code in its table of fields."""
ACTIVATIONS = ("int8", "uint8", "int16")
"""Element types of quantized activations."""
_OPERATOR_NAMES = {value: name for name, value in vars(tflite.BuiltinOperator).items() if not name.startswith("_")}


@dataclass(frozen=True, kw_only=True, eq=False)
class TfliteTensor:
    """A tensor of the graph.

    dims: the shape, with None for axes whose extent the model leaves open. data: numbers of a constant, else None.
    is_unranked: True if the file gives the tensor no shape, because the graph computes it; `shape` is empty then.
    dtype: None for a type that cannot be compiled; type_name has its name. Constants of 4 bits have the type int8.
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
    is_unranked: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class TfliteNode:
    """An operator with the indices of its tensors, -1 for a tensor that is left out.

    operator: name in the schema such as `CONV_2D`, or the own name of a custom operator.
    num_states: number of last inputs and last outputs of a custom operator that are states, which no file has.
    graph: number of the subgraph that contains the operator.
    is_choice: True for an IF that chooses between results. Its inputs are the condition, the results of the branch for
    True, and those of the branch for False.
    is_guarded: True for an operator of a branch that a run may skip.
    loop: of a WHILE that runs a step in a loop; None for everything else.
    """

    operator: str
    label: str
    is_custom: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    table: tflite.Operator
    num_states: int = 0
    graph: int = 0
    is_choice: bool = False
    is_guarded: bool = False
    loop: TfliteLoop | None = None

    @property
    def own_tensors(self) -> tuple[int, ...]:
        """Indices of its inputs and outputs within its subgraph."""
        return (*_numbers(self.table.InputsAsNumpy()), *_numbers(self.table.OutputsAsNumpy()))


@dataclass(frozen=True, kw_only=True, eq=False)
class TfliteLoop:
    """The body of a WHILE and its condition, over tensors of their own.

    first: the condition for the first iteration. values: the tensors that an iteration changes, in the order of the
    WHILE's inputs. nodes: the operators of the body, then those of the condition on its results. results: the tensors
    after an iteration. again: the condition for another iteration.
    """

    first: int
    values: tuple[int, ...]
    nodes: tuple[TfliteNode, ...]
    results: tuple[int, ...]
    again: int


@dataclass(frozen=True, kw_only=True, eq=False)
class TfliteGraph:
    """A subgraph: its tensors, its operators in order, and the indices of its inputs and outputs."""

    tensors: tuple[TfliteTensor, ...]
    nodes: tuple[TfliteNode, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class TfliteFile(TfliteGraph):
    """The subgraph of a model that is compiled, and the sha256 of its file.

    main: number of the subgraph. signature: name of the signature that was chosen; empty for the file's only one.
    weights_bytes: bytes of all constants.
    called_once: the subgraphs that CALL_ONCE names. called: the subgraphs that IF and WHILE name, by number.
    """

    model: tflite.Model
    sha256: str
    weights_bytes: int
    main: int = 0
    signature: str = ""
    called_once: tuple[TfliteGraph, ...] = ()
    called: Mapping[int, TfliteGraph] = field(default_factory=dict)


def read_tflite(path: Path, limits: Limits, signature: str = "") -> TfliteFile:
    """Read and check a file. Raises BadModel, and UnsupportedModel for large files.

    signature: name of the signature whose subgraph is read; empty for the first subgraph. Raises BadOptions for an
    unknown name, and UnsupportedModel for a file with several signatures if no name is given.
    """
    data = mapped_file(path, kind="a .tflite file", most_bytes=_MAX_FILE_BYTES)
    if len(data) < 8 or data[4:8] != _IDENTIFIER:
        raise BadModel(f"{path}: is not a TensorFlow Lite file: its bytes 4 to 8 are not 'TFL3'.")
    try:
        model = tflite.Model.GetRootAs(data, 0)
        if model.SubgraphsLength() == 0:
            raise BadModel(f"{path}: is not a complete TensorFlow Lite model: it has no subgraph.")
        return _file(path, model, data, FileSizes(path, limits), signature)
    except DAMAGE as error:
        raise BadModel(f"{path}: is truncated or damaged: its {len(data)} B cannot be read: {error}.") from None


def _file(path: Path, model: tflite.Model, data: memoryview, sizes: FileSizes, signature: str) -> TfliteFile:
    chosen = _signature(path, model, signature) if signature else None
    index = 0 if chosen is None else int(chosen.SubgraphIndex())
    if index >= model.SubgraphsLength():
        raise ValueError(f"signature {signature!r} names subgraph {index}")
    main = _graph(path, model, index, sizes, chosen)
    initial = _called_once(main.nodes, model.SubgraphsLength(), index)
    called = _called(path, model, main, index, sizes)
    others = model.SubgraphsLength() - 1 - len({*initial, *called})
    if others and not signature:
        raise UnsupportedModel(
            f"{path}: has {others + 1} subgraphs that nothing calls, and only one can be compiled. {_way_out(model)}"
        )
    called_once = tuple(_graph(path, model, index, sizes) for index in initial)
    return TfliteFile(
        model=model, sha256=hashlib.sha256(data).hexdigest(), tensors=main.tensors, nodes=main.nodes,
        inputs=main.inputs, outputs=main.outputs, weights_bytes=sizes.weights_bytes, main=index, signature=signature,
        called_once=called_once, called=called,
    )  # fmt: skip


def _signature(path: Path, model: tflite.Model, name: str) -> tflite.SignatureDef:
    """Return the signature of a name. Raises BadOptions for a name that the file does not have."""
    known = _signatures(model)
    if name not in known:
        listed = f"its signatures are {', '.join(known)}" if known else "it has no signatures; leave the option out"
        raise BadOptions(f"signature = {name!r}: {path} has no signature of this name; {listed}.")
    return known[name]


def _signatures(model: tflite.Model) -> dict[str, tflite.SignatureDef]:
    """Return the signatures of a file by name, in order."""
    every = [model.SignatureDefs(index) for index in range(model.SignatureDefsLength())]
    return {(one.SignatureKey() or b"").decode("utf-8", "replace"): one for one in every}


def _way_out(model: tflite.Model) -> str:
    """Return what to do about a file with several subgraphs that nothing calls."""
    names = [name for name in _signatures(model) if name]
    if not names:
        return "They have no signatures by which to choose one. Export one function."
    return (
        f"The file's signatures are {', '.join(names)}: choose one by signature, on the command line --signature "
        f"{names[0]}."
    )


def _graph(
    path: Path, model: tflite.Model, index: int, sizes: FileSizes, chosen: tflite.SignatureDef | None = None
) -> TfliteGraph:
    """Return a subgraph. chosen: the signature that names its inputs and outputs; None for its first signature."""
    graph = model.Subgraphs(index)
    sizes.check_graph(model, graph)
    num_tensors = graph.TensorsLength()
    inputs, outputs = (_indices(array, num_tensors) for array in (graph.InputsAsNumpy(), graph.OutputsAsNumpy()))
    signed = signature_names(model, index, inputs, outputs, chosen)
    tensors = list(_tensors(path, model, graph, sizes, signed))
    nodes = tuple(_nodes(model, graph, num_tensors, index))
    for place in _empty_constants(tensors, nodes, inputs):
        tensors[place] = replace(tensors[place], data=np.empty(tensors[place].shape, tensors[place].dtype))
    return TfliteGraph(tensors=tuple(tensors), nodes=nodes, inputs=inputs, outputs=outputs)


def _empty_constants(
    tensors: Sequence[TfliteTensor], nodes: Sequence[TfliteNode], inputs: Sequence[int]
) -> Iterator[int]:
    """Yield the tensors without elements, and so without bytes in the file, that operators read and none computes."""
    computed = {*inputs, *(place for node in nodes for place in node.outputs)}
    for place in dict.fromkeys(place for node in nodes for place in node.inputs if place >= 0):
        tensor = tensors[place]
        has_no_bytes = tensor.data is None and tensor.dtype is not None and 0 in tensor.dims
        if has_no_bytes and place not in computed and not tensor.is_variable:
            yield place


def _called_once(nodes: Sequence[TfliteNode], num_subgraphs: int, main: int) -> list[int]:
    """Return the indices of the subgraphs that run before the first inference to set variables."""
    found: list[int] = []
    for node in nodes:
        if node.operator == "CALL_ONCE":
            options = tflite.CallOnceOptions()
            table = node.table.BuiltinOptions()
            options.Init(table.Bytes, table.Pos)
            found.append(int(options.InitSubgraphIndex()))
    if any(index == main or not 0 <= index < num_subgraphs for index in found):
        raise ValueError(f"CALL_ONCE names subgraph {max(found)}")
    return list(dict.fromkeys(found))


def _called(
    path: Path, model: tflite.Model, main: TfliteGraph, main_index: int, sizes: FileSizes
) -> dict[int, TfliteGraph]:
    """Return the subgraphs that IF and WHILE call, directly or from other subgraphs, by number."""
    found: dict[int, TfliteGraph] = {}
    pending = [main]
    while pending:
        for index in _branches(pending.pop().nodes):
            if index == main_index or not 0 <= index < model.SubgraphsLength():
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
    """Return an operator's options; None if the file has none or has the options of another operator."""
    union = node.table.BuiltinOptions()
    if union is None or node.table.BuiltinOptionsType() != getattr(tflite.BuiltinOptions, kind.__name__):
        return None
    options = kind()
    options.Init(union.Bytes, union.Pos)
    return options


def _tensors(
    path: Path, model: tflite.Model, graph: tflite.SubGraph, sizes: FileSizes, signed: Mapping[int, str]
) -> Iterator[TfliteTensor]:
    """Yield the tensors of a graph. signed: names of inputs and outputs from the file's signature."""
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
        data = None if is_sparse else _data(path, model, table, name, shape, dtype, sizes)
        yield TfliteTensor(
            name=name, dtype=dtype, type_name=type_name, shape=shape, dims=dims, data=data,
            scales=read_scales(path, table, name, shape, dtype, data), is_variable=bool(table.IsVariable()),
            is_sparse=is_sparse, is_unranked=not shape and data is None and not table.HasRank(),
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
    """Return the numbers of a constant tensor; None for other tensors, and for a type that cannot be compiled."""
    if table.Buffer() >= model.BuffersLength():
        raise BadModel(
            f"{path}: tensor {name!r} is in buffer {table.Buffer()}, but there are {model.BuffersLength()} buffers."
        )
    buffer = model.Buffers(table.Buffer())
    if buffer.Size() > 0:
        raise UnsupportedModel(
            f"{path}: tensor {name!r} is stored after the model in the file. Convert the model to less than 2 GB."
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
    """Return the larger of an operator code's older and newer field, as runtimes do.

    Files from before 2020 have only the older field. The library's accessor of the newer field returns the older field
    for all numbers that it can hold, so the newer field is read directly.
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
    """Return a vector of the file. The flatbuffers library returns 0 for a missing vector."""
    return tuple(int(number) for number in array) if isinstance(array, np.ndarray) else ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Scales:
    """Scales of a tensor's integers: one scale, or one for each index of `axis`.

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
    path: Path, table: tflite.Tensor, name: str, shape: tuple[int, ...], dtype: str | None, data: np.ndarray | None
) -> Scales | None:
    """Return the scales of a tensor, or None without scales. Raises BadModel for impossible scales.

    data: the elements of a constant. Where all of them stand for 0, its scale may be 0 in the file.
    """
    quantization = table.Quantization()
    if quantization is None or quantization.ScaleLength() == 0:
        return None
    where = f"{path}: tensor {name!r}"
    scale = np.array(quantization.ScaleAsNumpy(), np.float32)
    zero_point = np.zeros(scale.shape, np.int64)
    if quantization.ZeroPointLength():
        zero_point = np.array(quantization.ZeroPointAsNumpy(), np.int64)
    # A tensor of rank 1 has only one axis. Older converters give a bias the number of the weights' axis.
    axis = 0 if len(shape) == 1 else int(quantization.QuantizedDimension())
    if data is not None and (scale == 0).any():
        scale = _without_zero_scales(scale, zero_point, axis, data)
    if not np.isfinite(scale).all() or (scale <= 0).any():
        wrong = scale[~(np.isfinite(scale) & (scale > 0))][0]
        raise BadModel(f"{where} has a scale of {wrong}; scales are finite and above zero.")
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


def _without_zero_scales(scale: np.ndarray, zero_point: np.ndarray, axis: int, data: np.ndarray) -> np.ndarray:
    """Return the scales with the smallest float32 in place of 0 where all elements stand for 0, so for any scale.

    Converters write it for channels and constants of zeros. The smallest one leaves the steps of a sum's other operand.
    """
    if scale.size > 1 and (not 0 <= axis < data.ndim or data.shape[axis] != scale.size):
        return scale
    shape = [-1 if scale.size > 1 and index == axis else 1 for index in range(data.ndim)]
    zeros = data == np.reshape(zero_point, shape if zero_point.size > 1 else [1] * data.ndim)
    others = tuple(index for index in range(data.ndim) if scale.size == 1 or index != axis)
    return np.where((scale == 0) & zeros.all(axis=others), np.finfo(np.float32).smallest_subnormal, scale).astype(
        np.float32
    )


def _check_range(where: str, zero_point: np.ndarray, dtype: str | None) -> None:
    """Raise BadModel for zero points outside of the tensor's type."""
    if dtype is None or not dtype.startswith(("int", "uint")):
        return
    limits = np.iinfo(dtype)
    outside = zero_point[(zero_point < limits.min) | (zero_point > limits.max)]
    if outside.size:
        raise BadModel(f"{where} has zero point {outside[0]}; a zero point lies within {dtype}.")


# Slots of fields that hold a text, in the order of the schema. The first field of a table has slot 4, the next slot 6.
_NAME_OF_TENSOR, _CUSTOM_CODE = 10, 6
_TENSORS_A_NODE = 4


class FileSizes:
    """Sizes that a file has reached so far. Each method raises UnsupportedModel if a size exceeds its limit.

    weights_bytes: bytes of the constants so far.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path, self._limits = path, limits
        self.weights_bytes = 0
        self._text_bytes = 0
        self._num_nodes = 0
        self._num_tensors = 0

    def check_graph(self, model: tflite.Model, graph: tflite.SubGraph) -> None:
        """Check the numbers of operators and tensors of all graphs so far, and of operands of each operator."""
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
        """Check the length of a tensor's name, and its rank in the shape and in the shape's signature."""
        self._add_text(table, _NAME_OF_TENSOR)
        rank = max(table.ShapeLength(), table.ShapeSignatureLength())
        self._refuse(f"the rank of tensor {index}", "rank", rank)

    def check_constant(self, name: str, shape: Sequence[int], num_bytes: int) -> None:
        """Count one more constant. Constants that share bytes of the file are copied, and counted separately."""
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
    """Return True for a constant with elements of 4 bits."""
    is_constant = table.Buffer() < model.BuffersLength() and model.Buffers(table.Buffer()).DataLength() > 0
    return table.Type() == tflite.TensorType.INT4 and is_constant


def unpacked(raw: np.ndarray, num_elements: int) -> np.ndarray:
    """Unpack uint8[ceil(num_elements / 2)], two elements in a byte, to int8[num_elements]."""
    signed = raw.view(np.int8)
    return np.stack([(signed << 4) >> 4, signed >> 4], axis=-1).reshape(-1)[:num_elements]


def signature_names(
    model: tflite.Model,
    graph_index: int,
    inputs: Sequence[int],
    outputs: Sequence[int],
    chosen: tflite.SignatureDef | None = None,
) -> dict[int, str]:
    """Return the names of inputs and outputs in a signature, by the index of the tensor.

    chosen: the signature; by default the first one of the graph.

    All names are different: an output with the name of an input gets `.1` at its end. Tensors that the signature leaves
    out, or whose name is empty, have no entry. Entries for other tensors are skipped, because tools that renumber
    tensors do not update the signature.
    """
    signature = chosen or next(
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


def signature_inputs(model: tflite.Model, name: str) -> dict[int, str]:
    """Return the names of inputs in a signature as the file has them, by the index of the tensor."""
    signature = _signatures(model)[name]
    entries = [signature.Inputs(index) for index in range(signature.InputsLength())]
    return {int(one.TensorIndex()): (one.Name() or b"").decode("utf-8", "replace") for one in entries}


def _is_of(signature: tflite.SignatureDef, graph_index: int) -> bool:
    return signature.SubgraphIndex() == graph_index


def _entries(entry: Callable[[int], tflite.TensorMap], count: int, ports: Sequence[int]) -> list[tuple[int, str]]:
    """Return index and name of each tensor of `ports` that a signature names. Raises ValueError for too many."""
    if count > len(ports):
        raise ValueError("a signature names more inputs or outputs than its subgraph has")
    found = [(int(one.TensorIndex()), one.Name() or b"") for one in map(entry, range(count))]
    return [(index, name.decode("utf-8", "replace")) for index, name in found if name and index in ports]
