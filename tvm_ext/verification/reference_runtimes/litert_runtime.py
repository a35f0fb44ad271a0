"""LiteRT on a .tflite file, with its reference kernels or its default kernels (XNNPACK). Runs in a child process."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.frontends.tflite.mediapipe import TRANSPOSED, is_of_mediapipe, read_window
from tvm_ext.frontends.tflite.read_file import TfliteFile, TfliteNode, TfliteTensor, signature_inputs
from tvm_ext.verification.reference_runtimes.reference_result import Carried, after, fed
from tvm_ext.verification.reference_runtimes.tflite_tensors import (
    Sample,
    clear_unwritten,
    detection_counts,
    inputs_of,
    made_tensors,
    read_unchanged,
    with_outputs,
)

_WORD_BITS = 32


def prepare() -> None:
    """Import all that a run needs."""
    import ai_edge_litert.interpreter  # noqa: F401


def run_reference(
    path: str, sha256: str, limits: str, samples: Sequence[Sample], inner: Sequence[str], states: Carried = (),
    other_mode: bool = False, signature: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Return outputs and inner tensors by sample.

    other_mode: use LiteRT's default kernels, which return inner tensors as outputs of the graph.
    signature: as in `read_tflite`; LiteRT's runner of this signature is called where its subgraph is not the file's
    first.
    """
    from ai_edge_litert import interpreter as litert

    kinds = litert.OpResolverType
    kernels = kinds.AUTO if other_mode else kinds.BUILTIN_REF

    file, data = read_unchanged(path, sha256, limits, signature)
    if any(is_of_mediapipe(node) for node in file.nodes):
        data = _with_built_in_layers(data)
    watched, counts = made_tensors(file, inner), detection_counts(path, file)
    if other_mode and (watched or counts):
        data = with_outputs(data, file.main, [*watched.values(), *counts])
    outputs, seen, interpreter, kept = [], [], None, fed(states)
    for sample in samples:
        arrays = inputs_of(file, {**sample, **kept})
        if interpreter is None or not states:  # an interpreter keeps its variables from sample to sample
            interpreter = litert.Interpreter(
                model_content=data, num_threads=1, experimental_preserve_all_tensors=not other_mode,
                experimental_op_resolver_type=kernels,
            )  # fmt: skip
            if not file.main:
                for index, array in zip(file.inputs, arrays, strict=True):
                    interpreter.resize_tensor_input(index, array.shape)
                interpreter.allocate_tensors()
        if file.main:
            interpreter.get_signature_runner(signature)(**_named(file, arrays))
        else:
            for index, array in zip(file.inputs, arrays, strict=True):
                interpreter.set_tensor(index, array)
            interpreter.invoke()
        tensor_of = partial(interpreter.get_tensor, subgraph_index=file.main)
        if not other_mode:
            _check_quotients(path, file, tensor_of)
        values = {index: np.array(tensor_of(index)) for index in (*file.outputs, *watched.values(), *counts)}
        clear_unwritten(file, values)
        outputs.append({file.tensors[index].name: values[index] for index in file.outputs})
        tensors = {name: values[index] for name, index in watched.items()}
        seen.append({**kept, **tensors})
        kept = after(states, outputs[-1])
    return {"outputs": outputs, "inner": seen}


def _with_built_in_layers(data: bytes) -> bytes:
    """Return the file with TRANSPOSE_CONV in place of MediaPipe's transposed convolution, which LiteRT lacks."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model: Any = schema.ModelT.InitFromPackedBuf(data, 0)  # its attributes have no types
    kind = schema.BuiltinOperator.TRANSPOSE_CONV
    model.operatorCodes.append(schema.OperatorCodeT(deprecatedBuiltinCode=kind, version=3, builtinCode=kind))
    for graph in model.subgraphs:
        for node in graph.operators:
            if (model.operatorCodes[node.opcodeIndex].customCode or b"").decode("utf-8", "replace") != TRANSPOSED:
                continue
            window = read_window(bytes(node.customOptions))
            size = np.array(graph.tensors[node.outputs[0]].shape, "<i4")
            model.buffers.append(schema.BufferT(data=np.frombuffer(size.tobytes(), np.uint8)))
            place = len(model.buffers) - 1
            graph.tensors.append(schema.TensorT(shape=[4], type=schema.TensorType.INT32, buffer=place, name="size"))
            source, weight, bias = node.inputs
            padding = schema.Padding.SAME if window.is_same else schema.Padding.VALID
            rows, columns = window.strides
            node.inputs, node.opcodeIndex = [len(graph.tensors) - 1, weight, source, bias], len(model.operatorCodes) - 1
            node.builtinOptionsType, node.customOptions = schema.BuiltinOptions.TransposeConvOptions, None
            node.builtinOptions = schema.TransposeConvOptionsT(padding=padding, strideH=rows, strideW=columns)
    builder = flatbuffers.Builder(len(data))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _named(file: TfliteFile, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Return the inputs by the names that the file's signature gives them."""
    named = signature_inputs(file.model, file.signature)
    return {named[index]: array for index, array in zip(file.inputs, arrays, strict=True)}


def _check_quotients(path: str, file: TfliteFile, values: Callable[[int], np.ndarray]) -> None:
    """Raise UnsupportedModel if a DIV of 8-bit integers has quotients for which LiteRT's C code is undefined."""
    for node in file.nodes:
        if node.operator == "DIV" and file.tensors[node.inputs[0]].dtype in ("int8", "uint8"):
            tensors = [file.tensors[index] for index in node.inputs]
            first, second = (
                values(index) if tensor.data is None else tensor.data
                for index, tensor in zip(node.inputs, tensors, strict=True)
            )
            if is_undefined(file, node, first, second).any():
                raise UnsupportedModel(
                    f"{path}: DIV of 8-bit integers shifts some of these quotients by more bits than a word has."
                )


def is_undefined(file: TfliteFile, node: TfliteNode, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return True for each element of an int8 or uint8 DIV whose result is undefined.

    LiteRT and TensorFlow Lite Micro widen the first operand to all bits of a word, multiply it by the reciprocal of the
    second operand and shift the product back (`DivElementwise` in reference/div.h). Small quotients need a shift by
    more than 31 places, which C leaves undefined. A divisor of 0 has no reciprocal.
    """
    one, other, result = (file.tensors[index] for index in (*node.inputs, node.outputs[0]))
    numerator, divisor = _steps(one, first), _steps(other, second)
    numerator = np.where(divisor < 0, -numerator, numerator)
    factor = _scale(one) / (_scale(other) * _scale(result))
    magnitude = np.where(numerator < 0, -numerator - 1, numerator)
    headroom = _WORD_BITS - 1 - np.frexp(magnitude)[1]
    places = np.frexp(np.abs(divisor))[1] - 1 + headroom - math.frexp(factor)[1]
    return (divisor == 0) | (places < 0) | (places >= _WORD_BITS)


def _steps(tensor: TfliteTensor, integers: np.ndarray) -> np.ndarray:
    """Return the distances of integers from the zero point, in steps of the scale."""
    assert tensor.scales is not None, "DIV of bytes without scales is refused"
    return integers.astype(np.float64) - int(tensor.scales.zero_point[0])


def _scale(tensor: TfliteTensor) -> float:
    assert tensor.scales is not None, "DIV of bytes without scales is refused"
    return float(tensor.scales.scale[0])
