"""A directed acyclic graph of operators and the bytes of their values, as the solvers of several problems read it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Node:
    """reads, writes: value numbers. extra_bytes: scratch while it runs. shared_bytes: value read -> bytes that the
    output shares with it if the value dies here."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    extra_bytes: int = 0
    shared_bytes: Mapping[int, int]


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Nodes in an order that works; sizes of values in bytes; values that are there before and needed at the end."""

    nodes: tuple[Node, ...]
    sizes: tuple[int, ...]
    inputs: frozenset[int]
    outputs: frozenset[int]

    def without_bytes_of(self, values: Set[int]) -> Graph:
        """The same where some values lie elsewhere: they take no bytes, and nothing is written over them."""
        nodes = tuple(
            replace(
                node,
                shared_bytes={}
                if values & set(node.writes)
                else {value: shared for value, shared in node.shared_bytes.items() if value not in values},
            )
            for node in self.nodes
        )
        sizes = tuple(0 if value in values else size for value, size in enumerate(self.sizes))
        return replace(self, nodes=nodes, sizes=sizes)
