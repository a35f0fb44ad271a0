"""Random layered graphs of the kind MOCCASIN was measured on, as the files that benchmarks/remat.py reads."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

WIDTH = 0.5
"""Mean nodes of a layer, times the root of the graph's number of nodes."""
VARIABILITY = 0.75
"""Largest deviation of a layer's number of nodes from the mean, up and down, in parts of the mean."""
DENSITY = 0.33
"""Links between neighbouring layers, in parts of all that are possible."""
SKIPS = 0.15
"""Links over several layers, per link between neighbours."""


def layered_graph(count: int, seed: int) -> dict[str, Any]:
    """A node-link graph of `count` nodes: `out_cost` and `duration` of each, links, and a random order that works."""
    rng = random.Random(seed)
    layers: list[list[int]] = [[0]]
    made = 1
    mean = WIDTH * count**0.5
    while made < count:
        width = round(mean * rng.uniform(1 - VARIABILITY, 1 + VARIABILITY))
        layers.append(list(range(made, min(made + max(width, 1), count))))
        made = layers[-1][-1] + 1
    links = {(u, v) for above, below in pairwise(layers) for u, v in _between(rng, above, below)}
    for _ in range(round(SKIPS * len(links))):
        begin, end = sorted(rng.sample(range(len(layers)), 2))
        if end > begin + 1:
            links.add((rng.choice(layers[begin]), rng.choice(layers[end])))
    nodes = [
        {"name": node, "out_cost": 80 + 10 * round(607 * rng.random() ** 2), "duration": rng.randint(0, 999)}
        for node in range(count)
    ]
    order = _order(rng, count, links)
    return {"graph": {"order": order}, "nodes": nodes, "links": [{"0": u, "1": v} for u, v in sorted(links)]}


def _between(rng: random.Random, above: list[int], below: list[int]) -> set[tuple[int, int]]:
    """Links between two layers: every node has one, and the rest come with a probability."""
    links = {(rng.choice(above), v) for v in below} | {(u, rng.choice(below)) for u in above}
    wanted = round(DENSITY * len(above) * len(below))
    while len(links) < wanted:
        links.add((rng.choice(above), rng.choice(below)))
    return links


def _order(rng: random.Random, count: int, links: set[tuple[int, int]]) -> list[int]:
    """A random order: any of the nodes that may run next, again and again."""
    needs = [0] * count
    followers: list[list[int]] = [[] for _ in range(count)]
    for u, v in sorted(links):
        needs[v] += 1
        followers[u].append(v)
    ready, order = [node for node in range(count) if not needs[node]], []
    while ready:
        node = ready.pop(rng.randrange(len(ready)))
        order.append(node)
        for follower in followers[node]:
            needs[follower] -= 1
            if not needs[follower]:
                ready.append(follower)
    return order
