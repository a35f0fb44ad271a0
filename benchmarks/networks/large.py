"""Networks of any number of operators, which show how the time of a compilation grows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from benchmarks.networks.cell_graph import CellGraph

_CHANNELS, _SIZE, _FRAMES = 8, 8, 16


class _LargeGraph(CellGraph):
    """A network with slices and recurrent cells, and weights so small that a thousand sums stay finite."""

    @property
    def num_nodes(self) -> int:
        return len(self._nodes)

    def slice(self, x: str, begin: int, end: int) -> str:
        """Elements [begin, end) of axis 1."""
        bounds = [self._integers(role, [value]) for role, value in (("begin", begin), ("end", end), ("axis", 1))]
        return self._node("Slice", [x, *bounds], (1, end - begin, *self.shapes[x][2:]))

    def tall(self, x: str, kernel: int) -> str:
        """A depthwise convolution over rows."""
        return self._conv(x, self.shapes[x][1], (kernel, 1), stride=1, group=self.shapes[x][1], activation="relu")

    def cell(self, features: int, units: int) -> Callable[[str, str], str]:
        """A recurrent cell whose update gate mixes the state with a candidate: [1, F], [1, U] -> [1, U].

        All steps read the same weights.
        """
        weights = {
            gate: [self._weight(f"{gate}_{part}", (depth, units), depth, gain=1.0)
                   for part, depth in (("input", features), ("state", units))]
            for gate in ("update", "candidate")
        }  # fmt: skip
        bias = {gate: self._constant(f"{gate}_bias", np.zeros(units)) for gate in weights}

        def gate(name: str, function: str, x: str, state: str) -> str:
            of_input, of_state = weights[name]
            of_x, of_s = (
                self._node("MatMul", [value, weight], (1, units))
                for value, weight in ((x, of_input), (state, of_state))
            )
            total = self._node("Add", [self._node("Add", [of_x, of_s], (1, units)), bias[name]], (1, units))
            return self._node(function, [total], (1, units))

        def step(x: str, state: str) -> str:
            update, candidate = gate("update", "Sigmoid", x, state), gate("candidate", "Tanh", x, state)
            change = self._node("Sub", [candidate, state], (1, units))
            return self.add(state, self._node("Mul", [update, change], (1, units)))

        return step

    def _weight(self, role: str, shape: tuple[int, ...], fan_in: int, *, gain: float) -> str:
        return super()._weight(role, shape, fan_in, gain=gain / 100)


def residual_chain(name: str, operators: int) -> onnx.ModelProto:
    """Pairs of convolutions with a sum around each: float32[1, 8, 8, 8] -> the same, about `operators` nodes."""
    graph, x = _LargeGraph(name, (1, _CHANNELS, _SIZE, _SIZE)), "input"
    while graph.num_nodes < operators:
        inner = graph.conv(x, _CHANNELS, 3, activation="relu")
        x = graph.add(x, graph.conv(inner, _CHANNELS))
    return graph.model(x)


def split_branches(name: str, operators: int) -> onnx.ModelProto:
    """Blocks that compute half of the channels and keep the others, with a sum over four blocks at times.

    float32[1, 8, 16, 1] -> the same, `operators` nodes or a few more. The blocks are as in GTCRN (Rong et al. 2024).
    """
    graph, x = _LargeGraph(name, (1, _CHANNELS, _FRAMES, 1)), "input"
    blocks = [x]
    while graph.num_nodes < operators:
        kept, computed = graph.slice(x, 0, _CHANNELS // 2), graph.slice(x, _CHANNELS // 2, _CHANNELS)
        inner = graph.tall(graph.conv(computed, 2 * _CHANNELS, activation="relu"), 3)
        x = graph.concat([graph.conv(inner, _CHANNELS // 2), kept])
        if len(blocks) % 4 == 0:
            x = graph.add(x, blocks[-4])
        blocks.append(x)
    return graph.model(x)


def unrolled_cells(name: str, operators: int) -> onnx.ModelProto:
    """Steps of one recurrent cell: float32[1, 8 T] -> [1, 16], about `operators` nodes."""
    features, units, nodes_per_step = 8, 16, 14
    steps = max(operators // nodes_per_step, 2)
    graph = _LargeGraph(name, (1, steps * features))
    cell, state = graph.cell(features, units), graph.slice("input", 0, units)
    for step in range(steps):
        state = cell(graph.slice("input", step * features, (step + 1) * features), state)
    return graph.model(state)


LARGE: dict[str, Callable[[str, int], onnx.ModelProto]] = {
    "residual_chain": residual_chain, "split_branches": split_branches, "unrolled_cells": unrolled_cells,
}  # fmt: skip
"""Networks by name: functions of a name and the number of operators."""
