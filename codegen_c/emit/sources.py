"""All C files of a package's library; no other module knows the whole list of files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.c_text.text import folded
from codegen_c.emit.banner import Origin, user_headers
from codegen_c.emit.header import emit_header, emit_labels
from codegen_c.emit.inspection import emit_profile
from codegen_c.emit.layer_files import layer_pieces
from codegen_c.emit.memory import emit_memory, kept_api
from codegen_c.emit.model import COPY_HEADER, DMA_HEADER, headers
from codegen_c.emit.offload import emit_offload, runtime_headers
from codegen_c.emit.pieces import Piece, joined
from codegen_c.emit.sharing import ALONE, Sharing
from codegen_c.emit.signals import PUSH_HEADERS, SIGNAL_HEADER, emit_push, emit_signals, pushed_ports
from codegen_c.emit.state import emit_state
from codegen_c.emit.weights import emit_weights, weights_pieces
from codegen_c.program.interface import Interface
from codegen_c.program.parallel import ParallelProgram
from codegen_c.program.program import Program
from codegen_c.targets.registry import instruction_set_of, runtime_text, shared_by
from tvm_ext.core.errors import UnsupportedModel
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
    parallel: ParallelProgram | None = None,
    weights: Mapping[str, Sequence[Piece]] | None = None,
) -> dict[str, str]:
    """Return the texts of all C files by name.

    after_step: as in `model_pieces`. parallel: the program with per-core schedules. weights: pieces of the
    files of constants, if they were emitted before.
    """
    model = interface.model
    pieces = weights_pieces(program, model, origin, platform, sharing) if weights is None else weights
    brought = user_headers(program)
    runtime = [name for name in headers(program) if name.startswith("tvm_ext_") and name not in brought]
    runtime += [SIGNAL_HEADER] if parallel else []
    runtime += [name for name in runtime_headers(program) if name not in runtime]
    runtime += [name for name in PUSH_HEADERS if pushed_ports(interface) and name not in runtime]
    runtime += ["tvm_ext_dma.c", COPY_HEADER] if DMA_HEADER in runtime else []
    runs_on = {
        name: platform.processor_named(call.processor)
        for call in program.kernel_calls()
        for name in call.implementation.function.includes
    }
    layers = layer_pieces(program, plan, interface, origin, platform, sharing, parallel, after_step=after_step)
    generated = {
        f"{model}.h": emit_header(
            interface, origin, kept_api(interface) if interface.kept else "", plan.memories_bytes
        ),
        **{file: joined(pieces) for file, pieces in layers.items()},
        **(emit_signals(parallel, plan, interface, origin, platform) if parallel else {}),
        **emit_push(interface),
        **emit_profile(program, interface, origin),
        **emit_offload(program, model, origin, platform),
        **emit_memory(
            program,
            plan,
            interface,
            origin,
            platform,
            sharing.arenas,
            sharing.bundle,
            _copies(parallel),
            sharing.constants,
        ),
        **emit_labels(interface, origin),
        **emit_state(program, plan, interface, origin, sharing.arenas, sharing.bundle),
    }
    own = {
        **{name: folded(text) for name, text in generated.items()},
        **emit_weights(program, model, origin, pieces, sharing),
        **{name: runtime_text(name, instruction_set_of(runs_on.get(name, platform.processor))) for name in runtime},
        **(_copy_headers(platform) if COPY_HEADER in runtime else {}),
    }
    if taken := brought.keys() & own.keys():
        raise UnsupportedModel(
            f"a custom operator brings {min(taken)}, but the package has a file of that name; rename the header."
        )
    return {**own, **brought}


def _copy_headers(platform: Platform) -> dict[str, str]:
    """Return the header that copies bytes on all processors, and the headers that it includes, by name."""
    shared = shared_by(platform)
    text = runtime_text(COPY_HEADER, shared)
    included = re.findall(r'#include "(tvm_ext_\w+\.h)"', text)
    return {COPY_HEADER: text, **{name: runtime_text(name, shared) for name in included}}


def _copies(parallel: ParallelProgram | None) -> Mapping[str, Sequence[str]]:
    """Return the names of the tensors that have an offset for each phase of a pipeline."""
    return parallel.copies if parallel else {}
