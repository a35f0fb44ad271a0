"""report.json, the record of a build: totals, memories, steps, processors and measurements."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from codegen_c.arena.least_bytes import least_bytes_by_rows
from codegen_c.arena.memory_plan import Placement, largest_arena, live_profile, peak_placements
from codegen_c.backend.build import Compiled
from codegen_c.costs.predict import (
    BestCase,
    best_case,
    most_macs,
    moved_bytes,
    predicted_cycles,
    step_cycles,
    time_model,
    worst_case_steps,
)
from codegen_c.kernels.contract import Alternative
from codegen_c.kernels.user_functions import DriverCall
from codegen_c.program.guards import guards_of
from codegen_c.program.interface import KeptValue, Port
from codegen_c.program.makespan import SharedRun
from codegen_c.program.parallel import ParallelProgram, RunStep
from codegen_c.program.program import Program, drivers_of
from codegen_c.program.steps import (
    DriverWait,
    KernelCall,
    RowSteps,
    Step,
    Transfer,
    Wait,
    calls,
    processor_of,
    reads,
    scratch_bytes,
    transfers_of,
    writes,
)
from codegen_c.program.tensors import KeptState
from codegen_c.targets.registry import machine_name, startup_of
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.extensions import PASSES, extensions
from tvm_ext.core.model_nodes import ModelNode
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.report.flash import FlashByLayer

SCHEMA_VERSION = 1


def make_report(
    compiled: Compiled,
    options: BuildOptions,
    origin: ModelOrigin,
    quantization: Mapping[str, Any] | None = None,
    *,
    code_bytes: int | None,
    stack_bytes: int | None,
    artifacts: Mapping[str, str | None],
    verify: Mapping[str, Any],
    image: Mapping[str, Any] | None = None,
    flash: FlashByLayer | None = None,
    assurance: Mapping[str, Any] | None = None,
    shared_run: SharedRun | None = None,
    tuning: Mapping[str, Any] | None = None,
    comparisons: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the report of a build as JSON-ready values, None for values that were not measured.

    Keys and arguments:
    options: all options of the build, as in `BuildOptions`.
    arenas, tensors: the arena of each memory (`arenas_of`), and all tensors with their offsets (`placed_tensors`).
    context_bytes: bytes of an instance that the caller holds, with arena and states; 0 if arena and states are static.
    arena_bytes: bytes of all arenas, with states.
    state_bytes, states: bytes that the model keeps from run to run, and how a run updates each state.
    inputs, outputs: `stream` has the number of rows of a streamed port, the rows kept at a time, the rows of one call,
    and the order of the axes of their elements; None for other ports.
    kept: inner values that stay readable after a run; left out if the options keep none.
    flash: bytes of weights and code in total and by layer; left out without a compiler.
    float_operations: steps of a quantized model that compute in float, and the reasons. Operators of `emulated` steps
    have integers in the file.
    assurance: entries `stack_bound` and `selftest_coverage` from `measured_assurance`, and `selftest` from
    `SelfTest.to_json`.
    placement: predicted gain from placing operators on several processors, for a platform that has them.
    quantization: measurements on the calibration samples; None for a model that was not quantized here.
    shared_run: measurements of a run on several processors; None without.
    tuning: result of `Tuning.to_json` for layers whose kernels were measured; None without.
    image: the relocatable image and its runs; None without.
    verify: results by target, None for a target without a run. `reference` names the reference runtime, `own_reading`
    says why no other runtime was used (None if another was), `refused_by` lists the runtimes that refused, with
    reasons.
    comparisons: comparisons from the file's form of the model to the C code, for a model of another form
    (`FormComparison`).
    """
    plan, program, platform = compiled.plan, compiled.program, compiled.platform
    used = dict(compiled.origin.memories)
    live = live_profile(program, plan)
    time = time_model(platform, optimize=compiled.optimize)
    best = best_case(program, time, added_instructions=compiled.added_instructions)
    worst = worst_case_steps(program, time)
    return {
        "schema_version": SCHEMA_VERSION,
        "generator": compiled.origin.generator,
        "model": {
            "name": compiled.interface.model,
            "source": compiled.origin.model,
            "sha256": origin.sha256,
            "format": origin.source_format,
            **({"signature": origin.signature} if origin.signature else {}),
            "rounding": compiled.interface.rounding,
            # Each RESCALE of a TOSA file says how it rounds.
            "quantized_rounding": origin.option if compiled.is_quantized and origin.source_format != "tosa" else None,
        },
        "platform": platform.name,
        "machine": machine_of(platform),
        "options": json.loads(options.to_json()),
        "memories": [
            {
                "name": memory.name,
                "kind": memory.kind,
                "capacity_bytes": memory.capacity_bytes,
                "reserved_bytes": memory.reserved_bytes,
                "alignment_bytes": memory.alignment_bytes,
                "used_bytes": used.get(memory.name, 0),
            }
            for memory in platform.memories
        ],
        "arena_bytes": plan.arena_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "least_bytes_by_rows": least_bytes_by_rows(program, plan),
        "arena_proved": all(arena.proved for arena in plan.arenas),
        "arenas": arenas_of(compiled, options, live),
        **({"extension_passes": names} if (names := [one.said for one in extensions(PASSES)]) else {}),
        "state_bytes": plan.state_bytes,
        "warm_up_runs": compiled.interface.warm_up_runs,
        "context_bytes": compiled.interface.context_bytes,
        "states": [_state(compiled, state) for state in program.states],
        "schedule": {"peak_bytes": compiled.schedule_peak_bytes, "proved": compiled.schedule_proved},
        **(
            {"recomputed": asdict(compiled.recomputed)}
            if (compiled.recomputed and compiled.recomputed.operators)
            else {}
        ),
        "fit": {
            "limit_bytes": options.limit_bytes(platform),
            "flash_limit_bytes": options.flash,
            "attempts": [asdict(attempt) for attempt in compiled.attempts],
        },
        "peak": _peak(compiled),
        "weights_bytes": program.weights_bytes,
        "code_bytes": code_bytes,
        **({"flash": flash.to_json()} if flash else {}),
        "stack_bytes": stack_bytes,
        "macs": most_macs(program),
        **({"macs_best_case": best.macs} if best else {}),
        "prediction": _prediction(compiled, best),
        **({"placement": dict(compiled.placement)} if compiled.placement is not None else {}),
        "inputs": [_port(port) for port in compiled.interface.inputs],
        "outputs": [_port(port) for port in compiled.interface.outputs],
        **({"kept": [_kept(value) for value in compiled.interface.kept]} if compiled.interface.kept else {}),
        "steps": [
            described_step(compiled, index, step, sum(memory[index] for memory in live.values()), worst)
            for index, step in enumerate(program.steps)
        ],
        "tensors": placed_tensors(compiled),
        "float_operations": float_operations(compiled, origin.nodes),
        "quantization": quantization,
        "artifacts": dict(artifacts),
        "image": dict(image) if image else None,
        **({"in_flight": compiled.interface.in_flight} if options.placement_objective == "throughput" else {}),
        **shared_processors(compiled, shared_run),
        "verify": dict(verify),
        "comparisons": [dict(one) for one in comparisons],
        **({"tuning": dict(tuning)} if tuning else {}),
        **(assurance or {}),
    }


def _port(port: Port) -> dict[str, Any]:
    quantization = port.quantization
    return {
        "name": port.source,
        "c_name": port.name,
        "shape": list(port.shape),
        "dtype": port.dtype,
        "scale": quantization.scale if quantization else None,
        "zero_point": quantization.zero_point if quantization else None,
        "layout": port.layout or None,
        "taken_as": port.taken_as or None,
        "stream": asdict(port.stream) if port.stream else None,
    }


def _kept(value: KeptValue) -> dict[str, Any]:
    """Return the entry of an inner value that stays readable: its type and shape, offset, and the rows that stay."""
    described = {key: entry for key, entry in _port(value.port).items() if key not in ("stream", "layout", "taken_as")}
    place = {key: entry for key, entry in asdict(value).items() if key != "port"}
    return {**described, **place, "layout": list(value.layout)}


def _state(compiled: Compiled, state: KeptState) -> dict[str, Any]:
    """Return the entry of a state: its offset, and how a run updates it (`_CHANGES` in tables.py has the ways)."""
    tensor, place = compiled.program.tensors[state.tensor], compiled.plan.placements[state.tensor]
    return {
        "name": state.source,
        "c_name": state.tensor,
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
        "memory": compiled.program.state_home,
        "retained": compiled.platform.memory(compiled.program.state_home).retained,
        "offset": place.offset,
        "num_bytes": place.num_bytes,
        "update": state.update,
        "rows_pushed": state.pushed,
    }


def _peak(compiled: Compiled) -> dict[str, Any] | None:
    """Return the step and the tensors that determine the lower bound of the largest arena, the largest tensor first."""
    arena = largest_arena(compiled.plan)
    if arena is None or not arena.lower_bound_bytes:
        return None
    tensors = compiled.program.tensors
    return {
        "memory": arena.memory,
        "step": arena.peak_step,
        "tensors": [
            {
                "name": None if place.is_scratch else tensors[place.name].source,
                "c_name": place.name,
                "num_bytes": place.num_bytes,
            }
            for place in peak_placements(compiled.plan, arena)
        ],
    }


def _prediction(compiled: Compiled, best: BestCase | None) -> dict[str, Any]:
    """Return the predicted time of a run, the same with the default memory alone, and bytes moved between memories.

    With branches these are values of the worst case, and those of the best case are beside them.
    """
    time = time_model(compiled.platform, optimize=compiled.optimize)
    default = compiled.platform.activations
    predicted = partial(predicted_cycles, compiled.program, time, added_instructions=compiled.added_instructions)
    cycles = round(predicted())
    return {
        "note": "Cycles are predicted, not measured, because emulators do not model the timing of memories. They "
        "are computed from modelled instructions and the mean cycles of an instruction in each kernel. tvm-ext profile "
        "estimates cycles from executed instructions.",
        "cycles": cycles,
        "cycles_in_default_memory": round(predicted(only=default)),
        "moved": moved_table(moved_bytes(compiled.program)),
        **(_of_branches(compiled, cycles, best) if best else {}),
    }


def _of_branches(compiled: Compiled, cycles: int, best: BestCase) -> dict[str, Any]:
    """Return instructions and time of the worst and the best case. cycles: of the worst case."""
    clock_hz = compiled.platform.processor.clock_hz
    return {
        "instructions": compiled.modelled_instructions,
        "ms": round(cycles * 1000 / clock_hz, 4),
        "instructions_best_case": best.instructions,
        "cycles_best_case": best.cycles,
        "ms_best_case": round(best.cycles * 1000 / clock_hz, 4),
    }


def moved_table(moved: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    """Return the report's table of bytes that one run moves, by source and target memory."""
    return [{"source": source, "target": target, "bytes": count} for (source, target), count in sorted(moved.items())]


def float_operations(compiled: Compiled, nodes: Sequence[ModelNode]) -> list[dict[str, Any]]:
    """Return the steps of a quantized model that compute in float, and why no integer kernel takes them.

    nodes: the model's operators. If no step computes in integers, only steps are listed whose operators have integers
    in the file.
    """
    on_integers = {node.name for node in nodes if node.on_integers}
    return [
        {
            "step": call.name,
            "source_nodes": list(call.source_nodes),
            "emulated": not on_integers.isdisjoint(call.source_nodes),
            "reason": "; ".join(other.reason for other in call.implementation.alternatives if other.reason)
            or "the model computes it in float",
        }
        for call in compiled.program.kernel_calls()
        if call.implementation.computes_floats
        and (compiled.is_quantized or not on_integers.isdisjoint(call.source_nodes))
    ]


def arenas_of(compiled: Compiled, options: BuildOptions, live: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    """Return one entry for each memory's arena.

    inside: name of the platform's memory. limit_bytes: bytes that tensors in the memory may use.
    live_bytes: largest number of live bytes in each step. The maximum over the steps is the lower bound.
    """
    limits = options.limits_bytes(compiled.platform)
    return [
        {
            "memory": arena.memory,
            "inside": arena.inside,
            "num_bytes": arena.num_bytes,
            "lower_bound_bytes": arena.lower_bound_bytes,
            "proved": arena.proved,
            "peak_step": arena.peak_step,
            "limit_bytes": limits.get(arena.inside),
            "live_bytes": list(live[arena.memory]),
            **({"planner": arena.planner} if arena.planner else {}),
        }
        for arena in compiled.plan.arenas
        if arena.num_bytes
    ]


def placed_tensors(compiled: Compiled) -> list[dict[str, Any]]:
    """Return all tensors with an offset, by memory and offset.

    A tensor has the bytes [offset, offset + num_bytes) in the steps [begin, end).
    kind: input, output, intermediate, state, scratch, weights (a copy of constants), copy (moved from another memory).
    part_of: name of the tensor whose bytes contain the tensor.
    """
    kinds = _kinds(compiled.program)
    places = sorted(compiled.plan.placements.values(), key=lambda p: (p.memory, p.offset, p.begin, p.name))
    return [_placed(compiled.program, place, kinds) for place in places]


def read_by(compiled: Compiled, step: Step) -> dict[str, Any]:
    """Return keys of a step's entry: the tensors that the step reads, and the processor that runs it."""
    return {"reads": list(reads(step)), "processor": processor_of(step) or compiled.platform.processor.name}


def _placed(program: Program, place: Placement, kinds: Mapping[str, str]) -> dict[str, Any]:
    tensor = None if place.is_scratch else program.tensors[place.name]
    kept = next((state.source for state in program.states if state.tensor == place.name), None)
    return {
        "name": kept or (tensor.source if tensor else None),
        "c_name": place.name,
        "kind": "scratch" if tensor is None else kinds.get(place.name, "intermediate"),
        "shape": list(tensor.shape) if tensor else None,
        "dtype": tensor.dtype if tensor else None,
        "memory": place.memory,
        "offset": place.offset,
        "num_bytes": place.num_bytes,
        "begin": place.begin,
        "end": place.end,
        "part_of": place.part_of,
    }


def _kinds(program: Program) -> dict[str, str]:
    """Return the kinds of the tensors that are not intermediate values."""
    kinds = {name: "state" for name in (*program.kept, *filter(None, (program.ready, program.warmed_up)))}
    for transfer in _transfers(program):
        kinds.setdefault(transfer.target, "weights" if transfer.source_is_constant else "copy")
    return kinds | dict.fromkeys(program.inputs, "input") | dict.fromkeys(program.outputs, "output")


def _transfers(program: Program) -> list[Transfer]:
    """Return the transfers of constants, and the transfers between memories."""
    constants = [
        transfer
        for step in program.steps
        for call in calls(step)
        for transfer in transfers_of(call)
        if transfer.source_is_constant
    ]
    return [*constants, *program.moves()]


def described_step(
    compiled: Compiled, index: int, step: Step, live_bytes: int, worst: Container[str]
) -> dict[str, Any]:
    """Return the entry of a step.

    live_bytes: live bytes in all memories while the step runs. worst: names of the steps of the run with the most
    cycles.
    """
    time = time_model(compiled.platform, processor_of(step), optimize=compiled.optimize)
    kernel_calls = [call for call in calls(step) if isinstance(call, KernelCall)]
    modelled = [call.implementation.instructions for call in kernel_calls]
    return {
        "index": index,
        "name": step.name,
        "source_nodes": [node for call in kernel_calls for node in call.source_nodes],
        "kernel": ", ".join(dict.fromkeys(call.implementation.kernel for call in kernel_calls)) or _transfer_kind(step),
        "macs": sum(call.implementation.macs for call in kernel_calls),
        "modelled_instructions": sum(modelled) if all(modelled) else None,
        "predicted_cycles": round(step_cycles(compiled.program, step, time)),
        "alternatives": [_alternative(other) for call in kernel_calls for other in call.implementation.alternatives],
        **_grown_weights(kernel_calls),
        **read_by(compiled, step),
        **_awaited_inside(step),
        "scratch_bytes": scratch_bytes(step),
        "live_bytes": live_bytes,
        **_guards(step, step.name in worst),
        "outputs": [_tensor(compiled, compiled.program, name) for name in writes(step)],
    }


def _awaited_inside(step: Step) -> dict[str, list[str]]:
    """Return the tensors whose transfers a sequence awaits between its calls."""
    waits = [wait for _, wait in step.awaited] if isinstance(step, RowSteps) else []
    return {"awaited_inside": [transfer.target for wait in waits for transfer in wait.transfers]} if waits else {}


def _guards(step: Step, in_worst_case: bool) -> dict[str, Any]:
    """Return the conditions for which a step of a branch runs, and whether it runs in the case with the most cycles."""
    guards = guards_of(step)
    return {"guards": [asdict(guard) for guard in guards], "in_worst_case": in_worst_case} if guards else {}


def _alternative(other: Alternative) -> dict[str, Any]:
    """Return the entry of a kernel that was not chosen: its modelled instructions, or why it does not take the step."""
    return {"kernel": other.kernel, "modelled_instructions": other.instructions, "refused": other.reason}


def _grown_weights(kernel_calls: Sequence[KernelCall]) -> dict[str, Any]:
    """Return the bytes that pre-transformed weights add, and the modelled instructions that they save.

    Both are relative to the fastest other kernel whose constants are smaller.
    """
    num_bytes = instructions = 0
    for implementation in (call.implementation for call in kernel_calls if call.implementation.grows_weights):
        own = implementation.constant_bytes
        others = [
            (other.instructions, other.constant_bytes)
            for other in implementation.alternatives
            if other.instructions is not None and other.constant_bytes is not None and other.constant_bytes < own
        ]
        if others:
            fewest, constant_bytes = min(others)
            num_bytes += own - constant_bytes
            instructions += fewest - implementation.instructions
    if not num_bytes:
        return {}
    return {"grown_weights": {"bytes": num_bytes, "modelled_instructions_saved": instructions}}


def _transfer_kind(step: Step) -> str:
    """Return `wait`, `dma` for a transfer in parallel to later steps, or `copy` for a copy by the processor."""
    if isinstance(step, Wait | DriverWait):
        return "wait"
    return "dma" if isinstance(step, Transfer) and step.number is not None else "copy"


def _tensor(compiled: Compiled, program: Program, name: str) -> dict[str, Any]:
    tensor, place = program.tensors[name], compiled.plan.placements.get(name)
    return {
        "name": tensor.source,
        "c_name": name,
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
        "scale": tensor.quantization.scale if tensor.quantization else None,
        "zero_point": tensor.quantization.zero_point if tensor.quantization else None,
        "layout": list(tensor.layout),
        "strip": asdict(tensor.strip) if tensor.strip else None,
        "whole": tensor.ring is None
        and not program.has_moving_offset(name)
        and not (tensor.part and tensor.part.pitch),
        "memory": place.memory if place else None,
        "offset": place.offset if place else None,
        "begin": place.begin if place else None,
        "end": place.end if place else None,
    }


def shared_processors(compiled: Compiled, measured: SharedRun | None) -> dict[str, Any]:
    """Return the keys of a run on several processors; an empty dict for one processor.

    processors: the caller's processor first, accelerators last. Their instructions do not include waits.
    signals: number of signals between cores.
    makespan_instructions: instructions from begin to end of a run, with waits.
    single_processor_instructions: instructions of the model on the single processor that runs it fastest.
    interval_instructions: instructions between successive outputs of a pipeline, with waits.
    stage_instructions: instructions of each processor of a pipeline in that time, without waits.
    driver_calls: starts and waits of all accelerators in a run.
    All measurements are None if they were not measured, and if C code replaces an accelerator.
    """
    program, parallel = compiled.program, compiled.parallel
    drivers = drivers_of(program)
    if parallel is None and not drivers:
        return {}
    others = [_accelerator(program, driver) for driver in drivers.values()]
    waits = sum(isinstance(step, DriverWait) for step in program.steps)
    counts = {"driver_calls": {"starts": sum(len(other["steps"]) for other in others), "waits": waits}}
    if parallel is None:
        steps = [step.name for step in program.steps if not _is_driven(step)]
        first = {"name": compiled.platform.processor.name, "steps": steps, "instructions": None}
        nothing = {"makespan_instructions": None, "single_processor_instructions": None, "signals": 0}
        return {"processors": [first, *others], **nothing, **counts}
    measured = None if drivers else measured
    return {
        "processors": [
            {
                "name": steps.processor,
                "steps": [
                    step.name
                    for entry in steps.entries
                    if isinstance(entry, RunStep) and not _is_driven(step := parallel.program.steps[entry.index])
                ],
                "instructions": measured.instructions[number] if measured else None,
            }
            for number, steps in enumerate(parallel.lists)
        ]
        + others,
        "makespan_instructions": measured.makespan if measured else None,
        "single_processor_instructions": measured.single if measured else None,
        "signals": parallel.num_signals,
        **(_stages(parallel, measured) if parallel.phases else {}),
        **(counts if drivers else {}),
    }


def _stages(parallel: ParallelProgram, measured: SharedRun | None) -> dict[str, Any]:
    """Return the instructions of a pipeline's stages, and between successive outputs."""
    interval = measured.interval if measured else None
    stages = interval.stages if interval else [None] * len(parallel.lists)
    return {
        "interval_instructions": interval.instructions if interval else None,
        "stage_instructions": dict(zip((steps.processor for steps in parallel.lists), stages, strict=True)),
    }


def _accelerator(program: Program, driver: DriverCall) -> dict[str, Any]:
    """Return the entry of an accelerator with the steps that it computes."""
    steps = [c.name for c in program.kernel_calls() if c.implementation.driver == driver]
    return {"name": driver.processor, "steps": steps, "instructions": None, "driver": driver.header}


def _is_driven(step: Step) -> bool:
    """Return True for a step that starts an accelerator or waits for an accelerator."""
    return isinstance(step, DriverWait) or any(
        isinstance(call, KernelCall) and call.implementation.driver for call in calls(step)
    )


def machine_of(platform: Platform) -> dict[str, Any] | None:
    """Return the emulated machine that firmware runs on; None for a platform without a board.

    memories: memories of a machine that has the platform's core but other memories; empty for the platform's own.
    """
    if platform.board is None:
        return None
    differs = platform.on_machine is not platform
    memories = [
        {"name": memory.name, "capacity_bytes": memory.capacity_bytes}
        for memory in (platform.on_machine.memories if differs else ())
    ]
    startup = startup_of(platform)
    return {
        "name": machine_name(platform), "emulator": startup.emulator_title, "run_place": startup.run_place,
        "memories": memories,
    }  # fmt: skip
