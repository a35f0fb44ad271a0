"""Smaller ONNX models: parts of the graph, one output, plain attributes, weights of one number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

_DOMAINS = ("", "ai.onnx")


def smaller_models(model: onnx.ModelProto) -> Iterator[bytes]:
    """Smaller models, serialized, the smallest first."""
    for candidate in _candidates(model):
        data = candidate.SerializeToString()
        if data != model.SerializeToString():
            yield data


def _candidates(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    graph = model.graph
    types = _types(model)
    made = [name for node in graph.node for name in node.output if name in types]
    if made[:-1] or len(graph.output) > 1:
        for name in made:  # the graph up to a value
            yield pruned(model, outputs=[types[name]], inputs=list(graph.input))
    for output in graph.output if len(graph.output) > 1 else []:
        yield pruned(model, outputs=[o for o in graph.output if o.name != output.name], inputs=list(graph.input))
    names = {output.name for output in graph.output}
    for name in reversed(made):  # the graph from a value on
        if name not in names:
            yield pruned(model, outputs=list(graph.output), inputs=[*graph.input, types[name]])
    for index, node in enumerate(graph.node):  # without a node that changes no shape
        for source in node.input:
            if node.output and _same(types.get(source), types.get(node.output[0])):
                yield _bypassed(model, index, source)
                break
    for index, node in enumerate(graph.node):
        for attribute in range(len(node.attribute)):
            other = _copy(model)
            del other.graph.node[index].attribute[attribute]
            yield other
    for index, tensor in enumerate(graph.initializer):
        yield from _plain_weight(model, index, tensor)
    yield from _renamed(model)
    if model.functions or graph.value_info or model.metadata_props or graph.doc_string:
        other = pruned(model, outputs=list(graph.output), inputs=list(graph.input))
        del other.graph.value_info[:], other.metadata_props[:]
        yield other


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    other = onnx.ModelProto()
    other.CopyFrom(model)
    return other


def _types(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Typed values, as far as ONNX infers them."""
    try:
        inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception:  # of a damaged model
        inferred = model.graph
    values = [*inferred.value_info, *inferred.input, *model.graph.output]
    return {value.name: value for value in values}


def _same(a: onnx.ValueInfoProto | None, b: onnx.ValueInfoProto | None) -> bool:
    return a is not None and b is not None and a.type == b.type


def pruned(
    model: onnx.ModelProto, *, outputs: list[onnx.ValueInfoProto], inputs: list[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    """The nodes that these outputs need; inputs stand for what made them, and those that nobody reads are left out."""
    other, given = _copy(model), {value.name for value in inputs}
    wanted, kept = {output.name for output in outputs}, list[onnx.NodeProto]()
    for node in reversed(model.graph.node):
        if wanted & {*node.output} - given:
            kept.append(node)
            wanted |= {*node.input}
    del other.graph.node[:], other.graph.input[:], other.graph.output[:], other.graph.initializer[:]
    other.graph.node.extend(reversed(kept))
    other.graph.output.extend(outputs)
    unique = {value.name: value for value in inputs if value.name in wanted}
    other.graph.input.extend(unique.values() or model.graph.input[:1])
    other.graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in wanted)
    return other


def _bypassed(model: onnx.ModelProto, index: int, source: str) -> onnx.ModelProto:
    """The model without a node, whose readers read one of its inputs instead; unchanged for a node of an output."""
    other = _copy(model)
    name = other.graph.node[index].output[0]
    if name in {output.name for output in other.graph.output}:
        return model
    del other.graph.node[index]
    for node in other.graph.node:
        node.input[:] = [source if read == name else read for read in node.input]
    return pruned(other, outputs=list(other.graph.output), inputs=list(other.graph.input))


def _plain_weight(model: onnx.ModelProto, index: int, tensor: onnx.TensorProto) -> Iterator[onnx.ModelProto]:
    try:
        array = numpy_helper.to_array(tensor)
    except Exception:  # damaged
        return
    if array.dtype.kind != "f" or array.size < 2 or (array == array.flat[0]).all():
        return
    other = _copy(model)
    other.graph.initializer[index].CopyFrom(numpy_helper.from_array(np.full_like(array, 0.5), tensor.name))
    yield other


def _renamed(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Short names for all values, none for nodes."""
    graph = model.graph
    values = (
        [v.name for v in graph.input]
        + [n for node in graph.node for n in node.output]
        + [t.name for t in graph.initializer]
    )
    names = {name: f"v{index}" for index, name in enumerate(dict.fromkeys(values)) if name}
    other = _copy(model)
    for node in other.graph.node:
        node.name = ""
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in (*other.graph.input, *other.graph.output, *other.graph.initializer):
        value.name = names.get(value.name, value.name)
    del other.graph.value_info[:]
    if other.opset_import and all(entry.domain in _DOMAINS for entry in other.opset_import):
        del other.opset_import[:]
        other.opset_import.extend([helper.make_opsetid("", model.opset_import[0].version)])
    yield other
