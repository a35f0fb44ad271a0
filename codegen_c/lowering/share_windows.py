"""Join layers that read the same windows of one tensor into one call, which brings the windows into scratch once.

    box = conv(x); ...; score = conv(x)   ->   box, score = convs(x); ...

Examples are queries, keys and values of attention, the branches of an inception block, and the gates of a WaveNet. The
joined call runs where the first of the layers ran, so the outputs of the others are live from there on. Layers are only
joined if the peak of live bytes does not grow and the modelled instructions get fewer. Splits in rows, which save
memory, are decided before; layers in row sequences stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from codegen_c.arena.local_peaks import changed, counted
from codegen_c.kernels.shared.shared_windows import joined
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, Step, writes


def with_shared_windows(program: Program, *, apart: Collection[str] = ()) -> Program:
    """Return the program with layers joined where that saves instructions.

    apart: tensors whose steps must stay where they are, because they must not share their bytes.
    """
    found = counted(program)
    peaks = found.peaks
    for group in _groups(program, apart):
        first, *others = group
        for other in others:
            call = _joined(first, other)
            tried = call and _replaced(found.program, first, other, call)
            known = changed(found, tried, peaks) if tried else None
            if call and known:
                found, peaks, first = known, known.peaks, call
    return found.program


def _groups(program: Program, apart: Collection[str]) -> list[list[KernelCall]]:
    """Return calls that read the same windows of one tensor, in order."""
    groups: dict[tuple[object, ...], list[KernelCall]] = {}
    for step in program.steps:
        if isinstance(step, KernelCall) and _can_join(program, step, apart):
            windows = step.implementation.windows
            assert windows is not None, "it can be joined"
            groups.setdefault((*step.inputs, windows.form, step.processor, step.scratch_memory), []).append(step)
    return [group for group in groups.values() if len(group) > 1]


def _can_join(program: Program, step: KernelCall, apart: Collection[str]) -> bool:
    """Return True if a call computes a whole layer whose weights are in place, always, and writes no state."""
    is_plain = step.rows is None and not (step.prefetched or step.guards or step.rings)
    if step.implementation.windows is None or not is_plain:
        return False
    states = {name for state in program.states for name in (state.tensor, state.left)}
    touched = {_whole(program, name) for name in (*step.inputs, *step.outputs)}
    return touched.isdisjoint({_whole(program, name) for name in (*states, *program.kept)}) and set(
        step.outputs
    ).isdisjoint(apart)


def _whole(program: Program, name: str) -> str:
    """Return the tensor whose bytes contain a tensor."""
    part = program.tensors[name].part
    return part.tensor if part else name


def _joined(first: KernelCall, other: KernelCall) -> KernelCall | None:
    """Return the call of two layers, the first of which may be joined already; None if it saves no instructions."""
    calls = (*(first.joined or (first,)), other)
    made = joined([call.implementation for call in calls])
    if made is None or made.instructions >= first.implementation.instructions + other.implementation.instructions:
        return None
    return replace(
        first,
        implementation=made,
        outputs=tuple(name for call in calls for name in call.outputs),
        constants=tuple(name for call in calls for name in call.constants),
        source_nodes=tuple(dict.fromkeys(node for call in calls for node in call.source_nodes)),
        operator=None,
        joined=calls,
    )


def _replaced(program: Program, first: KernelCall, other: KernelCall, call: KernelCall) -> Program | None:
    """Return the program with the joined call in place of the first; None if the input may change in between."""
    begin, end = program.steps.index(first), program.steps.index(other)
    source = _whole(program, first.inputs[0])
    if any(_whole(program, name) == source for step in program.steps[begin:end] for name in writes(step)):
        return None
    steps: Sequence[Step] = [call if step is first else step for step in program.steps if step is not other]
    return replace(program, steps=tuple(steps))
