"""Layers of a model as its calls are told apart: by the function that a call of the run function enters, and in order.

Layers of one shape share a function; their calls then come in the order of the program's steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from tvm_ext.core.errors import BadPackage
from tvm_ext.profiling.counts import CallSite

RUN = "run"
"""Name of the layer that stands for the run function's own instructions."""


def layer_names(
    calls: Sequence[CallSite], functions: Mapping[int, str], steps: Mapping[str, Sequence[str]]
) -> list[str]:
    """A name for each call, the steps it computes, joined where they cannot be told apart.

    functions: names by address. steps: those that each function computes, in order. A call of another function, such
    as one that copies between memories, is named for that function.
    """
    sites: dict[str, list[int]] = {}
    for number, call in enumerate(calls):
        sites.setdefault(_plain(functions.get(call.target, f"{call.target:#x}")), []).append(number)
    names = [RUN] * len(calls)
    for function, numbers in sites.items():
        own = steps.get(function, ())
        each = own if len(own) == len(numbers) else [", ".join(own) or function] * len(numbers)
        for number, name in zip(numbers, each, strict=True):
            names[number] = RUN if number == 0 else name
    return names


def steps_of_functions(trace: Path) -> dict[str, list[str]]:
    """Steps that each function of a package computes, by its trace. Raises BadPackage where that is damaged."""
    try:
        entries = json.loads(trace.read_text(encoding="utf-8"))["code"]
        found = [(entry["name"], entry["steps"]) for entry in cast("list[Any]", entries) if entry["is"] == "function"]
        if not all(isinstance(name, str) and all(isinstance(one, str) for one in steps) for name, steps in found):
            raise TypeError
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise BadPackage(f"{trace}: does not say which steps a function computes; compile the model again.") from None
    return {name: list(steps) for name, steps in found}


def _plain(name: str) -> str:
    """A function's name without what a compiler appends to that of a copy: `f.constprop.0` is `f`."""
    return name.partition(".")[0]
