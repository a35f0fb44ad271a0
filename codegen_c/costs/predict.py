"""Predicted time of a program, step by step, and the bytes that it moves between memories.

The model is `tvm_ext.core.time_model`. The result is a prediction that no emulator can confirm, because QEMU does not
model the timing of memories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from codegen_c.kernels.contract import Implementation
from codegen_c.kernels.user_functions import DriverCall
from codegen_c.operators.kinds import TensorType
from codegen_c.program.extreme_runs import best_run, has_branches, instructions_of, macs_of, worst_run
from codegen_c.program.program import Program
from codegen_c.program.steps import Call, DriverWait, KernelCall, RowSteps, Step, Transfer, Wait, calls
from codegen_c.targets.registry import instruction_set_of
from tvm_ext.core.options import CompileFor
from tvm_ext.core.platform import Platform
from tvm_ext.core.row_sequence import in_turn
from tvm_ext.core.time_model import CoreTimes, Event, KernelTime, TimeModel, finish_cycles


def time_model(platform: Platform, processor: str = "", *, optimize: CompileFor = "speed") -> TimeModel:
    """Return the time model of a processor, with the measured times of its target and core.

    processor: its name on the platform; the platform's first processor by default. optimize: what the code is compiled
    for.
    """
    core = platform.processor_named(processor)
    found = instruction_set_of(core)
    times = found.times_of(platform.core_of(core), optimize) or CoreTimes(cpus=(), cycles=1.0)
    calibrated = {kernel: KernelTime(cycles=factor * times.cycles) for kernel, factor in found.calibration.items()}
    return TimeModel(
        platform=platform, processor=processor, kernels={**calibrated, **times.kernels},
        other=KernelTime(cycles=times.cycles), optimize=optimize,
    )  # fmt: skip


def predicted_cycles(
    program: Program, time: TimeModel, *, only: str = "", best: bool = False, added_instructions: int = 0
) -> float:
    """Return the cycles of one run, including transfers that run beside the steps.

    Steps of several processors are counted as if each processor waited for the others.
    time: the model of the first processor, in whose cycles the result is counted. only: if given, all tensors and
    scratch are assumed to be in this memory, and no transfer takes time. best: if True, the run takes the branches with
    the fewest cycles, otherwise those with the most. added_instructions: of every run, beyond those of its kernels:
    splitting adds them.
    """

    def cycles(steps: Iterable[Step]) -> float:
        return finish_cycles(event for step in steps for event in _step_events(program, step, time, only))

    choose = best_run if best else worst_run
    run = choose(program, lambda step: cycles([step]))
    return cycles(run.steps) + time.compute_cycles("", added_instructions)


def worst_case_steps(program: Program, time: TimeModel) -> frozenset[str]:
    """Return the names of the steps of the run that takes the branches with the most cycles."""
    return frozenset(step.name for step in worst_run(program, lambda step: step_cycles(program, step, time)).steps)


@dataclass(frozen=True, kw_only=True)
class BestCase:
    """Multiply-accumulates, modelled instructions and predicted cycles of runs that take the branches with the fewest.

    Each is the least of all runs, which need not be of one run.
    """

    macs: int
    instructions: int
    cycles: int


def best_case(program: Program, time: TimeModel, *, added_instructions: int = 0) -> BestCase | None:
    """Return the best case of a program with branches; None if no run skips steps.

    added_instructions: instructions of every run beyond those of its kernels.
    """
    if not has_branches(program):
        return None
    fewest = best_run(program, instructions_of)
    return BestCase(
        macs=sum(map(macs_of, best_run(program, macs_of).steps)),
        instructions=sum(map(instructions_of, fewest.steps)) + added_instructions,
        cycles=round(predicted_cycles(program, time, best=True, added_instructions=added_instructions)),
    )


def most_macs(program: Program) -> int:
    """Return the multiply-accumulates of the run that takes the branches with the most."""
    return sum(map(macs_of, worst_run(program, macs_of).steps))


def step_cycles(program: Program, step: Step, time: TimeModel) -> float:
    """Return the cycles of one step: of its kernels, its transfer or its accelerator call; 0 for a wait."""
    if isinstance(step, Wait | DriverWait):
        return 0.0
    if isinstance(step, KernelCall) and step.implementation.driver:
        return _driven_cycles(step, step.implementation.driver, time)
    if isinstance(step, Transfer):
        source, target = (
            program.platform_memory(program.memory_of_source(step)),
            program.platform_memory(program.tensors[step.target].memory),
        )
        return time.transfer_cycles(source, target, program.tensors[step.target].num_bytes)
    return finish_cycles(event for call in calls(step) for event in _call_events(program, call, time, ""))


def moved_bytes(program: Program) -> dict[tuple[str, str], int]:
    """Return the bytes that transfers move in one run, by their pair of memories (source, target)."""
    found: dict[tuple[str, str], int] = {}
    for transfer in program.moves():
        pair = (
            program.platform_memory(program.memory_of_source(transfer)),
            program.platform_memory(program.tensors[transfer.target].memory),
        )
        found[pair] = found.get(pair, 0) + program.tensors[transfer.target].num_bytes
    return found


def _step_events(program: Program, step: Step, time: TimeModel, only: str) -> Iterator[Event]:
    """Yield the events of a step: of its calls, or of a sequence's parts between the waits inside."""
    if not isinstance(step, RowSteps) or not step.awaited:
        for call in calls(step):
            yield from _call_events(program, call, time, only)
        return
    cycles = [finish_cycles(_call_events(program, call, time, only)) for call in step.body]
    num_rows = Counter[int]()
    for turn in step.calls:
        num_rows[turn.operator] += turn.end - turn.begin
    for index, entry in enumerate(step.schedule):
        for wait in step.waits.get(index, ()):
            yield from _call_events(program, wait, time, only)
        made = ((turn.operator, turn.end - turn.begin) for turn in in_turn((entry,)))
        yield Event(kind="run", cycles=sum(cycles[operator] * rows / num_rows[operator] for operator, rows in made))


def _call_events(program: Program, call: Call, time: TimeModel, only: str) -> Iterator[Event]:
    """Yield the events of a call on the timeline of its processor, its accelerator and the DMA."""
    if isinstance(call, DriverWait):
        driver = call.call.implementation.driver
        yield Event(kind="wait", unit=driver.processor if driver else "")
    elif isinstance(call, KernelCall):
        driver = call.implementation.driver
        if driver:
            yield Event(kind="start", cycles=_driven_cycles(call, driver, time), unit=driver.processor)
        else:
            own, cycle = _time_on(call.processor, time)
            yield Event(kind="run", cycles=_kernel_cycles(program, call, own, only) * cycle)
    elif isinstance(call, Wait):
        if not only:
            yield Event(kind="wait", number=max(transfer.number or 0 for transfer in call.transfers))
    elif not only or call not in program.moves():
        source, target = (
            program.platform_memory(program.memory_of_source(call)),
            program.platform_memory(program.tensors[call.target].memory),
        )
        own, cycle = _time_on(call.processor, time)
        cycles = own.transfer_cycles(only or source, only or target, program.tensors[call.target].num_bytes) * cycle
        kind = "run" if call.number is None else "start"
        yield Event(kind=kind, cycles=cycles, number=call.number or 0)


def _time_on(processor: str, time: TimeModel) -> tuple[TimeModel, float]:
    """Return the time model of a processor, and how many cycles of `time`'s processor one of its cycles lasts."""
    platform = time.platform
    one, other = (platform.processor_named(name) for name in (time.processor, processor))
    if not processor or one is other:
        return time, 1.0
    return time_model(platform, processor, optimize=time.optimize), one.clock_hz / other.clock_hz


def _driven_cycles(call: KernelCall, driver: DriverCall, time: TimeModel) -> float:
    """Return how long an accelerator call takes, in cycles of the platform's first processor."""
    platform = time.platform
    return (
        call.implementation.instructions
        * platform.processor.clock_hz
        / platform.processor_named(driver.processor).clock_hz
    )


def _kernel_cycles(program: Program, call: KernelCall, time: TimeModel, only: str) -> float:
    """Return the cycles of a kernel: its instructions, and the memory traffic of its operands."""
    implementation, kernel = call.implementation, time.kernel(call.implementation.kernel)
    default = only or program.platform_memory(next(iter(program.tensors.values())).memory)
    touched = sum(program.tensors[n].num_elements for n in (*call.inputs, *call.outputs))
    total = time.compute_cycles(implementation.kernel, implementation.instructions or touched)
    for position, name in enumerate(call.inputs):
        tensor = program.tensors[name]
        read = input_read(implementation, position, tensor.num_elements * tensor.element_bytes)
        total += time.read_cycles(only or program.platform_memory(tensor.memory), read, kernel.input)
    for name in call.outputs:
        tensor = program.tensors[name]
        written = tensor.num_elements * tensor.element_bytes
        total += time.write_cycles(only or program.platform_memory(tensor.memory), written, kernel.output)
    if call.constants:
        prefetched = dict(call.prefetched)
        first = call.constants[0]
        held = program.tensors[prefetched[first]].memory if first in prefetched and not only else ""
        memory = held or program.constants[first].memory
        total += time.read_cycles(memory, constants_read(implementation), kernel.constants)
    if implementation.scratch_bytes:
        memory = only or call.scratch_memory or default
        total += time.read_cycles(memory, scratch_accessed(implementation), kernel.scratch)
    return total


def input_read(implementation: Implementation, position: int, num_bytes: int) -> int:
    """Return the bytes that one run of the kernel reads of the input at a position."""
    return int(num_bytes * (implementation.passes.input if position == 0 else 1))


def constants_read(implementation: Implementation) -> int:
    """Return the bytes that one run of the kernel reads of all its constants."""
    return int(implementation.constant_bytes * implementation.passes.constants)


def scratch_accessed(implementation: Implementation) -> int:
    """Return the bytes of scratch that one run of the kernel reads and writes."""
    return int(implementation.scratch_bytes * implementation.passes.scratch)


def modelled(implementation: Implementation, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
    """Return the modelled instructions of a kernel.

    Generic code has no estimate, so it counts one instruction for each element of its inputs and outputs.
    """
    return implementation.instructions or sum(prod(kind.shape) for kind in (*inputs, *outputs))
