"""Load a model: a file or a Relax module in, one static Relax function with its weights and names out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import tvm

from relay_passes.dataflow import bindings, op_name, operands
from tvm_ext.core.errors import BadModel
from tvm_ext.core.files.read_file import check_file
from tvm_ext.core.limits import Limits
from tvm_ext.core.model_nodes import ModelNode, nodes_to_json
from tvm_ext.core.model_states import STATES, states_to_json
from tvm_ext.frontends.loaded import Loaded
from tvm_ext.frontends.model_name import model_name
from tvm_ext.frontends.onnx.load_onnx import load_onnx
from tvm_ext.frontends.pair_states import Initial, Pairs, with_states
from tvm_ext.frontends.pytorch.load_torch import load_torch
from tvm_ext.frontends.relax_module import load_relax
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.frontends.tflite.load_tflite import load_tflite
from tvm_ext.verification.input_ranges import DEMANDS

__all__ = ["Limits", "ModelNotice", "load"]

Shapes = Mapping[str, Sequence[int]]

Reader = Callable[[Path, Shapes | None, Limits], Loaded]

_LIMITS = "tvm_ext.limits"
_READERS: dict[str, tuple[str, Reader]] = {
    ".onnx": ("onnx", load_onnx),
    ".tflite": ("tflite", load_tflite),
    ".pt2": ("torch", load_torch),
}


def load(
    source: str | Path | tvm.IRModule,
    *,
    shapes: Shapes | None = None,
    limits: Limits | None = None,
    states: Pairs | None = None,
    initial: Initial | None = None,
) -> tvm.IRModule:
    """A module whose `main` is one pure dataflow block: weights constants, every shape static.

    source: path of an .onnx, .tflite or .pt2 file, or a Relax module with a function `main`.
    shapes: shapes of inputs by name, for those with symbolic dimensions; the rest become 1, with a ModelNotice.
    limits: sizes beyond which a model is refused; None means the defaults, or those a module was loaded with before.
    states: input -> output that the next run finds in that input; they become states, and are no inputs and outputs any
    more. None takes those of a file whose names and shapes leave no doubt, with a ModelNotice; an empty mapping, none.
    initial: values that these states begin with, by input; zeros where nothing is said.

    Variables have the names of the model's tensors; the span of each call names the model's node. Module
    attributes, all strings: tvm_ext.source_path (empty for a module), source_format (`onnx`, `tflite`,
    `torch`, `relax`), source_sha256, model_name (a C prefix), rounding (what quantized arithmetic means: `onnx`,
    `tflite`), nodes (the model's operators, as `nodes_to_json` writes them), input_names and output_names (JSON lists,
    in order), limits (JSON, where not the defaults), input_demands (JSON, where operators of the file demand ranges of
    inputs), states (JSON, where there are any, see `tvm_ext.core.model_states`). A module that `load` made before keeps
    all but input_names, and output_names while there are as many outputs.

    Raises BadModel for what cannot be read, UnsupportedModel for what cannot be compiled, BadOptions for `shapes`
    that do not fit the model.
    """
    if isinstance(source, tvm.IRModule):
        known = limits or limits_of({str(key): str(value) for key, value in (source.attrs or {}).items()})
        loaded = with_states(load_relax(source, shapes, known), states or {}, initial)
        return _with_attributes(loaded, known, path="", source_format="relax", name="model")
    path = Path(source)
    source_format, reader = _reader(path)
    chosen = limits or Limits()
    loaded = with_states(reader(path, shapes, chosen), states, initial)
    return _with_attributes(loaded, chosen, path=str(path), source_format=source_format, name=model_name(path.stem))


def limits_of(attributes: Mapping[str, str]) -> Limits:
    """The limits that a module was loaded with, by its attributes."""
    return Limits.from_json(attributes.get(_LIMITS, "{}"))


def _reader(path: Path) -> tuple[str, Reader]:
    try:
        check_file(path)
    except FileNotFoundError:
        raise BadModel(f"{path}: no such file.") from None
    except IsADirectoryError:
        raise BadModel(f"{path}: is a directory; give the path of a {path.suffix or 'model'} file.") from None
    except OSError as error:
        raise BadModel(f"{path}: cannot be read: {error.strerror}.") from None
    if path.suffix.lower() not in _READERS:
        raise BadModel(f"{path}: formats are known by their suffix; {', '.join(_READERS)} can be read.")
    return _READERS[path.suffix.lower()]


def _nodes(mod: tvm.IRModule) -> list[ModelNode]:
    """The calls of a module as a model's operators; those of one node of the model are one."""
    found: dict[str, ModelNode] = {}
    for binding in bindings(mod["main"]):
        name, span = op_name(binding.value), binding.value.span
        read = tuple(leaf.name for leaf in operands(binding.value) if isinstance(leaf, tvm.relax.Var))
        label = span.source_name.name if span is not None else binding.var.name
        before = found.get(label)
        found[label] = ModelNode(
            name=label,
            operator=before.operator if before else (name or "view").removeprefix("relax."),
            inputs=(*(before.inputs if before else ()), *read),
            outputs=(*(before.outputs if before else ()), binding.var.name),
        )
    return list(found.values())


def _with_attributes(loaded: Loaded, limits: Limits, *, path: str, source_format: str, name: str) -> tvm.IRModule:
    origin = {
        "tvm_ext.source_path": path,
        "tvm_ext.source_format": source_format,
        "tvm_ext.source_sha256": loaded.sha256,
        "tvm_ext.model_name": name,
        "tvm_ext.rounding": loaded.rounding,
        "tvm_ext.nodes": nodes_to_json(loaded.nodes or _nodes(loaded.mod)),
    }
    attributes = loaded.mod.attrs or {}
    if all(key in attributes for key in origin):
        origin = {key: attributes[key] for key in origin}
    output_names = loaded.output_names
    known = json.loads(str(attributes.get("tvm_ext.output_names", "[]")))
    if len(known) == len(output_names):  # one value may be several outputs: its variable has one name only
        output_names = known
    names = {
        "tvm_ext.input_names": json.dumps(loaded.input_names, ensure_ascii=False),
        "tvm_ext.output_names": json.dumps(output_names, ensure_ascii=False),
    }
    states = {STATES: states_to_json(loaded.states)} if loaded.states else {}
    demands = {DEMANDS: json.dumps(loaded.input_demands)} if loaded.input_demands else {}
    named = loaded.mod.with_attrs(origin | names | demands | states)
    if limits != Limits():
        return named.with_attr(_LIMITS, limits.to_json())
    return named.without_attr(_LIMITS) if _LIMITS in attributes else named
