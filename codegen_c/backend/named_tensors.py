"""Tensors of a program by the names that a user knows: the model's own, or those of the C."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.program.interface import KeptValue, Port
from codegen_c.program.program import Program
from codegen_c.program.tensors import Tensor
from tvm_ext.core.errors import BadOptions

EVERY = "all"
"""Name that stands for every value, unless a tensor is called so."""
_MOST_LISTED = 30
_WILDCARDS = frozenset("*?[")


def tensor_named(program: Program, source: str) -> str:
    """The tensor under a name of the model's own, an input or output before others. Raises BadOptions."""
    ports = (*program.inputs, *program.outputs)
    found = next((name for name in (*ports, *program.tensors) if program.tensors[name].source == source), None)
    if found is None:
        raise BadOptions(_unknown(program, source))
    return found


def kept_tensors(program: Program, wanted: Sequence[str], held: Collection[str]) -> tuple[str, ...]:
    """Tensors that `keep` names: by name, by a pattern with `*`, `?` or `[...]`, or every one by `all`.

    A model that was cut has several tensors for one name, and all of them are kept. held: tensors that the caller
    holds, which patterns leave out. Raises BadOptions for a name or pattern of nothing, and for a tensor that is held.
    """
    found: dict[str, None] = {}
    for text in wanted:
        named = [tensor.name for tensor in program.tensors.values() if text in _names(tensor)]
        if outside := [name for name in named if name in held]:
            raise BadOptions(
                f"keep {text!r}: {outside[0]} lies in the caller's memory, not in the arena; it is there after a run "
                "anyway. Leave the name out, or choose io = 'arena'."
            )
        matched = named or [
            tensor.name
            for tensor in program.tensors.values()
            if tensor.name not in held
            and tensor.role != "state"
            and tensor.part is None
            and (text == EVERY or (_WILDCARDS & {*text} and any(fnmatchcase(name, text) for name in _names(tensor))))
        ]
        if not matched:
            raise BadOptions(_unknown(program, text))
        found |= dict.fromkeys(matched)
        found |= {part.tensor: None for name in matched if (part := program.tensors[name].part)}
    return tuple(found)


def kept_values(
    program: Program, plan: MemoryPlan, kept: Sequence[str], *, in_flight: int = 1
) -> tuple[KeptValue, ...]:
    """Values of these tensors that are inside the model, with their places; inputs and outputs have theirs anyway.

    Raises BadOptions where values have several places, as in a pipeline of `in_flight` inputs.
    """
    ports = {*program.inputs, *program.outputs}
    inside = [name for name in kept if name not in ports]
    if inside and in_flight > 1:
        raise BadOptions(
            f"keep {program.tensors[inside[0]].source!r}: a pipeline works on {in_flight} inputs at once, and values "
            "inside have a place for each. Choose placement_objective = 'makespan', or keep inputs and outputs alone."
        )
    return tuple(
        KeptValue(
            port=Port(
                name=name, source=tensor.source, shape=tensor.shape, dtype=tensor.dtype,
                quantization=tensor.quantization,
            ),
            layout=tensor.layout, memory=place.memory, offset=place.offset, num_bytes=place.num_bytes,
            rows=tensor.ring.rows if tensor.ring else None, rows_stored=tensor.ring.stored if tensor.ring else None,
            pitch=tensor.part.pitch if tensor.part else None,
        )
        for name in inside
        for tensor, place in [(program.tensors[name], plan.placements[name])]
    )  # fmt: skip


def _names(tensor: Tensor) -> tuple[str, ...]:
    """Names of a tensor: the model's, that of the C, and of a strip that of the model's tensor which it is cut from."""
    return (tensor.source, _short(tensor.source), tensor.name, *([tensor.strip.source] if tensor.strip else []))


def _short(source: str) -> str:
    """The first of the names that TensorFlow Lite's converter joins by `;` where it fuses operators."""
    return source.partition(";")[0]


def _unknown(program: Program, text: str) -> str:
    """Sentence on a name of nothing, with the names that there are, near ones first."""
    ports = [program.tensors[name].source for name in (*program.inputs, *program.outputs)]
    names = list(dict.fromkeys([*ports, *(_short(tensor.source) for tensor in program.tensors.values())]))
    near = get_close_matches(text, names, n=_MOST_LISTED, cutoff=0.5)
    within = [name for name in names if name not in near and text.strip("*") and text.strip("*") in name]
    ordered = list(dict.fromkeys([*near, *within, *names]))
    more = f" and {len(ordered) - _MOST_LISTED} more" if len(ordered) > _MOST_LISTED else ""
    return (
        f"{text!r} is no tensor of the compiled model, or was fused into an operator. It has, near names first: "
        f"{', '.join(ordered[:_MOST_LISTED])}{more}."
    )
