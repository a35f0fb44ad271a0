"""Store models from memory as files, so that they are screened, read and run by reference runtimes like other files.

The library of a format writes the same bytes that it would write to disk. The files lie in a folder of this process,
named by their content, until the process ends, because a reference runtime reads them again for verification.
"""

from __future__ import annotations

import hashlib
import io
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tvm_ext.core.errors import BadModel, BadOptions
from tvm_ext.core.files.staging import staged
from tvm_ext.core.memory_exhausted import check_memory
from tvm_ext.frontends.quiet import quiet

_FOLDER = TemporaryDirectory(prefix="tvm_ext_models_")
_MLIR = re.compile(rb'\s*(?:module\b|func\.func\b|"builtin\.module"|//|[#!]\w+ *=)')
_MOST_PROTO_BYTES = (1 << 31) - 1

TAKEN = (
    "the path of an .onnx, .tflite, .tosa, .mlir or .pt2 file (str or os.PathLike), its bytes, an onnx.ModelProto, a "
    "torch.export.ExportedProgram, a torch.nn.Module with example_inputs, or a Relax IRModule"
)
"""Sources of models, as errors list them."""


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """A model from memory as a file.

    said: the source, as errors and the module's own record name it.
    """

    path: Path
    said: str


def file_in_memory(source: object, example_inputs: Sequence[object] | object | None) -> ModelFile:
    """Return a file that holds the model.

    example_inputs: for a torch.nn.Module, arrays or tensors in order, or a single one.
    Raises BadModel for objects that are no model and for models that cannot be exported or written, and BadOptions
    where example inputs are missing or not needed.
    """
    onnx, torch = sys.modules.get("onnx"), sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.nn.Module):
        program = _exported(torch, source, example_inputs)
        return _file(_archive(torch, program), ".pt2", f"the module {type(source).__name__}")
    if example_inputs is not None:
        raise BadOptions(
            f"example_inputs: a torch.nn.Module is exported with them; a model {_told(source)} needs none."
        )
    if torch is not None and isinstance(source, torch.export.ExportedProgram):
        return _file(_archive(torch, source), ".pt2", "the ExportedProgram given")
    if onnx is not None and isinstance(source, onnx.ModelProto):
        return _file(_serialized(source), ".onnx", "the ModelProto given")
    if isinstance(source, bytes | bytearray | memoryview):
        data = bytes(source)
        return _file(data, _suffix(data), f"the {len(data)} bytes given")
    raise BadModel(f"a model is {_told(source)}; {TAKEN} is needed.")


def kept_file(sha256: str) -> Path | None:
    """Return the file of a model that was passed in memory, while this process runs."""
    folder = Path(_FOLDER.name) / sha256
    return next(iter(sorted(folder.glob("model.*"))), None) if sha256.isalnum() else None


def _file(data: bytes, suffix: str, said: str) -> ModelFile:
    folder = Path(_FOLDER.name) / hashlib.sha256(data).hexdigest()
    path = folder / f"model{suffix}"
    if not path.exists():
        folder.mkdir(exist_ok=True)
        with staged(folder, path.name) as staging:
            (staging / "new").write_bytes(data)
            (staging / "new").replace(path)
    return ModelFile(path=path, said=said)


def _suffix(data: bytes) -> str:
    """Return the format of a file's bytes.

    Flatbuffers and zip archives have marks; protobuf, which ONNX uses, has none.
    """
    if not data:
        raise BadModel("the bytes given are empty (0 B); give those of an .onnx, .tflite, .tosa, .mlir or .pt2 file.")
    if data[4:8] == b"TFL3":
        return ".tflite"
    if data[4:8] == b"TOSA":
        return ".tosa"
    if data[:4] == b"PK\x03\x04":
        return ".pt2"
    if _MLIR.match(data):
        return ".mlir"
    if data[0] >> 3 in range(1, 26) and data[0] & 7 in (0, 2):  # a plausible first field of ModelProto
        return ".onnx"
    raise BadModel(
        f"the {len(data)} bytes given begin with {data[:8].hex(' ')}: that is neither ONNX, nor TensorFlow Lite (TFL3 "
        "at byte 4), nor TOSA (TOSA at byte 4, or MLIR text), nor a .pt2 archive (PK)."
    )


def _serialized(model: Any) -> bytes:
    size = model.ByteSize()
    if size > _MOST_PROTO_BYTES:
        raise BadModel(f"the ModelProto given has {size} B, and protobuf writes {_MOST_PROTO_BYTES} at most; save it "
                       "as a file with external data, and give its path.")  # fmt: skip
    return model.SerializeToString(deterministic=True)


def _archive(torch: Any, program: Any) -> bytes:
    buffer = io.BytesIO()
    try:
        with quiet():
            torch.export.save(program, buffer)
    except Exception as error:  # torch may raise anything for operators that it cannot write
        check_memory(error)
        raise BadModel(f"the ExportedProgram given cannot be saved by torch.export.save: {_line(error)}") from None
    return buffer.getvalue()


def _exported(torch: Any, module: Any, example_inputs: Sequence[object] | object | None) -> Any:
    name = type(module).__name__
    if hasattr(example_inputs, "shape"):  # a single array or tensor
        example_inputs = (example_inputs,)
    if not isinstance(example_inputs, list | tuple) or not example_inputs:
        raise BadOptions(
            f"example_inputs: {name} is a torch.nn.Module, which has no shapes of its own; give a tuple of arrays or "
            "tensors, one per argument of forward: load(module, example_inputs=(x,))."
        )
    if module.training:
        raise BadModel(
            f"{name} is in training mode, in which dropout and batch norm compute other results than in inference. "
            "Call module.eval() before."
        )
    given = tuple(one if isinstance(one, torch.Tensor) else torch.from_numpy(np.array(one)) for one in example_inputs)
    try:
        with quiet():
            return torch.export.export(module, given)
    except Exception as error:  # the module's own code may raise anything
        check_memory(error)
        shapes = ", ".join(f"{str(one.dtype).removeprefix('torch.')}{list(one.shape)}" for one in given)
        raise BadModel(f"{name} cannot be exported by torch.export on ({shapes}): {_line(error)}") from None


def _line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines or ['no more is said'])[0][:300]}"


def _told(source: object) -> str:
    kind = type(source)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    return "None" if source is None else f"of type {name}"
