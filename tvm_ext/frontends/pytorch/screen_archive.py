"""Screen of a .pt2 archive, which passes only what cannot run code: tensors as bytes, and a graph of ATen operators.

torch.export.load unpickles sample inputs and custom objects, evaluates symbolic sizes as Python, and looks up
operators by any name below `torch`. A model file is not trusted that far: here it is read as a zip of JSON and raw
bytes, judged, and written anew without what the graph does not need.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.pytorch.archive_sizes import check_directory, check_json, check_payloads, check_program

_MODEL, _SAMPLES = "models/model.json", "data/sample_inputs/model.pt"
_CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_MARKS = ("archive_format", "archive_version", "byteorder", ".data/version")
# torch.ops.aten.from_file maps a file of the machine into a tensor.
_TARGET = re.compile(
    r"torch\.ops\.aten\.(?!from_file)\w+\.\w+|_operator\.\w+|math\.\w+|torch\.sym_\w+|"
    r"torch\.ops\.quantized_decomposed\.(?:de)?quantize_per_(?:tensor\.(?:default|tensor)|channel\.default)"
)
_DYNAMIC = re.compile(r"torch\.ops\.quantized_decomposed\.(?:choose_qparams|\w+_per_token)")
_SPEC_TYPE = re.compile(r'"type": *"((?:[^"\\]|\\.)*)"')
_CONTAINERS = frozenset(f"builtins.{name}" for name in ("tuple", "list", "dict"))
# Symbolic sizes: numbers, symbols, arithmetic; no attribute, index, string or call beyond these.
_EXPRESSION = re.compile(r"(?:[\s(),=+\-*/<>']|\d+(?:\.\d+)?|[A-Za-z]\w*)*")
_WORDS = frozenset(
    "Symbol Integer Float Rational Add Mul Pow Mod PythonMod FloorDiv CeilDiv CleanDiv Max Min True False "
    "positive nonnegative integer evaluate Eq Ne Lt Le Gt Ge And Or Not".split()
)
_SYMBOL = re.compile(r"[suz]\d+")


def screened_archive(path: Path, data: memoryview, limits: Limits) -> io.BytesIO:
    """The archive without pickles and extra files. Raises BadModel; UnsupportedModel for what would need them."""
    check_directory(path, data, limits)
    entries = _entries(path, data)
    if _MODEL not in entries:
        if "serialized_exported_program.json" in entries:
            raise BadModel(f"{path}: is in the format of torch before 2.8; export and save it again.")
        raise BadModel(f"{path}: is no exported program: it lacks {_MODEL}. Write one with torch.export.save.")
    program = _json(path, entries[_MODEL], _MODEL, limits)
    check_program(path, program, limits)
    _check_program(path, program)
    kept = {name: entries[name] for name in (*_MARKS, *_CONFIGS) if name in entries}
    kept[_MODEL] = json.dumps(program | {"guards_code": []}).encode()
    kept[_SAMPLES] = b""
    for config in _CONFIGS:
        folder = config.rsplit("/", 1)[0]
        described = _json(path, entries.get(config, b"{}"), config, limits)
        check_payloads(path, described, limits)
        for name in _payloads(path, described, config):
            if f"{folder}/{name}" not in entries:
                raise BadModel(f"{path}: is truncated or damaged: it lacks {folder}/{name}.")
            kept[f"{folder}/{name}"] = entries[f"{folder}/{name}"]
    return _archive(kept)


def _entries(path: Path, data: memoryview) -> dict[str, bytes]:
    """File name below the archive's root folder -> bytes. Entries are stored, so together no larger than the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > len(data):
                raise BadModel(f"{path}: is no archive that torch.export.save wrote: its entries overlap.")
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise BadModel(f"{path}: is no archive that torch.export.save wrote: its entries are compressed.")
            return {member.filename.split("/", 1)[-1]: archive.read(member) for member in members}
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise BadModel(f"{path}: is not a .pt2 archive, or it is truncated: {error}.") from None


def _json(path: Path, data: bytes, name: str, limits: Limits) -> dict[str, Any]:
    check_json(path, data, name, limits)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadModel(f"{path}: {name} in it is damaged: {error}.") from None
    if not isinstance(value, dict):
        raise BadModel(f"{path}: {name} in it is damaged: it is no object.")
    return value


def _payloads(path: Path, config: dict[str, Any], name: str) -> Iterator[str]:
    """The raw files that a config names. Raises UnsupportedModel for tensors and objects kept as pickles."""
    listed = config.get("config", {})
    if not isinstance(listed, dict) or not all(isinstance(meta, dict) for meta in listed.values()):
        raise BadModel(f"{path}: {name} in it is damaged.")
    for key, meta in listed.items():
        file = meta.get("path_name")
        if not isinstance(file, str) or "/" in file:
            raise BadModel(f"{path}: {name} in it is damaged: {key!r} has no file.")
        if meta.get("use_pickle") or not file.startswith(("weight_", "tensor_")):
            raise UnsupportedModel(
                f"{path}: {key!r} is kept as a Python object (pickle), which may run code when it is read. "
                "Export the model with plain dense tensors for its weights and constants."
            )
        yield file


def _check_program(path: Path, program: dict[str, Any]) -> None:
    targets = {text for key, text in _strings(program, "") if key == "target"}
    refused = sorted(target for target in targets if not _TARGET.fullmatch(target))
    if refused:
        listed = "\n".join(f"  {target}: {_reason(target)}" for target in refused[:20])
        way_out = "Export the model without custom operators and control flow."
        raise UnsupportedModel(f"{path}: cannot be compiled because of:\n{listed}\n{way_out}")
    for key, text in _strings(program, ""):
        if key == "expr_str" and not _is_plain(text):
            raise BadModel(f"{path}: a symbolic size is no arithmetic expression: {text[:80]!r}.")
        if key in ("in_spec", "out_spec") and not set(_SPEC_TYPE.findall(text)) <= _CONTAINERS:
            raise UnsupportedModel(f"{path}: takes or returns containers other than tuple, list and dict.")


def _reason(target: str) -> str:
    if _DYNAMIC.match(target):
        return "scales that each input decides (dynamic quantization) are not compiled; quantize statically"
    if "quantized_decomposed" in target or target.startswith("torch.ops.torchao."):
        return "of quantized operators, those of a scale for each tensor or channel can be compiled"
    return "only operators of ATen can be compiled"


def _strings(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Every string of a JSON value, with the key it stands under."""
    pending = [(key, value)]
    while pending:
        name, item = pending.pop()
        if isinstance(item, dict):
            pending += item.items()
        elif isinstance(item, list):
            pending += [(name, element) for element in item]
        elif isinstance(item, str):
            yield name, item


def _is_plain(expression: str) -> bool:
    words = re.findall(r"[A-Za-z]\w*", expression)
    return bool(_EXPRESSION.fullmatch(expression)) and all(w in _WORDS or _SYMBOL.fullmatch(w) for w in words)


def _archive(entries: dict[str, bytes]) -> io.BytesIO:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            archive.writestr(f"model/{name}", content)
    buffer.seek(0)
    return buffer
