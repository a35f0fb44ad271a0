"""Layers of a model as its calls are told apart: by the function that a call of the run function enters, and in order.

Layers of one shape share a function, and a compiler folds functions of equal code into one; such calls come in the
order of the program's steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tvm_ext.core.errors import BadPackage
from tvm_ext.profiling.estimate_cycles import CallSite

RUN = "run"
"""Name of the layer that stands for the run function's own instructions."""


@dataclass(frozen=True, kw_only=True)
class PackageSteps:
    """Kernel calls of a package. functions: those that each function computes. order: those of each step, in order."""

    functions: Mapping[str, Sequence[str]] = field(default_factory=dict[str, list[str]])
    order: Sequence[Sequence[str]] = ()

    @property
    def rows(self) -> set[str]:
        """Calls that are repeated in turn with others: they compute some rows at a time."""
        return {call for step in self.order if len(step) > 1 for call in step}


def layer_names(calls: Sequence[CallSite], functions: Mapping[int, str], steps: PackageSteps) -> list[str]:
    """A name for each call: the step that it computes, or the function, such as one that copies, that no step has.

    calls: in the order in which they first ran, the run function first. functions: names by address.
    """
    own = {name: steps.functions.get(_plain(name), ()) for name in functions.values()}
    there = {step for computed in own.values() for step in computed}
    rows = steps.rows
    folded = {step for computed in steps.functions.values() for step in computed} - there - rows
    left = [call for step in steps.order for call in step if call in there or call in folded]
    names = [RUN]
    last: dict[str, str] = {}
    for call in calls[1:]:
        function = functions.get(call.target, f"{call.target:#x}")
        computed = own.get(function, ())
        taken = next((step for step in left if step in computed), None)
        if computed and left and left[0] in folded and not rows.issuperset(computed):
            taken = left[0]
        if taken is not None:
            left.remove(taken)
            last[function] = taken
        names.append(last.get(function, function))
    return names


def steps_of_package(trace: Path) -> PackageSteps:
    """Steps of a package, by its trace. Raises BadPackage where that is damaged."""
    try:
        entries = cast("list[Any]", json.loads(trace.read_text(encoding="utf-8"))["code"])
        found = {
            kind: [
                (_text(entry["name"]), [_text(step) for step in entry["steps"]])
                for entry in entries
                if entry["is"] == kind
            ]
            for kind in ("function", "step")
        }
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise BadPackage(f"{trace}: does not say which steps a function computes; compile the model again.") from None
    return PackageSteps(functions=dict(found["function"]), order=[steps for _, steps in found["step"]])


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _plain(name: str) -> str:
    """A function's name without what a compiler appends to that of a copy: `f.constprop.0` is `f`."""
    return name.partition(".")[0]
