"""A host build of a model that stops after every step and lets others look into, or write to, its arenas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from codegen_c.arena.plan import plan_memory
from codegen_c.build import Compiled
from codegen_c.emit.memory import union_name
from codegen_c.program import writes
from tvm_ext.core.wire import Value
from tvm_ext.runner import HostModel

Array = np.ndarray
Arenas = Mapping[str, Array]


def run_instrumented(
    compiled: Compiled, inputs: Mapping[str, Array], after_step: Callable[[int, Arenas], None]
) -> dict[str, Array]:
    """Outputs of one run; after_step(step index, {memory: uint8 array of its arena}) is called behind each step.

    What it writes to the arrays goes back to the arenas. inputs and outputs are under the model's own names; they lie
    in the arena, or are streamed where the model is built so.
    """

    def answer(step: int, arenas: Arenas) -> dict[str, Array]:
        before = {memory: arena.copy() for memory, arena in arenas.items()}
        after_step(step, arenas)
        return {memory: arena for memory, arena in arenas.items() if not np.array_equal(arena, before[memory])}

    return _run_watched(with_ports_in_arena(compiled), inputs, [], answer)[0]


def trace(compiled: Compiled, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every whole tensor that a step wrote, by its name in the program, as it was right after that step.

    Streamed outputs are there too, as they went out.
    """
    in_arena = with_ports_in_arena(compiled)
    tensors, plan = in_arena.program.tensors, in_arena.plan
    copied = [
        [
            (name, place.memory, place.offset, place.num_bytes)
            for name in writes(step)
            if (place := plan.placements.get(name)) and not tensors[name].ring
        ]
        for step in in_arena.program.steps
    ]
    outputs, raw = _run_watched(in_arena, inputs, copied, None)
    seen = {
        name: data.view(tensors[name].dtype)[tensors[name].element_places()].reshape(tensors[name].shape)
        for name, data in raw.items()
    }
    return {port.name: outputs[port.source] for port in in_arena.interface.outputs} | seen


def with_ports_in_arena(compiled: Compiled) -> Compiled:
    """The same program with inputs and outputs in the arena; streamed ones stay as they are."""
    if compiled.interface.io != "caller":
        return compiled
    program, plan = plan_memory(compiled.program, activations=compiled.platform.activations)
    return replace(compiled, program=program, plan=plan, interface=replace(compiled.interface, io="arena"))


def _run_watched(
    compiled: Compiled,
    inputs: Mapping[str, Array],
    copied: Sequence[Sequence[tuple[str, str, int, int]]],
    ask: Callable[..., Value] | None,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Outputs of one run, and the bytes of what was copied behind each step: (name, memory, offset, bytes) of each."""
    model = compiled.interface.model
    arenas = {a.memory: (union_name(model, a.memory), a.num_bytes) for a in compiled.plan.arenas if a.num_bytes}
    watch = {"hook": f"{model}_after_step", "arenas": arenas, "copied": copied}
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        for file_name, text in compiled.sources(after_step=True).items():
            (folder / file_name).write_text(text, encoding="utf-8")
        with HostModel(folder, compiled.interface) as host:
            return host.run_watched(inputs, watch, ask)
