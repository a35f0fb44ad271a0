"""Steps that a run skipped because it did not take their branch, found from the calls of the run.

Branches may share functions, so a call alone does not tell its branch. The whole sequence of calls does, unless two
branches call the same functions in the same order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

Guards = Mapping[str, Sequence[tuple[str, bool]]]
"""For each step of a branch, the conditions and their values for which the step runs."""

_MOST_TRIES = 4096


def guards_in_report(steps: Sequence[Mapping[str, Any]]) -> Guards:
    """Return the guards of the steps in a report. Entries that are damaged are left out."""
    found: dict[str, list[tuple[str, bool]]] = {}
    for step in steps:
        name, guards = step.get("name"), step.get("guards")
        if not isinstance(name, str) or not isinstance(guards, list):
            continue
        for guard in cast("list[Any]", guards):
            match guard:
                case {"condition": str(condition), "holds": bool(holds)}:
                    found.setdefault(name, []).append((condition, holds))
                case _:
                    pass
    return found


def skipped_steps(order: Sequence[str], calls: Sequence[Collection[str]], guards: Guards) -> list[str] | None:
    """Return the steps that a run skipped; None if its calls fit no branches, or those of several.

    order: the steps. calls: for each call of the run, the steps that the called function may compute.
    """
    found: list[list[str]] = []
    left: list[tuple[int, int, dict[str, bool], list[str]]] = [(0, 0, {}, [])]
    for _ in range(_MOST_TRIES):
        if not left or len(found) > 1:
            break
        index, call, values, skipped = left.pop()
        while index < len(order):
            own = guards.get(order[index], ())
            unknown = next((condition for condition, _ in own if condition not in values), None)
            decided = [values[condition] is holds for condition, holds in own if condition in values]
            if unknown is not None and all(decided):
                left += [(index, call, {**values, unknown: value}, list(skipped)) for value in (False, True)]
                break
            if all(decided):
                if call == len(calls) or order[index] not in calls[call]:
                    break
                call += 1
            else:
                skipped.append(order[index])
            index += 1
        if index == len(order) and call == len(calls) and skipped not in found:
            found.append(skipped)
    return found[0] if len(found) == 1 and not left else None
