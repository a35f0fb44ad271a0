"""Rules for accelerators behind drivers: each is another processor, which works between its start and its wait.

Part of the validator: shares no code with what places starts, waits and tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.touched_bytes import Touch, located, touches
from codegen_c.program.parallel import ParallelProgram, RunStep
from codegen_c.program.program import Program
from codegen_c.program.steps import DriverWait, KernelCall, Loop, RowSteps, calls
from tvm_ext.core.errors import PlanRejected


@dataclass(frozen=True, kw_only=True, eq=False)
class _UnderWay:
    """A call that an accelerator is at. touched: bytes that it may read or write at any time, by memory."""

    call: KernelCall
    touched: tuple[tuple[str, Touch], ...]


def check_drivers(program: Program, plan: MemoryPlan) -> None:
    """Raises PlanRejected where steps in their order do not keep to what accelerators are at.

    No step reads what an accelerator writes, or writes what it reads or writes, before the wait. An accelerator is at
    one call at a time, and done with all of them at the end.
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
                raise PlanRejected(f"{where}: waits for {step.call.name}, and {driver.processor} is at {at}.")
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
                raise PlanRejected(f"{where}: starts {driver.processor} while it is at {at}; wait for that before.")
            under_way[driver.processor] = _UnderWay(call=call, touched=touched)
    if under_way:
        names = ", ".join(other.call.name for other in under_way.values())
        raise PlanRejected(f"the end: nothing waits for {names}.")


def _check_apart(where: str, touched: tuple[tuple[str, Touch], ...], processor: str, other: _UnderWay) -> None:
    """Raises PlanRejected where a step touches bytes that an accelerator is at, and one of the two writes them."""
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
                    f"still be at {other.call.name}, which {does} them; wait for it before."
                )


def _num_common(one: Touch, other: Touch) -> int:
    """Bytes that two touches of one memory have in common."""
    if isinstance(one.places, slice) and isinstance(other.places, slice):
        return max(0, min(one.places.stop, other.places.stop) - max(one.places.start, other.places.start))
    return int(np.isin(_places(one), _places(other)).sum())


def _places(touch: Touch) -> np.ndarray:
    places = touch.places
    return np.arange(places.start, places.stop, dtype=np.int64) if isinstance(places, slice) else places


def driver_ends(parallel: ParallelProgram) -> dict[int, int]:
    """Step that starts an accelerator -> position behind the wait for it, in the same list.

    Raises PlanRejected where two lists call one driver: nothing keeps their calls apart.
    """
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
                    f"{parallel.lists[callers[driver.processor]].processor} does; all such calls need one list."
                )
            if isinstance(step, DriverWait):
                ends[starts.get(call.name, entry.index)] = position + 1
            else:
                starts[call.name] = entry.index
    return ends
