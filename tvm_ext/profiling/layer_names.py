"""Assignment of the calls in the run function to layers, by the called function and by the order of the calls.

Layers of the same shape share a function, and a compiler merges functions with equal code. The calls of a shared
function are assigned to its layers in the order of the program's steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from tvm_ext.core.errors import BadPackage
from tvm_ext.profiling.estimate_cycles import CallSite
from tvm_ext.profiling.taken_branches import Guards, skipped_steps

RUN = "run"
"""Layer name for the run function's own instructions."""


@dataclass(frozen=True, kw_only=True)
class PackageSteps:
    """Kernel calls of a package.

    functions: the calls that each function computes. order: the calls of each step. guards: conditions of the steps of
    branches.
    """

    functions: Mapping[str, Sequence[str]] = field(default_factory=dict[str, list[str]])
    order: Sequence[Sequence[str]] = ()
    guards: Guards = field(default_factory=dict[str, Sequence[tuple[str, bool]]])

    @property
    def rows(self) -> set[str]:
        """Calls that alternate with other calls of their step, because each computes some rows at a time."""
        return {call for step in self.order if len(step) > 1 for call in step}


def without_skipped(
    calls: Sequence[CallSite], functions: Mapping[int, str], steps: PackageSteps
) -> tuple[PackageSteps, list[str] | None]:
    """Return the steps of branches that a run took, and the names of those it skipped.

    Returns all steps and None if the calls of the run do not say which branches it took. calls, functions: as in
    `layer_names`.
    """
    if not steps.guards:
        return steps, []
    rows = steps.rows
    own = {name: steps.functions.get(_plain(name), ()) for name in functions.values()}
    there = {step for computed in own.values() for step in computed}
    folded = {step for computed in steps.functions.values() for step in computed} - there - rows
    order = [call for step in steps.order for call in step if call in (there | folded) - rows]
    called = [own.get(functions.get(call.target, ""), ()) for call in calls[1:]]
    computed = [{*own_steps, *folded} for own_steps in called if own_steps and not rows.issuperset(own_steps)]
    skipped = skipped_steps(order, computed, steps.guards)
    if skipped is None:
        return steps, None
    left = [[call for call in step if call not in skipped] for step in steps.order]
    return replace(steps, order=[step for step in left if step]), skipped


def layer_names(calls: Sequence[CallSite], functions: Mapping[int, str], steps: PackageSteps) -> list[str]:
    """Return a name for each call: the layer, or the called function if no layer uses it, such as a copy function.

    calls: in the order of their first run, with the run function first. functions: names by address.
    """
    own = {name: steps.functions.get(_plain(name), ()) for name in functions.values()}
    there = {step for computed in own.values() for step in computed}
    rows = steps.rows
    # Calls whose own function is not in the firmware: the compiler merged it into an equal function.
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
    """Read the steps of a package from its trace file. Raises BadPackage if the file is damaged."""
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
        raise BadPackage(f"{trace} is damaged: the steps of functions are missing; compile the model again.") from None
    return PackageSteps(functions=dict(found["function"]), order=[steps for _, steps in found["step"]])


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _plain(name: str) -> str:
    """Return a function's name without the suffix of a compiler's copy: `f.constprop.0` becomes `f`."""
    return name.partition(".")[0]
