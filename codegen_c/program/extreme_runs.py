"""Steps of the most and the least expensive run of a program whose branches and iterations depend on data.

A run takes one side of each condition, so the cost of a run is never the sum of both sides. Every combination of values
is possible: a condition inside a branch that is not taken decides no step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from codegen_c.program.guards import guards_of
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, Step, calls

Cost = Callable[[Step], float]
_Guards = tuple[tuple[str, bool], ...]
"""Conditions and their values, all of which must hold."""
_Costs = Mapping[_Guards, float]
"""Sum of the costs of all steps that have the same guards."""
_Prefers = Callable[[float, float], bool]

_MOST_DEPTH = 64
_MOST_TERMS = 4096
"""Limits of the exact search. Conditions beyond them get the side that prefers their own steps."""


def has_branches(program: Program) -> bool:
    """Return True if a run of the program may skip steps, or iterations of a loop inside a step."""
    return any(guards_of(step) or _has_open_end(step) for step in program.steps)


def worst_run(program: Program, cost: Cost) -> Program:
    """Return the program with only the steps of the most expensive run; the program itself without branches.

    Loops that data end run all iterations.
    """
    return _run(program, cost, lambda one, other: one > other)


def best_run(program: Program, cost: Cost) -> Program:
    """Return the program with only the steps of the least expensive run; the program itself without branches.

    The kernels of loops that data end cost what the fewest iterations cost.
    """
    if any(map(_has_open_end, program.steps)):
        program = replace(program, steps=tuple(map(_shortest, program.steps)))
    return _run(program, cost, lambda one, other: one < other)


def macs_of(step: Step) -> int:
    """Return the multiply-accumulates of a step."""
    return sum(call.implementation.macs for call in calls(step) if isinstance(call, KernelCall))


def instructions_of(step: Step) -> int:
    """Return the modelled instructions of a step."""
    return sum(call.implementation.instructions for call in calls(step) if isinstance(call, KernelCall))


def _has_open_end(step: Step) -> bool:
    return isinstance(step, KernelCall) and step.implementation.open_end is not None


def _shortest(step: Step) -> Step:
    """Return the step with the cost of the fewest iterations, and without an open end."""
    end = step.implementation.open_end if isinstance(step, KernelCall) else None
    if not isinstance(step, KernelCall) or end is None:
        return step
    least = replace(step.implementation, macs=end.macs, instructions=end.instructions, open_end=None)
    return replace(step, implementation=least)


def _run(program: Program, cost: Cost, prefers: _Prefers) -> Program:
    if not any(map(guards_of, program.steps)):
        return program
    costs: dict[_Guards, float] = {}
    for step in program.steps:
        if guards := tuple((one.condition, one.holds) for one in guards_of(step)):
            costs[guards] = costs.get(guards, 0.0) + cost(step)
    _, values = _chosen(costs, prefers)
    taken = tuple(
        step for step in program.steps if all(values.get(one.condition, True) is one.holds for one in guards_of(step))
    )
    return replace(program, steps=taken)


def _chosen(costs: _Costs, prefers: _Prefers, depth: int = 0, doubled: int = 0) -> tuple[float, dict[str, bool]]:
    """Return the preferred cost, and the value of each condition that gives it.

    depth: number of conditions that have values. doubled: number of them that left the same steps to both sides.
    """
    total, values = 0.0, dict[str, bool]()
    for group in _independent(costs):
        condition, count = Counter(name for guards in group for name, _ in guards).most_common(1)[0]
        if depth >= _MOST_DEPTH or len(group) << doubled > _MOST_TERMS:
            found = _in_turn(group, prefers)
        else:
            sides: list[tuple[float, dict[str, bool]]] = []
            for holds in (True, False):
                own, rest = _given(group, condition, holds)
                below, inner = _chosen(rest, prefers, depth + 1, doubled + (count < len(group)))
                sides.append((own + below, {condition: holds, **inner}))
            found = sides[1] if prefers(sides[1][0], sides[0][0]) else sides[0]
        total, values = total + found[0], {**values, **found[1]}
    return total, values


def _in_turn(costs: _Costs, prefers: _Prefers) -> tuple[float, dict[str, bool]]:
    """Choose one condition after another by the costs of the steps on its sides."""
    using: dict[str, list[_Guards]] = {}
    for guards in costs:
        for name, _ in guards:
            using.setdefault(name, []).append(guards)
    values: dict[str, bool] = {}

    def may_run(guards: _Guards) -> bool:
        return all(values.get(name, holds) is holds for name, holds in guards)

    for condition, terms in using.items():
        possible = [guards for guards in terms if may_run(guards)]
        sums = [sum(costs[guards] for guards in possible if (condition, side) in guards) for side in (True, False)]
        values[condition] = not prefers(sums[1], sums[0])
    return sum(cost for guards, cost in costs.items() if may_run(guards)), values


def _given(costs: _Costs, condition: str, holds: bool) -> tuple[float, dict[_Guards, float]]:
    """Return the cost of the steps that certainly run if a condition has a value, and the costs of undecided steps."""
    certain, left = 0.0, dict[_Guards, float]()
    for guards, cost in costs.items():
        if (condition, not holds) in guards:
            continue
        others = tuple(guard for guard in guards if guard[0] != condition)
        if others:
            left[others] = left.get(others, 0.0) + cost
        else:
            certain += cost
    return certain, left


def _independent(costs: _Costs) -> list[dict[_Guards, float]]:
    """Return the costs in groups that have no condition in common."""
    joined: dict[str, str] = {}

    def root(name: str) -> str:
        while joined.get(name, name) != name:
            joined[name] = name = joined.get(joined[name], joined[name])
        return name

    for guards in costs:
        first = root(guards[0][0])
        for name, _ in guards[1:]:
            joined[root(name)] = first
    groups: dict[str, dict[_Guards, float]] = {}
    for guards, cost in costs.items():
        groups.setdefault(root(guards[0][0]), {})[guards] = cost
    return list(groups.values())
