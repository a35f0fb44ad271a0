"""Damage to trees of plain data: dictionaries, lists, numbers, strings; as TOML, JSON and option values have them."""

from __future__ import annotations

import copy
import random
from typing import Any

INTEGERS = (
    0,
    -1,
    1,
    2,
    127,
    128,
    255,
    256,
    65536,
    2**31 - 1,
    2**31,
    2**32,
    2**32 + 1,
    2**48,
    2**63 - 1,
    2**64,
    -(2**31),
    -(2**63),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-38, 1e38, 3.5e38, 1e308, float("inf"), float("-inf"), float("nan"))
STRINGS = (
    "",
    " ",
    "x",
    "ram",
    "sram",
    "../../x",
    "/etc/passwd",
    "a" * 300,
    "%s%n",
    "*/",
    '"',
    "'",
    "\\",
    "\0",
    "\n",
    "日本",
    "\u202e",
    "🙂",
    "CON",
    "-x",
    "--",
    "é",
    ".init",
    "while",
    "nan",
    "0x10",
    "1e400",
)


def special(like: Any, rng: random.Random) -> Any:
    """A value at an edge, mostly of the same kind."""
    if isinstance(like, bool):
        return rng.choice((not like, not like, 0, "true"))
    if isinstance(like, int) and rng.random() < 0.9:
        return rng.choice((*INTEGERS, like + 1, like - 1, like * 2, like // 2))
    if isinstance(like, float) and rng.random() < 0.9:
        return rng.choice((*FLOATS, like * 2, -like))
    if isinstance(like, str) and rng.random() < 0.9:
        at = rng.randrange(len(like) + 1)
        return rng.choice(
            (*STRINGS, like + rng.choice(STRINGS), like[:at] + rng.choice(STRINGS) + like[at:], like[:at])
        )
    return rng.choice((None, [], {}, "x", 0, -1, 1.5, True, [[]], [{}], rng.choice(INTEGERS), rng.choice(STRINGS)))


def mutate_tree(tree: Any, rng: random.Random) -> Any:
    """The tree with one to three of: a value at an edge, an entry less, twice, swapped, renamed, or nested deeper."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(tree))
        if not places:
            return special(tree, rng)
        parent, key = rng.choice(places)
        way = rng.random()
        if way < 0.5:
            parent[key] = special(parent[key], rng)
        elif way < 0.65:
            del parent[key]
        elif way < 0.75 and isinstance(parent, list):
            parent.insert(key, copy.deepcopy(parent[key]))
        elif way < 0.85:
            other, other_key = rng.choice(places)
            parent[key] = copy.deepcopy(other[other_key]) if other is not parent else special(parent[key], rng)
        elif way < 0.93 and isinstance(parent, dict):
            parent[str(special(key, rng)) if rng.random() < 0.5 else f"{key}s"] = parent[key]
        else:
            for _ in range(rng.choice((1, 10, 3000))):
                parent[key] = [parent[key]]
    return tree


def _places(tree: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    for key, value in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        found.append((tree, key))
        if isinstance(value, dict | list) and len(found) < 5000:
            found += _places(value) if not (isinstance(value, list) and len(value) == 1) else []
    return found
