"""What a model ought to compute: onnxruntime on the model's file, or TVM's virtual machine on the module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import tvm
from onnx import helper
from tvm import relax

from relay_passes.dataflow import bindings, rebuild
from tvm_ext.core.errors import TvmExtError
from tvm_ext.frontends.onnx.read_file import read_onnx
from tvm_ext.load import limits_of

Array = np.ndarray
Sample = Mapping[str, Array]

IR_VERSION = 10
"""Of the file format, not of the operators: one that onnxruntime reads, for models that newer exporters wrote."""


def random_inputs(specs: Mapping[str, tuple[tuple[int, ...], str]], seed: int) -> dict[str, Array]:
    """One sample: floats of a normal distribution, 8-bit integers of their whole range, others 0 or 1."""
    rng = np.random.default_rng(seed)

    def draw(shape: tuple[int, ...], dtype: str) -> Array:
        if dtype.startswith("float"):
            return rng.standard_normal(shape).astype(dtype)
        if dtype in ("int8", "uint8"):
            info = np.iinfo(dtype)
            return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        return rng.integers(0, 2, shape).astype(dtype)

    return {name: draw(shape, dtype) for name, (shape, dtype) in specs.items()}


def onnx_outputs(
    model: onnx.ModelProto, samples: Sequence[Sample], inner: Sequence[str] = ()
) -> list[dict[str, Array]]:
    """Outputs per sample from onnxruntime, graph optimisation off, one thread.

    inner: further tensors of the graph to give; those that no node makes are left out.
    """
    session = _session(model, inner)
    keys = [output.name for output in session.get_outputs()]
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    # Inputs without elements are no inputs of a package; onnxruntime asks for them.
    empty = {
        value.name: np.zeros(value.shape, helper.tensor_dtype_to_np_dtype(kinds[value.name]))
        for value in session.get_inputs()
        if 0 in value.shape
    }
    return [dict(zip(keys, session.run(None, empty | dict(sample)), strict=True)) for sample in samples]


def runs_in_onnxruntime(model: onnx.ModelProto) -> bool:
    """Whether onnxruntime has all operators of a model."""
    try:
        _session(model)
    except Exception:  # its exceptions have no common base
        return False
    return True


def _session(model: onnx.ModelProto, inner: Sequence[str] = ()) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    watched.ir_version = min(model.ir_version, IR_VERSION)
    outputs = {output.name for output in model.graph.output}
    made = {name for node in model.graph.node for name in node.output} - outputs
    watched.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(inner) if name in made)
    return ort.InferenceSession(watched.SerializeToString(), options, providers=["CPUExecutionProvider"])


def original_onnx(attributes: Mapping[str, str]) -> onnx.ModelProto | None:
    """The ONNX model a module was loaded from, if its file is still there and still the same."""
    if attributes["tvm_ext.source_format"] != "onnx":
        return None
    try:
        file = read_onnx(Path(attributes["tvm_ext.source_path"]), limits_of(attributes))
    except TvmExtError:
        return None
    return file.model if file.sha256 == attributes["tvm_ext.source_sha256"] else None


def module_values(mod: tvm.IRModule, samples: Sequence[Sample]) -> list[dict[str, Array]]:
    """Every tensor of main by its variable's name, per sample, from TVM's virtual machine."""
    main = mod["main"]
    inner = [binding.var for binding in bindings(main) if isinstance(binding.var.ty, relax.TensorType)]
    watched = mod.clone()
    watched.update_func(mod.get_global_var("main"), rebuild(main, bindings(main), inner, as_tuple=True))
    return module_outputs(watched, [var.name for var in inner], samples)


def module_outputs(mod: tvm.IRModule, output_names: Sequence[str], samples: Sequence[Sample]) -> list[dict[str, Array]]:
    """Outputs per sample from TVM's virtual machine, compiled with LLVM as TVM would."""
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    names = [param.name for param in mod["main"].params]
    results = []
    for sample in samples:
        result = machine["main"](*[tvm.runtime.tensor(np.ascontiguousarray(sample[name])) for name in names])
        fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        results.append({name: field.numpy() for name, field in zip(output_names, fields, strict=True)})
    return results
