"""States of a program between runs: their memory, and windows into which new rows are pushed.

The next value of a state is stored in the first of these ways that is possible. "ring": new rows are pushed into a ring
buffer, if the state is the older rows of a window whose readers support rings. "shift": the window's rows move up
inside the window. "in place": the value overwrites the state, if nothing reads the old value any more. "copy": the
value is copied into the state at the end. A state that no run changes has "none".

In a `KeptPair`, `found` is the tensor of the value that a run finds, and `left` the tensor of the value that it leaves
to the next run. A window is `join(found, new)`, a concat, and `left` is cut out of its end:

    window = concat(found, new)    ->    the kernel of `new` writes its rows into the window itself, in the memory of
    left = the last rows of window       states; concat and slice disappear; readers of a ring take the write index

The write index of a ring is a tensor of one number: the slots by which new rows have advanced the ring. Each run adds
the number of new rows to it, and a reader finds row h in slot (h + shift + write index) % stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from codegen_c.kernels.contract import Copy, Kept, StoredRows
from codegen_c.program.phases import processors_touching
from codegen_c.program.program import Program
from codegen_c.program.share_functions import has_constants_of, with_parameters
from codegen_c.program.steps import KernelCall, Step, Transfer, WriteIndex, reads, writes
from codegen_c.program.tensors import KeptState, Part, Ring, Tensor, Update
from tvm_ext.core.model_nodes import ModelState
from tvm_ext.core.names import unique
from tvm_ext.core.platform import STATE_MEMORY


def with_states(
    program: Program, pairs: Sequence[KeptPair], taken: set[str], *, warm_up_runs: int = 0, staged: bool = False
) -> Program:
    """Return the program with its states.

    taken: C identifiers in use, to which the names of new tensors and steps are added. warm_up_runs: runs after a reset
    that return no outputs. staged: processors are stages of a pipeline; a value that several of them touch is not kept
    itself, but one of them keeps a copy.
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
    """Return the pairs in an order in which a state that is also the next value of another is read before it changes.

    In a cycle of states one state is copied first.
    """
    ordered: list[KeptPair] = []
    remaining = list(pairs)
    while remaining:
        free = [pair for pair in remaining if all(pair.found != other.left for other in remaining if other is not pair)]
        if not free:
            first = program.tensors[remaining[0].found]
            before = replace(first, name=unique(f"{first.name}_before", taken), role="intermediate")
            copy = Transfer(name=unique(f"copy_{first.name}", taken), source=first.name, target=before.name)
            program = replace(program, tensors={**program.tensors, before.name: before}, steps=(copy, *program.steps))
            remaining = [replace(pair, left=before.name) if pair.left == first.name else pair for pair in remaining]
            continue
        ordered += free
        remaining = [pair for pair in remaining if pair not in free]
    return program, ordered


def _unchanged(program: Program, pair: KeptPair) -> Program | None:
    """Return the program if no run changes the state, else None."""
    if pair.left != pair.found:
        return None
    return with_place(program, pair, left=pair.found, update="none")


def _in_place(program: Program, pair: KeptPair, *, staged: bool) -> Program | None:
    """Return the program with the state overwritten in place, or None.

    Each element of the old value must be read for the last time before its new value is written.
    """
    found, left = program.tensors[pair.found], program.tensors[pair.left]
    steps = program.steps
    writer = next((index for index, step in enumerate(steps) if pair.left in writes(step)), None)
    readers = [index for index, step in enumerate(steps) if pair.found in reads(step)]
    if writer is None or left.role != "intermediate" or left.part or left.ring or left.num_bytes != found.num_bytes:
        return None
    if staged and len(processors_touching(program, {pair.found, pair.left})) > 1:
        return None
    if max(readers, default=-1) > writer or not isinstance(call := steps[writer], KernelCall):
        return None
    positions = [place for place, name in enumerate(call.inputs) if name == pair.found]
    is_next = any((place, call.outputs.index(pair.left)) in call.implementation.next_states for place in positions)
    if len(positions) > 1 or (len(call.outputs) > 1 and not is_next):
        return None
    if positions and not is_next and positions[0] not in call.implementation.in_place:
        return None
    kept = with_place(program, pair, left=pair.left, update="in place")
    moved = replace(left, memory=STATE_MEMORY, part=Part(tensor=pair.found, first=0))
    return replace(kept, tensors={**kept.tensors, pair.left: moved})


def _copied(program: Program, pair: KeptPair, taken: set[str]) -> Program:
    """Return the program with a copy into the state after the last read of its old value."""
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


@dataclass(frozen=True, kw_only=True, eq=False)
class KeptPair:
    """A state of the model. found: the tensor that holds it before a run. left: the tensor of its next value."""

    state: ModelState
    found: str
    left: str


def state_number(name: str, source: str, dtype: str) -> Tensor:
    """Return a tensor of one number that the generated code keeps between runs."""
    return Tensor(name=name, source=source, shape=(1,), dtype=dtype, memory=STATE_MEMORY, role="state")


def with_place(program: Program, pair: KeptPair, *, left: str, update: Update, tensor: Tensor | None = None) -> Program:
    """Return the program with the state in the memory of states. tensor: its tensor, by default `found`."""
    held = replace(tensor or program.tensors[pair.found], role="state", memory=STATE_MEMORY)
    state = KeptState(
        source=pair.state.name, tensor=held.name, initial=pair.state.initial, left=left, update=update,
        layout=pair.state.layout,
    )  # fmt: skip
    return replace(program, tensors={**program.tensors, held.name: held}, states=(*program.states, state))


TURN_DTYPE = "uint16"
MOVE_INSTRUCTIONS = 0.75
"""Modelled instructions for each byte that moves up inside a window."""
_MOST_SLOTS = (1 << 16) - 1


@dataclass(frozen=True, kw_only=True)
class _Window:
    """A state and new elements that are joined to a window, the end of which is the next state.

    join, cut: the steps that join and cut the window. whole, new: the tensors of the window and of the new elements.
    rows, pushed: rows of the window and of the new elements. apart: the new elements belong to another stage, and are
    copied into the window.
    """

    join: KernelCall
    cut: KernelCall
    whole: Tensor
    new: Tensor
    rows: int
    pushed: int
    apart: bool = False


def _window(program: Program, pair: KeptPair) -> _Window | None:
    """Return the window whose older part is a state, or None if the state is used in any other way."""
    readers = [step for step in program.steps if pair.found in reads(step)]
    cut = next((step for step in program.steps if pair.left in writes(step)), None)
    if len(readers) != 1 or not isinstance(join := readers[0], KernelCall) or not isinstance(cut, KernelCall):
        return None
    found, whole = program.tensors[pair.found], program.tensors[join.outputs[0]]
    joined, taken = join.implementation.copies, cut.implementation.copies
    if len(join.inputs) != 2 or join.inputs[0] != pair.found or cut.inputs != (whole.name,):
        return None
    new = program.tensors[join.inputs[1]]
    behind = Copy(input=1, source_first=0, target_first=found.num_elements, count=new.num_elements)
    before = Copy(input=0, source_first=0, target_first=0, count=found.num_elements)
    last = Copy(input=0, source_first=new.num_elements, target_first=0, count=found.num_elements)
    # The join must place the state before the new elements, and the cut must take the end of the window.
    if joined != (before, behind) or taken != (last,) or pair.left == pair.found:
        return None
    if any(t.role != "intermediate" or t.part or t.ring for t in (whole, program.tensors[pair.left])):
        return None
    if any(pair.left in reads(step) for step in program.steps):
        return None
    rows = _rows_of(whole, new.num_elements)
    return _Window(join=join, cut=cut, whole=whole, new=new, rows=rows[0], pushed=rows[1]) if rows else None


def _rows_of(whole: Tensor, new_elements: int) -> tuple[int, int] | None:
    """Return the rows of a window along its first axis longer than 1, and the number of new rows."""
    rows = next((extent for extent in whole.shape if extent > 1), 1)
    row = whole.num_elements // rows
    return (rows, new_elements // row) if new_elements % row == 0 else None


def in_window(program: Program, pair: KeptPair, taken: set[str], *, staged: bool) -> Program | None:
    """Return the program with the window kept between runs; None if there is no window. staged: as in `with_states`."""
    window = _window(program, pair)
    if window is None:
        return None
    touched = {window.new.name, window.whole.name}
    window = replace(window, apart=staged and len(processors_touching(program, touched)) > 1)
    return _ring(program, pair, window, taken) or _shifted(program, pair, window, taken)


def _ring(program: Program, pair: KeptPair, window: _Window, taken: set[str]) -> Program | None:
    """Return the program with a ring into which new rows are pushed.

    Returns None if a reader does not support rings, or if moving rows up costs less.
    """
    # A multiple of the pushed rows, so that rows that are pushed together never wrap around.
    stored = -(-window.rows // window.pushed) * window.pushed
    row_elements = window.whole.num_elements // window.rows
    # If more than half of the window is new, moving the rest up is cheaper than a ring.
    if window.pushed * 2 > window.rows or stored > _MOST_SLOTS:
        return None
    index_name = unique(f"{window.whole.name}_turn", taken)
    # New rows are written from the slot of the write index on. The window's first row is rows - pushed rows older, so
    # it lies that many slots before the write index, which is `shift` slots after it, modulo `stored`.
    shift = (window.pushed + stored - window.rows) % stored
    readers = [step for step in program.steps if window.whole.name in reads(step) and step is not window.cut]
    with_ring = [_reading_ring(step, window, stored, WriteIndex(tensor=index_name, shift=shift)) for step in readers]
    if any(call is None for call in with_ring):
        return None
    calls = {call.name: call for call in with_ring if call}
    added_instructions = sum(call.implementation.instructions for call in calls.values())
    added_instructions -= sum(step.implementation.instructions for step in readers if isinstance(step, KernelCall))
    if added_instructions > MOVE_INSTRUCTIONS * program.tensors[pair.found].num_bytes:
        return None
    ring = Ring(rows=window.rows, stored=stored, shift=shift, write_index=index_name)
    placed, steps = _pushed_into(program, window, row_elements * (window.rows - window.pushed), taken)
    kept = with_place(placed, pair, left=window.whole.name, update="ring", tensor=replace(window.whole, ring=ring))
    state = replace(kept.states[-1], tensor=window.whole.name, pushed=window.pushed, initial=_older(pair, window))
    index_tensor = state_number(index_name, f"{pair.state.name}: slot of the next rows", TURN_DTYPE)
    return replace(
        kept,
        tensors={name: t for name, t in kept.tensors.items() if name not in (pair.found, pair.left)}
        | {index_name: index_tensor},
        states=(*kept.states[:-1], state),
        steps=tuple(calls.get(step.name, step) for step in steps),
    )


def _older(pair: KeptPair, window: _Window) -> np.ndarray:
    """Return the window before the first run: the initial state, preceded by rows to be replaced."""
    row = window.whole.num_elements // window.rows
    begins = np.ascontiguousarray(pair.state.initial).reshape(-1)
    return np.concatenate([np.repeat(begins[:1], row * window.pushed), begins]).reshape(window.whole.shape)


def _reading_ring(call: Step, window: _Window, stored: int, write_index: WriteIndex) -> KernelCall | None:
    """Return the call of a reader of the window with a kernel that reads rows from a ring.

    Returns None if its kernel cannot, or if it is inside a sequence. stored: slots of the ring.
    """
    if not isinstance(call, KernelCall):
        return None
    implementation = call.implementation
    found_at = [position for position, name in enumerate(call.inputs) if name == window.whole.name]
    if len(found_at) != 1 or implementation.keeping is None or implementation.spatial is None or call.rings:
        return None
    (position,) = found_at
    spatial = implementation.spatial
    if position >= len(spatial.inputs) or spatial.accumulates or spatial.inputs[position].input_rows != window.rows:
        return None
    if call.seen_shape(position, window.whole)[0] != 1 or call.prefetched or len(call.outputs) > 1:
        return None
    kept = Kept(stored=stored, shift=write_index.shift)
    rows = StoredRows(inputs=tuple(kept if index == position else None for index in range(len(call.inputs))))
    # The slot of the first row is known only in the run, so it is a parameter of the function.
    name = f"input{position}_shift" if position else "input_shift"
    made = with_parameters(implementation.keeping, rows, [name])
    # Helpers are functions of their own and do not have this parameter.
    if made.function.helpers != implementation.function.helpers and name in made.function.helpers:
        return None
    if not has_constants_of(made, implementation):  # another kernel was chosen, which needs other constants
        return None
    if name not in made.function.body:
        return None
    made = replace(made, alternatives=implementation.alternatives, keeping=None, in_place=())
    return replace(call, implementation=made, rings=(write_index,))


def _pushed_into(program: Program, window: _Window, first: int, taken: set[str]) -> tuple[Program, list[Step]]:
    """Return the program with new rows computed in, or copied into, the window; and its steps without join and cut."""
    new, steps = window.new, [step for step in program.steps if step not in (window.join, window.cut)]
    part = Part(tensor=window.whole.name, first=first)
    made = not window.apart and any(new.name in writes(step) and isinstance(step, KernelCall) for step in steps)
    if made and new.role == "intermediate" and not new.part and not new.ring and _is_alone(program, new.name):
        tensors = {**program.tensors, new.name: replace(new, memory=STATE_MEMORY, part=part)}
        return replace(program, tensors=tensors), steps
    name = unique(f"{new.name}_pushed", taken)
    pushed = replace(new, name=name, role="intermediate", memory=STATE_MEMORY, part=part, ring=None, layout=())
    copy = Transfer(name=unique(f"push_{new.name}", taken), source=new.name, target=name)
    at = program.steps.index(window.join)
    before = [step for step in program.steps[:at] if step is not window.cut]
    return (
        replace(program, tensors={**program.tensors, name: pushed}),
        [*before, copy, *(step for step in program.steps[at + 1 :] if step is not window.cut)],
    )


def _is_alone(program: Program, name: str) -> bool:
    """Return True if the tensor is not the next value of a state, and its only writer has no other output."""
    states = {state.left for state in program.states}
    writers = [step for step in program.steps if name in writes(step)]
    return name not in states and len(writers) == 1 and len(writes(writers[0])) == 1


def _shifted(program: Program, pair: KeptPair, window: _Window, taken: set[str]) -> Program | None:
    """Return the program with the window in the state's memory; its end moves to its begin after its last read."""
    placed, steps = _pushed_into(program, window, program.tensors[pair.found].num_elements, taken)
    kept = with_place(placed, pair, left=pair.left, update="shift", tensor=window.whole)
    left = replace(program.tensors[pair.left], memory=STATE_MEMORY, part=Part(tensor=window.whole.name, first=0))
    tensors = {name: t for name, t in kept.tensors.items() if name != pair.found} | {pair.left: left}
    end = replace(
        left, name=unique(f"{window.whole.name}_end", taken),
        part=Part(tensor=window.whole.name, first=window.new.num_elements),
    )  # fmt: skip
    touched = {
        window.whole.name,
        *(t.name for t in placed.tensors.values() if t.part and t.part.tensor == window.whole.name),
    }
    last = max(index for index, step in enumerate(steps) if touched & {*reads(step), *writes(step)})
    move = Transfer(name=unique(f"shift_{window.whole.name}", taken), source=end.name, target=left.name)
    begins = np.ascontiguousarray(pair.state.initial).reshape(-1)
    filled = np.concatenate([begins, np.repeat(begins[:1], window.new.num_elements)])
    state = replace(kept.states[-1], initial=filled.reshape(window.whole.shape))
    return replace(
        kept, tensors=tensors | {end.name: end}, states=(*kept.states[:-1], state),
        steps=(*steps[: last + 1], move, *steps[last + 1 :]),
    )  # fmt: skip
