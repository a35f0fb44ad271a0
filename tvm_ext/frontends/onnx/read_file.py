"""Read an untrusted ONNX file: screen it as protobuf within limits, then let ONNX check it."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import onnx
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, EncodeError

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.files.read_file import mapped_file
from tvm_ext.core.limits import Limits

# Limit of protobuf. Larger models keep their weights in external files.
_MAX_FILE_BYTES = (1 << 31) - 1
_OLDEST_OPSET = 6
_DEFAULT_DOMAINS = ("", "ai.onnx")


@dataclass(frozen=True, kw_only=True, eq=False)
class OnnxFile:
    """A model including its weights, their bytes, and the sha256 of everything it was read from."""

    model: onnx.ModelProto
    sha256: str
    weights_bytes: int


def read_onnx(path: Path, limits: Limits) -> OnnxFile:
    """Read and check `path`. Raises BadModel, and UnsupportedModel for operator sets older than 6 and large files."""
    data = mapped_file(
        path, kind="an .onnx file", most_bytes=_MAX_FILE_BYTES, way_out="; save the weights as external data"
    )
    screen_file(path, data, limits)
    model = _parse(path, data)
    digest = hashlib.sha256(data)
    weights_bytes = check_tensors(path, model, limits)
    screen_attributes(path, model)
    load_external(path, model, digest)
    _check(path, model)
    return OnnxFile(model=model, sha256=digest.hexdigest(), weights_bytes=weights_bytes)


def opset_of(model: onnx.ModelProto, domain: str = "") -> int:
    """Return the version of the model's operator set, or 0 when it imports none of that domain."""
    names = _DEFAULT_DOMAINS if domain in _DEFAULT_DOMAINS else (domain,)
    return max((entry.version for entry in model.opset_import if entry.domain in names), default=0)


def _parse(path: Path, data: memoryview) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        raise BadModel(f"{path}: is not an ONNX file, or it is truncated; its {len(data)} B do not parse.") from None
    if not model.HasField("graph") or not model.ir_version or not model.opset_import:
        raise BadModel(f"{path}: is not an ONNX model: it has no graph, IR version, or operator set.")
    return model


def _check(path: Path, model: onnx.ModelProto) -> None:
    opset = opset_of(model)
    if opset and opset < _OLDEST_OPSET:
        raise UnsupportedModel(
            f"{path}: is written in ONNX opset {opset}; {_OLDEST_OPSET} and up can be read. "
            "Convert it with onnx.version_converter."
        )
    # The checker demands shapes of all inputs and outputs. Outputs are inferred here, and inputs are requested by name.
    shapeless = [value for value in [*model.graph.input, *model.graph.output] if _lacks_shape(value)]
    for value in shapeless:
        value.type.tensor_type.shape.SetInParent()
    try:
        with _unknown_operators_apart(model):
            onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise BadModel(f"{path}: ONNX's checker refuses it: {_first_lines(str(error))}") from None
    except (ValueError, EncodeError) as error:
        raise BadModel(f"{path}: cannot be checked as one message: {_first_lines(str(error))}") from None
    for value in shapeless:
        value.type.tensor_type.ClearField("shape")


@cache
def first_opsets() -> dict[str, int]:
    """Return the first opset that has each of ONNX's own operators."""
    first: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            first[schema.name] = min(schema.since_version, first.get(schema.name, schema.since_version))
    return first


def undeclared_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the nodes without a domain whose operator the model's opset does not have."""
    opset = opset_of(model)
    known = {name for name, first in first_opsets().items() if first <= opset}
    known |= {function.name for function in model.functions if function.domain in _DEFAULT_DOMAINS}
    nodes = (node for graph in graphs_of(model) for node in graph.node)
    return [node for node in nodes if node.domain in _DEFAULT_DOMAINS and node.op_type not in known]


_UNKNOWN_DOMAIN = "tvm_ext.unknown"


@contextmanager
def _unknown_operators_apart(model: onnx.ModelProto) -> Iterator[None]:
    """Put nodes whose operator the model's opset does not have into another domain, whose nodes ONNX does not check.

    Some tools write their own operators without a domain. The import refuses them by name, or takes the user's
    `CustomOperator`, like nodes with a domain. Others write operators of a newer opset, such as LayerNormalization
    beside opset 12, and onnxruntime runs them; the import takes the operator's first version.
    """
    unknown = undeclared_nodes(model)
    domains = [node.domain for node in unknown]
    if unknown:
        model.opset_import.add(domain=_UNKNOWN_DOMAIN, version=1)
    for node in unknown:
        node.domain = _UNKNOWN_DOMAIN
    try:
        yield
    finally:
        for node, domain in zip(unknown, domains, strict=True):
            node.domain = domain
        if unknown:
            del model.opset_import[-1]


def _lacks_shape(value: onnx.ValueInfoProto) -> bool:
    return value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")


def _first_lines(text: str) -> str:
    return " ".join(text.split())[:400]


_VARINT, _BYTES = 0, 2
# Bytes of a number, by wire type. A group has none, because its content is walked like other fields.
_NUM_BYTES = {1: 8, 3: 0, 4: 0, 5: 4}
_TENSOR = onnx.TensorProto.DESCRIPTOR.full_name
_TEXT_OF_TENSORS = ("name", "doc_string", "string_data")
# Field number -> the table of a message's own fields, or True for text.
Fields = dict[int, Any]
_LONGEST_VARINT_BITS = 70


def screen_file(path: Path, data: bytes | memoryview, limits: Limits) -> None:
    """Raise UnsupportedModel for a file with too many fields, too much text or weights, BadModel for damage.

    It takes a microsecond for each field, up to the limit of fields, and reads no weights.
    """
    try:
        reason = _excess(data, limits)
    except (IndexError, KeyError, ValueError):
        raise BadModel(f"{path}: is not an ONNX file, or it is truncated; its {len(data)} B do not parse.") from None
    if reason:
        raise UnsupportedModel(f"{path}: is too large: {reason}.")


def _excess(data: bytes | memoryview, limits: Limits) -> str | None:
    """Return why a limit is exceeded, or None. Raises IndexError, KeyError or ValueError for damage."""
    num_fields = text_bytes = payload_bytes = position = 0
    end, known = len(data), _fields_of_model()
    outer: list[tuple[int, Fields]] = []
    while True:
        while position == end:
            reason = limits.excess("text_bytes", text_bytes) or limits.excess("weights_bytes", payload_bytes)
            if reason or not outer:
                return reason
            end, known = outer.pop()
        num_fields += 1
        if num_fields > limits.fields:
            return limits.excess("fields", num_fields)
        key, position = _varint(data, position)
        if key < 8:
            raise ValueError("no field has the number 0")
        kind = key & 7
        if kind == _VARINT:
            _, position = _varint(data, position)
        elif kind == _BYTES:
            length, position = _varint(data, position)
            inner = known.get(key >> 3, True)
            if position + length > end:
                raise ValueError("a field is longer than what it stands in")
            if isinstance(inner, dict):
                outer.append((end, known))
                end, known = position + length, inner
            else:
                text_bytes += length if inner else 0
                payload_bytes += 0 if inner else length
                position += length
        else:
            position += _NUM_BYTES[kind]
        if position > end:
            raise ValueError("a field is longer than what it stands in")


def _varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return a number, and the position after it."""
    byte = data[position]
    position += 1
    if byte < 128:
        return byte, position
    value, shift = byte & 127, 7
    while shift < _LONGEST_VARINT_BITS:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise ValueError("a number has more than ten bytes")


@cache
def _fields_of_model() -> Fields:
    return _fields(onnx.ModelProto.DESCRIPTOR, {})


def _fields(message: Descriptor, known: dict[str, Fields]) -> Fields:
    """Return the table of a message's fields.

    Each kind of message has a single table; False marks numbers of a tensor.
    """
    if message.full_name in known:
        return known[message.full_name]
    table: Fields = known.setdefault(message.full_name, {})
    for field in message.fields:
        if field.message_type is not None:
            table[field.number] = _fields(field.message_type, known)
        else:
            table[field.number] = message.full_name != _TENSOR or field.name in _TEXT_OF_TENSORS
    return table


_TERM = r"[A-Za-z]*(\.\.\.)?[A-Za-z]*"
_EQUATION = re.compile(rf"{_TERM}(,{_TERM})*(->{_TERM})?")
_MOST_AXES = 64


def screen_attributes(path: Path, model: onnx.ModelProto) -> None:
    """Raise BadModel for an impossible value, UnsupportedModel for an equation that a function's caller provides."""
    for node in nodes_of(model):
        for attribute in node.attribute:
            where = f"{path}: node {node.name or node.op_type} ({node.op_type}): {attribute.name}"
            if node.op_type == "Einsum" and attribute.ref_attr_name:
                raise UnsupportedModel(f"{where} is an attribute of the function's: write it out there.")
            if node.op_type == "Einsum" and not _EQUATION.fullmatch(_text(attribute).replace(" ", "")):
                raise BadModel(
                    f"{where} = {_text(attribute)[:100]!r}: letters, commas between terms, one '...' in a term and one "
                    "'->' are what an equation has."
                )
            least = {"axis": -_MOST_AXES, "batch_dims": 0}.get(attribute.name)
            if least is not None and not least <= attribute.i <= _MOST_AXES:
                raise BadModel(f"{where} = {attribute.i}: no tensor has so many axes.")


def _text(attribute: onnx.AttributeProto) -> str:
    return attribute.s.decode("utf-8", errors="backslashreplace")


Range = tuple[int, int]


class Digest(Protocol):
    """A hash of hashlib."""

    def update(self, data: bytes | memoryview, /) -> None: ...


def load_external(path: Path, model: onnx.ModelProto, digest: Digest) -> None:
    """Load external data into the model, and hash it: files by name, bytes in order.

    Files are mapped, so bytes that no tensor names are not read. Raises BadModel.
    """
    files: dict[str, memoryview] = {}
    used: dict[str, list[Range]] = {}
    for tensor in tensors_of(model):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        where = f"{path}: external data of tensor {tensor.name!r}"
        location = entries.get("location", "")
        if location not in files:
            files[location] = _opened(path, location, where)
        begin, end = _range(len(files[location]), entries, num_bytes(tensor, where), where)
        tensor.raw_data = bytes(files[location][begin:end])
        used.setdefault(location, []).append((begin, end))
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    for location in sorted(files):
        digest.update(location.encode() + b"\0")
        for begin, end in _merged(used[location]):
            digest.update(files[location][begin:end])


def _opened(path: Path, location: str, where: str) -> memoryview:
    folder = path.resolve().parent
    parts = Path(location.replace("\\", "/")).parts
    if not parts or Path(location).is_absolute() or ".." in parts or "\0" in location:
        raise BadModel(f"{where} has location {location!r}; only files inside the model's folder are read.")
    file = (folder / location).resolve()
    if not file.is_relative_to(folder):
        raise BadModel(f"{where} has location {location!r}, a link that leaves the model's folder.")
    if not file.is_file():
        raise BadModel(f"{where}: {location!r} is not a file beside the model.")
    return mapped_file(file, kind="a file of weights") if file.stat().st_size else memoryview(b"")


def _range(size: int, entries: dict[str, str], wanted: int, where: str) -> Range:
    """Return the tensor's bytes in a file of `size` bytes."""
    try:
        offset, length = int(entries.get("offset", "0")), int(entries.get("length", str(wanted)))
    except ValueError:
        raise BadModel(f"{where}: offset and length must be whole numbers.") from None
    if length != wanted or offset < 0 or offset + length > size:
        raise BadModel(
            f"{where}: bytes [{offset}, {offset + length}) of a file of {size} B do not hold "
            f"the {wanted} B of the tensor; the file is truncated or belongs to another model."
        )
    return offset, offset + length


def _merged(ranges: Iterable[Range]) -> Sequence[Range]:
    """Return the same bytes, each once, in order."""
    merged: list[Range] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


_FOUR_BIT = (onnx.TensorProto.INT4, onnx.TensorProto.UINT4, onnx.TensorProto.FLOAT4E2M1)


def check_tensors(path: Path, model: onnx.ModelProto, limits: Limits) -> int:
    """Return the bytes of all tensors of a file, each of which, and their sum, has to be within the limits.

    Raises UnsupportedModel, and BadModel for negative dimensions and for unknown types.
    """
    total = 0
    for tensor in tensors_of(model):
        where = f"{path}: tensor {tensor.name!r}"
        if min(tensor.dims, default=0) < 0:
            raise BadModel(f"{where} has a negative dimension.")
        if tensor.data_type == onnx.TensorProto.STRING or not _is_known(tensor):
            continue  # text is counted in the file, and the checker refuses unknown types
        reason = limits.excess_of_tensor(tensor.dims, -(-_num_bits(tensor) // 8))
        if reason:
            raise UnsupportedModel(f"{where} is too large: {reason}.")
        total += num_bytes(tensor, where)
        reason = limits.excess("weights_bytes", total)
        if reason:
            raise UnsupportedModel(f"{where} and those before it are too large: {reason}.")
    return total


def num_bytes(tensor: onnx.TensorProto, where: str) -> int:
    """Return the bytes of a tensor's elements. Raises BadModel where dimensions or element type are invalid."""
    if not _is_known(tensor):
        raise BadModel(f"{where}: element type {tensor.data_type} is unknown.")
    if tensor.data_type == onnx.TensorProto.STRING or min(tensor.dims, default=0) < 0:
        raise BadModel(f"{where}: strings and negative dimensions cannot be external.")
    return -(-math.prod(tensor.dims) * _num_bits(tensor) // 8)


def tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor of a model: initializers and attributes of nodes, also in subgraphs and functions."""
    for graph in graphs_of(model):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in nodes_of(model):
        for attribute in node.attribute:
            yield from [*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors]
            sparse_tensors = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
            for sparse in [*sparse_tensors, *attribute.sparse_tensors]:
                yield from (sparse.values, sparse.indices)


def _is_known(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type in onnx.TensorProto.DataType.values() and tensor.data_type != onnx.TensorProto.UNDEFINED


def _num_bits(tensor: onnx.TensorProto) -> int:
    """Return the bits of an element."""
    if tensor.data_type in _FOUR_BIT:
        return 4
    return onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize * 8


def graphs_of(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Yield the model's graph and all graphs inside nodes, each after the graph that contains it."""
    yield model.graph
    yield from _held_by(model.graph.node)
    for function in model.functions:
        yield from _held_by(function.node)


def nodes_of(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of all graphs and functions."""
    for graph in graphs_of(model):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def _held_by(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    for node in nodes:
        for attribute in node.attribute:
            for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                yield inner
                yield from _held_by(inner.node)
