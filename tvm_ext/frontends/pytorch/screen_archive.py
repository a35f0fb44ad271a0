"""Rebuild a .pt2 archive from an allow-list of operators, sizes, JSON and tensors.

torch.export.load unpickles sample inputs and custom objects, evaluates symbolic sizes as Python, imports what
specifications of containers name, and looks up operators by any name below `torch`. A model file is not trusted that
far. Only bytes of tensors reach torch, and JSON that was checked field by field and written here. This file needs
neither torch nor TVM.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.pytorch.inlined_branches import with_inlined_branches
from tvm_ext.frontends.pytorch.plain_json import Damaged, NotTaken, Reader, parse_json
from tvm_ext.frontends.pytorch.program_schema import ELEMENT_BYTES, read_payloads, read_program, read_tree_spec
from tvm_ext.frontends.pytorch.symbolic_sizes import (
    MOST_BITS,
    SYMBOL_BITS,
    bits_of_constant,
    bits_of_power,
    bits_of_sum,
)

_MODEL, _SAMPLES = "models/model.json", "data/sample_inputs/model.pt"
_CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_MARKS = {"archive_format": b"pt2", "archive_version": b"0", "byteorder": b"little"}
_ZIP_VERSION = {".data/version": b"6\n"}
_WAY_OUT = "Export the model without custom operators and control flow."


@dataclass(frozen=True, kw_only=True)
class ScreenedArchive:
    """An archive that torch may load.

    targets: of the graph's nodes, for `declaration_refusals`.
    """

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
    program = _rebuilt(
        path, entries[_MODEL], _MODEL, lambda value, where: with_inlined_branches(read_program(value, where)), limits
    )
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
    """Return a single error for refused operators, with their reasons."""
    listed = "\n".join(f"  {target[:200]}: {reason}" for target, reason in list(refused.items())[:20])
    return UnsupportedModel(f"{path}: cannot be compiled because of:\n{listed}\n{_WAY_OUT}")


def _entries(path: Path, data: memoryview) -> dict[str, bytes]:
    """Return bytes by file name below the archive's root folder.

    Entries are stored uncompressed, so together they are no larger than the file.
    """
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
    """Return a JSON file of the archive, read field by field."""
    check_json(path, data, name, limits)
    try:
        return reader(parse_json(data), "$")
    except Damaged as error:
        raise BadModel(f"{path}: {name} in it is damaged: {error}.") from None
    except NotTaken as error:
        raise UnsupportedModel(f"{path}: {name} in it: {error}.") from None


def _payloads(path: Path, config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the raw files that a config names. Raises UnsupportedModel for tensors and objects kept as pickles."""
    for key, meta in config["config"].items():
        file = meta["path_name"]
        if meta["use_pickle"] or meta["tensor_meta"] is None or not file.startswith(("weight_", "tensor_")):
            raise UnsupportedModel(
                f"{path}: {key!r} is kept as a Python object (pickle), which may run code when it is read. "
                "Export the model with plain dense tensors for its weights and constants."
            )
        yield file


def _check_nodes(path: Path, program: Mapping[str, Any]) -> frozenset[str]:
    """Return the targets of the graph's nodes, all of which may be looked up."""
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
    """Check that the containers of inputs and outputs hold as many values as the graph has."""
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


_ATEN = re.compile(
    r"torch\.ops\.aten\.(?:(?!from_file\.|save\.)(?!__)[A-Za-z_]\w*|__i?(?:and|or|xor|lshift|rshift)__)\.(?!__)\w+"
)
_QUANTIZED = re.compile(
    r"torch\.ops\.quantized_decomposed\."
    r"(?:(?:de)?quantize_per_tensor\.(?:default|tensor)|(?:de)?quantize_per_channel\.default)"
)
_DYNAMIC = re.compile(r"torch\.ops\.quantized_decomposed\.(?:choose_qparams|\w+_per_token)")
_LARGEST = (*(f"_operator.{name}" for name in "eq ne le ge lt gt neg pos floordiv mod and_ or_".split()),
            *(f"math.{name}" for name in "trunc floor ceil".split()),
            *(f"torch.sym_{name}" for name in "not int float ite max min sqrt".split()))  # fmt: skip
_SYMBOLIC = frozenset((*_LARGEST, *(f"_operator.{name}" for name in "add sub mul truediv pow".split())))
# What ATen computes from sizes and from the content of a tensor. The number of elements is a product of sizes.
_ATEN_NUMBERS = re.compile(r"(?:sym_(?:size|stride|numel|storage_offset|is_contiguous)|item|_local_scalar_dense)\.\w+")
_ATEN_CHECKS = re.compile(r"(?:_assert_(?:scalar|async|tensor_metadata)|sym_constrain_range(?:_for_size)?)\.\w+")
_NUMEL_BITS = 16 * SYMBOL_BITS
# Strings that choose a form of an operator. Other strings are texts, or names of files.
_CHOICES = frozenset(
    "activation approximate assert_msg driver equation indexing interpolation mode norm ord p pad_mode padding "
    "padding_side reduce rounding_mode side UPLO".split()
)
_TYPE = re.compile(r"(?:List\[|Optional\[)*(?:Tensor|int|bool|float|number|complex|str|Device|Generator)\]*")


def refusals(targets: Collection[str]) -> dict[str, str]:
    """Return the targets whose names are refused, with the reason, in order."""
    return {
        target: _reason(target)
        for target in sorted(targets)
        if not (target in _SYMBOLIC or _ATEN.fullmatch(target) or _QUANTIZED.fullmatch(target))
    }


def _reason(target: str) -> str:
    if _DYNAMIC.match(target):
        return "scales that each input decides (dynamic quantization) are not compiled; quantize statically"
    if "quantized_decomposed" in target or target.startswith("torch.ops.torchao."):
        return "of quantized operators, those of a scale for each tensor or channel can be compiled"
    return "only operators of ATen can be compiled"


def declaration_refusals(torch: Any, targets: Collection[str]) -> dict[str, str]:
    """Return targets of ATen that this torch lacks, or that do more than compute tensors from tensors and numbers."""
    found = {}
    for target in sorted(target for target in targets if _ATEN.fullmatch(target)):
        name, overload = target.removeprefix("torch.ops.aten.").split(".")
        packet = getattr(torch.ops.aten, name, None)
        operator = getattr(packet, overload, None) if isinstance(packet, torch._ops.OpOverloadPacket) else None
        if not isinstance(operator, torch._ops.OpOverload):
            found[target] = f"torch {torch.__version__} has no such operator"
        elif not _is_plain(f"{name}.{overload}", operator._schema):
            found[target] = "only operators of ATen can be compiled that compute tensors from tensors and numbers"
    return found


def _is_plain(name: str, schema: Any) -> bool:
    arguments = [(argument.name, str(argument.type)) for argument in schema.arguments]
    returned = [str(result.type) for result in schema.returns]
    if any(not _TYPE.fullmatch(kind) or ("str" in kind and label not in _CHOICES) for label, kind in arguments):
        return False
    if _ATEN_NUMBERS.fullmatch(name) or _ATEN_CHECKS.fullmatch(name):
        return True
    return bool(returned) and all(kind in ("Tensor", "List[Tensor]") for kind in returned)


def check_sizes_computed(nodes: Sequence[Mapping[str, Any]]) -> None:
    """Bound the numbers that a graph computes from sizes, which Python computes without limit. Raises Damaged."""
    bits: dict[str, int] = {}
    for at, node in enumerate(nodes):
        target, where = node["target"], f"graph_module.graph.nodes[{at}]"
        if target in _SYMBOLIC:
            found = _bits(target, [argument["arg"] for argument in node["inputs"]], bits, where)
            if found > MOST_BITS:
                raise Damaged(f"{where}: a size may take {found} bits, more than {MOST_BITS}")
        else:
            found = _NUMEL_BITS if "numel" in target or "item" in target else SYMBOL_BITS
        for output in node["outputs"]:
            for value in output.values():
                if isinstance(value, dict) and "as_name" in value:
                    bits[value["as_name"]] = found


def _bits(target: str, arguments: Sequence[Mapping[str, Any]], known: Mapping[str, int], where: str) -> int:
    """Return the bits of a result that Python computes from numbers and symbols."""
    values = [_number(argument, where) for argument in arguments]
    if not values:
        raise Damaged(f"{where}: {target} has no arguments")
    given = [known.get(value, SYMBOL_BITS) if isinstance(value, str) else bits_of_constant(value) for value in values]
    if target == "_operator.pow":
        exponent = values[-1]
        if len(values) != 2 or not isinstance(exponent, int):
            raise Damaged(f"{where}: the exponent of a size is no whole number")
        return bits_of_power(given[0], exponent, where)
    if target in ("_operator.add", "_operator.sub"):
        return bits_of_sum(given)
    return sum(given) if target in ("_operator.mul", "_operator.truediv") else max(given)


def _number(argument: Mapping[str, Any], where: str) -> int | float | str:
    """Return a number, or the name of a symbolic number. Raises Damaged for anything else."""
    ((kind, value),) = argument.items()
    if kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
        ((kind, value),) = value.items()
    if kind == "as_name" or kind in ("as_int", "as_float", "as_bool"):
        return value
    raise Damaged(f"{where}: arithmetic on sizes takes numbers, not {kind}")


_END, _END_64 = b"PK\x05\x06", b"PK\x06\x06"
_LONGEST_END_BYTES = 22 + 65535 + 20 + 56
# An entry becomes an object of some hundred bytes, and takes 46 bytes in the file.
_MOST_DIRECTORY_BYTES = 4 << 20


def check_directory(path: Path, data: memoryview, limits: Limits) -> None:
    """Check the archive's own size, and the size of its directory. Raises BadModel, UnsupportedModel."""
    reason = limits.excess("weights_bytes", len(data) - limits.text_bytes)
    if reason:
        raise UnsupportedModel(f"{path}: of its {len(data)} B, {reason}.")
    tail = bytes(data[-_LONGEST_END_BYTES:])
    end, end_64 = tail.rfind(_END), tail.rfind(_END_64)
    num_bytes = int.from_bytes(tail[end + 12 : end + 16], "little") if end >= 0 else 0
    if end_64 >= 0:
        num_bytes = max(num_bytes % 0xFFFFFFFF, int.from_bytes(tail[end_64 + 40 : end_64 + 48], "little"))
    if num_bytes > _MOST_DIRECTORY_BYTES:
        raise BadModel(f"{path}: is no archive that torch.export.save wrote: {num_bytes} B list its entries.")


def check_json(path: Path, data: bytes, name: str, limits: Limits) -> None:
    """Check a file of the archive by its length and its number of values. Raises UnsupportedModel."""
    values = data.count(b",") + data.count(b"{") + data.count(b"[")
    reason = limits.excess("text_bytes", len(data)) or limits.excess("fields", values)
    if reason:
        raise UnsupportedModel(f"{path}: {name} in it: {reason}.")


def check_program(path: Path, program: object, limits: Limits) -> None:
    """Check the nodes of the graph and the tensors that they compute. Raises UnsupportedModel."""
    graph = _object(_object(program, "graph_module"), "graph")
    nodes = graph.get("nodes")
    reason = limits.excess("nodes", len(nodes)) if isinstance(nodes, list) else None
    if reason:
        raise UnsupportedModel(f"{path}: its nodes: {reason}.")
    for name, meta in _object(graph, "tensor_values").items():
        _check_tensor(path, name, meta, limits)


def check_payloads(path: Path, configs: object, limits: Limits) -> None:
    """Check weights and constants as their configs describe them; a file may hold several. Raises UnsupportedModel."""
    total = 0
    for name, entry in _object(configs, "config").items():
        total += _check_tensor(path, name, _object(entry, "tensor_meta"), limits)
        reason = limits.excess("weights_bytes", total)
        if reason:
            raise UnsupportedModel(f"{path}: tensor {name!r} and those before it: {reason}.")


def _check_tensor(path: Path, name: str, meta: Any, limits: Limits) -> int:
    """Return the bytes of a tensor by its sizes. Symbols count as 1 here, and are checked when they are fixed."""
    sizes = list(_sizes(meta))
    element_bytes = ELEMENT_BYTES.get(_fields(meta).get("dtype", 0), 16)
    reason = limits.excess_of_tensor(sizes, element_bytes)
    if reason:
        raise UnsupportedModel(f"{path}: tensor {name!r} is too large: {reason}.")
    count = 1
    for size in sizes:
        count *= size
    return count * element_bytes


def _sizes(meta: Any) -> Iterator[int]:
    listed = _fields(meta).get("sizes")
    for size in listed if isinstance(listed, list) else []:
        number = size.get("as_int") if isinstance(size, dict) else None
        yield number if isinstance(number, int) and number >= 0 else 1


def _object(value: object, key: str) -> dict[str, Any]:
    """Return a field that should be an object, or an empty object, which torch then rejects."""
    return _fields(_fields(value).get(key))


def _fields(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
