"""Check a memory plan by replaying the program and tracking which tensor each byte holds.

Every byte of every memory carries the number of the tensor that was last written there. A step may read a tensor only
if all its bytes still carry its number, and no step may overwrite a tensor that is read later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from codegen_c.arena.memory_plan import MemoryPlan, Placement
from codegen_c.arena.touched_bytes import Touch, located, touches
from codegen_c.arena.validate_rows import check_states, replay_sequence
from codegen_c.program.parallel import ParallelProgram, RunStep
from codegen_c.program.program import Program
from codegen_c.program.steps import Call, DriverWait, KernelCall, Loop, RowSteps, Step, Transfer, Wait, calls
from codegen_c.program.tensors import Tensor
from tvm_ext.core.alignment import STATE_ALIGNMENT_BYTES
from tvm_ext.core.errors import PlanRejected
from tvm_ext.core.platform import STATE_MEMORY, Platform

NOBODY = -1


def validate(program: Program, plan: MemoryPlan) -> None:
    """Raise PlanRejected with the step, the tensor and the tensor that overwrote it, if the plan is invalid."""
    _require_places(program, plan)
    check_states(program)
    _check_parts(program, plan)
    check_copies(program)
    check_drivers(program, plan)
    owners = _empty_memories(program, plan)
    numbers = {name: number for number, name in enumerate(plan.placements)}
    for name, place in plan.placements.items():  # a part shares the bytes of its whole, and thus its number
        numbers[name] = numbers[place.part_of] if place.part_of else numbers[name]
    names = list(plan.placements)

    def bytes_of(name: str) -> np.ndarray:
        place = plan.placements[name]
        held, tensor = owners[place.memory][place.offset : place.offset + place.num_bytes], program.tensors.get(name)
        if tensor is None or tensor.part is None or tensor.part.pitch is None:
            return held
        item, run = np.dtype(tensor.dtype).itemsize, _run_length(tensor)
        shape = int(np.prod(tensor.shape, dtype=np.int64)) // run, run * item
        return as_strided(held, shape, (tensor.part.pitch * item * held.itemsize, held.itemsize))

    flights = Flights(lambda name: bytes_of(name) if name in plan.placements else None)

    def require(name: str, where: str, first_bytes: int | None = None) -> None:
        held = bytes_of(name)[:first_bytes] if name in plan.placements else np.empty(0)
        lost = held[held != numbers.get(name)]
        if lost.size:
            missing = "nothing, because no step wrote them" if lost[0] == NOBODY else "data of an unfinished transfer"
            holder = names[int(lost[0])] if lost[0] >= 0 else missing
            raise PlanRejected(f"{where}: {lost.size} B of {name} do not hold its value but hold {holder}.")

    found = {state.tensor: program.kept_bytes(state) for state in program.states}
    for name in (*program.inputs, *program.kept):
        if name in plan.placements:
            bytes_of(name)[: found.get(name)] = numbers[name]
    for index, step in enumerate(program.steps):
        where = f"step {index} ({step.name})"
        if isinstance(step, RowSteps):

            def arrive(wait: Wait, where: str = where) -> None:
                for transfer in wait.transfers:
                    flights.wait(transfer, numbers.get(transfer.target, NOBODY), where)

            replay_sequence(program, plan, step, owners, numbers, where, arrive)
            continue
        for inner, order in _inner(step):
            inputs, outputs = _operands(inner)
            for name in inputs:
                require(name, where)
            if isinstance(inner, Wait):
                for transfer in inner.transfers:
                    flights.wait(transfer, numbers.get(transfer.target, NOBODY), where)
                continue
            if isinstance(inner, DriverWait):  # `check_drivers` checks writes between the start and this wait
                continue
            if isinstance(inner, Transfer) and inner.number is not None:
                flights.start(inner, where)
                continue
            for name in (*outputs, f"{step.name}_scratch"):
                if name in plan.placements:
                    bytes_of(name)[:] = numbers[name]
            # A kernel reads its inputs while it writes its outputs, so the inputs must survive its own writes.
            for position, name in enumerate(inputs):
                if not _is_read_ahead(program, inner, position, plan, order):
                    require(name, where)
    flights.finish()
    for name in (*program.outputs, *program.kept):
        require(name, "the end", found.get(name))


def _require_places(program: Program, plan: MemoryPlan) -> None:
    """Raise PlanRejected if a tensor or scratch has no offset. Inputs and outputs may be in the caller's memory."""
    known = {*plan.placements, *program.inputs, *program.outputs}
    known |= {name for name, tensor in program.tensors.items() if tensor.part and tensor.part.tensor in known}
    for index, step in enumerate(program.steps):
        for inner in calls(step):
            inputs, outputs = _operands(inner)
            has_scratch = isinstance(inner, KernelCall) and inner.implementation.scratch_bytes > 0
            for name in (*inputs, *outputs, *([f"{step.name}_scratch"] if has_scratch else [])):
                if name not in known:
                    raise PlanRejected(f"step {index} ({step.name}): {name} has no offset.")


def _empty_memories(program: Program, plan: MemoryPlan) -> dict[str, np.ndarray]:
    """Return one array of owners per memory. Check that each placement is in range, aligned and large enough."""
    sizes = {arena.memory: arena.num_bytes for arena in plan.arenas}
    alignments = {arena.memory: arena.alignment_bytes for arena in plan.arenas}
    for name, place in plan.placements.items():
        if place.offset < 0 or place.offset + place.num_bytes > sizes.get(place.memory, 0):
            raise PlanRejected(
                f"{name}: bytes {place.offset} to {place.offset + place.num_bytes} are outside of {place.memory}."
            )
        wanted = alignments[place.memory] if place.memory != STATE_MEMORY else STATE_ALIGNMENT_BYTES
        if place.offset % wanted and not place.part_of:
            raise PlanRejected(f"{name}: offset {place.offset} is not a multiple of {wanted}.")
        _check_size(program, place)
    return {memory: np.full(size, NOBODY, dtype=np.int32) for memory, size in sizes.items()}


def _check_parts(program: Program, plan: MemoryPlan) -> None:
    """Check that parts have the offsets that their whole gives them, and that no two steps write the same elements."""
    written: dict[str, list[Tensor]] = {}
    made = [name for step in program.steps for inner in calls(step) for name in _operands(inner)[1]]
    for name in dict.fromkeys((*program.inputs, *made)):
        tensor = program.tensors[name]
        if tensor.ring:  # the replay of its sequence checks which row each slot holds
            continue
        written.setdefault(tensor.part.tensor if tensor.part else name, []).append(tensor)
    for whole_name, family in written.items():
        count = int(np.prod(program.tensors[whole_name].shape, dtype=np.int64))
        writers = np.full(count if len(family) > 1 else 0, NOBODY)  # the number of the writer of each element
        for number, tensor in enumerate(family if len(family) > 1 else ()):
            places = _elements_inside(tensor)
            if places[-1] >= count:
                raise PlanRejected(f"{tensor.name} is not a part of {whole_name}.")
            others = writers[places][writers[places] != NOBODY]
            if others.size:
                raise PlanRejected(
                    f"{family[int(others[0])].name} and {tensor.name} are both written to the same elements of "
                    f"{whole_name}."
                )
            writers[places] = number
    for name, tensor in program.tensors.items():
        if tensor.part is None:
            continue
        whole, place = program.tensors[tensor.part.tensor], plan.placements.get(name)
        if (
            whole.part
            or (whole.dtype != tensor.dtype and not tensor.ring)
            or _elements_inside(tensor)[-1] >= np.prod(whole.shape, dtype=np.int64)
        ):
            raise PlanRejected(f"{name} is not a part of {whole.name}.")
        if place and (
            place.part_of != whole.name
            or place.memory != plan.placements[whole.name].memory
            or place.offset - plan.placements[whole.name].offset != tensor.part.first * np.dtype(whole.dtype).itemsize
        ):
            raise PlanRejected(f"{name} is not at its offset in {whole.name}.")


def _elements_inside(tensor: Tensor) -> np.ndarray:
    """Return the indices of the tensor's elements in the whole that contains it, ascending."""
    count, first = int(np.prod(tensor.shape, dtype=np.int64)), tensor.part.first if tensor.part else 0
    if tensor.part is None or tensor.part.pitch is None:
        return np.arange(first, first + count)
    run = _run_length(tensor)
    return first + (np.arange(count) // run) * tensor.part.pitch + np.arange(count) % run


def _run_length(tensor: Tensor) -> int:
    """Return the number of contiguous elements of a part: a pixel, or a row of a strip of columns."""
    axes = tensor.part.run_axes if tensor.part else 1
    return int(np.prod(tensor.shape[len(tensor.shape) - axes :], dtype=np.int64))


def _check_size(program: Program, place: Placement) -> None:
    """Raise PlanRejected if a placement is smaller than its tensor or scratch."""
    if place.is_scratch:
        need = max(
            inner.implementation.scratch_bytes
            for step in program.steps
            if f"{step.name}_scratch" == place.name
            for inner in calls(step)
            if isinstance(inner, KernelCall)
        )
    else:
        tensor = program.tensors[place.name]
        need = int(np.prod(tensor.shape, dtype=np.int64)) * np.dtype(tensor.dtype).itemsize
        if tensor.ring:
            need = need // tensor.ring.rows * tensor.ring.stored
    if place.num_bytes < need:
        raise PlanRejected(f"{place.name}: has {place.num_bytes} B, but needs {need} B.")


def _inner(step: Call | Loop) -> list[tuple[Call, list[int]]]:
    """Return the calls of a step in order, each with the output rows that it computes.

    A loop over one kernel that computes every row once counts as one call. The body of any other loop is replayed
    twice, so that the reads of its second iteration are checked too.
    """
    if not isinstance(step, Loop):
        spatial = step.implementation.spatial if isinstance(step, KernelCall) and step.rows is None else None
        return [(step, list(range(spatial.output_rows)) if spatial else [])]
    call = step.body[0]
    if len(step.body) == 1 and isinstance(call, KernelCall) and call.rows and call.implementation.spatial:
        ranges = [range(call.rows.begin.at(i), call.rows.end.at(i)) for i in range(step.count)]
        order = [row for rows in ranges for row in rows]
        if sorted(order) == list(range(call.implementation.spatial.output_rows)):
            return [(call, order)]
    return [(call, []) for call in step.body * min(step.count, 2)]


def _operands(step: Call) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if isinstance(step, DriverWait):
        return _operands(step.call)
    if isinstance(step, KernelCall):
        return (*step.inputs, *(tensor for _, tensor in step.prefetched)), step.outputs
    transfers = step.transfers if isinstance(step, Wait) else (step,)
    sources = tuple(transfer.source for transfer in transfers if not transfer.source_is_constant)
    return sources, tuple(transfer.target for transfer in transfers)


def _is_read_ahead(program: Program, step: Call, position: int, plan: MemoryPlan, order: list[int]) -> bool:
    """Return True if every byte of an input is read for the last time before the kernel overwrites it.

    The rows are replayed in the order in which they are computed, with the input rows that are still needed when an
    output row is written, and the bytes that this output row takes. An element-wise kernel reads each element before it
    writes it. A kernel that returns to a row for its other channels does so only at the element's own offset.
    """
    if not isinstance(step, KernelCall) or position >= len(step.inputs) or step.inputs.count(step.inputs[position]) > 1:
        return False
    source, target = plan.placements.get(step.inputs[position]), plan.placements.get(step.outputs[0])
    if source is None or target is None or source.memory != target.memory:
        return False
    others = [f"{step.name}_scratch", *step.outputs[1:]]
    if any(_meets(plan.placements.get(name), source) for name in others):
        return False
    spatial = step.implementation.spatial
    # Element-wise kernels may write below the input, unless they return to earlier elements.
    goes_back = step.implementation.goes_back
    same_place, below = target.offset == source.offset, target.offset < source.offset and not goes_back
    if position in step.implementation.in_place and (same_place or below):
        shape, seen = program.tensors[target.name].shape, step.seen_shape(position, program.tensors[source.name])
        fewer_rows = len(seen) == 4 and (*seen[:1], *seen[2:]) == (*shape[:1], *shape[2:]) and shape[1] <= seen[1]
        sizes = [program.tensors[name].element_bytes for name in (source.name, target.name)]
        if target.num_bytes == source.num_bytes or (fewer_rows and sizes[0] == sizes[1]):
            return True
    if spatial is None or spatial.accumulates or position >= len(spatial.inputs) or not order:
        return False
    access = spatial.inputs[position]
    seen = step.seen_shape(position, program.tensors[source.name])
    ends = ((program.tensors[target.name].shape, spatial.output_rows), (seen, access.input_rows))
    if not all(_lies_row_by_row(shape, rows) for shape, rows in ends):
        return False
    input_row, rest = divmod(source.num_bytes, access.input_rows)
    output_row, other_rest = divmod(target.num_bytes, spatial.output_rows)
    if rest or other_rest:
        return False
    # Input rows that the remaining output rows still need, from each output row on; collected from the last row back.
    first, last = access.input_rows, 0
    needed: list[tuple[int, int]] = []
    for row in reversed(order):
        begin, end = access.read(row, row + 1)
        if begin < end:
            first, last = min(first, begin), max(last, end)
        needed.append((first, last))
    needed.reverse()
    for place, row in enumerate(order):
        begin, end = needed[max(0, place - spatial.rows_still_read)]
        low, high = source.offset + begin * input_row, source.offset + end * input_row
        written = target.offset + row * output_row
        if low < high and written < high and low < written + output_row:
            return False
    return True


def _lies_row_by_row(shape: tuple[int, ...], rows: int) -> bool:
    """Return True if the rows are contiguous: rows of one image or all vectors of a tensor, not rows of a batch."""
    return shape[0] == 1 or rows == np.prod(shape[:-1], dtype=np.int64)


def _meets(one: Placement | None, other: Placement) -> bool:
    """Return True if two placements share a byte."""
    if one is None or one.memory != other.memory:
        return False
    return one.offset < other.offset + other.num_bytes and other.offset < one.offset + one.num_bytes


FIRST_FLIGHT_NUMBER = -(1 << 30)
"""First owner number of bytes that a running transfer fills. The owner numbers of ring rows end just below 0."""


class Flights:
    """Transfers that have started and not yet been waited for.

    bytes_of: returns the owners of a tensor's bytes, or None for a tensor in the caller's memory.
    """

    def __init__(self, bytes_of: Callable[[str], np.ndarray | None]) -> None:
        self.bytes_of = bytes_of
        self.started = 0
        self.under_way: dict[int, Transfer] = {}

    def start(self, transfer: Transfer, where: str) -> None:
        """Start a transfer. Raise PlanRejected if its number is out of order: transfers end in the order they start."""
        if transfer.number != self.started:
            raise PlanRejected(f"{where}: transfer {transfer.number} starts, but transfer {self.started} is next.")
        self.under_way[self.started] = transfer
        self._mark(transfer, FIRST_FLIGHT_NUMBER + self.started)
        self.started += 1

    def wait(self, transfer: Transfer, number: int, where: str) -> None:
        """End a transfer: the target's bytes hold its value from now on.

        Raises PlanRejected if the transfer was not started, or if a step wrote to its target meanwhile.
        """
        if transfer.number is None or self.under_way.pop(transfer.number, None) != transfer:
            raise PlanRejected(f"{where}: waits for {transfer.name}, which is not under way.")
        target = self.bytes_of(transfer.target)
        if target is not None and (target != FIRST_FLIGHT_NUMBER + transfer.number).any():
            raise PlanRejected(f"{where}: {transfer.target} was written to while {transfer.name} filled it.")
        self._mark(transfer, number)

    def finish(self) -> None:
        """Raise PlanRejected if no step waits for a transfer."""
        if self.under_way:
            names = ", ".join(transfer.name for transfer in self.under_way.values())
            raise PlanRejected(f"the end: no step waits for {names}.")

    def _mark(self, transfer: Transfer, number: int) -> None:
        target = self.bytes_of(transfer.target)
        if target is not None:
            target[:] = number


def check_copies(program: Program) -> None:
    """Raise PlanRejected if the ends of a transfer differ in size, or a kernel's constants were never copied."""
    copied: set[tuple[str, str]] = set()
    for index, step in enumerate(program.steps):
        for inner in calls(step):
            where = f"step {index} ({step.name})"
            if isinstance(inner, Transfer):
                constant = program.constants[inner.source] if inner.source_is_constant else None
                size = constant.data.nbytes if constant else program.tensors[inner.source].num_bytes
                if size != program.tensors[inner.target].num_bytes:
                    raise PlanRejected(f"{where}: {inner.source} and {inner.target} differ in size.")
                if constant:
                    copied.add((inner.source, inner.target))
            for constant, tensor in getattr(inner, "prefetched", ()):
                held = program.constants[constant].layer or constant
                if (held, tensor) not in copied:
                    raise PlanRejected(f"{where}: {constant} is read from {tensor}, but was never copied there.")


@dataclass(frozen=True, kw_only=True, eq=False)
class _UnderWay:
    """A call that an accelerator is running. touched: bytes that it may read or write at any time, by memory."""

    call: KernelCall
    touched: tuple[tuple[str, Touch], ...]


def check_drivers(program: Program, plan: MemoryPlan) -> None:
    """Raise PlanRejected if a step conflicts with a call that an accelerator is still running.

    Before the wait, no step may read bytes that the accelerator writes, or write bytes that it reads or writes. An
    accelerator runs one call at a time, and has finished all calls at the end.
    """
    under_way: dict[str, _UnderWay] = {}
    for index, step in enumerate(program.steps):
        where = f"step {index} ({step.name})"
        if isinstance(step, DriverWait):
            driver = step.call.implementation.driver
            if driver is None or driver.processor not in under_way:
                raise PlanRejected(f"{where}: waits for {step.call.name}, which was not started.")
            if under_way[driver.processor].call is not step.call:
                at = under_way[driver.processor].call.name
                raise PlanRejected(f"{where}: waits for {step.call.name}, but {driver.processor} is running {at}.")
            del under_way[driver.processor]
            continue
        touched = tuple(located(plan, touch) for touch in touches(program, plan, step))
        for processor, other in under_way.items():
            _check_apart(where, touched, processor, other)
        for call in calls(step):
            driver = call.implementation.driver if isinstance(call, KernelCall) else None
            if driver is None or not isinstance(call, KernelCall):
                continue
            if isinstance(step, Loop | RowSteps):
                raise PlanRejected(f"{where}: starts {call.name} on {driver.processor} inside a loop.")
            if driver.processor in under_way:
                at = under_way[driver.processor].call.name
                raise PlanRejected(f"{where}: starts {driver.processor} while it is running {at}; wait for it first.")
            under_way[driver.processor] = _UnderWay(call=call, touched=touched)
    if under_way:
        names = ", ".join(other.call.name for other in under_way.values())
        raise PlanRejected(f"the end: no step waits for {names}.")


def _check_apart(where: str, touched: tuple[tuple[str, Touch], ...], processor: str, other: _UnderWay) -> None:
    """Raise PlanRejected if a step and a running accelerator touch the same bytes, and one of the two writes them."""
    for memory, touch in touched:
        for held_in, held in other.touched:
            if memory != held_in or not (touch.writes or held.writes):
                continue
            common = _num_common(touch, held)
            if common:
                done, does = "writes" if touch.writes else "reads", "writes" if held.writes else "reads"
                shared = f", which shares them with {held.tensor}" if held.tensor != touch.tensor else ""
                raise PlanRejected(
                    f"{where}: {done} {common} B of {touch.tensor}{shared}, in {memory}, while {processor} may "
                    f"still be running {other.call.name}, which {does} them; wait for it first."
                )


def _num_common(one: Touch, other: Touch) -> int:
    """Return the number of bytes that two touches of one memory share."""
    if isinstance(one.places, slice) and isinstance(other.places, slice):
        return max(0, min(one.places.stop, other.places.stop) - max(one.places.start, other.places.start))
    return int(np.isin(_places(one), _places(other)).sum())


def _places(touch: Touch) -> np.ndarray:
    places = touch.places
    return np.arange(places.start, places.stop, dtype=np.int64) if isinstance(places, slice) else places


def driver_ends(parallel: ParallelProgram) -> dict[int, int]:
    """Return the position after the wait for each step that starts an accelerator, in the same per-core schedule."""
    callers: dict[str, int] = {}
    starts: dict[str, int] = {}
    ends: dict[int, int] = {}
    for number, steps in enumerate(parallel.lists):
        for position, entry in enumerate(steps.entries):
            step = parallel.program.steps[entry.index] if isinstance(entry, RunStep) else None
            call = step.call if isinstance(step, DriverWait) else step
            driver = call.implementation.driver if isinstance(call, KernelCall) else None
            if driver is None or not isinstance(entry, RunStep) or not isinstance(call, KernelCall):
                continue
            if callers.setdefault(driver.processor, number) != number:
                raise PlanRejected(
                    f"{steps.processor}, entry {position}: calls the driver of {driver.processor}, as "
                    f"{parallel.lists[callers[driver.processor]].processor} does; one processor must make all calls."
                )
            if isinstance(step, DriverWait):
                ends[starts.get(call.name, entry.index)] = position + 1
            else:
                starts[call.name] = entry.index
    return ends


def check_reach(
    program: Program, plan: MemoryPlan, platform: Platform, parallel: ParallelProgram | None = None
) -> None:
    """Raise PlanRejected if a processor cannot access the memory of an operand of a step that it runs."""
    for arena in plan.arenas:
        wanted = platform.memory(arena.inside).alignment_bytes
        if arena.alignment_bytes % wanted:
            raise PlanRejected(f"{arena.memory}: is aligned to {arena.alignment_bytes} B, but needs {wanted} B.")
    inside = {arena.memory: arena.inside for arena in plan.arenas}
    joined = {(link.source, link.target) for link in platform.links}
    by_dma = {(link.source, link.target) for link in platform.links if link.dma}

    def memory_of(name: str) -> str | None:
        """Return the platform's memory that holds a tensor or scratch; None for a tensor in the caller's memory."""
        place = plan.placements.get(name)
        return inside.get(place.memory, place.memory) if place else None

    runners = _runners(parallel) if parallel else {}
    phases = (program.steps, *(parallel.phases if parallel else ()))
    for index, step in (pair for steps in phases for pair in enumerate(steps)):
        for call in calls(step):
            where = f"step {index} ({step.name})"
            if isinstance(call, Transfer) and call.number is not None:
                ends = _source_memory(program, call, memory_of(call.source)), memory_of(call.target)
                if None not in ends and ends not in by_dma:
                    raise PlanRejected(f"{where}: no DMA of {platform.name} copies from {ends[0]} to {ends[1]}.")
                continue
            driver = call.implementation.driver if isinstance(call, KernelCall) else None
            processor = driver.processor if driver else runners.get(index, platform.processors[0].name)
            for name, memory in _touched(program, step, call):
                held = memory or memory_of(name)
                if held and not {(processor, held), (held, processor)} & joined:
                    raise PlanRejected(f"{where}: {processor} accesses {name} in {held}, but has no link to {held}.")


def _source_memory(program: Program, transfer: Transfer, placed: str | None) -> str | None:
    return program.constants[transfer.source].memory if transfer.source_is_constant else placed


def _runners(parallel: ParallelProgram) -> dict[int, str]:
    """Return the processor that runs each step."""
    return {
        entry.index: steps.processor
        for steps in parallel.lists
        for entry in steps.entries
        if isinstance(entry, RunStep)
    }


def _touched(program: Program, step: Step, call: Call) -> Iterator[tuple[str, str]]:
    """Yield the operands of a call, each with its memory if it is a constant; constants have no offset in the plan."""
    if isinstance(call, Wait | DriverWait):  # the operands were checked at the start of the transfer or call
        return
    if isinstance(call, Transfer):
        held = program.constants[call.source].memory if call.source_is_constant else ""
        yield from ((call.source, held), (call.target, ""))
        return
    prefetched = dict(call.prefetched)
    yield from ((name, "") for name in (*call.inputs, *call.outputs, *prefetched.values(), f"{step.name}_scratch"))
    yield from ((name, program.constants[name].memory) for name in call.constants if name not in prefetched)
