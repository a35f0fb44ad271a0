"""Replace IF and WHILE of a TensorFlow Lite file by the operators of their subgraphs.

    IF(condition, ...)     the operators of the branch that is taken
    WHILE(counter, ...)    the operators of the body, once for each time that the condition holds

A condition is known if it follows from constants by comparisons and integer arithmetic. If the condition of an IF is
not known, the operators of both branches replace it, followed by an IF that chooses between their results. A WHILE
that is long, or with a condition that is not known, stays, with its body and condition as a step to be repeated.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import tflite

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.loops import MOST_UNROLLED, MOST_UNROLLED_CALLS
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.frontends.tflite.check_model import check_graph
from tvm_ext.frontends.tflite.read_file import (
    TfliteFile,
    TfliteGraph,
    TfliteLoop,
    TfliteNode,
    TfliteTensor,
    node_options,
)
from tvm_ext.frontends.tflite.resources import RESOURCE_OPERATORS
from tvm_ext.frontends.tflite.variable_tensors import KEEPING

Array = np.ndarray
CONTROL_FLOW = ("IF", "WHILE")

_MOST_ELEMENTS = 64
_WHOLE = ("int32", "int64", "bool")
_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "LESS": np.less, "LESS_EQUAL": np.less_equal, "GREATER": np.greater, "GREATER_EQUAL": np.greater_equal,
    "EQUAL": np.equal, "NOT_EQUAL": np.not_equal, "LOGICAL_AND": np.logical_and, "LOGICAL_OR": np.logical_or,
    "LOGICAL_NOT": np.logical_not, "ADD": np.add, "SUB": np.subtract, "MUL": np.multiply, "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
}  # fmt: skip
_FUSING = {"ADD": tflite.AddOptions, "SUB": tflite.SubOptions, "MUL": tflite.MulOptions}


def control_flow_opened(path: Path, file: TfliteFile, limits: Limits) -> TfliteFile:
    """Return the file with every IF replaced, and every WHILE whose condition is known.

    Raises BadModel for subgraphs that do not fit their operator, and UnsupportedModel for loops that exceed
    `limits.nodes`.
    """
    if not any(node.operator in CONTROL_FLOW for node in file.nodes):
        return file
    return _Flattening(path, file, limits).run()


class _Flattening:
    """Flattening of one file. Each run of a subgraph gets its own copies of the subgraph's tensors."""

    def __init__(self, path: Path, file: TfliteFile, limits: Limits) -> None:
        self._path, self._file, self._limits = path, file, limits
        self._tensors, self._names = list(file.tensors), {tensor.name for tensor in file.tensors}
        self._nodes: list[TfliteNode] = []
        self._constants: dict[tuple[int, int], int] = {}
        self._checked: set[int] = set()
        self._visited = 0

    def run(self) -> TfliteFile:
        where = {index: index for index in range(len(self._tensors))}
        self._place(self._file, where, "", ())
        outputs = tuple(where[index] for index in self._file.outputs)
        made = {index for node in self._nodes for index in node.outputs}
        for place, (index, now) in enumerate(zip(self._file.outputs, outputs, strict=True)):
            if now == index:
                continue
            name = self._file.tensors[index].name
            if now not in made or now in (*outputs[:place], *self._file.outputs):
                raise UnsupportedModel(
                    f"{self._path}: output {name!r} of control flow is the same tensor as an input, a constant or "
                    "another output. Remove it from the model's outputs."
                )
            self._tensors[now] = replace(self._tensors[now], name=name)
        return replace(self._file, tensors=tuple(self._tensors), nodes=tuple(self._nodes), outputs=outputs)

    def _place(self, graph: TfliteGraph, where: dict[int, int], prefix: str, active: tuple[int, ...]) -> None:
        """Add a graph's operators.

        where: index in the new file for each tensor of the graph. The results of the operators are added to it.
        """
        for node in graph.nodes:
            self._count()
            inputs = tuple(index if index < 0 else where[index] for index in node.inputs)
            own = replace(node, label=f"{prefix}{node.label}", inputs=inputs)
            results = self._written_out(own, active) if node.operator in CONTROL_FLOW else None
            if results is not None:
                if len(results) != len(node.outputs):
                    raise self._misfit(own, f"gives {len(node.outputs)} results, its subgraph {len(results)}")
                where.update(zip(node.outputs, results, strict=True))
                continue
            own = self._both_branches(own, active) if own.operator == "IF" else self._repeated(own, active)
            own = replace(own, outputs=tuple(index if index < 0 else where[index] for index in node.outputs))
            if (value := self._value(own)) is None:
                self._nodes.append(own)
            else:
                self._tensors[own.outputs[0]] = replace(self._tensors[own.outputs[0]], data=value)

    def _written_out(self, node: TfliteNode, active: tuple[int, ...]) -> Sequence[int] | None:
        """Replace an operator; return the tensors with its results.

        Returns None if its condition is not known, and for a WHILE that is repeated because it is long.
        """
        if node.operator == "IF":
            options = node_options(node, tflite.IfOptions)
            taken = self._is_true(node.inputs[0]) if node.inputs and options else None
            if taken is None:
                return None
            graph = options.ThenSubgraphIndex() if taken else options.ElseSubgraphIndex()
            return self._inline(node, graph, node.inputs[1:], f"{node.label}.", active)
        options, begun = node_options(node, tflite.WhileOptions), len(self._nodes)
        values, times = node.inputs, 0
        while options:
            self._count()
            prefix = f"{node.label}.{times}."
            condition = self._inline(node, options.CondSubgraphIndex(), values, prefix, active)
            goes_on = self._is_true(condition[0]) if len(condition) == 1 else None
            if goes_on is None:
                del self._nodes[begun:]  # the operators of the iterations so far
                return None
            if not goes_on:
                return values
            if times >= MOST_UNROLLED and self._are_many(self._nodes[begun:]):
                del self._nodes[begun:]
                return None
            values, times = self._inline(node, options.BodySubgraphIndex(), values, prefix, active), times + 1
        return None

    @staticmethod
    def _are_many(nodes: Sequence[TfliteNode]) -> bool:
        """Return True for more operators of a WHILE than are unrolled, if a step can be repeated."""
        return len(nodes) > MOST_UNROLLED_CALLS and not any(map(_keeps, nodes))

    def _repeated(self, node: TfliteNode, active: tuple[int, ...]) -> TfliteNode:
        """Return a WHILE with its body and condition as a step. Other operators stay as they are."""
        options = node_options(node, tflite.WhileOptions) if node.operator == "WHILE" else None
        if options is None or len(node.inputs) != len(node.outputs) or min(node.inputs, default=-1) < 0:
            return node
        first = self._inline(node, options.CondSubgraphIndex(), node.inputs, f"{node.label}.first.", active)
        before, self._nodes = self._nodes, []
        body, prefix = self._file.called.get(options.BodySubgraphIndex()), f"{node.label}."
        values = tuple(self._fresh(index, prefix) for index in node.inputs) if body else ()
        results = self._inline(node, options.BodySubgraphIndex(), values, prefix, active)
        again = self._inline(node, options.CondSubgraphIndex(), results, f"{prefix}again.", active)
        nodes, self._nodes = tuple(self._nodes), before
        if len(first) != 1 or len(results) != len(values):
            raise self._misfit(node, f"gives {len(values)} results, its subgraphs {len(results)} and {len(first)}")
        loop = TfliteLoop(first=first[0], values=values, nodes=nodes, results=results, again=again[0])
        return replace(node, loop=loop)

    def _fresh(self, index: int, prefix: str) -> int:
        """Return a new tensor like another one, whose numbers are not known."""
        like = self._tensors[index]
        self._tensors.append(replace(like, name=self._unused(f"{prefix}{like.name}"), data=None))
        return len(self._tensors) - 1

    def _both_branches(self, node: TfliteNode, active: tuple[int, ...]) -> TfliteNode:
        """Add the operators of both branches; return the operator that chooses between their results."""
        options, begun = node_options(node, tflite.IfOptions), len(self._nodes)
        if options is None or not node.inputs or node.inputs[0] < 0:
            return node
        condition, *given = node.inputs
        sides = {"then": options.ThenSubgraphIndex(), "else": options.ElseSubgraphIndex()}
        results: list[int] = []
        for side, graph in sides.items():
            found = self._inline(node, graph, given, f"{node.label}.{side}.", active)
            if len(found) != len(node.outputs):
                raise self._misfit(node, f"gives {len(node.outputs)} results, its subgraph {len(found)}")
            results += found
        self._nodes[begun:] = [replace(inner, is_guarded=True) for inner in self._nodes[begun:]]
        said = "both branches are compiled, and a run skips steps of the branch that is not taken"
        warnings.warn(f"{node.label}: {said}.", ModelNotice, stacklevel=2)
        return replace(node, inputs=(condition, *results), is_choice=True)

    def _inline(
        self, node: TfliteNode, number: int, arguments: Sequence[int], prefix: str, active: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Add the operators of a subgraph that reads `arguments`; return the tensors with its results."""
        graph = self._file.called.get(number)
        if graph is None or number in active:
            raise self._misfit(node, f"calls subgraph {number}, which does not exist or calls itself")
        if number not in self._checked:
            check_graph(self._path, graph.tensors, graph.nodes, graph.inputs, graph.outputs)
            self._checked.add(number)
        given = [self._tensors[index].dtype if index >= 0 else None for index in arguments]
        if given != [graph.tensors[index].dtype for index in graph.inputs]:
            raise self._misfit(node, f"passes {len(given)} tensors that do not fit the inputs of subgraph {number}")
        where = dict(zip(graph.inputs, arguments, strict=True))
        for index, tensor in enumerate(graph.tensors):
            if index not in where:
                where[index] = self._copied(number, index, tensor, prefix)
        self._place(graph, where, prefix, (*active, number))
        return tuple(where[index] for index in graph.outputs)

    def _copied(self, number: int, index: int, tensor: TfliteTensor, prefix: str) -> int:
        """Return the copy of a tensor for one run of a subgraph. All runs share the copy of a constant."""
        if tensor.data is not None and (number, index) in self._constants:
            return self._constants[number, index]
        self._tensors.append(replace(tensor, name=self._unused(f"{prefix}{tensor.name}")))
        if tensor.data is not None:
            self._constants[number, index] = len(self._tensors) - 1
        return len(self._tensors) - 1

    def _unused(self, wanted: str) -> str:
        name, again = wanted, 0
        while name in self._names:
            again += 1
            name = f"{wanted}.{again}"
        self._names.add(name)
        return name

    def _is_true(self, index: int) -> bool | None:
        data = self._tensors[index].data if index >= 0 else None
        return bool(data.reshape(-1)[0]) if data is not None and data.size == 1 and data.dtype == np.bool_ else None

    def _value(self, node: TfliteNode) -> Array | None:
        """Return the result of an operator on a few constant integers; None for all other operators."""
        if node.operator not in _FUNCTIONS or len(node.outputs) != 1 or min(*node.inputs, *node.outputs) < 0:
            return None
        given, output = [self._tensors[index] for index in node.inputs], self._tensors[node.outputs[0]]
        if node.operator in _FUSING:
            options = node_options(node, _FUSING[node.operator])
            if options is None or options.FusedActivationFunction() != tflite.ActivationFunctionType.NONE:
                return None
        if any(tensor.dtype not in _WHOLE or tensor.scales is not None for tensor in (*given, output)):
            return None
        known = [tensor.data for tensor in given if tensor.data is not None and tensor.data.size <= _MOST_ELEMENTS]
        if len(known) < len(given) or len(given) != _FUNCTIONS[node.operator].nin:  # type: ignore[attr-defined]
            return None
        with np.errstate(over="ignore"):
            result = np.asarray(_FUNCTIONS[node.operator](*known))
        fits = result.size == np.prod(output.shape, dtype=object) and str(result.dtype) == output.dtype
        return result.reshape(output.shape) if fits else None

    def _count(self) -> None:
        self._visited += 1
        reason = self._limits.excess("nodes", self._visited)
        if reason:
            raise UnsupportedModel(f"{self._path}: its operators after IF and WHILE are unrolled: {reason}.")

    def _misfit(self, node: TfliteNode, what: str) -> BadModel:
        return BadModel(f"{self._path}: {node.label} {what}.")


def _keeps(node: TfliteNode) -> bool:
    """Return True for an operator that may keep state, so that no step with it is repeated.

    Operators of TensorFlow are refused anyway, and once is enough.
    """
    return (
        (node.is_custom and not node.operator.startswith("Flex"))
        or node.operator in KEEPING
        or node.operator in RESOURCE_OPERATORS
    )
