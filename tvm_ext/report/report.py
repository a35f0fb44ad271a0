"""report.json: the one record of a build. Tables, pictures and the command line are views of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from codegen_c.arena.memory_plan import peak_placements
from codegen_c.arena.profile import largest_arena, live_profile
from codegen_c.backend.build import Compiled
from codegen_c.costs.predict import moved_bytes, predicted_cycles, time_model
from codegen_c.program.interface import KeptValue, Port
from codegen_c.program.makespan import SharedRun
from codegen_c.program.tensors import KeptState
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.extensions import PASSES, extensions
from tvm_ext.core.model_nodes import ModelNode
from tvm_ext.core.options import BuildOptions
from tvm_ext.report.flash import FlashByLayer
from tvm_ext.report.machine import machine_of
from tvm_ext.report.placed import arenas_of, placed_tensors
from tvm_ext.report.processors import shared_processors
from tvm_ext.report.steps import described_step

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
    arenas, tensors: of each memory, and of everything that has a place in one (`tvm_ext.report.placed`).
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
    verify: of each target, None where it was not run. `reference` names the witness; `own_reading` says why nobody else
    was one, None where it is somebody else's; `refused_by` those that were asked before, with their reasons.
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
