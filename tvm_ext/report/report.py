"""report.json, the one record of a build: totals, memories, steps, processors and measurements."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from codegen_c.arena.memory_plan import Placement, largest_arena, live_profile, peak_placements
from codegen_c.backend.build import Compiled
from codegen_c.costs.predict import moved_bytes, predicted_cycles, step_cycles, time_model
from codegen_c.kernels.contract import Alternative
from codegen_c.kernels.user_functions import DriverCall
from codegen_c.program.interface import KeptValue, Port
from codegen_c.program.makespan import SharedRun
from codegen_c.program.parallel import ParallelProgram, RunStep
from codegen_c.program.program import Program, drivers_of
from codegen_c.program.steps import (
    DriverWait,
    KernelCall,
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
    """The report of a build as JSON-ready values; None where something was not measured.

    options: all options of the build, as `BuildOptions` has them.
    arenas, tensors: of each memory, and of everything that has a place in one (`tvm_ext.report.report`).
    context_bytes: of an instance that the caller holds, with arena and states; 0 where they are static.
    arena_bytes: states included. state_bytes, states: what runs keep, and how each is changed.
    inputs, outputs: `stream` says in how many rows they are handed over, how many of those are kept at a time, how many
    come in one call, and the order of axes of their elements; None where they are not streamed.
    kept: values inside the model that stay readable after a run; left out where none were asked for.
    flash: weights and code together, and of each layer; left out where nothing was compiled.
    float_operations: of a quantized model, steps that compute in float, and why; `emulated` ones are on integers in the
    file.
    assurance: entries of their own, `stack_bound` and `selftest_coverage`, as `measured_assurance` makes them, and
    `selftest`, as `SelfTest.to_json` does.
    placement: where the platform has several processors, what placing operators on them is predicted to give.
    quantization: what quantizing the model here measured on the calibration samples; None for other models.
    shared_run: measured, of a run that several processors share; None where it was not.
    tuning: of layers whose kernels were measured, as `Tuning.to_json` has it; None where none were.
    image: what was made beside the library to be loaded, and its runs; None where none was asked for.
    verify: of each target, None where it was not run. `reference` names the reference runtime; `own_reading` says why
    nobody else was one, None where it is somebody else's; `refused_by` those that were asked before, with their
    reasons.
    comparisons: of a model in another form than its file's, from the file to the C (`FormComparison`).
    """
    plan, program, platform = compiled.plan, compiled.program, compiled.platform
    used = dict(compiled.origin.memories)
    live = live_profile(program, plan)
    return {
        "schema_version": SCHEMA_VERSION,
        "generator": compiled.origin.generator,
        "model": {
            "name": compiled.interface.model,
            "source": compiled.origin.model,
            "sha256": origin.sha256,
            "format": origin.source_format,
            "rounding": compiled.interface.rounding,
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
        "arena_proved": all(arena.proved for arena in plan.arenas),
        "arenas": arenas_of(compiled, options, live),
        **({"extension_passes": said} if (said := [one.said for one in extensions(PASSES)]) else {}),
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
        "macs": sum(call.implementation.macs for call in program.kernel_calls()),
        "prediction": _prediction(compiled),
        **({"placement": dict(compiled.placement)} if compiled.placement is not None else {}),
        "inputs": [_port(port) for port in compiled.interface.inputs],
        "outputs": [_port(port) for port in compiled.interface.outputs],
        **({"kept": [_kept(value) for value in compiled.interface.kept]} if compiled.interface.kept else {}),
        "steps": [
            described_step(compiled, index, step, sum(memory[index] for memory in live.values()))
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
    """A value that stays readable: as an input is described, its place, and which of its rows stay."""
    described = {key: entry for key, entry in _port(value.port).items() if key not in ("stream", "layout", "taken_as")}
    place = {key: entry for key, entry in asdict(value).items() if key != "port"}
    return {**described, **place, "layout": list(value.layout)}


def _state(compiled: Compiled, state: KeptState) -> dict[str, Any]:
    """A state's place, and how a run changes it: by a ring, in place, by moving rows up, by a copy, or not at all."""
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
    """The step and the tensors that hold up the lower bound of the memory where most is alive, the largest first."""
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


def _prediction(compiled: Compiled) -> dict[str, Any]:
    """Predicted time of a run, with and without memories beside the default one, and transfers between them."""
    time, default = time_model(compiled.platform), compiled.platform.activations
    return {
        "note": "predicted cycles, not measured: QEMU models no memory timing. They are made of modelled "
        "instructions and the mean cycles of an instruction in each kernel; tvm-ext profile estimates from executed "
        "instructions",
        "cycles": round(predicted_cycles(compiled.program, time)),
        "cycles_in_default_memory": round(predicted_cycles(compiled.program, time, only=default)),
        "moved": moved_table(moved_bytes(compiled.program)),
    }


def moved_table(moved: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    """Bytes of one run by the memories they go between, as the report has them."""
    return [{"source": source, "target": target, "bytes": count} for (source, target), count in sorted(moved.items())]


def float_operations(compiled: Compiled, nodes: Sequence[ModelNode]) -> list[dict[str, Any]]:
    """Steps that a quantized model computes in float, and why no integer kernel takes them.

    nodes: the model's operators. Where no step computes in integers, those that its file has compute integers.
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
    """One entry for each memory's arena. inside: the platform's memory; limit_bytes: what tensors there may take.

    live_bytes: at most alive at one moment of each step, in bytes; the largest is the lower bound.
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
    """Everything with a place, by memory and offset: bytes [offset, offset + num_bytes) in steps [begin, end).

    kind: input, output, intermediate, state, scratch, weights (a copy of constants), copy (moved from another memory).
    part_of: the tensor in whose bytes it lies.
    """
    kinds = _kinds(compiled.program)
    places = sorted(compiled.plan.placements.values(), key=lambda p: (p.memory, p.offset, p.begin, p.name))
    return [_placed(compiled.program, place, kinds) for place in places]


def read_by(compiled: Compiled, step: Step) -> dict[str, Any]:
    """Keys of a step: the tensors it reads, and the processor that runs it."""
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
    """Kinds of the tensors that are more than values between two operators."""
    found = {name: "state" for name in (*program.kept, *filter(None, (program.ready, program.warmed_up)))}
    for transfer in _transfers(program):
        found.setdefault(transfer.target, "weights" if transfer.source_is_constant else "copy")
    return found | dict.fromkeys(program.inputs, "input") | dict.fromkeys(program.outputs, "output")


def _transfers(program: Program) -> list[Transfer]:
    """Transfers of constants, and those from one memory to another."""
    constants = [
        transfer
        for step in program.steps
        for call in calls(step)
        for transfer in transfers_of(call)
        if transfer.source_is_constant
    ]
    return [*constants, *program.moves()]


def described_step(compiled: Compiled, index: int, step: Step, live_bytes: int) -> dict[str, Any]:
    """A step's entry. live_bytes: in all memories, while it runs."""
    kernel_calls = [call for call in calls(step) if isinstance(call, KernelCall)]
    modelled = [call.implementation.instructions for call in kernel_calls]
    return {
        "index": index,
        "name": step.name,
        "source_nodes": [node for call in kernel_calls for node in call.source_nodes],
        "kernel": ", ".join(dict.fromkeys(call.implementation.kernel for call in kernel_calls)) or _transfer_kind(step),
        "macs": sum(call.implementation.macs for call in kernel_calls),
        "modelled_instructions": sum(modelled) if all(modelled) else None,
        "predicted_cycles": round(
            step_cycles(compiled.program, step, time_model(compiled.platform, processor_of(step)))
        ),
        "alternatives": [_alternative(other) for call in kernel_calls for other in call.implementation.alternatives],
        **_grown_weights(kernel_calls),
        **read_by(compiled, step),
        "scratch_bytes": scratch_bytes(step),
        "live_bytes": live_bytes,
        "outputs": [_tensor(compiled, compiled.program, name) for name in writes(step)],
    }


def _alternative(other: Alternative) -> dict[str, Any]:
    """A kernel that was not chosen for a step: what it was modelled to cost, or why it could not be taken."""
    return {"kernel": other.kernel, "modelled_instructions": other.instructions, "refused": other.reason}


def _grown_weights(kernel_calls: Sequence[KernelCall]) -> dict[str, Any]:
    """Bytes by which constants grew for speed, and modelled instructions that this saves beside the next kernel."""
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
    """`wait`, `dma` for what goes on while later steps run, `copy` for what the processor does."""
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
        "whole": tensor.ring is None and not program.turns(name) and not (tensor.part and tensor.part.pitch),
        "memory": place.memory if place else None,
        "offset": place.offset if place else None,
        "begin": place.begin if place else None,
        "end": place.end if place else None,
    }


def shared_processors(compiled: Compiled, measured: SharedRun | None) -> dict[str, Any]:
    """Processors that share a run, the caller's first, accelerators last, and signals between cores; {} of one alone.

    Instructions count no waits. makespan_instructions: executed from begin to end of a run, waits included.
    single_processor_instructions: of the model on the one processor that runs it fastest. Of a pipeline,
    interval_instructions: between successive outputs, waits included; stage_instructions: of each processor meanwhile,
    waits left out. Each is None where it was not measured; what stands in for an accelerator's driver is no measurement
    of it. driver_calls: starts and waits of all accelerators in a run.
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
    """Instructions of a pipeline's stages, and between successive outputs."""
    interval = measured.interval if measured else None
    stages = interval.stages if interval else [None] * len(parallel.lists)
    return {
        "interval_instructions": interval.instructions if interval else None,
        "stage_instructions": dict(zip((steps.processor for steps in parallel.lists), stages, strict=True)),
    }


def _accelerator(program: Program, driver: DriverCall) -> dict[str, Any]:
    """An accelerator, and the steps that it computes."""
    steps = [c.name for c in program.kernel_calls() if c.implementation.driver == driver]
    return {"name": driver.processor, "steps": steps, "instructions": None, "driver": driver.header}


def _is_driven(step: Step) -> bool:
    """True for the start of an accelerator, and for the wait for it."""
    return isinstance(step, DriverWait) or any(
        isinstance(call, KernelCall) and call.implementation.driver for call in calls(step)
    )


def machine_of(platform: Platform) -> dict[str, Any] | None:
    """Name of the machine that firmware is for, and of one that only stands in what it has of each memory."""
    if platform.board is None:
        return None
    differs = platform.on_machine is not platform
    memories = [
        {"name": memory.name, "capacity_bytes": memory.capacity_bytes}
        for memory in (platform.on_machine.memories if differs else ())
    ]
    return {"name": platform.board.qemu_machine, "memories": memories}
