"""Load a .tosa file, or its MLIR text, as a static Relax module: read it, and convert one operator after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import array_of, build, constant, dict_attrs, live, op_name, static_shape, substitute
from tvm_ext.core.decisions.composites import InputCount, Symbol
from tvm_ext.core.errors import BadModel
from tvm_ext.core.limits import Limits
from tvm_ext.core.memory_exhausted import check_memory
from tvm_ext.core.model_nodes import ModelNode
from tvm_ext.frontends.loaded import Loaded
from tvm_ext.frontends.quiet import quiet
from tvm_ext.frontends.refusals import Refused, RefusedNode, summary, unsupported
from tvm_ext.frontends.shapes import DeclaredInput, fix_shapes
from tvm_ext.frontends.size_limits import ImportSizes, check_inputs
from tvm_ext.frontends.statements import Statements, name_variables
from tvm_ext.frontends.tosa import elements, layers
from tvm_ext.frontends.tosa.elements import LARGEST_ELEMENT, Elements
from tvm_ext.frontends.tosa.quantized_layers import QuantizedLayer, find_layers
from tvm_ext.frontends.tosa.read_file import TosaGraph, TosaNode, TosaTensor, read_tosa
from tvm_ext.frontends.tosa.read_text import read_tosa_text

WAY_OUT = (
    "What can be compiled is the integer profile of TOSA 1.0. Other operators need another format of the model: "
    ".tflite, .onnx or .pt2."
)
_CONSTANTS = ("CONST", "CONST_SHAPE")


def load_tosa(path: Path, shapes: Mapping[str, Sequence[int]] | None, limits: Limits) -> Loaded:
    """Load a file. Raises BadModel, BadOptions for `shapes` that do not fit, and UnsupportedModel."""
    graph = (read_tosa_text if path.suffix.lower() == ".mlir" else read_tosa)(path, limits)
    check_names(path, graph)
    declared = [DeclaredInput(name=name, dims=graph.tensors[name].shape) for name in graph.inputs]
    fixed = fix_shapes(declared, shapes)
    sizes = {name: np.dtype(dtype).itemsize for name in graph.inputs if (dtype := graph.tensors[name].dtype)}
    check_inputs(path, fixed, sizes, shapes, limits)
    computed = [node for node in graph.nodes if node.operator not in _CONSTANTS]
    quantized, rounding = find_layers(graph)
    return Loaded(
        mod=_Importer(path, graph, fixed, quantized, ImportSizes(limits, graph.weights_bytes)).run(),
        sha256=graph.sha256, input_names=graph.inputs, output_names=graph.outputs, rounding=rounding,
        nodes=tuple(
            ModelNode(
                name=node.label, operator=node.operator, inputs=node.inputs, outputs=node.outputs, on_integers=True
            )
            for node in computed
        ),
    )  # fmt: skip


def check_names(path: Path, graph: TosaGraph) -> None:
    """Check that there are outputs, and that each tensor is computed once, before it is read. Raises BadModel."""
    if not graph.outputs:
        raise BadModel(f"{path}: the graph has no outputs.")
    known = {*graph.inputs, *(name for name, tensor in graph.tensors.items() if tensor.data is not None)}
    for node in graph.nodes:
        missing = [name for name in node.inputs if name not in known]
        made = [] if node.operator in _CONSTANTS else [name for name in node.outputs if name in known]
        if missing or made or any(name not in graph.tensors for name in node.outputs):
            name = [*missing, *made, *node.outputs, ""][0]
            raise BadModel(f"{path}: {node.operator} and {name!r}: a tensor is missing, or it is computed twice.")
        known.update(node.outputs)
    for name in (*graph.inputs, *graph.outputs):
        if name not in known or name not in graph.tensors:
            raise BadModel(f"{path}: the input or output {name!r} of the graph is not one of its tensors.")


class _Importer:
    """Import of a graph. An instance lives for a single model."""

    def __init__(
        self,
        path: Path,
        graph: TosaGraph,
        shapes: Mapping[str, tuple[int, ...]],
        quantized: Mapping[str, QuantizedLayer],
        sizes: ImportSizes,
    ) -> None:
        self._path, self._graph, self._shapes = path, graph, shapes
        self._layers = dict(quantized)
        self._inner = {name: layer for layer in quantized.values() for name in layer.inner}
        # Constants of quantized layers stay integers, which the kernels take.
        self._statements = Statements(sizes, folds=lambda value: op_name(value) != "relax.dequantize")
        self._values: dict[str, Elements] = {}
        self._refused: list[RefusedNode] = []
        self._num_readers = Counter(name for node in graph.nodes for name in dict.fromkeys(node.inputs))

    def run(self) -> tvm.IRModule:
        tensors = self._graph.tensors
        params = []
        for name in self._graph.inputs:
            tensor = tensors[name]
            if tensor.dtype is None:
                reason = f"its element type {tensor.type_name} is not supported"
                refused = RefusedNode(operator="graph input", node=name, reason=reason)
                raise unsupported(self._path, [refused], way_out=WAY_OUT)
            params.append(relax.Var(name, relax.TensorType(self._shapes[name], tensor.dtype)))
            self._values[name] = Elements.of(params[-1], tensor.type_name)
        for tensor in tensors.values():
            if tensor.data is not None:
                self._values[tensor.name] = Elements.of(constant(tensor.data), tensor.type_name)
        with quiet():
            for node in self._graph.nodes:
                if node.operator not in _CONSTANTS:
                    self._convert(node)
        if self._refused:
            raise unsupported(self._path, self._refused, way_out=WAY_OUT)
        return self._module(params)

    def _module(self, params: list[relax.Var]) -> tvm.IRModule:
        named = {name: value.sources[0] for name, value in self._values.items() if not value.size}
        sequence, renamed = name_variables(self._statements.list, named, self._graph.outputs)
        results = [substitute(named[name], renamed) for name in self._graph.outputs]
        attrs = dict_attrs(Symbol(name="main"), InputCount(count=len(params)))
        main = build(params, live(sequence, results), results, attrs=attrs)
        return tvm.IRModule({tvm.ir.GlobalVar("main"): main, **self._statements.helpers(main)})

    def _convert(self, node: TosaNode) -> None:
        """Translate `node` and add its results. A failure is recorded, and its results stay unknown."""
        layer = self._inner.get(node.outputs[0]) if len(node.outputs) == 1 else None
        if layer is not None and self._is_whole(layer):
            return
        layer = self._layers.get(node.outputs[0]) if len(node.outputs) == 1 else None
        if not all(name in self._values for name in (layer.product if layer else node).inputs):
            return
        try:
            self._values[node.outputs[0]] = self._quantized(layer) if layer else self._result(node)
        except Refused as error:
            reason = str(error)
        except Exception as error:  # TVM may raise anything for operands that do not fit
            check_memory(error)
            reason = f"its operands do not fit: {summary(error)}"
        else:
            return
        self._refused.append(RefusedNode(operator=node.operator, node=node.label, reason=reason))

    def _is_whole(self, layer: QuantizedLayer) -> bool:
        """Return True for a layer on tensors that data decide. The operators of all others are converted one by one."""
        names = layer.product.inputs[: 2 if layer.weight is None else 1]
        known = [self._values[name] for name in names if name in self._values]
        if all(any(array_of(source) is None for source in value.sources) for value in known):
            return True
        self._layers.pop(layer.last.outputs[0], None)
        self._inner = {name: other for name, other in self._inner.items() if other is not layer}
        return False

    def _quantized(self, layer: QuantizedLayer) -> Elements:
        names = layer.product.inputs[: 2 if layer.weight is None else 1]
        values = tuple(self._whole(name, layer.product) for name in names)
        tensor = self._graph.tensors[layer.last.outputs[0]]
        (found,) = self._statements.collect(
            lambda builder: builder.normalize(layer.build(values)), operator=layer.product.label, tensor=tensor.name
        )
        self._check_shape(tensor, static_shape(found))
        return Elements.of(found, tensor.type_name)

    def _result(self, node: TosaNode) -> Elements:
        if len(node.outputs) != 1:
            raise Refused(f"it has {len(node.outputs)} results")
        tensor = self._graph.tensors[node.outputs[0]]
        operands = [self._values[name] for name in node.inputs]
        types = [tensor.type_name, *(operand.type_name for operand in operands)]
        if any(not is_integer(name) for name in types):
            raise Refused(f"its element types {', '.join(sorted(set(types)))} are not all integers")
        if node.operator in elements.CONVERTERS:
            result = elements.CONVERTERS[node.operator](node, operands, tensor.type_name)
            self._check_shape(tensor, result.shape)
            is_inner = self._num_readers[tensor.name] == 1 and tensor.name not in self._graph.outputs
            return result if is_inner and result.size < LARGEST_ELEMENT else self._computed(result, node)
        if node.operator not in layers.CONVERTERS:
            raise Refused("the operator is not supported")
        values = tuple(self._whole(name, node) for name in node.inputs)
        shape = tuple(extent if extent is not None else 1 for extent in tensor.shape)

        def make(builder: relax.BlockBuilder) -> relax.Expr:
            layer = layers.Layer(
                node=node, values=values, types=tuple(types[1:]), shape=shape, type_name=tensor.type_name,
                dtype=str(tensor.dtype), builder=builder,
            )  # fmt: skip
            return builder.normalize(layers.CONVERTERS[node.operator](layer))

        (found,) = self._statements.collect(make, operator=node.label, tensor=tensor.name)
        self._check_shape(tensor, static_shape(found))
        return Elements.of(found, tensor.type_name)

    def _whole(self, name: str, node: TosaNode) -> relax.Expr:
        """Return a tensor with all its elements, computed before the operator that reads it."""
        if self._values[name].size:
            self._values[name] = self._computed(self._values[name], node, name)
        return self._values[name].sources[0]

    def _computed(self, value: Elements, node: TosaNode, name: str = "") -> Elements:
        tensor = name or node.outputs[0]
        (found,) = self._statements.collect(value.computed, operator=tensor, tensor=tensor)
        return Elements.of(found, value.type_name)

    def _check_shape(self, tensor: TosaTensor, shape: tuple[int, ...]) -> None:
        fits = len(shape) == len(tensor.shape) and all(
            declared in (None, own) for declared, own in zip(tensor.shape, shape, strict=True)
        )
        if not fits:
            raise Refused(f"its result has shape {list(shape)}, and the file says {list(tensor.shape)}")


def is_integer(type_name: str) -> bool:
    """Return True for integers, booleans and shapes."""
    return type_name in (*elements.BITS, "bool", "shape")
