"""All C files of a package's library, joined: the one place that knows which there are."""

from __future__ import annotations

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.c_text.lines import folded
from codegen_c.emit.banner import Origin
from codegen_c.emit.header import emit_header
from codegen_c.emit.memory import emit_memory
from codegen_c.emit.model import DMA_HEADER, emit_model, headers
from codegen_c.emit.sharing import ALONE, Sharing
from codegen_c.emit.state import emit_state
from codegen_c.emit.weights import emit_weights
from codegen_c.program.interface import Interface
from codegen_c.program.program import Program
from codegen_c.targets.registry import instruction_set_of, runtime_text
from tvm_ext.core.platform import Platform


def emit_sources(
    program: Program,
    plan: MemoryPlan,
    interface: Interface,
    origin: Origin,
    platform: Platform,
    *,
    after_step: bool = False,
    sharing: Sharing = ALONE,
) -> dict[str, str]:
    """File name -> text. after_step as in `emit_model`."""
    model = interface.model
    runtime = [name for name in headers(program) if name.startswith("tvm_ext_")]
    runtime += ["tvm_ext_dma.c"] if DMA_HEADER in runtime else []
    runs_on = {
        name: platform.processor_named(call.processor)
        for call in program.kernel_calls()
        for name in call.implementation.function.includes
    }
    generated = {
        f"{model}.h": emit_header(interface, origin),
        f"{model}.c": emit_model(program, plan, interface, origin, after_step=after_step, sharing=sharing),
        **emit_memory(program, plan, interface, origin, platform, sharing.arenas, sharing.bundle),
        **emit_state(program, plan, interface, origin, sharing.arenas, sharing.bundle),
        **emit_weights(program, model, origin, platform, sharing),
    }
    return {
        **{name: folded(text) for name, text in generated.items()},
        **{name: runtime_text(name, instruction_set_of(runs_on.get(name, platform.processor))) for name in runtime},
    }
