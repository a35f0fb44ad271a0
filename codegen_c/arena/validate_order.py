"""Check the plan of a parallel program for every interleaving that its signals allow.

The per-core schedules are replayed once, with a record of which schedule touched each byte last and when. If one of two
steps writes a byte that the other touches, schedules and signals must order the two steps. If all such pairs are
ordered, every interleaving computes the same values as the replay. The rules for one processor remain, and `validate`
checks them for the replayed order.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.touched_bytes import Touch, located, touches, whole_of
from codegen_c.arena.validate import driver_ends, validate
from codegen_c.program.parallel import Await, Notify, ParallelProgram, RunStep
from codegen_c.program.program import Program
from codegen_c.program.steps import Call, DriverWait, KernelCall, Loop, RowSteps, Transfer, Wait, calls
from tvm_ext.core.errors import PlanRejected


@dataclass(kw_only=True)
class _Bytes:
    """Bytes of a memory, or of a tensor in the caller's memory, after some of the steps.

    written, read: per schedule, the position after which its last write or read of the byte has ended; 0 for none.
    users: touches, by schedule and that position.
    """

    written: np.ndarray
    read: np.ndarray
    users: dict[tuple[int, int], list[Touch]] = field(default_factory=dict[tuple[int, int], list[Touch]])


def validate_order(parallel: ParallelProgram, plan: MemoryPlan) -> None:
    """Raise PlanRejected with two unordered steps, their processors and the bytes that they share.

    Proves for any interleaving of any number of runs: each step and each signal is used once, no schedule waits
    forever, no step runs outside of its run, reads come after their writes, and no value is overwritten before its last
    read.
    """
    played = play(parallel)
    ends, behind_waits = _transfer_ends(parallel), driver_ends(parallel)
    memories = _untouched(parallel, plan)
    for index, moment in played:
        _check_step(parallel, plan, memories, index, moment, ends, behind_waits)
    program = replace(parallel.program, steps=tuple(parallel.program.steps[index] for index, _ in played))
    validate(program, plan)
    _check_values(program, plan)


def _transfer_ends(parallel: ParallelProgram) -> dict[int, int]:
    """Return the position after the wait for each asynchronous transfer, by its number."""
    started = [
        (number, position, transfer)
        for number, position, call in _placed_calls(parallel)
        if isinstance(transfer := call, Transfer) and transfer.number is not None
    ]
    waited: dict[int | None, tuple[int, int]] = {
        transfer.number: (number, position)
        for number, position, call in _placed_calls(parallel)
        if isinstance(call, Wait)
        for transfer in call.transfers
    }
    ends: dict[int, int] = {}
    for number, position, transfer in started:
        home, end = waited.get(transfer.number, (number, position))  # `validate` rejects a transfer without a wait
        first, processors = started[0], [steps.processor for steps in parallel.lists]
        if home != number or number != first[0]:
            other = processors[home if home != number else first[0]]
            raise PlanRejected(
                f"{processors[number]}, entry {position}: {transfer.name} goes on while steps run, and {other} "
                f"{'waits for it' if home != number else f'starts {first[2].name}'}; all asynchronous "
                "transfers need one processor."
            )
        ends[transfer.number or 0] = end + 1
    return ends


def _placed_calls(parallel: ParallelProgram) -> Iterator[tuple[int, int, Call]]:
    for number, steps in enumerate(parallel.lists):
        for position, entry in enumerate(steps.entries):
            if isinstance(entry, RunStep):
                for call in calls(parallel.program.steps[entry.index]):
                    yield number, position, call


def _untouched(parallel: ParallelProgram, plan: MemoryPlan) -> dict[str, _Bytes]:
    """Return the bytes of every memory, and of tensors without an offset, before any step touches them."""
    count = len(parallel.lists)
    return {
        name: _Bytes(written=np.zeros((count, size), np.int32), read=np.zeros((count, size), np.int32))
        for name, size in _sizes(parallel.program, plan).items()
    }


def _sizes(program: Program, plan: MemoryPlan) -> dict[str, int]:
    """Return the used bytes of every memory, and the bytes of tensors without an offset."""
    sizes: dict[str, int] = {}
    for place in plan.placements.values():
        memory = f"memory {place.memory}"
        sizes[memory] = max(sizes.get(memory, 0), place.offset + place.num_bytes)
    for name, tensor in program.tensors.items():
        if name not in plan.placements and tensor.part is None:
            sizes[f"tensor {name}"] = tensor.num_bytes
    return sizes


def _check_step(
    parallel: ParallelProgram,
    plan: MemoryPlan,
    memories: Mapping[str, _Bytes],
    index: int,
    moment: Moment,
    ends: Mapping[int, int],
    behind_waits: Mapping[int, int],
) -> None:
    """Raise PlanRejected if a step of another schedule may run at the same time and touch the same bytes."""
    step = parallel.program.steps[index]
    end = behind_waits.get(index, moment.position + 1)
    if isinstance(step, Transfer) and step.number is not None:
        end = ends[step.number]
    touched = [located(plan, touch) for touch in touches(parallel.program, plan, step)]
    for name, touch in touched:
        for number in range(len(parallel.lists)):
            for writes in (True, False) if touch.writes else (True,):
                _check_touch(parallel, name, memories[name], touch, moment, number, writes=writes)
    for name, touch in touched:
        held = memories[name]
        (held.written if touch.writes else held.read)[moment.number, touch.places] = end
        held.users.setdefault((moment.number, end), []).append(touch)


def _check_touch(
    parallel: ParallelProgram, name: str, held: _Bytes, touch: Touch, moment: Moment, number: int, *, writes: bool
) -> None:
    """Raise PlanRejected if another schedule may not yet have ended its last writes, or reads, of the touched bytes."""
    last = (held.written if writes else held.read)[number, touch.places]
    late = np.flatnonzero(last > moment.seen[number])
    if late.size == 0:
        return
    end, place = int(last[late[0]]), touch.place(int(late[0]))
    other = next(user for user in held.users[number, end] if user.writes == writes and user.holds(place))
    shared = f", which shares them with {other.tensor}" if other.tensor != touch.tensor else ""
    raise PlanRejected(
        f"{_ran(parallel, moment.number, moment.position)} {'writes' if touch.writes else 'reads'} {late.size} B of "
        f"{touch.tensor}{shared}, in {name}, while {_ran(parallel, number, end - 1)} may still run, and "
        f"{'writes' if writes else 'reads'} them: no signal orders the two."
    )


def _ran(parallel: ParallelProgram, number: int, position: int) -> str:
    """Return a title of the step at a position of a schedule."""
    steps = parallel.lists[number]
    entry = steps.entries[position]
    assert isinstance(entry, RunStep), "only steps touch bytes"
    return f"step {entry.index} ({parallel.program.steps[entry.index].name}) of {steps.processor}"


def _check_values(program: Program, plan: MemoryPlan) -> None:
    """Raise PlanRejected if a step reads bytes that are not yet written, or that were overwritten."""
    names = {name: number for number, name in enumerate(program.tensors)}
    made = {
        name: np.zeros(tensor.num_bytes, bool)
        for name, tensor in program.tensors.items()
        if tensor.part is None and tensor.role != "state"
    }
    owners: dict[str, np.ndarray] = {}
    for name, size in _sizes(program, plan).items():
        owners[name] = np.full(size, -1, np.int32)

    def write(touch: Touch) -> None:
        name, moved = located(plan, touch)
        owners[name][moved.places] = names.get(touch.whole, len(names))
        if touch.whole in made:
            made[touch.whole][touch.places] = True

    for name in (*program.inputs, *program.kept):
        write(whole_of(program, name, writes=True))
    for index, step in enumerate(program.steps):
        several = isinstance(step, Loop | RowSteps)
        touched = touches(program, plan, step)
        inside = {touch.whole for touch in touched if touch.writes and several}
        for touch in touched:
            if touch.writes or touch.whole in inside:
                continue
            missing = ~made[touch.whole][touch.places] if touch.whole in made else np.zeros(1, bool)
            if missing.any():
                raise PlanRejected(
                    f"step {index} ({step.name}): {missing.sum()} B of {touch.tensor} are not computed before it."
                )
            name, moved = located(plan, touch)
            held = owners[name][moved.places]
            lost = held[held != names[touch.whole]]
            if lost.size:
                holder = [*names, "scratch"][int(lost[0])]
                raise PlanRejected(
                    f"step {index} ({step.name}): {lost.size} B of {touch.tensor} hold {holder} by then."
                )
        for touch in touched:
            if touch.writes:
                again = touch.whole in made and made[touch.whole][touch.places].any()
                if again and not several and not isinstance(step, Wait | DriverWait):
                    raise PlanRejected(f"step {index} ({step.name}): {touch.tensor} was already computed before.")
                write(touch)


@dataclass(frozen=True, kw_only=True)
class Moment:
    """An entry of a schedule in the replay. seen: per schedule, how many entries have surely ended by then."""

    number: int
    position: int
    seen: tuple[int, ...]


def play(parallel: ParallelProgram) -> list[tuple[int, Moment]]:
    """Return the steps and their moments in an order in which they may run.

    Raises PlanRejected for steps or signals that are missing, duplicate or never reached, and for steps outside of the
    run.
    """
    check_entries(parallel)
    moments, last = _played(parallel)
    _check_inside(parallel, moments, last)
    return [
        (entry.index, moment)
        for moment in moments
        if isinstance(entry := parallel.lists[moment.number].entries[moment.position], RunStep)
    ]


def check_entries(parallel: ParallelProgram) -> None:
    """Raise PlanRejected if a step or signal is not used exactly once, or if the two ends of a signal disagree."""
    if not parallel.lists:
        raise PlanRejected(f"{parallel.program.name}: it has no per-core schedule.")
    names = [steps.processor for steps in parallel.lists]
    if len(set(names)) < len(names):
        raise PlanRejected(
            f"{parallel.program.name}: two per-core schedules name the same processor; the processors are {names}."
        )
    ran: dict[int, str] = {}
    sent: dict[int, tuple[int, int, str]] = {}
    awaited: dict[int, tuple[int, int, str]] = {}
    for number, steps in enumerate(parallel.lists):
        for position, entry in enumerate(steps.entries):
            where = f"{steps.processor}, entry {position}"
            if isinstance(entry, RunStep):
                if not 0 <= entry.index < len(parallel.program.steps):
                    raise PlanRejected(f"{where}: there is no step {entry.index}.")
                if entry.index in ran:
                    raise PlanRejected(f"{where}: runs {_step(parallel, entry.index)}, as {ran[entry.index]} does.")
                ran[entry.index] = where
                _check_processor(parallel, entry.index, number, where)
                continue
            other = entry.target if isinstance(entry, Notify) else entry.source
            if not 0 <= other < len(names) or other == number:
                raise PlanRejected(
                    f"{where}: signal {entry.signal} names schedule {other}, not that of another processor."
                )
            used, ends = (sent, (number, other)) if isinstance(entry, Notify) else (awaited, (other, number))
            if entry.signal in used:
                done = "sends" if isinstance(entry, Notify) else "awaits"
                raise PlanRejected(f"{where}: {done} signal {entry.signal}, as {used[entry.signal][2]} does.")
            used[entry.signal] = (*ends, where)
    for index in range(len(parallel.program.steps)):
        if index not in ran:
            raise PlanRejected(f"{_step(parallel, index)} is in no per-core schedule.")
    _check_signals(sent, awaited, names)


def _check_processor(parallel: ParallelProgram, index: int, number: int, where: str) -> None:
    for call in calls(parallel.program.steps[index]):
        if isinstance(call, KernelCall | Transfer) and call.processor not in ("", parallel.lists[number].processor):
            kind = "kernel" if isinstance(call, KernelCall) else "copy"
            raise PlanRejected(f"{where}: runs {_step(parallel, index)}, a {kind} for {call.processor}.")
        if number and isinstance(call, KernelCall) and call.implementation.callback:
            raise PlanRejected(
                f"{where}: runs {_step(parallel, index)}, a function of the application, which "
                f"{parallel.lists[0].processor} alone may call."
            )


def _check_signals(
    sent: dict[int, tuple[int, int, str]], awaited: dict[int, tuple[int, int, str]], names: list[str]
) -> None:
    """Raise PlanRejected if the ends of a signal disagree, or a channel's signals are awaited in another order."""
    for signal, (source, target, where) in sent.items():
        if signal not in awaited:
            raise PlanRejected(f"{where}: nothing awaits signal {signal}, so it would be left for the next run.")
        if awaited[signal][:2] != (source, target):
            raise PlanRejected(
                f"{where}: signal {signal} goes to {names[target]}, and {awaited[signal][2]} awaits it from "
                f"{names[awaited[signal][0]]}."
            )
    for signal, (_, _, where) in awaited.items():
        if signal not in sent:
            raise PlanRejected(f"{where}: nothing sends signal {signal}.")
    for ends in sorted({pair[:2] for pair in sent.values()}):
        order = [signal for signal, pair in sent.items() if pair[:2] == ends]
        for found, wanted in zip([s for s, pair in awaited.items() if pair[:2] == ends], order, strict=True):
            if found != wanted:
                raise PlanRejected(
                    f"{awaited[found][2]}: awaits signal {found} of {names[ends[0]]}, which sends {wanted} before it; "
                    "a channel only counts signals, so it would confuse the two."
                )


def _played(parallel: ParallelProgram) -> tuple[list[Moment], list[tuple[int, ...]]]:
    """Return all entries in an order in which they may run, and the entries that each schedule has seen at its end."""
    count = len(parallel.lists)
    # Vector clocks: seen[a][b] is the number of entries of schedule b that have surely ended at this point of schedule
    # a.
    position = [0] * count
    seen = [tuple(0 for _ in range(count)) for _ in range(count)]
    known: dict[int, tuple[int, ...]] = {}
    moments: list[Moment] = []
    while (number := _next(parallel, position, known)) is not None:
        entry = parallel.lists[number].entries[position[number]]
        others = known[entry.signal] if isinstance(entry, Await) else seen[number]
        own = tuple(position[number] + 1 if index == number else 0 for index in range(count))
        seen[number] = tuple(max(counts) for counts in zip(seen[number], others, own, strict=True))
        if isinstance(entry, Notify):
            known[entry.signal] = seen[number]
        moments.append(Moment(number=number, position=position[number], seen=seen[number]))
        position[number] += 1
    waits = [_waits(parallel, number, at) for number, at in enumerate(position)]
    stuck = [text for text in waits if text]
    if stuck:
        raise PlanRejected(f"{parallel.program.name}: waits forever: {'; '.join(stuck)}.")
    return moments, seen


def _next(parallel: ParallelProgram, position: list[int], sent: Container[int]) -> int | None:
    """Return the next schedule to replay; None if all wait.

    A schedule whose next entry is a signal that it can send or receive comes first, then the schedule with the first
    step.
    """
    found: dict[int, int] = {}
    for number, steps in enumerate(parallel.lists):
        if position[number] == len(steps.entries):
            continue
        entry = steps.entries[position[number]]
        if isinstance(entry, RunStep):
            found[entry.index] = number
        elif isinstance(entry, Notify) or entry.signal in sent:
            return number
    return found[min(found)] if found else None


def _waits(parallel: ParallelProgram, number: int, position: int) -> str:
    """Return the entry at which a schedule waits, or an empty string at its end."""
    steps = parallel.lists[number]
    if position == len(steps.entries):
        return ""
    entry = steps.entries[position]
    assert isinstance(entry, Await), "nothing else blocks"
    return f"{steps.processor}, entry {position}, for signal {entry.signal} of {parallel.lists[entry.source].processor}"


def _check_inside(parallel: ParallelProgram, moments: list[Moment], last: list[tuple[int, ...]]) -> None:
    """Raise PlanRejected if an entry may run before the begin of the run or after its end."""
    caller = parallel.lists[0].processor
    for moment in moments:
        steps = parallel.lists[moment.number]
        entry = steps.entries[moment.position]
        if moment.number and not moment.seen[0]:
            done = _step(parallel, entry.index) if isinstance(entry, RunStep) else f"signal {entry.signal}"
            raise PlanRejected(
                f"{steps.processor}, entry {moment.position}: {done} does not wait for the begin of the run, which "
                f"{caller} has to signal."
            )
    for number, steps in enumerate(parallel.lists):
        if last[0][number] < len(steps.entries):
            entry = steps.entries[last[0][number]]
            done = _step(parallel, entry.index) if isinstance(entry, RunStep) else f"signal {entry.signal}"
            raise PlanRejected(
                f"{steps.processor}, entry {last[0][number]}: {done} may come after the end of the run; {caller} does "
                "not wait for it."
            )


def _step(parallel: ParallelProgram, index: int) -> str:
    return f"step {index} ({parallel.program.steps[index].name})"
