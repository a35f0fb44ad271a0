"""A .pt2 archive rebuilt: its JSON from an allow-list, its tensors as bytes, and nothing else of the file.

torch.export.load unpickles sample inputs and custom objects, evaluates symbolic sizes as Python, imports what
specifications of containers name, and looks up operators by any name below `torch`. A model file is not trusted that
far: nothing of it reaches torch but bytes of tensors, and JSON that was checked field by field and written here.
This needs neither torch nor TVM.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.pytorch.allowed_operators import check_sizes_computed, refusals
from tvm_ext.frontends.pytorch.archive_sizes import check_directory, check_json, check_payloads, check_program
from tvm_ext.frontends.pytorch.plain_json import Damaged, NotTaken, Reader, parse_json
from tvm_ext.frontends.pytorch.program_schema import read_payloads, read_program
from tvm_ext.frontends.pytorch.tree_spec import read_tree_spec

_MODEL, _SAMPLES = "models/model.json", "data/sample_inputs/model.pt"
_CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_MARKS = {"archive_format": b"pt2", "archive_version": b"0", "byteorder": b"little"}
_ZIP_VERSION = {".data/version": b"6\n"}
_WAY_OUT = "Export the model without custom operators and control flow."


@dataclass(frozen=True, kw_only=True)
class ScreenedArchive:
    """An archive that torch may load. targets: of the graph's nodes, for `declaration_refusals`."""

    file: io.BytesIO
    targets: frozenset[str]


def screened_archive(path: Path, data: memoryview, limits: Limits) -> ScreenedArchive:
    """Read an archive and rebuild it. Raises BadModel, and UnsupportedModel for pickles and other classes."""
    check_directory(path, data, limits)
    entries = _entries(path, data)
    if _MODEL not in entries:
        if "serialized_exported_program.json" in entries:
            raise BadModel(f"{path}: is in the format of torch before 2.8; export and save it again.")
        raise BadModel(f"{path}: is no exported program: it lacks {_MODEL}. Write one with torch.export.save.")
    for name, expected in _MARKS.items():
        if entries.get(name, expected).strip() != expected:
            raise BadModel(f"{path}: {name} in it is {entries[name][:20]!r}, not {expected!r}.")
    program = _rebuilt(path, entries[_MODEL], _MODEL, read_program, limits)
    check_program(path, program, limits)
    targets = _check_nodes(path, program)
    _check_leaves(path, program)
    kept = {**_MARKS, **_ZIP_VERSION, _MODEL: _written(program), _SAMPLES: b""}
    for config in _CONFIGS:
        folder = config.rsplit("/", 1)[0]
        described = _rebuilt(path, entries.get(config, b"{}"), config, read_payloads, limits)
        check_payloads(path, described, limits)
        kept[config] = _written(described)
        for name in _payloads(path, described):
            if f"{folder}/{name}" not in entries:
                raise BadModel(f"{path}: is truncated or damaged: it lacks {folder}/{name}.")
            kept[f"{folder}/{name}"] = entries[f"{folder}/{name}"]
    return ScreenedArchive(file=_archive(kept), targets=targets)


def refused_operators(path: Path, refused: Mapping[str, str]) -> UnsupportedModel:
    """One error for operators that are not taken, with their reasons."""
    listed = "\n".join(f"  {target[:200]}: {reason}" for target, reason in list(refused.items())[:20])
    return UnsupportedModel(f"{path}: cannot be compiled because of:\n{listed}\n{_WAY_OUT}")


def _entries(path: Path, data: memoryview) -> dict[str, bytes]:
    """File name below the archive's root folder -> bytes. Entries are stored, so together no larger than the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            names = [member.filename for member in members]
            if sum(member.file_size for member in members) > len(data):
                raise BadModel(f"{path}: is no archive that torch.export.save wrote: its entries overlap.")
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise BadModel(f"{path}: is no archive that torch.export.save wrote: its entries are compressed.")
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise BadModel(
                    f"{path}: is no archive that torch.export.save wrote: it has two entries called {twice[:80]!r}."
                )
            if len({name.split("/", 1)[0] for name in names}) > 1:
                raise BadModel(
                    f"{path}: is no archive that torch.export.save wrote: its entries do not lie in one folder."
                )
            return {member.filename.split("/", 1)[-1]: archive.read(member) for member in members}
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise BadModel(f"{path}: is not a .pt2 archive, or it is truncated: {error}.") from None


def _rebuilt(path: Path, data: bytes, name: str, reader: Reader, limits: Limits) -> dict[str, Any]:
    """A JSON file of the archive, read field by field."""
    check_json(path, data, name, limits)
    try:
        return reader(parse_json(data), "$")
    except Damaged as error:
        raise BadModel(f"{path}: {name} in it is damaged: {error}.") from None
    except NotTaken as error:
        raise UnsupportedModel(f"{path}: {name} in it: {error}.") from None


def _payloads(path: Path, config: Mapping[str, Any]) -> Iterator[str]:
    """The raw files that a config names. Raises UnsupportedModel for tensors and objects kept as pickles."""
    for key, meta in config["config"].items():
        file = meta["path_name"]
        if meta["use_pickle"] or meta["tensor_meta"] is None or not file.startswith(("weight_", "tensor_")):
            raise UnsupportedModel(
                f"{path}: {key!r} is kept as a Python object (pickle), which may run code when it is read. "
                "Export the model with plain dense tensors for its weights and constants."
            )
        yield file


def _check_nodes(path: Path, program: Mapping[str, Any]) -> frozenset[str]:
    """Targets of the graph's nodes, all of which may be looked up."""
    nodes = program["graph_module"]["graph"]["nodes"]
    targets = frozenset(node["target"] for node in nodes)
    refused = refusals(targets)
    if refused:
        raise refused_operators(path, refused)
    try:
        check_sizes_computed(nodes)
    except Damaged as error:
        raise BadModel(f"{path}: models/model.json in it is damaged: {error}.") from None
    return targets


def _check_leaves(path: Path, program: Mapping[str, Any]) -> None:
    """The containers of inputs and outputs hold as many values as the graph has."""
    module = program["graph_module"]
    signature, call = module["signature"], module["module_call_graph"][0]["signature"]
    for spec, listed, kinds in (
        ("in_spec", signature["input_specs"], {"user_input", "constant_input"}),
        ("out_spec", signature["output_specs"], {"user_output"}),
    ):
        wanted = sum(bool(kinds & item.keys()) for item in listed)
        found = read_tree_spec(call[spec], spec).num_leaves
        if found != wanted:
            raise BadModel(
                f"{path}: models/model.json in it is damaged: its {spec} holds {found} values, its signature {wanted}."
            )


def _written(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, allow_nan=False).encode()


def _archive(entries: Mapping[str, bytes]) -> io.BytesIO:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            archive.writestr(f"model/{name}", content)
    buffer.seek(0)
    return buffer
