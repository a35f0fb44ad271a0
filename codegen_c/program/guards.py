"""Skip the steps of a branch that is not taken.

A step gets a guard if its results are needed for only one value of a condition. The need is propagated backward from
the outputs of the program:

    c = x > 0;  a = f(x);  b = g(x);  y = where(c, a, b)     f is needed only if c is true, g only if c is false

A step that is skipped does not write its outputs. So every step that reads them must be skipped too, or it must be the
selection, which then reads the other side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import repeat

from codegen_c.program.program import Program
from codegen_c.program.steps import Guard, KernelCall, Loop, RowSteps, Step, reads, writes

BOTH = frozenset((True, False))


def with_guards(program: Program) -> Program:
    """Return the program with guards on the steps of branches; the program itself if it has none."""
    conditions = dict.fromkeys(
        step.inputs[step.selection.condition]
        for step in program.steps
        if isinstance(step, KernelCall) and step.selection
    )
    guarded = program
    for condition in conditions:
        guarded = _guarded(guarded, condition)
    if guarded is program:
        return program
    known = {condition: _known(guarded, condition) for condition in conditions}
    return replace(guarded, steps=tuple(_in_order(step, known) for step in guarded.steps))


def _in_order(step: Step, known: Mapping[str, int]) -> Step:
    """Return the step with conditions in the order in which they are computed.

    A condition inside a branch is not computed if the branch is not taken, so it must not be read first.
    """
    if not isinstance(step, KernelCall) or len(step.guards) < 2:
        return step
    return replace(step, guards=tuple(sorted(step.guards, key=lambda guard: known[guard.condition])))


def guards_of(step: Step) -> tuple[Guard, ...]:
    """Return the guards of a step, or of all calls of a loop."""
    if isinstance(step, Loop):
        (guards, *others) = dict.fromkeys(call.guards if isinstance(call, KernelCall) else () for call in step.body)
        return () if others else guards
    return step.guards if isinstance(step, KernelCall) else ()


def _guarded(program: Program, condition: str) -> Program:
    """Return the program with guards by one condition."""
    wanted = _wanted(program, condition)
    if all(values == BOTH for values in wanted):
        return program
    steps, known = program.steps, _known(program, condition)
    early = [index for index, values in enumerate(wanted) if values != BOTH and index < known]
    if early and _may_reorder(program):  # run them when the condition is known
        order = [index for index in range(known + 1) if index not in early]
        order = [*order, *early, *range(known + 1, len(steps))]
        program = replace(program, steps=tuple(steps[index] for index in order))
        wanted, known = _wanted(program, condition), _known(program, condition)
    if any(values != BOTH for values in wanted[: known + 1]):
        wanted = _wanted(program, condition, known)
    return replace(program, steps=tuple(map(_with_guard, program.steps, wanted, repeat(condition))))


def _with_guard(step: Step, values: frozenset[bool], condition: str) -> Step:
    if not isinstance(step, KernelCall) or values == BOTH:
        return step
    (holds,) = values
    return replace(step, guards=(*step.guards, Guard(condition=condition, holds=holds)))


def _known(program: Program, condition: str) -> int:
    """Return the index of the step that computes the condition; -1 for an input."""
    whole = _wholes(program)
    return max((i for i, step in enumerate(program.steps) if _touches(writes(step), condition, whole)), default=-1)


def _may_reorder(program: Program) -> bool:
    """Return True if steps may change places as far as data allow.

    Transfers are numbered in their order, and a state must be read before it is written.
    """
    return not program.states and all(isinstance(step, KernelCall | RowSteps) for step in program.steps)


def _wanted(program: Program, condition: str, known: int = -1) -> list[frozenset[bool]]:
    """Return the values of the condition for which each step has to run.

    known: steps up to this index run for both values.
    """
    whole, found = _wholes(program), list[frozenset[bool]]()
    wanted = dict.fromkeys((whole[name] for name in (*program.outputs, *program.kept) if name in whole), BOTH)
    """Values of the condition for which the elements of each tensor are needed."""
    for index, step in reversed([*enumerate(program.steps)]):
        values = frozenset[bool]().union(*(wanted.get(whole[name], frozenset()) for name in writes(step)))
        values = values if _can_wait(step) and index > known and values else BOTH
        found.append(values)
        for name, read in _demanded(step, condition, values):
            wanted[whole[name]] = wanted.get(whole[name], frozenset()) | read
    return found[::-1]


def _wholes(program: Program) -> dict[str, str]:
    """Return for each tensor the tensor that it is a part of, or itself."""
    return {name: tensor.part.tensor if tensor.part else name for name, tensor in program.tensors.items()}


def _touches(names: Collection[str], tensor: str, whole: dict[str, str]) -> bool:
    return any(whole[name] == whole[tensor] for name in names)


def _can_wait(step: Step) -> bool:
    """Return True if a step may be skipped: a kernel call that neither the application nor an accelerator waits for."""
    return isinstance(step, KernelCall) and not step.implementation.callback and not step.implementation.driver


def _demanded(step: Step, condition: str, values: frozenset[bool]) -> Iterable[tuple[str, frozenset[bool]]]:
    """Return the tensors that a step reads, and the values of the condition for which it needs their elements."""
    selection = step.selection if isinstance(step, KernelCall) else None
    if not isinstance(step, KernelCall) or selection is None or step.inputs[selection.condition] != condition:
        return [(name, values) for name in reads(step)]
    sides = {position: side for side, positions in selection.when.items() for position in positions}
    found = [
        (name, values & {sides[position]} if position in sides else values) for position, name in enumerate(step.inputs)
    ]
    return [*found, *((name, values) for name in reads(step) if name not in step.inputs)]
