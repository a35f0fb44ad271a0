"""Import an ONNX graph as a Relax function that keeps the model's names.

TVM's converters translate a node at a time, each in its own dataflow block, so that the calls of each node are known.
The calls carry the node's name as span, and its results have the names of the model's tensors. Results of constants are
folded at once, so that later nodes see their shapes, axes and sizes as numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx
import tvm
from onnx import numpy_helper
from tvm import relax

from relay_passes.dataflow import build, constant, dict_attrs, live, substitute
from tvm_ext.core.decisions.composites import InputCount, Symbol
from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.memory_exhausted import check_memory
from tvm_ext.core.model_nodes import ModelState, next_name, with_next_names
from tvm_ext.frontends.loops import NotRepeated
from tvm_ext.frontends.onnx.check_nodes import NodeCounter, check_nodes, check_types, inferred_types
from tvm_ext.frontends.onnx.control_flow import CONTROL_FLOW, BodyImport, expected_passes, may_fail
from tvm_ext.frontends.onnx.custom_nodes import CustomNodes, is_brought
from tvm_ext.frontends.onnx.element_types import (
    contradictions,
    dtype_of,
    in_bytes,
    made_unseen,
    not_supported,
    spelled_out,
)
from tvm_ext.frontends.onnx.fold_node import all_constant, fold_node, known_if_empty
from tvm_ext.frontends.onnx.known_operators import (
    KnownOperators,
    attribute_values,
    bind_attributes,
    domain_of,
    has_standard_body,
    is_control_flow,
    opset_for,
    standard_body,
)
from tvm_ext.frontends.onnx.model_inputs import bind_hint, selecting_inputs
from tvm_ext.frontends.onnx.refusals import WAY_OUT, not_defined, operator_of
from tvm_ext.frontends.onnx.selected_rows import Selections
from tvm_ext.frontends.onnx.sequences import NO_STATIC_SIZE, TensorSequence, sequence_results
from tvm_ext.frontends.onnx.translate_node import NodeTranslator, untranslated
from tvm_ext.frontends.quiet import quiet
from tvm_ext.frontends.refusals import Refused, RefusedNode, unsupported
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.frontends.size_limits import ImportSizes
from tvm_ext.frontends.statements import Statements, name_variables

# Functions of a model may call each other. The standard's functions nest four deep.
_MAX_DEPTH = 16

Opsets = Mapping[str, int]


class _Unknown:
    """Stands for the result of a node that could not be translated."""


_UNKNOWN = _Unknown()
Value = relax.Expr | TensorSequence | None
Scope = dict[str, "Value | _Unknown"]


def import_graph(
    path: Path, selections: Selections, shapes: Mapping[str, tuple[int, ...]], sizes: ImportSizes
) -> tuple[tvm.IRModule, tuple[ModelState, ...]]:
    """Return a module with a function `main`, inputs of the given shapes and constant weights, and the states.

    States are the last parameters and results of `main`. Raises UnsupportedModel that lists every node that cannot be
    translated or is too large, and BadModel for broken weights.
    """
    return _Importer(path, selections, sizes).run(shapes)


class _Importer:
    """Import of a graph.

    repeats: the number of times that the current nodes are translated, over all loops.
    """

    def __init__(self, path: Path, selections: Selections, sizes: ImportSizes) -> None:
        self._path = path
        self._model = model = selections.model
        self._sizes = sizes
        self._shapes: Mapping[str, tuple[int, ...]] = {}
        self._repeats = 1
        self._is_guarded = self._is_repeated = self._is_inside_loop = False
        self._custom = CustomNodes([*(value.name for value in model.graph.input), *_results_in(model.graph)])
        self._known = KnownOperators(model, selections)
        self._counter = NodeCounter(self._known.functions)
        self._nodes = NodeTranslator(sizes)
        self._refused: list[RefusedNode] = []
        self._num_translated = 0

    def run(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[tvm.IRModule, tuple[ModelState, ...]]:
        graph, self._shapes = self._model.graph, shapes
        self._expect_nodes(graph.node)
        scope: Scope = {"": None}
        self._add_initializers(graph, scope)
        params = [parameter(self._path, value, shapes[value.name]) for value in graph.input if value.name in shapes]
        types = inferred_types(self._path, self._model, shapes)
        check_types(self._path, self._model, types)
        check_nodes(self._path, self._model, types)
        kinds = {name: kind.elem_type for name, kind in types.items()}
        maker = made_unseen(self._model, kinds)
        if maker:
            self._refuse(operator_of(maker), maker.name, "it may make integers of less than a byte, which no type says")
        scope.update({param.name: known_if_empty(param) for param in params})
        params = [param for param in params if scope[param.name] is param]
        opsets = {domain_of(entry.domain): entry.version for entry in self._model.opset_import}
        with quiet():
            for index, node in enumerate(graph.node):
                self._nodes.tensor = next((name for name in node.output if name), "")
                label = node.name or f"{node.op_type}_{index}"
                for part in spelled_out(node, kinds, label):
                    self._convert(part, scope, label, opsets, 0)
        found = {name: value for name, value in scope.items() if isinstance(value, relax.Expr)}
        for value in graph.output:
            if isinstance(scope.get(value.name), TensorSequence | None):
                self._refuse("graph output", value.name, NO_STATIC_SIZE)
        if not self._refused:  # inference of an oversized model would take the time that was saved
            longest = max(self._sizes.longest_vector, *(shape[0] for shape in shapes.values() if len(shape) == 1), 0)
            types = inferred_types(self._path, self._model, shapes, longest_vector=longest)
            self._refused += contradictions(self._model, types, found)
        if self._refused:
            raise unsupported(self._path, self._refused, way_out=WAY_OUT)
        kept = self._custom.kept
        found |= {next_name(one.state.name): one.written for one in kept}
        returned = with_next_names([value.name for value in graph.output], [one.state for one in kept])
        params += [one.param for one in kept]
        return finished_module(params, self._nodes.statements, found, returned), tuple(one.state for one in kept)

    def _add_initializers(self, graph: onnx.GraphProto, scope: Scope) -> None:
        for name, value in initializers(self._path, graph):
            if isinstance(value, RefusedNode):
                self._refused.append(value)
            scope[name] = _UNKNOWN if isinstance(value, RefusedNode) else value

    def _refuse(self, operator: str, node: str, reason: str) -> None:
        self._refused.append(RefusedNode(operator=operator, node=node, reason=reason))

    def _convert(self, node: onnx.NodeProto, scope: Scope, label: str, opsets: Opsets, depth: int) -> None:
        """Translate `node` and add its results to `scope`. A failure is recorded, with unknown results."""
        results: Sequence[Value | _Unknown] = [_UNKNOWN] * len(node.output)
        self._num_translated += 1
        self._refuse_nodes(self._sizes.limits.excess("nodes", self._num_translated))
        try:
            inputs = [scope[name] for name in node.input]
            self._known.check(node, inputs, opset_for(node, opsets))
            if depth > _MAX_DEPTH:
                raise Refused(f"functions nest deeper than {_MAX_DEPTH}")
            reason = self._sizes.limits.excess("operands", max(len(node.input), len(node.output)))
            if reason:
                raise Refused(f"its inputs or outputs: {reason}")
            if self._is_guarded and may_fail(node, inputs):
                raise Refused("it may fail where the branch that it stands in is not taken")
            if not any(isinstance(value, _Unknown) for value in inputs):
                results = self._results(node, inputs, scope, label, opsets, depth)
        except UnsupportedModel:
            raise
        except Refused as error:
            self._refuse(operator_of(node), label, f"{error}{self._hint(node, scope, str(error))}")
        except Exception as error:  # converters may raise anything, from KeyError to InternalError
            check_memory(error)
            reason = untranslated(node, inputs)
            self._refuse(operator_of(node), label, f"{reason}{self._hint(node, scope, reason)}")
        if self._sizes.is_full:  # otherwise every further constant would be computed before it is refused
            raise unsupported(self._path, self._refused, way_out=WAY_OUT)
        scope.update({name: value for name, value in zip(node.output, results, strict=False) if name})

    def _hint(self, node: onnx.NodeProto, scope: Scope, reason: str) -> str:
        """Return the way out for a node whose needed numbers are unknown only because of inputs that select."""
        if "depend" not in reason and "not known" not in reason:
            return ""
        open_names = [name for name in node.input if not isinstance(scope.get(name), tvm.ir.GenericConst | None)]
        return bind_hint(selecting_inputs(self._model, self._shapes, open_names))

    def _results(
        self,
        node: onnx.NodeProto,
        inputs: list[Value],
        scope: Scope,
        label: str,
        opsets: Opsets,
        depth: int,
    ) -> Sequence[Value | _Unknown]:
        opset = opset_for(node, opsets)
        function = self._known.function(node)
        if function is not None:
            return self._expand(function, node, inputs, label, depth, prefix=f"{label}/")
        if is_control_flow(node):
            return self._control_flow(node, inputs, scope, label, opsets, depth)
        sequences = sequence_results(node, inputs, lambda build: self._nodes.emit(build, label))
        if sequences is not None:
            return sequences
        converter = self._known.converter(node, inputs)
        if converter is None and is_brought(node):
            again = self._is_guarded or self._is_repeated
            return self._custom.results(node, inputs, label, self._nodes.emit, is_repeated=again)
        if converter is None:
            return self._by_definition(node, inputs, label, opsets, depth)
        # A dequantized weight is not folded, because kernels compute with its integers.
        may_fold = all_constant(inputs) and node.op_type != "DequantizeLinear"
        try:
            results = self._nodes.translate(converter.get_converter(opset), node, inputs, label)
        except Exception:
            folded = fold_node(node, inputs, opset, self._sizes) if may_fold else None
            if folded is None:
                raise
            return folded
        is_known = all(isinstance(result, tvm.ir.GenericConst) for result in results)
        return results if is_known or not may_fold else fold_node(node, inputs, opset, self._sizes) or results

    def _by_definition(
        self, node: onnx.NodeProto, inputs: list[relax.Expr | None], label: str, opsets: Opsets, depth: int
    ) -> Sequence[relax.Expr | _Unknown | None]:
        """Translate the node by the operators that the standard defines it by, or fold it."""
        opset = opset_for(node, opsets)
        folded = fold_node(node, inputs, opset, self._sizes) if all_constant(inputs) else None
        if folded is not None:
            return folded
        body = standard_body(node, opset, inputs)
        if body is None and not has_standard_body(node, opset):
            raise Refused(not_defined(node))
        if body is None:
            raise Refused("the standard defines it by other operators only for other types of inputs")
        return self._expand(body, node, inputs, label, depth, outer=opsets)

    def _expand(
        self,
        function: onnx.FunctionProto,
        node: onnx.NodeProto,
        inputs: list[relax.Expr | None],
        label: str,
        depth: int,
        *,
        prefix: str = "",
        outer: Opsets | None = None,
    ) -> list[relax.Expr | _Unknown | None]:
        """Translate the nodes of a function in place.

        prefix: of their labels.
        outer: operator sets that a body may leave out.
        """
        if not prefix:  # a function of the model is counted where it is called
            self._expect_nodes(function.node)
        given = inputs + [None] * (len(function.input) - len(inputs))
        scope: Scope = {"": None, **dict(zip(function.input, given, strict=False))}
        opsets = dict(outer or {}) | {domain_of(entry.domain): entry.version for entry in function.opset_import}
        values = attribute_values(function, node, opset_for(node, outer or {}))
        for index, inner in enumerate(function.node):
            name = f"{prefix}{inner.name or f'{inner.op_type}_{index}'}" if prefix else label
            self._convert(bind_attributes(inner, values), scope, name, opsets, depth + 1)
        return [scope.get(name) if wanted else None for name, wanted in zip(function.output, node.output, strict=False)]

    def _control_flow(
        self,
        node: onnx.NodeProto,
        inputs: list[relax.Expr | None],
        scope: Scope,
        label: str,
        opsets: Opsets,
        depth: int,
    ) -> Sequence[relax.Expr]:
        """Translate the branch of an If, or the iterations of a Loop or Scan."""

        outside, was_guarded, was_repeated = self._repeats, self._is_guarded, self._is_repeated
        self._is_repeated = was_repeated or node.op_type != "If"
        passes = expected_passes(node, inputs)

        def run(graph: onnx.GraphProto, values: Sequence[relax.Expr], prefix: str, guarded: bool) -> list[relax.Expr]:
            nonlocal passes
            before, self._is_guarded = len(self._refused), was_guarded or guarded
            self._repeats = outside * (1 if passes is None else passes)
            passes = None if passes is None else 0  # the first iteration was counted for all of them
            results = self._body(graph, values, scope, prefix, opsets, depth)
            if all(isinstance(result, relax.Expr | TensorSequence) for result in results):
                return results
            if not guarded:
                raise Refused("its body cannot be compiled")
            raise Refused(self._withdrawn(before))

        def isolate(
            graph: onnx.GraphProto, values: Sequence[relax.Expr], prefix: str
        ) -> tuple[Statements, list[relax.Expr]]:
            before, around, was_inside = len(self._refused), self._nodes.statements, self._is_inside_loop
            self._nodes.statements, self._is_inside_loop = self._nodes.new_statements(), True
            try:
                with warnings.catch_warnings(record=True) as notices:
                    results = self._body(graph, values, scope, prefix, opsets, depth)
                if not all(isinstance(result, relax.Expr) for result in results):
                    raise NotRepeated(self._withdrawn(before))
                for notice in notices:
                    warnings.warn(notice.message, stacklevel=2)
                return self._nodes.statements, results
            finally:
                self._nodes.statements, self._is_inside_loop = around, was_inside

        tools = BodyImport(
            run=run, isolate=isolate, emit=lambda build: self._nodes.emit(build, label), limits=self._sizes.limits
        )
        try:
            results = CONTROL_FLOW[node.op_type](node, inputs, opset_for(node, opsets), label, tools)
            if node.op_type == "If" and not all_constant(inputs):
                hint = bind_hint(selecting_inputs(self._model, self._shapes, node.input))
                skips = (
                    "each iteration computes both"
                    if self._is_inside_loop
                    else ("a run skips steps of the branch that is not taken")
                )
                warnings.warn(f"{label}: both branches are compiled, and {skips}{hint}.", ModelNotice, stacklevel=2)
            return results
        finally:
            self._repeats, self._is_guarded, self._is_repeated = outside, was_guarded, was_repeated

    def _body(
        self,
        graph: onnx.GraphProto,
        values: Sequence[relax.Expr],
        scope: Scope,
        prefix: str,
        opsets: Opsets,
        depth: int,
    ) -> list[relax.Expr | _Unknown | None]:
        """Translate the nodes of a body with the given values of its inputs, and return its results."""
        self._expect_nodes(graph.node)
        inner = dict(scope) | dict(zip([value.name for value in graph.input], values, strict=True))
        self._add_initializers(graph, inner)
        for index, body_node in enumerate(graph.node):
            name = f"{prefix}/{body_node.name or f'{body_node.op_type}_{index}'}"
            self._convert(body_node, inner, name, opsets, depth + 1)
        return [inner[value.name] for value in graph.output]

    def _withdrawn(self, before: int) -> str:
        """Return the reason of the first refusal since `before`, and forget these: their nodes need not run."""
        if len(self._refused) == before:
            return NO_STATIC_SIZE
        first = self._refused[before]
        del self._refused[before:]
        return f"{first.operator}: {first.reason}"

    def _expect_nodes(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Count nodes before they are translated, as often as they will be. Raises UnsupportedModel."""
        self._refuse_nodes(self._sizes.refuses_nodes(self._repeats * self._counter.count(nodes)))

    def _refuse_nodes(self, reason: str | None) -> None:
        if reason:
            raise UnsupportedModel(f"{self._path}: its nodes, with functions and loops written out: {reason}.")


def _results_in(graph: onnx.GraphProto) -> Iterator[str]:
    return (name for node in graph.node for name in node.output)


def parameter(path: Path, value: onnx.ValueInfoProto, shape: tuple[int, ...]) -> relax.Var:
    """Return an input under its own name. Raises UnsupportedModel for an element type that cannot be compiled."""
    dtype = dtype_of(value.type.tensor_type.elem_type)
    if dtype is None:
        reason = not_supported(value.type.tensor_type.elem_type)
        raise unsupported(path, [RefusedNode(operator="graph input", node=value.name, reason=reason)], way_out=WAY_OUT)
    return relax.Var(value.name, relax.TensorType(shape, dtype))


def initializers(path: Path, graph: onnx.GraphProto) -> Iterator[tuple[str, relax.Expr | RefusedNode]]:
    """Yield the name of each initializer with its constant, or with the reason why there is none. Raises BadModel."""
    for tensor in graph.initializer:
        if dtype_of(tensor.data_type) is None:
            reason = not_supported(tensor.data_type)
            yield tensor.name, RefusedNode(operator="initializer", node=tensor.name, reason=reason)
            continue
        try:
            yield tensor.name, constant(in_bytes(numpy_helper.to_array(tensor)))
        except (ValueError, TypeError, RuntimeError) as error:
            raise BadModel(f"{path}: initializer {tensor.name!r} is broken: {error}") from None
    for sparse in graph.sparse_initializer:
        name, reason = sparse.values.name, "store the weights densely"
        yield name, RefusedNode(operator="sparse initializer", node=name, reason=reason)


def finished_module(
    params: Sequence[relax.Var], statements: Statements, tensors: Mapping[str, relax.Expr], outputs: Sequence[str]
) -> tvm.IRModule:
    """Return a module with `main` under the model's names, and the loops that it calls.

    Statements that no output needs are dropped.
    """
    sequence, renamed = name_variables(statements.list, tensors, outputs)
    results = [substitute(tensors[name], renamed) for name in outputs]
    attrs = dict_attrs(Symbol(name="main"), InputCount(count=len(params)))
    main = build(params, live(sequence, results), results, attrs=attrs)
    return tvm.IRModule({tvm.ir.GlobalVar("main"): main, **statements.helpers(main)})
