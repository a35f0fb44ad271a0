"""Operators that a pipeline keeps on one processor: those through which a run finds a state and leaves the next one.

Of a window, a state that new rows are joined to, these are the join, what cuts the next state off, and all that reads
the window, which lies where the state is kept. What makes the new rows may run on an earlier stage.
"""

from __future__ import annotations

from tvm import relax

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.dataflow import bindings, op_name, outputs
from tvm_ext.core.decisions.models import KeptStates


def kept_together(operators: OperatorGraph) -> list[frozenset[int]]:
    """Steps of each state that changes; states that change places, or share a step, have one set."""
    states = len(KeptStates.read(operators.mod).states)
    if not states:
        return []
    found: list[tuple[set[int], set[int]]] = []
    for param, result in zip(operators.main.params[-states:], outputs(operators.main)[-states:], strict=True):
        values = {*operators.values[param], *operators.values.get(result, ())}
        if values != {*operators.values[param]}:
            found.append((values, _users(operators, operators.values[param], values)))
    merged: list[tuple[set[int], set[int]]] = []
    for values, steps in found:
        meeting = [one for one in merged if one[0] & values or one[1] & steps]
        merged = [one for one in merged if one not in meeting]
        merged.append((values.union(*(one[0] for one in meeting)), steps.union(*(one[1] for one in meeting))))
    return [frozenset(steps) for _, steps in merged if steps]


def _users(operators: OperatorGraph, state: tuple[int, ...], values: set[int]) -> set[int]:
    """Steps that read a state as it is found, make the next one, or read a window of it."""
    readers = {step for step, node in enumerate(operators.nodes) if {*node.reads} & {*state}}
    windows = {value for step in readers if _joins(operators, step) for value in operators.nodes[step].writes}
    of_windows = {step for step, node in enumerate(operators.nodes) if windows & {*node.reads}}
    return readers | of_windows | {operators.made_by[value] for value in values if value in operators.made_by}


def _joins(operators: OperatorGraph, step: int) -> bool:
    composite = operators.composites[step]
    values = [] if composite is None else [binding.value for binding in bindings(composite)]
    return any(isinstance(value, relax.Call) and op_name(value) == "relax.concat" for value in values)
