"""Nodes of a graph once its functions are written out, counted without writing them out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

Key = tuple[str, str]

MOST = 1 << 62
"""Ceiling of counts; a function that calls itself has as many."""


class NodeCounter:
    """Counts for one model. Nodes inside branches and loops are counted when these are taken.

    functions: the model's own, by domain and name.
    """

    def __init__(self, functions: Mapping[Key, onnx.FunctionProto]) -> None:
        self._functions = functions
        self._known: dict[Key, int] = {}

    def count(self, nodes: Iterable[onnx.NodeProto]) -> int:
        """A call of a function counts as the nodes it holds, and itself."""
        return min(MOST, sum(1 + self._held_by((node.domain, node.op_type)) for node in nodes))

    def _held_by(self, key: Key) -> int:
        """Nodes of a function, those that it calls first; no recursion, for chains of functions may be long."""
        pending, open_calls = [key], set[Key]()
        while pending:
            current = pending[-1]
            function = self._functions.get(current)
            if current in self._known or function is None:
                pending.pop()
                continue
            called = [(node.domain, node.op_type) for node in function.node]
            unknown = [inner for inner in called if inner in self._functions and inner not in self._known]
            if current in open_calls or not unknown:
                pending.pop()
                open_calls.discard(current)
                held = sum(1 + self._known.get(inner, 0) for inner in called)
                self._known[current] = MOST if unknown else min(MOST, held)
                continue
            open_calls.add(current)
            pending += dict.fromkeys(unknown)
        return self._known.get(key, 0)
