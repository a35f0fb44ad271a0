"""Insert waits for accelerators into the steps of a program: as late as possible, or immediately."""

from __future__ import annotations

from dataclasses import replace

from codegen_c.program.accesses import Access, accesses
from codegen_c.program.program import Program, drivers_of
from codegen_c.program.steps import DriverWait, KernelCall, Step
from tvm_ext.core.names import unique


def with_waits(program: Program, *, at_once: bool = False) -> Program:
    """Return the program with waits; the program itself if it starts no accelerator.

    A wait is placed before the first step that reads what the accelerator writes or writes what it touches, before the
    accelerator's next start, and before the end of the run. at_once: place the wait right after the start, so that
    tensors live no longer than without concurrency.
    """
    if not drivers_of(program):
        return program
    taken = {step.name for step in program.steps} | {*program.tensors, *program.constants}
    woven: list[Step] = []
    under_way: dict[str, tuple[KernelCall, list[Access]]] = {}

    def wait_for(processor: str) -> None:
        call, _ = under_way.pop(processor)
        woven.append(DriverWait(name=unique(f"wait_{call.name}", taken), call=call))

    for step in program.steps:
        touched = accesses(program, step)
        driver = step.implementation.driver if isinstance(step, KernelCall) else None
        for processor, (_, held) in [*under_way.items()]:
            is_next = driver is not None and driver.processor == processor
            if is_next or any(one.conflicts(other) for one in touched for other in held):
                wait_for(processor)
        woven.append(step)
        if driver is not None and isinstance(step, KernelCall):
            under_way[driver.processor] = step, touched
            if at_once:
                wait_for(driver.processor)
    for processor in [*under_way]:
        wait_for(processor)
    return replace(program, steps=tuple(woven))
