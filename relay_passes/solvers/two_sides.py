"""Put items on one of two sides at the least total price: of each item on its side, and of values that change sides.

The problem is a minimum cut, which augmenting paths find exactly (Edmonds and Karp, 1972; Dinic's levels). It is the
choice between two forms of each operator, where a value that one form makes and the other reads is converted once for
all readers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

NEVER = 1 << 60
"""Price of a side that an item may not be on."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A value of an item that other items read.

    maker: the item. readers: the items that read the value. leaving, entering: the price of converting it once, where
    the maker is on the first side and a reader on the second, and where it is the other way round.
    """

    maker: int
    readers: tuple[int, ...]
    leaving: int
    entering: int


@dataclass(frozen=True, kw_only=True)
class TwoSides:
    """Prices of each item on the first and on the second side, NEVER for a side it may not be on, and the exchanges."""

    first: Sequence[int]
    second: Sequence[int]
    exchanges: Sequence[Exchange]

    def price(self, on_first: frozenset[int]) -> int:
        """Return the total price with some items on the first side and the others on the second."""
        total = sum(self.first[i] if i in on_first else self.second[i] for i in range(len(self.first)))
        for exchange in self.exchanges:
            is_first = exchange.maker in on_first
            if any((reader in on_first) != is_first for reader in exchange.readers):
                total += exchange.leaving if is_first else exchange.entering
        return total

    def best(self) -> frozenset[int]:
        """Return the items on the first side at the least total price; of equal choices the one with the most there."""
        count = len(self.first)
        start, end = count, count + 1
        network = _Network(edges=[[] for _ in range(count + 2 + 2 * len(self.exchanges))])
        for item, (first, second) in enumerate(zip(self.first, self.second, strict=True)):
            network.connect(start, item, second)
            network.connect(item, end, first)
        for index, exchange in enumerate(self.exchanges):
            leaves, enters = (count + 2 + 2 * index + side for side in (0, 1))
            network.connect(exchange.maker, leaves, exchange.leaving)
            network.connect(enters, exchange.maker, exchange.entering)
            for reader in exchange.readers:
                network.connect(leaves, reader, NEVER)
                network.connect(reader, enters, NEVER)
        while network.augment(start, end):
            pass
        second_side = network.reaching(end)
        return frozenset(item for item in range(count) if item not in second_side)


@dataclass(frozen=True, kw_only=True)
class _Network:
    """Edges [target, remaining capacity, index of the opposite edge in the target's list] by node."""

    edges: list[list[list[int]]] = field(default_factory=list)

    def connect(self, begin: int, end: int, capacity: int) -> None:
        self.edges[begin].append([end, capacity, len(self.edges[end])])
        self.edges[end].append([begin, 0, len(self.edges[begin]) - 1])

    def augment(self, start: int, end: int) -> bool:
        """Send as much as possible along a shortest path with capacity left; False if there is none."""
        came: dict[int, tuple[int, int]] = {}
        waiting, seen = deque([start]), {start}
        while waiting and end not in seen:
            node = waiting.popleft()
            for index, (target, left, _) in enumerate(self.edges[node]):
                if left and target not in seen:
                    seen.add(target)
                    came[target] = node, index
                    waiting.append(target)
        if end not in seen:
            return False
        path, node = list[tuple[int, int]](), end
        while node != start:
            path.append(came[node])
            node = came[node][0]
        amount = min(self.edges[begin][index][1] for begin, index in path)
        for begin, index in path:
            target, _, opposite = self.edges[begin][index]
            self.edges[begin][index][1] -= amount
            self.edges[target][opposite][1] += amount
        return True

    def reaching(self, end: int) -> set[int]:
        """Return the nodes from which `end` can still be reached."""
        seen, waiting = {end}, deque([end])
        while waiting:
            node = waiting.popleft()
            for target, _, opposite in self.edges[node]:
                if target not in seen and self.edges[target][opposite][1]:
                    seen.add(target)
                    waiting.append(target)
        return seen
