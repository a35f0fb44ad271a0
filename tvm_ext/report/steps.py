"""Steps of a program as the report has them: kernels, what else there was to choose from, costs, and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from codegen_c.backend.build import Compiled
from codegen_c.costs.predict import step_cycles, time_model
from codegen_c.kernels.contract import Alternative
from codegen_c.program.program import Program
from codegen_c.program.steps import (
    DriverWait,
    KernelCall,
    Step,
    Transfer,
    Wait,
    calls,
    processor_of,
    scratch_bytes,
    writes,
)
from tvm_ext.report.placed import read_by


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
