"""Load a model: turn a file or a Relax module into a static Relax function with its weights and names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path

import tvm
from numpy.typing import ArrayLike

from relay_passes.dataflow import bindings, op_name, operands
from tvm_ext.core.arguments import check_kind, check_mapping
from tvm_ext.core.decisions.models import (
    BoundInputs,
    FilledRows,
    InputDemands,
    KeptStates,
    LoadLimits,
    ModelOrigin,
    PortNames,
    PortScales,
    RepeatedOutputs,
)
from tvm_ext.core.errors import BadModel, BadOptions, UnsupportedModel
from tvm_ext.core.files.read_file import address_of, check_file
from tvm_ext.core.limits import Limits
from tvm_ext.core.model_nodes import ModelNode
from tvm_ext.core.names import hides_header, is_device
from tvm_ext.core.options import Rounding
from tvm_ext.core.processes.native_warnings import native_warnings_dropped
from tvm_ext.core.short_tracebacks import short_tracebacks
from tvm_ext.frontends.in_memory import file_in_memory
from tvm_ext.frontends.loaded import Loaded, with_distinct_outputs
from tvm_ext.frontends.pair_states import Initial, Pairs, with_states
from tvm_ext.frontends.relax_module import load_relax
from tvm_ext.frontends.shapes import ModelNotice

__all__ = ["Limits", "ModelNotice", "load"]

Shapes = Mapping[str, Sequence[int]]

Reader = Callable[..., Loaded]
"""Loads a path with shapes and limits. .onnx files also take values of inputs, .tflite files signature and rounding."""

_READERS = {
    ".onnx": ("onnx", "tvm_ext.frontends.onnx.load_onnx", "load_onnx"),
    ".tflite": ("tflite", "tvm_ext.frontends.tflite.load_tflite", "load_tflite"),
    ".pt2": ("torch", "tvm_ext.frontends.pytorch.load_torch", "load_torch"),
    ".tosa": ("tosa", "tvm_ext.frontends.tosa.load_tosa", "load_tosa"),
    ".mlir": ("tosa", "tvm_ext.frontends.tosa.load_tosa", "load_tosa"),
}
"""Format and reader by suffix. A reader is imported at its first use, because it imports its format's libraries."""


ModelSource = object
"""A model as `load` takes it: a path, the bytes of a file, or an object of ONNX, PyTorch or TVM."""


@short_tracebacks
@native_warnings_dropped()
def load(
    source: ModelSource,
    *,
    example_inputs: Sequence[object] | object | None = None,
    shapes: Shapes | None = None,
    limits: Limits | None = None,
    states: Pairs | None = None,
    initial: Initial | None = None,
    bind: Mapping[str, ArrayLike] | None = None,
    signature: str | None = None,
    rounding: Rounding = "model",
) -> tvm.IRModule:
    """Return a module whose `main` is a pure dataflow block with constant weights and static shapes.

    source: path of an .onnx, .tflite, .tosa, .mlir or .pt2 file, or its bytes, whose format follows from their content;
    an onnx.ModelProto, a torch.export.ExportedProgram, a torch.nn.Module; or a Relax module with a function `main`. The
    library of an object writes it as a file, which is then read like other files.
    example_inputs: for a torch.nn.Module, which is exported with them: arrays or tensors, one per argument of
    `forward`, or a single one.
    shapes: shapes of inputs by name, for symbolic dimensions; all others become 1, with a ModelNotice.
    limits: sizes beyond which a model is refused; None means the defaults, or the limits of an earlier load.
    states: input -> output that the next run reads in that input. Both become a state, and are no longer input and
    output. None takes the pairs of a file whose names and shapes leave no doubt, with a ModelNotice; {} takes none.
    initial: initial values of these states, by input; zeros by default.
    bind: values of inputs of an .onnx file that only select. They become constants, only the selected branches remain,
    and they are no longer inputs. A single number fills an input.
    signature: name of the signature of a .tflite file that is compiled, for files with several.
    rounding: of the results of a quantized .tflite file, as the option of the same name.

    Variables have the names of the model's tensors, and the span of each call names the model's node. The module has
    a `ModelOrigin`, `PortNames`, `LoadLimits`, `InputDemands` and `KeptStates` (`tvm_ext.core.decisions.models`). A
    module from an earlier `load` keeps everything but the names of inputs, and of outputs unless their number is equal.

    Raises BadModel for a model that cannot be read, UnsupportedModel for a model that cannot be compiled, BadOptions
    for `shapes`, `bind` and `signature` that do not fit the model.
    """
    check_mapping(shapes, "shapes", '{"input": (1, 3, 96, 96)}')
    check_mapping(states, "states", '{"h": "hn"}, an input and its output')
    check_mapping(initial, "initial", '{"h": array}')
    check_mapping(bind, "bind", '{"sr": 16000}')
    check_kind(limits, "limits", Limits, "a Limits")
    if isinstance(source, tvm.IRModule):
        if example_inputs is not None:
            raise BadOptions("example_inputs: a torch.nn.Module is exported with them; an IRModule needs none.")
        known = limits or LoadLimits.read(source).limits
        check_rounding(source, rounding)
        loaded = with_states(load_relax(source, shapes, known), states or {}, initial)
        _refuse_bindings(bind, "a Relax module")
        _refuse_signature(signature, "a Relax module")
        return _with_attributes(loaded, known, path="", source_format="relax", name="model")
    if not isinstance(source, str | PathLike):
        file = file_in_memory(source, example_inputs)
        try:
            return load(
                file.path, shapes=shapes, limits=limits, states=states, initial=initial, bind=bind,
                signature=signature, rounding=rounding,
            )  # fmt: skip
        except (BadModel, UnsupportedModel, BadOptions) as error:
            raise type(error)(str(error).replace(str(file.path), file.said)) from None
    path = Path(source)
    if example_inputs is not None:
        raise BadOptions(f"example_inputs: a torch.nn.Module is exported with them; {path} needs none.")
    source_format, reader = _reader(path)
    chosen = limits or Limits()
    if source_format != "onnx":
        _refuse_bindings(bind, str(path))
    if source_format != "tflite":
        _refuse_signature(signature, str(path))
        _refuse_rounding(rounding, f"{path} is no .tflite file")
    own: dict[str, list[object]] = {
        "onnx": [bind] if bind else [],
        "tflite": [signature or "", "tflm" if rounding == "model" else rounding],
    }
    read = reader(path, shapes, chosen, *own.get(source_format, []))
    loaded = with_states(with_distinct_outputs(read), states, initial)
    return _with_attributes(loaded, chosen, path=str(path), source_format=source_format, name=model_name(path.stem))


def check_rounding(mod: tvm.IRModule, rounding: Rounding) -> None:
    """Raise BadOptions for another rounding than that of a loaded module, whose operators are already written in it."""
    origin = ModelOrigin.read(mod)
    if not origin.is_known or origin.source_format != "tflite":
        _refuse_rounding(rounding, "this module comes from no .tflite file")
    elif rounding not in ("model", origin.option):
        raise BadOptions(
            f"rounding: {origin.path or 'this module'} was loaded with the rounding {origin.option!r}, and the build "
            f"asks for {rounding!r}; load the file with rounding={rounding!r}."
        )


def _refuse_rounding(rounding: Rounding, why: str) -> None:
    if rounding not in ("model", "once"):
        raise BadOptions(
            f"rounding: {rounding!r} is that of a runtime of .tflite files, and {why}; its results are rounded once. "
            "Remove the option."
        )


def _refuse_bindings(bind: Mapping[str, ArrayLike] | None, source: str) -> None:
    if bind:
        raise BadOptions(
            f"bind: {', '.join(bind)} of {source}: only inputs of .onnx files can be bound. Give others at each run."
        )


def _refuse_signature(signature: str | None, source: str) -> None:
    if signature:
        raise BadOptions(f"signature = {signature!r}: {source} has no signatures; only .tflite files have them.")


def _reader(path: Path) -> tuple[str, Reader]:
    try:
        check_file(path)
    except FileNotFoundError:
        if address := address_of(path):
            raise BadModel(f"{address}: models are read from files; download it, and give its path.") from None
        raise BadModel(f"{path}: no such file.") from None
    except IsADirectoryError:
        raise BadModel(f"{path}: is a folder; give the path of a {path.suffix or 'model'} file.") from None
    except OSError as error:
        raise BadModel(f"{path}: cannot be read: {error.strerror}.") from None
    if path.suffix.lower() not in _READERS:
        raise BadModel(
            f"{path}: formats are known by their suffix; {', '.join(_READERS)} can be read. Bytes are known by what "
            "they hold: load(path.read_bytes())."
        )
    source_format, module, function = _READERS[path.suffix.lower()]
    return source_format, getattr(import_module(module), function)


def _nodes(mod: tvm.IRModule, lines: Mapping[str, str]) -> list[ModelNode]:
    """Return the calls of a module as a model's operators. Calls of the same node are merged.

    lines: as in `Loaded`.
    """
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
            line=lines.get(binding.var.name, ""),
        )
    return list(found.values())


def _with_attributes(loaded: Loaded, limits: Limits, *, path: str, source_format: str, name: str) -> tvm.IRModule:
    mod, origin = loaded.mod, ModelOrigin.read(loaded.mod)
    if not origin.is_known:
        origin = ModelOrigin(
            path=path, source_format=source_format, sha256=loaded.sha256, name=name, rounding=loaded.rounding,
            signature=loaded.signature,
            nodes=tuple(loaded.nodes or _nodes(mod, loaded.lines)),
        )  # fmt: skip
    known = PortNames.read(mod).outputs
    # A value that is several outputs has only one variable, and so only one name.
    output_names = known if len(known) == len(loaded.output_names) else loaded.output_names
    named = PortNames(inputs=loaded.input_names, outputs=output_names).write(origin.write(mod))
    named = BoundInputs(values=dict(loaded.bound)).write(named) if loaded.bound else named
    demanding = InputDemands(ranges=loaded.input_demands).write(named) if loaded.input_demands else named
    filled = FilledRows(rows=loaded.filled, unlike=loaded.unlike).write(demanding) if loaded.filled else demanding
    scaled = filled if loaded.scales == PortScales() else loaded.scales.write(filled)
    repeating = RepeatedOutputs(repeated=loaded.repeated).write(scaled) if loaded.repeated else scaled
    return KeptStates(states=loaded.states).write(LoadLimits(limits=limits).write(repeating))


_MAX_LENGTH = 48
# Keywords of C, and of C++, because its compilers also read the public header.
_RESERVED = (
    "alignas alignof asm auto bool break case char const constexpr continue default do double else enum extern false "
    "float for goto if inline int long main nullptr register restrict return short signed sizeof static "
    "static_assert struct switch thread_local true typedef typeof union unsigned void volatile while "
    "and bitand bitor catch class compl concept delete explicit export friend mutable namespace new not operator or "
    "private protected public requires template this throw try typename using virtual wchar_t xor"
)


def model_name(stem: str) -> str:
    """Return a C prefix for a name: `MobileNet-V2 (1.0)` -> `mobilenet_v2_1_0`.

    The result matches [a-z][a-z0-9_]*, has at most 48 characters, and is no word or header of C and no device of
    Windows (`con`).
    """
    plain = unicodedata.normalize("NFKD", stem.casefold()).encode("ascii", "ignore").decode()
    name = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:_MAX_LENGTH].strip("_")
    if not name:
        return "model"
    if not name[0].isalpha() or name in _RESERVED.split() or hides_header(name) or is_device(name):
        return f"model_{name}"[:_MAX_LENGTH].strip("_")
    return name
