"""Read an ONNX file that nobody vouched for: screened, then checked by ONNX's own checker."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, EncodeError

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.mapped_file import mapped_file
from tvm_ext.frontends.onnx.external_data import load_external
from tvm_ext.frontends.onnx.screen_attributes import screen_attributes
from tvm_ext.frontends.onnx.screen_file import screen_file
from tvm_ext.frontends.onnx.tensor_sizes import check_tensors

# Limit of protobuf; larger models keep their weights in external files.
_MAX_FILE_BYTES = (1 << 31) - 1
_OLDEST_OPSET = 6


@dataclass(frozen=True, kw_only=True, eq=False)
class OnnxFile:
    """A model with its weights inside, their bytes, and the sha256 of everything it was read from."""

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
    """Version of the operator set the model is written in; 0 when it imports none of that domain."""
    names = ("", "ai.onnx") if domain in ("", "ai.onnx") else (domain,)
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
