"""States of a lowered program: each gets one place that runs keep, and the cheapest way in which a run changes it.

A value that a run leaves is, in this order: pushed into a ring, where the state is the older rows of a window and the
readers take rings ("ring"); moved up inside that window ("shift"); written straight over the state, where nothing reads
that any more ("in place"); or copied at the end ("copy").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from codegen_c.lowering.kept_pairs import KeptPair, state_number, with_place
from codegen_c.lowering.state_windows import in_window
from codegen_c.program.program import Program
from codegen_c.program.stage_states import processors_touching
from codegen_c.program.steps import KernelCall, Transfer, reads, writes
from codegen_c.program.tensors import Part
from tvm_ext.core.names import unique
from tvm_ext.core.platform import STATE_MEMORY


def with_states(
    program: Program, pairs: Sequence[KeptPair], taken: set[str], *, warm_up_runs: int = 0, staged: bool = False
) -> Program:
    """The program with its states. taken: C identifiers, to which those of new tensors and steps are added.

    warm_up_runs: runs behind a reset that do not answer yet. staged: a value that several processors touch, which are
    stages of a pipeline, is not kept itself; one of them keeps a copy.
    """
    program, ordered = _ordered(program, pairs, taken)
    for pair in ordered:
        program = (
            _unchanged(program, pair)
            or in_window(program, pair, taken, staged=staged)
            or _in_place(program, pair, staged=staged)
            or _copied(program, pair, taken)
        )
    if not program.states:
        return program
    ready = state_number(unique("ready", taken), "a mark that the states were set", "uint32")
    program = replace(program, tensors={**program.tensors, ready.name: ready}, ready=ready.name)
    if not warm_up_runs:
        return program
    count = state_number(unique("warmed_up", taken), "runs since the last reset, up to the first answer", "uint32")
    return replace(
        program, tensors={**program.tensors, count.name: count}, warmed_up=count.name, warm_up_runs=warm_up_runs
    )


def _ordered(program: Program, pairs: Sequence[KeptPair], taken: set[str]) -> tuple[Program, list[KeptPair]]:
    """Pairs in an order in which others read each state before it changes; in a circle one is copied first."""
    ordered: list[KeptPair] = []
    left = list(pairs)
    while left:
        free = [pair for pair in left if all(pair.found != other.left for other in left if other is not pair)]
        if not free:
            first = program.tensors[left[0].found]
            before = replace(first, name=unique(f"{first.name}_before", taken), role="intermediate")
            copy = Transfer(name=unique(f"copy_{first.name}", taken), source=first.name, target=before.name)
            program = replace(program, tensors={**program.tensors, before.name: before}, steps=(copy, *program.steps))
            left = [replace(pair, left=before.name) if pair.left == first.name else pair for pair in left]
            continue
        ordered += free
        left = [pair for pair in left if pair not in free]
    return program, ordered


def _unchanged(program: Program, pair: KeptPair) -> Program | None:
    if pair.left != pair.found:
        return None
    return with_place(program, pair, left=pair.found, update="none")


def _in_place(program: Program, pair: KeptPair, *, staged: bool) -> Program | None:
    """The program with the state changed in place, where each element is read for the last time before its write."""
    found, left = program.tensors[pair.found], program.tensors[pair.left]
    steps = program.steps
    writer = next((index for index, step in enumerate(steps) if pair.left in writes(step)), None)
    readers = [index for index, step in enumerate(steps) if pair.found in reads(step)]
    if writer is None or left.role != "intermediate" or left.part or left.ring or left.num_bytes != found.num_bytes:
        return None
    if staged and len(processors_touching(program, {pair.found, pair.left})) > 1:
        return None
    if max(readers, default=-1) > writer or not isinstance(call := steps[writer], KernelCall) or len(call.outputs) > 1:
        return None
    if writer in readers:
        positions = [place for place, name in enumerate(call.inputs) if name == pair.found]
        if len(positions) > 1 or positions[0] not in call.implementation.in_place:
            return None
    kept = with_place(program, pair, left=pair.left, update="in place")
    moved = replace(left, memory=STATE_MEMORY, part=Part(tensor=pair.found, first=0))
    return replace(kept, tensors={**kept.tensors, pair.left: moved})


def _copied(program: Program, pair: KeptPair, taken: set[str]) -> Program:
    """A copy when nothing reads the state any more; through another tensor where the value is a state itself."""
    left, steps = program.tensors[pair.left], list(program.steps)
    kept = with_place(program, pair, left=pair.left, update="copy")
    name = unique(f"{pair.found}_next", taken)
    target = replace(left, name=name, role="intermediate", memory=STATE_MEMORY, ring=None, layout=(), strip=None,
                     part=Part(tensor=pair.found, first=0))  # fmt: skip
    moments = [i for i, step in enumerate(steps) if pair.left in writes(step) or pair.found in reads(step)]
    copy = Transfer(name=unique(f"keep_{pair.found}", taken), source=pair.left, target=name)
    at = max(moments, default=-1) + 1
    tensors = {**kept.tensors, name: target}
    return replace(kept, tensors=tensors, steps=(*steps[:at], copy, *steps[at:]))
