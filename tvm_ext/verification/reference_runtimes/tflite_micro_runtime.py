"""TensorFlow Lite Micro's interpreter on a .tflite file. Runs in a child process.

Samples must have the shapes in the file, because this runtime cannot resize tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tflite

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.frontends.tflite.read_file import TfliteFile, TfliteNode, node_options
from tvm_ext.verification.reference_runtimes.reference_result import Carried, after, fed
from tvm_ext.verification.reference_runtimes.tflite_tensors import (
    Sample,
    clear_unwritten,
    detection_counts,
    inputs_of,
    made_tensors,
    read_unchanged,
)

# Estimated bytes of the arena: an element in all its copies and in kernels' scratch buffers, of at most an int32 each;
# tables of the interpreter for each operator and tensor; and a constant part.
_BYTES_PER_ELEMENT, _BYTES_PER_NODE, _MORE_BYTES = 24, 4096, 1 << 20
_LEAVES_UNWRITTEN = ("SignalFramer", "SignalStacker")
"""Operators that leave their results unwritten in some runs, with the bytes that were in memory before."""

_OFF = ("ADD_N", "CUMSUM", "DIV")
"""Operators whose 8-bit results differ from the rounded real results, for some scales by many steps."""


def prepare() -> None:
    """Import all that a run needs."""
    import tflite_micro.python.tflite_micro.runtime  # noqa: F401


def run_reference(
    path: str, sha256: str, limits: str, samples: Sequence[Sample], inner: Sequence[str], states: Carried = (),
    other_mode: bool = False, signature: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Return outputs and inner tensors by sample. Raises BadModel and UnsupportedModel for models it cannot judge.

    other_mode: this runtime has none. signature: as in `read_tflite`.
    """
    from tflite_micro.python.tflite_micro import runtime

    assert not other_mode
    file, data = read_unchanged(path, sha256, limits, signature)
    if file.main:
        raise UnsupportedModel(
            f"{path}: signature {signature!r} is not of the first subgraph, the only one that it runs."
        )
    for index in file.inputs:
        tensor = file.tensors[index]
        given = {**samples[0], **fed(states)}[tensor.name].shape
        if given != tensor.shape:
            raise BadModel(f"{path}: {tensor.name!r} has shape {list(tensor.shape)} in the file, not {list(given)}.")
    unwritten = next((node.operator for node in file.nodes if node.operator in _LEAVES_UNWRITTEN), None)
    if unwritten:
        raise UnsupportedModel(f"{path}: {unwritten} leaves its results unwritten as long as they are not valid.")
    is_off = next((node.operator for node in file.nodes if node.operator in _OFF and _has_bytes(file, node)), None)
    if is_off:
        raise UnsupportedModel(f"{path}: {is_off} of 8-bit integers differs from {is_off} of real numbers.")
    if any(node.operator == "SPACE_TO_BATCH_ND" and _is_padded(file, node) for node in file.nodes):
        raise UnsupportedModel(f"{path}: SPACE_TO_BATCH_ND pads with what its memory happens to hold.")
    if any(node.operator == "DEQUANTIZE" and _has_several_scales(file, node) for node in file.nodes):
        raise UnsupportedModel(f"{path}: DEQUANTIZE uses only the first of several scales.")
    if any(node.operator == "TRANSPOSE_CONV" and _is_activated(node) for node in file.nodes):
        raise UnsupportedModel(f"{path}: the fused activation of TRANSPOSE_CONV is ignored.")
    if (stale := _stale_tensor(file, data)) is not None:
        raise UnsupportedModel(f"{path}: the shape of {stale!r} in the file is not that of its inputs.")
    if any(node.operator == "GREATER" and file.tensors[node.inputs[0]].dtype == "int16" for node in file.nodes):
        raise UnsupportedModel(f"{path}: GREATER of int16 leaves its results unwritten.")
    watched, counts = made_tensors(file, inner), detection_counts(path, file)
    outputs, seen, interpreter, kept = [], [], None, fed(states)
    for sample in samples:
        if interpreter is None or not states:  # an interpreter keeps its variables from sample to sample
            interpreter = runtime.Interpreter.from_bytes(
                data, arena_size=_arena_bytes(file), intrepreter_config=runtime.InterpreterConfig.kPreserveAllTensors
            )
        for place, array in enumerate(inputs_of(file, {**sample, **kept})):
            interpreter.set_input(array, place)
        interpreter.invoke()
        seen_inside = (*watched.values(), *counts)
        values = {index: np.array(interpreter.GetTensor(index, 0)["tensor_data"]) for index in seen_inside}
        values |= {index: np.array(interpreter.get_output(place)) for place, index in enumerate(file.outputs)}
        clear_unwritten(file, values)
        outputs.append({file.tensors[index].name: values[index] for index in file.outputs})
        tensors = {name: values[index] for name, index in watched.items()}
        seen.append({**kept, **tensors})
        kept = after(states, outputs[-1])
    return {"outputs": outputs, "inner": seen}


def _stale_tensor(file: TfliteFile, data: bytes) -> str | None:
    """Return the name of a tensor whose shape in the file is a placeholder; None also where LiteRT is not installed.

    Converters leave such shapes beside open dimensions. LiteRT computes shapes again, and this runtime does not.
    """
    if not any(None in file.tensors[index].dims for node in file.nodes for index in node.outputs):
        return None
    try:
        from ai_edge_litert import interpreter as litert
    except ImportError:
        return None
    interpreter = litert.Interpreter(
        model_content=data, num_threads=1, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF
    )
    try:
        interpreter.allocate_tensors()
    except RuntimeError:  # for example, an operator that only this runtime has
        return None
    for detail in interpreter.get_tensor_details():
        tensor = file.tensors[detail["index"]]
        if None in tensor.dims and tuple(map(int, detail["shape"])) != tensor.shape:
            return tensor.name
    return None


def _has_bytes(file: TfliteFile, node: TfliteNode) -> bool:
    return file.tensors[node.inputs[0]].dtype in ("int8", "uint8")


def _is_padded(file: TfliteFile, node: TfliteNode) -> bool:
    widths = file.tensors[node.inputs[2]].data
    return widths is None or bool(widths.any())


def _is_activated(node: TfliteNode) -> bool:
    options = node_options(node, tflite.TransposeConvOptions)
    return options is not None and options.FusedActivationFunction() != tflite.ActivationFunctionType.NONE


def _has_several_scales(file: TfliteFile, node: TfliteNode) -> bool:
    scales = [file.tensors[index].scales for index in node.inputs]
    return any(found is not None and found.scale.size > 1 for found in scales)


def _arena_bytes(file: TfliteFile) -> int:
    """Return bytes that are enough for all tensors at the same time, for kernels and for the interpreter."""
    elements = sum(int(np.prod(tensor.shape)) for tensor in file.tensors)
    return _BYTES_PER_ELEMENT * elements + _BYTES_PER_NODE * (len(file.nodes) + len(file.tensors)) + _MORE_BYTES
