"""Load a TensorFlow Lite file as a static Relax module: read the file, fix its shapes, import its graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tvm_ext.core.decisions.models import MEANING_OF_ROUNDING, PortScales
from tvm_ext.core.limits import Limits
from tvm_ext.core.model_nodes import ModelNode
from tvm_ext.frontends.loaded import Loaded
from tvm_ext.frontends.open_dimensions import import_with_open_dimensions
from tvm_ext.frontends.shapes import DeclaredInput, fix_shapes
from tvm_ext.frontends.size_limits import ImportSizes, check_inputs
from tvm_ext.frontends.tflite.check_model import check_graph
from tvm_ext.frontends.tflite.control_flow import control_flow_opened
from tvm_ext.frontends.tflite.custom import custom_states_opened
from tvm_ext.frontends.tflite.import_graph import import_graph
from tvm_ext.frontends.tflite.read_file import (
    ACTIVATIONS,
    TfliteFile,
    TfliteGraph,
    TfliteNode,
    TfliteTensor,
    read_tflite,
)
from tvm_ext.frontends.tflite.resources import variables_opened
from tvm_ext.frontends.tflite.sparse_constants import constants_densified
from tvm_ext.frontends.tflite.variable_tensors import variable_tensors_opened


def load_tflite(
    path: Path,
    shapes: Mapping[str, Sequence[int]] | None,
    limits: Limits,
    signature: str = "",
    rounding: str = "tflm",
) -> Loaded:
    """Load a file. rounding: of its integers, `tflm`, `litert` or `once`.

    Raises BadModel, BadOptions for `shapes` or `signature` that do not fit, and UnsupportedModel.
    """
    whole = constants_densified(path, read_tflite(path, limits, signature), limits)
    file, resources = variables_opened(path, control_flow_opened(path, whole, limits))
    file, tensors_kept = variable_tensors_opened(file)
    file, custom_kept = custom_states_opened(file)
    variables = (*resources, *tensors_kept, *custom_kept)
    kept = [variable.read for variable in variables], [variable.written for variable in variables]
    check_graph(path, file.tensors, file.nodes, (*file.inputs, *kept[0]), file.outputs, kept[1])
    tensors = [file.tensors[index] for index in file.inputs]
    inputs = [DeclaredInput(name=tensor.name, dims=tensor.dims) for tensor in tensors]
    fixed = fix_shapes(inputs, shapes)
    element_bytes = {tensor.name: np.dtype(tensor.dtype).itemsize for tensor in tensors if tensor.dtype is not None}
    check_inputs(path, fixed, element_bytes, shapes, limits)
    meaning = MEANING_OF_ROUNDING[rounding]
    (mod,) = import_with_open_dimensions(
        path,
        lambda at: (import_graph(path, file, at, ImportSizes(limits, file.weights_bytes), variables, meaning),),
        inputs, shapes, fixed, (tensor.data for tensor in file.tensors if tensor.data is not None),
    )  # fmt: skip
    return Loaded(
        mod=mod,
        sha256=file.sha256,
        input_names=tuple(declared.name for declared in inputs),
        output_names=tuple(file.tensors[index].name for index in file.outputs),
        rounding=meaning,
        scales=PortScales(inputs=_declared_scales(file, file.inputs), outputs=_declared_scales(file, file.outputs)),
        signature=signature,
        states=tuple(variable.state for variable in variables),
        nodes=tuple(
            ModelNode(
                name=node.label,
                operator=node.operator,
                inputs=tuple(file.tensors[index].name for index in node.inputs if index >= 0),
                outputs=tuple(file.tensors[index].name for index in node.outputs if index >= 0),
                on_integers=_is_on_integers(file, node),
            )
            for node in file.nodes
        ),
    )


def _declared_scales(file: TfliteGraph, ports: Sequence[int]) -> dict[str, tuple[float, int]]:
    """Return scale and zero point of each quantized tensor by its name."""
    tensors = [file.tensors[index] for index in ports]
    return {
        tensor.name: (float(tensor.scales.scale[0]), int(tensor.scales.zero_point[0]))
        for tensor in tensors
        if tensor.scales is not None and tensor.scales.scale.size == 1 and _is_integer(tensor.dtype)
    }


def _is_integer(dtype: str | None) -> bool:
    return dtype is not None and dtype.startswith(("int", "uint"))


def _is_on_integers(file: TfliteFile, node: TfliteNode) -> bool:
    """Return True for an operator whose activations and results are quantized integers."""
    read = [file.tensors[index] for index in node.inputs if index >= 0 and file.tensors[index].data is None]
    written = [file.tensors[index] for index in node.outputs if index >= 0]

    def has_integers(tensors: Sequence[TfliteTensor]) -> bool:
        return any(tensor.scales is not None and tensor.dtype in ACTIVATIONS for tensor in tensors)

    return has_integers(read) and has_integers(written)
