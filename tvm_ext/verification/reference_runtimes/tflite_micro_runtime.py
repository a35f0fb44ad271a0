"""TensorFlow Lite Micro's interpreter on a .tflite file. Runs in a child process.

Samples must have the shapes in the file, because this runtime cannot resize tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.frontends.tflite.read_file import TfliteFile, TfliteNode
from tvm_ext.verification.reference_runtimes.reference_result import Carried, after, fed
from tvm_ext.verification.reference_runtimes.tflite_tensors import Sample, inputs_of, made_tensors, read_unchanged

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
    path: str, sha256: str, limits: str, samples: Sequence[Sample], inner: Sequence[str], states: Carried = ()
) -> dict[str, Any]:
    """Return outputs and inner tensors by sample. Raises BadModel and UnsupportedModel for models it cannot judge."""
    from tflite_micro.python.tflite_micro import runtime

    file, data = read_unchanged(path, sha256, limits)
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
    watched = made_tensors(file, inner)
    outputs, seen, interpreter, kept = [], [], None, fed(states)
    for sample in samples:
        if interpreter is None or not states:  # an interpreter keeps its variables from sample to sample
            interpreter = runtime.Interpreter.from_bytes(
                data, arena_size=_arena_bytes(file), intrepreter_config=runtime.InterpreterConfig.kPreserveAllTensors
            )
        for place, array in enumerate(inputs_of(file, {**sample, **kept})):
            interpreter.set_input(array, place)
        interpreter.invoke()
        outputs.append({file.tensors[i].name: np.array(interpreter.get_output(n)) for n, i in enumerate(file.outputs)})
        tensors = {name: np.array(interpreter.GetTensor(index, 0)["tensor_data"]) for name, index in watched.items()}
        seen.append({**kept, **tensors})
        kept = after(states, outputs[-1])
    return {"outputs": outputs, "inner": seen}


def _has_bytes(file: TfliteFile, node: TfliteNode) -> bool:
    return file.tensors[node.inputs[0]].dtype in ("int8", "uint8")


def _is_padded(file: TfliteFile, node: TfliteNode) -> bool:
    widths = file.tensors[node.inputs[2]].data
    return widths is None or bool(widths.any())


def _has_several_scales(file: TfliteFile, node: TfliteNode) -> bool:
    scales = [file.tensors[index].scales for index in node.inputs]
    return any(found is not None and found.scale.size > 1 for found in scales)


def _arena_bytes(file: TfliteFile) -> int:
    """Return bytes that are enough for all tensors at the same time, for kernels and for the interpreter."""
    elements = sum(int(np.prod(tensor.shape)) for tensor in file.tensors)
    return _BYTES_PER_ELEMENT * elements + _BYTES_PER_NODE * (len(file.nodes) + len(file.tensors)) + _MORE_BYTES
