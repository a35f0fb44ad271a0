"""Run TensorFlow Lite files with what else runs them, and with the kernels' references; peers that are absent skip."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from codegen_c.program import reference
from tests.support.peers import peer
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.decisions.models import PortNames
from tvm_ext.core.options import BuildOptions, Rounding
from tvm_ext.core.platform import Platform
from tvm_ext.frontends.load import load


def saved_tflite(data: bytes, folder: Path, name: str = "model") -> Path:
    path = folder / f"{name}.tflite"
    path.write_bytes(data)
    return path


def litert(data: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """LiteRT's reference kernels."""
    module = peer("ai_edge_litert.interpreter")
    resolver = module.OpResolverType.BUILTIN_REF
    interpreter = module.Interpreter(model_content=data, experimental_op_resolver_type=resolver)
    for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.resize_tensor_input(detail["index"], array.shape)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def tflite_micro(data: bytes, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The first output of TensorFlow Lite Micro on the host."""
    runtime = peer("tflite_micro.python.tflite_micro.runtime")
    interpreter = runtime.Interpreter.from_bytes(data, arena_size=1 << 20)
    for index, array in enumerate(inputs):
        interpreter.set_input(array, index)
    interpreter.invoke()
    return interpreter.get_output(0)


def referenced(
    path: Path, inputs: Sequence[np.ndarray], rounding: Rounding = "model"
) -> tuple[list[np.ndarray], list[str]]:
    """Outputs by the kernels' references, which the C code equals, and the kernels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mod = load(path, rounding=rounding)
    compiled = compile_module(mod, Platform.load("host"), BuildOptions(rounding=rounding))
    ports = compiled.interface.inputs
    assert [port.source for port in ports] == list(PortNames.read(mod).inputs)
    values = reference.run(compiled.program, {port.name: x for port, x in zip(ports, inputs, strict=True)})
    kernels = [call.implementation.kernel for call in compiled.program.kernel_calls()]
    return [values[port.name] for port in compiled.interface.outputs], kernels
