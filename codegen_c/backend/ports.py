"""Inputs, outputs and kept values of a program, by the names that its callers use."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import MappingProxyType

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.kernels.user_functions import Callback
from codegen_c.lowering.lower_region import GivenNames
from codegen_c.operators.kinds import Quantization
from codegen_c.program.interface import KeptValue, Port, StreamedPort
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, RowSteps
from codegen_c.program.tensors import Tensor
from tvm_ext.core.changed_inputs import ChangedInput
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.names import identifier
from tvm_ext.core.row_access import Columns
from tvm_ext.core.row_sequence import RowLoop, Schedule


def ports_of(
    program: Program,
    names: Sequence[str],
    sources: Sequence[str],
    scales: Mapping[str, tuple[float, int]] | None = MappingProxyType({}),
    layouts: Mapping[str, str] = MappingProxyType({}),
    changed: Mapping[str, ChangedInput] = MappingProxyType({}),
) -> tuple[Port, ...]:
    """Return the ports of tensors. sources: the model's own names; by default the tensors' names.

    scales: scale and zero point by the model's own name, which override those of the program's operators; None for a
    format whose integers have no scales, so that those of the operators mean nothing. layouts:
    letters of the axes, by the model's own name. changed: inputs whose form differs from the model's, by the model's
    own name.
    """
    tensors = [program.tensors[name] for name in names]
    taken_as = {name: change.description for name, change in changed.items()}
    own = sources or [tensor.source for tensor in tensors]
    calls: dict[str, list[tuple[KernelCall, Callback]]] = {}
    for call in program.kernel_calls():
        if callback := call.implementation.callback:
            outside = call.inputs[0] if callback.direction == "read" else call.outputs[0]
            calls.setdefault(outside, []).append((call, callback))
    return tuple(
        Port(
            name=t.name, source=source, shape=t.shape, dtype=t.dtype,
            quantization=None if taken_as.get(source) else _quantization(t, source, scales),
            taken_as=taken_as.get(source, ""),
            layout=layouts.get(source, ""),
            stream=_together([_stream(program, *one) for one in calls[t.name]]) if t.name in calls else None,
        )
        for t, source in zip(tensors, own, strict=True)
    )  # fmt: skip


def _quantization(tensor: Tensor, source: str, scales: Mapping[str, tuple[float, int]] | None) -> Quantization | None:
    """Return the scale and zero point of a port; None for floats and for integers without quantization."""
    if scales is None:
        return None
    if source not in scales or not tensor.dtype.startswith(("int", "uint")):
        return tensor.quantization
    scale, zero_point = scales[source]
    return Quantization(scale=scale, zero_point=zero_point)


def _together(found: Sequence[StreamedPort]) -> StreamedPort:
    """Return how an input is streamed by several callbacks, each of which delivers some of its columns."""
    if len(found) == 1:
        return found[0]
    return StreamedPort(
        rows=found[0].rows, layout=found[0].layout, rows_kept=max(one.rows_kept for one in found),
        rows_per_call=1 if any(one.rows_per_call == 1 for one in found) else max(one.rows_per_call for one in found),
        strips=tuple(strip for one in found for strip in one.strips),
        asked_at=tuple(row for one in found for row in one.asked_at),
        asked_in=tuple(index for index, one in enumerate(found) for _ in one.asked_at),
    )  # fmt: skip


def _stream(program: Program, call: KernelCall, callback: Callback) -> StreamedPort:
    """Return how a callback streams an input or output, and how many of its rows are stored."""
    inside = program.tensors[call.outputs[0] if callback.direction == "read" else call.inputs[0]]
    kept, shift = (inside.ring.stored, inside.ring.shift) if inside.ring else (callback.rows, 0)
    ranges = [
        (turn.begin, turn.end)
        for step in program.steps
        if isinstance(step, RowSteps)
        for turn in step.calls
        if step.body[turn.operator].name == call.name
    ] or [(0, callback.rows)]
    never_apart = all((begin + shift) % kept + end - begin <= kept for begin, end in ranges)
    at_a_time = max(end - begin for begin, end in ranges) if never_apart else 1
    asked_at = _asked_at(program, call) or (0,)
    return StreamedPort(
        rows=callback.rows, rows_kept=kept, rows_per_call=at_a_time, layout=callback.layout, asked_at=asked_at,
        strips=_strips(program, call, callback), asked_in=(0,) * len(asked_at),
    )  # fmt: skip


def _strips(program: Program, call: KernelCall, callback: Callback) -> tuple[Columns, ...]:
    """Return the columns that a call asks for; empty if no call of the input asks for only some of its columns."""
    others = (one for one in program.kernel_calls() if one.inputs == call.inputs and one.implementation.callback)
    if callback.direction == "write" or not any(_columns_of(one) for one in others):
        return ()
    width = program.tensors[call.inputs[0]].shape[callback.layout[2]]
    return (callback.columns or (0, width),)


def _columns_of(call: KernelCall) -> Columns | None:
    return call.implementation.callback.columns if call.implementation.callback else None


def _asked_at(program: Program, call: KernelCall) -> tuple[int, ...]:
    """Return the first row of each entry of a call in the schedules."""

    def rows(schedule: Schedule, operator: int) -> list[int]:
        found: list[int] = []
        for entry in schedule:
            if isinstance(entry, RowLoop):
                found += rows(entry.body, operator)
            elif entry.operator == operator:
                found.append(entry.begin)
        return found

    return tuple(
        row
        for step in program.steps
        if isinstance(step, RowSteps)
        for operator, inner in enumerate(step.body)
        if inner.name == call.name
        for row in rows(step.schedule, operator)
    )


def port_names(
    inputs: Sequence[str],
    outputs: Sequence[str],
    rename: Mapping[str, str] | None,
    reserved: Collection[str],
    computed: Collection[str] = (),
) -> GivenNames:
    """Return names in C for the inputs and outputs of a region; empty if the model's own name is used.

    inputs, outputs: the model's own names. rename: model's name -> name in C; an input takes precedence over an output
    with the same name. reserved: names that the model must not use. computed: outputs that get their names in C before
    tensors inside the model do. Raises BadOptions for an unknown name, and for a name in C that is already used.
    """
    chosen = rename or {}
    for old, new in chosen.items():
        if old not in (*inputs, *outputs):
            raise BadOptions(
                f"rename {old}={new}: the model has no input or output {old!r}; its inputs are {_listed(inputs)}, its "
                f"outputs {_listed(outputs)}."
            )
        others = [name for name in (*inputs, *outputs) if name not in chosen and identifier(name, fallback="t") == new]
        if others or new in reserved:
            what = f"{others[0]!r} has that name" if others else "the package itself uses that name"
            raise BadOptions(f"rename {old}={new}: {what}; choose another name.")
    made = {name: identifier(name, fallback="t") for name in computed}
    chosen = {**{name: new for name, new in made.items() if new not in reserved}, **chosen}
    given = [chosen.get(name, "") for name in inputs]
    return GivenNames(
        inputs=tuple(given), outputs=tuple("" if name in inputs else chosen.get(name, "") for name in outputs)
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


EVERY = "all"
"""Name that selects every value, unless a tensor has this name."""
_MOST_LISTED = 30
_WILDCARDS = frozenset("*?[")


def tensor_named(program: Program, source: str) -> str:
    """Return the tensor with a name of the model; inputs and outputs come before other tensors.

    Raises BadOptions for an unknown name.
    """
    ports = (*program.inputs, *program.outputs)
    found = next((name for name in (*ports, *program.tensors) if program.tensors[name].source == source), None)
    if found is None:
        raise BadOptions(_unknown(program, source))
    return found


def kept_tensors(program: Program, wanted: Sequence[str], held: Collection[str]) -> tuple[str, ...]:
    """Return the tensors that the option `keep` selects: by name, by a pattern with `*`, `?` or `[...]`, or by `all`.

    A split model has several tensors for one name, and all of them are kept. held: tensors in the caller's memory,
    which patterns skip. Raises BadOptions for a name or pattern without a match, and for a tensor in the caller's
    memory.
    """
    found: dict[str, None] = {}
    for text in wanted:
        named = [tensor.name for tensor in program.tensors.values() if text in _names(tensor)]
        if outside := [name for name in named if name in held]:
            raise BadOptions(
                f"keep {text!r}: {outside[0]} is in the caller's memory, not in the arena, and keeps its value after a "
                "run anyway. Leave the name out, or choose io = 'arena'."
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
    """Return the kept values inside the model, with memory and offset. Inputs and outputs are left out.

    Raises BadOptions in a pipeline of `in_flight` inputs, where a value has an offset for each input.
    """
    ports = {*program.inputs, *program.outputs}
    inside = [name for name in kept if name not in ports]
    if inside and in_flight > 1:
        raise BadOptions(
            f"keep {program.tensors[inside[0]].source!r}: a pipeline works on {in_flight} inputs at once, and values "
            "inside have an offset for each. Choose placement_objective = 'makespan', or keep only inputs and outputs."
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
    """Return the names of a tensor: in the model, in C, and for a strip the name of the tensor that it is cut from."""
    return (tensor.source, _short(tensor.source), tensor.name, *([tensor.strip.source] if tensor.strip else []))


def _short(source: str) -> str:
    """Return the first of the names that TensorFlow Lite's converter joins by `;` when it fuses operators."""
    return source.partition(";")[0]


def _unknown(program: Program, text: str) -> str:
    """Return the message for an unknown name, with the known names, the most similar first."""
    ports = [program.tensors[name].source for name in (*program.inputs, *program.outputs)]
    names = list(dict.fromkeys([*ports, *(_short(tensor.source) for tensor in program.tensors.values())]))
    near = get_close_matches(text, names, n=_MOST_LISTED, cutoff=0.5)
    within = [name for name in names if name not in near and text.strip("*") and text.strip("*") in name]
    ordered = list(dict.fromkeys([*near, *within, *names]))
    more = f" and {len(ordered) - _MOST_LISTED} more" if len(ordered) > _MOST_LISTED else ""
    return (
        f"{text!r} is not a tensor of the compiled model, or was fused into an operator. Similar names first, it has: "
        f"{', '.join(ordered[:_MOST_LISTED])}{more}."
    )
