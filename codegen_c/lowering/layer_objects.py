"""Constants of a layer that are fetched to another memory become one object, which one transfer copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import replace

from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, Step
from codegen_c.program.tensors import Constant, layer_object
from tvm_ext.core.names import unique

MOST_REPEATED_BYTES = 512
"""Bytes of a constant, at most, that layers of different constants each get a copy of in their objects."""


def with_layer_objects(program: Program, fetched: Container[str], taken: set[str]) -> Program:
    """The program with one object for the constants of each step that is in `fetched`, where it has several.

    Steps with the same constants have one object. A constant that other steps read, too, is repeated up to
    MOST_REPEATED_BYTES, and stays what it is above. taken: names, to which new ones are added.
    """
    sets = {step.constants for step in program.kernel_calls() if step.name in fetched}
    readers = Counter(name for names in {step.constants for step in program.kernel_calls()} for name in {*names})
    renamed: dict[tuple[str, ...], dict[str, str]] = {}
    constants, steps = dict(program.constants), list[Step]()
    for step in program.steps:
        if isinstance(step, KernelCall) and step.name in fetched and step.constants in sets:
            if step.constants not in renamed:
                found = [constants[name] for name in dict.fromkeys(step.constants)]
                joined = [one for one in found if readers[one.name] == 1 or one.data.nbytes <= MOST_REPEATED_BYTES]
                made = _joined(step.name, joined, taken)
                constants |= made
                old_names = (one.name for one in joined)
                renamed[step.constants] = dict(zip(old_names, (one for one in made if made[one].layer), strict=False))
            new = renamed[step.constants]
            step = replace(step, constants=tuple(new.get(name, name) for name in step.constants))
        steps.append(step)
    made = replace(program, constants=constants, steps=tuple(steps))
    read = {name for step in made.kernel_calls() for name in step.constants}
    kept = {name: one for name, one in constants.items() if name in read or one.members or name not in readers}
    return replace(made, constants=kept)


def _joined(step: str, constants: list[Constant], taken: set[str]) -> dict[str, Constant]:
    """The object of a step's constants, and each of them as a part of it; nothing for fewer than two."""
    if len(constants) < 2 or not all(one.data.size for one in constants):
        return {}
    name = unique(f"{step}_constants", taken)
    roles: set[str] = set()
    members = [
        replace(one, name=unique(f"{name}_{member}", taken), layer=name, member=member)
        for one in constants
        for member in (unique(one.note.partition(",")[0] or "values", roles),)
    ]
    return {**{one.name: one for one in members}, name: layer_object(name, members)}
