"""Runtimes of the formats themselves, asked what a file means: onnxruntime, TensorFlow Lite Micro, PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import tflite
from onnx import helper

from benchmarks.fuzzing.forked import Limits, apart

Arrays = Mapping[str, np.ndarray]
DISTURBANCE = 2.0**-18
"""Of float inputs, relative: where an output jumps at that, two right answers differ."""
_IR_VERSION = 10
_LIMITS = Limits(cpu_s=30, wall_s=120)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Outputs in the file's order, and again for inputs that were moved a little.

    refusal: why the runtime does not take the file. is_exact: integers must be the same to the bit. is_finite: all
    outputs are numbers.
    """

    runtime: str
    refusal: str = ""
    outputs: tuple[np.ndarray, ...] = ()
    disturbed: tuple[np.ndarray, ...] = ()
    is_exact: bool = True

    @property
    def is_finite(self) -> bool:
        return all(bool(np.isfinite(np.asarray(x, np.float64)).all()) for x in self.outputs)


def name_of(path: Path) -> str:
    return {".onnx": "onnxruntime", ".tflite": "TensorFlow Lite Micro", ".pt2": "PyTorch"}[path.suffix]


def outputs(path: Path, inputs: Arrays) -> Answer | None:
    """What the format's runtime computes; None where it is not installed. inputs: by the model's names, in order.

    To be called in a process of its own: runtimes crash on files that are not what they should be.
    """
    run = {".onnx": _onnxruntime, ".tflite": _tflite, ".pt2": _torch}[path.suffix]
    return run(path, inputs)


def disturbed(inputs: Arrays) -> dict[str, np.ndarray]:
    return {
        name: (x * np.asarray(1 + DISTURBANCE, x.dtype)).astype(x.dtype) if x.dtype.kind == "f" else x
        for name, x in inputs.items()
    }


def _onnxruntime(path: Path, inputs: Arrays) -> Answer | None:
    name = "onnxruntime"
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        model = onnx.load(path)
        model.ir_version = min(model.ir_version, _IR_VERSION)
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
        empty = {
            value.name: np.zeros(value.shape, helper.tensor_dtype_to_np_dtype(kinds[value.name]))
            for value in session.get_inputs()
            if 0 in value.shape
        }
        results = [session.run(None, {**empty, **feeds}) for feeds in (inputs, disturbed(inputs))]
    except Exception as error:  # its exceptions have no common base
        if "NOT_IMPLEMENTED" in str(error):
            return None  # it has no kernel for what is valid
        return Answer(runtime=name, refusal=f"{type(error).__name__}: {error}"[:500])
    return Answer(
        runtime=name, outputs=tuple(map(np.asarray, results[0])), disturbed=tuple(map(np.asarray, results[1])),
        is_exact=False,
    )  # fmt: skip


def _tflite(path: Path, inputs: Arrays) -> Answer | None:
    """TensorFlow Lite Micro, or where that ends or refuses, LiteRT's reference kernels."""
    if not (find_spec("tflite_micro") and find_spec("ai_edge_litert")):
        return None
    data, given = path.read_bytes(), [list(feeds.values()) for feeds in (inputs, disturbed(inputs))]
    micro = apart(lambda: [_micro(data, arrays) for arrays in given], limits=_LIMITS)
    if micro.is_done:
        return Answer(runtime="TensorFlow Lite Micro", outputs=micro.value[0], disturbed=micro.value[1])
    try:
        results = [_litert(data, arrays) for arrays in given]
    except Exception as error:
        return Answer(runtime="LiteRT", refusal=f"{type(error).__name__}: {error}"[:500])
    return Answer(runtime="LiteRT", outputs=results[0], disturbed=results[1])


def _micro(data: bytes, arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    from tflite_micro.python.tflite_micro import runtime

    interpreter = runtime.Interpreter.from_bytes(data)
    for index, array in enumerate(arrays):
        interpreter.set_input(array, index)
    interpreter.invoke()
    num_outputs = tflite.Model.GetRootAs(data, 0).Subgraphs(0).OutputsLength()
    return tuple(np.array(interpreter.get_output(index)) for index in range(num_outputs))


def _litert(data: bytes, arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
    )
    details = interpreter.get_input_details()
    for detail, array in zip(details, arrays, strict=True):
        interpreter.resize_tensor_input(detail["index"], array.shape)
    interpreter.allocate_tensors()
    for detail, array in zip(details, arrays, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return tuple(interpreter.get_tensor(detail["index"]).copy() for detail in interpreter.get_output_details())


def _torch(path: Path, inputs: Arrays) -> Answer | None:
    if find_spec("torch") is None:
        return None
    import torch

    try:
        program = torch.export.load(path)
        module = program.module()
        results = []
        for feeds in (inputs, disturbed(inputs)):
            found = module(*(torch.from_numpy(np.array(x)) for x in feeds.values()))
            found = found if isinstance(found, tuple | list) else (found,)
            results.append(tuple(x.detach().numpy() for x in found))
    except Exception as error:
        return Answer(runtime="PyTorch", refusal=f"{type(error).__name__}: {error}"[:500])
    return Answer(runtime="PyTorch", outputs=results[0], disturbed=results[1])
