"""Read an ONNX file that nobody vouched for: checked by ONNX's own checker, external weights kept in their folder."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, EncodeError

from tvm_ext.core.errors import BadModel, UnsupportedModel

# What protobuf can hold; larger models keep their weights in external files.
_MAX_FILE_BYTES = (1 << 31) - 1
_OLDEST_OPSET = 6


@dataclass(frozen=True, kw_only=True, eq=False)
class OnnxFile:
    """A model with its weights inside, and the sha256 of everything it was read from."""

    model: onnx.ModelProto
    sha256: str


def read_onnx(path: Path) -> OnnxFile:
    """Read and check `path`. Raises BadModel, and UnsupportedModel for operator sets older than 6."""
    data = _read_bytes(path)
    model = _parse(path, data)
    digest = hashlib.sha256(data)
    for file, content in _load_external(path, model).items():
        digest.update(file.encode() + b"\0" + content)
    _check(path, model)
    return OnnxFile(model=model, sha256=digest.hexdigest())


def opset_of(model: onnx.ModelProto, domain: str = "") -> int:
    """Version of the operator set the model is written in; 0 when it imports none of that domain."""
    names = ("", "ai.onnx") if domain in ("", "ai.onnx") else (domain,)
    return max((entry.version for entry in model.opset_import if entry.domain in names), default=0)


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise BadModel(f"{path}: is a directory; give the path of an .onnx file.")
    try:
        size = path.stat().st_size
        if size > _MAX_FILE_BYTES:
            raise BadModel(
                f"{path}: {size} B is more than the {_MAX_FILE_BYTES} B an ONNX file can have; "
                "save the weights as external data."
            )
        data = path.read_bytes()
    except OSError as error:
        raise BadModel(f"{path}: cannot be read: {error.strerror}.") from None
    if not data:
        raise BadModel(f"{path}: is empty (0 B).")
    return data


def _parse(path: Path, data: bytes) -> onnx.ModelProto:
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
    # The checker wants shapes of all inputs and outputs; outputs are inferred here, and inputs asked for by name.
    shapeless = [value for value in [*model.graph.input, *model.graph.output] if _lacks_shape(value)]
    for value in shapeless:
        value.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise BadModel(f"{path}: ONNX's checker refuses it: {_first_lines(str(error))}") from None
    except (ValueError, EncodeError) as error:
        raise BadModel(f"{path}: cannot be checked as one message: {_first_lines(str(error))}") from None
    for value in shapeless:
        value.type.tensor_type.ClearField("shape")


def _lacks_shape(value: onnx.ValueInfoProto) -> bool:
    return value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")


def _first_lines(text: str) -> str:
    return " ".join(text.split())[:400]


def _load_external(path: Path, model: onnx.ModelProto) -> dict[str, bytes]:
    """Move external data into the model; the files read, by their names in the model, sorted."""
    files: dict[str, bytes] = {}
    for tensor in _tensors(model.graph, model.functions):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        where = f"{path}: external data of tensor {tensor.name!r}"
        location = entries.get("location", "")
        if location not in files:
            files[location] = _read_external(path, location, where)
        tensor.raw_data = _slice_of(files[location], entries, _num_bytes(tensor, where), where)
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    return dict(sorted(files.items()))


def _read_external(path: Path, location: str, where: str) -> bytes:
    folder = path.resolve().parent
    parts = Path(location.replace("\\", "/")).parts
    if not parts or Path(location).is_absolute() or ".." in parts or "\0" in location:
        raise BadModel(f"{where} has location {location!r}; only files inside the model's folder are read.")
    file = (folder / location).resolve()
    if not file.is_relative_to(folder):
        raise BadModel(f"{where} has location {location!r}, a link that leaves the model's folder.")
    if not file.is_file():
        raise BadModel(f"{where}: {location!r} is not a file beside the model.")
    try:
        return file.read_bytes()
    except OSError as error:
        raise BadModel(f"{where}: {location!r} cannot be read: {error.strerror}.") from None


def _slice_of(content: bytes, entries: dict[str, str], num_bytes: int, where: str) -> bytes:
    try:
        offset, length = int(entries.get("offset", "0")), int(entries.get("length", str(num_bytes)))
    except ValueError:
        raise BadModel(f"{where}: offset and length must be whole numbers.") from None
    if length != num_bytes or offset < 0 or offset + length > len(content):
        raise BadModel(
            f"{where}: bytes [{offset}, {offset + length}) of a file of {len(content)} B do not hold "
            f"the {num_bytes} B of the tensor; the file is truncated or belongs to another model."
        )
    return content[offset : offset + length]


def _num_bytes(tensor: onnx.TensorProto, where: str) -> int:
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except KeyError:
        raise BadModel(f"{where}: element type {tensor.data_type} is unknown.") from None
    if dtype.kind == "O" or min(tensor.dims, default=0) < 0:
        raise BadModel(f"{where}: strings and negative dimensions cannot be external.")
    four_bit = tensor.data_type in (onnx.TensorProto.INT4, onnx.TensorProto.UINT4, onnx.TensorProto.FLOAT4E2M1)
    count = math.prod(tensor.dims)
    return (count + 1) // 2 if four_bit else count * dtype.itemsize


def _tensors(graph: onnx.GraphProto, functions: Iterable[onnx.FunctionProto] = ()) -> Iterator[onnx.TensorProto]:
    """Every tensor of a graph: initializers, attributes of nodes, those of subgraphs and functions."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in [*graph.node, *(node for function in functions for node in function.node)]:
        for attribute in node.attribute:
            yield from [attribute.t, *attribute.tensors]
            for sparse in [attribute.sparse_tensor, *attribute.sparse_tensors]:
                yield from (sparse.values, sparse.indices)
            for inner in [attribute.g, *attribute.graphs]:
                yield from _tensors(inner)
