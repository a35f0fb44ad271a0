"""A host build of a model that stops after every step and lets Python look into, or write to, its arenas."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from codegen_c.arena.plan import plan_memory
from codegen_c.build import Compiled
from codegen_c.emit.memory import union_name
from codegen_c.program import writes
from tvm_ext.runner import HostModel

Array = np.ndarray
Arenas = Mapping[str, Array]


def run_instrumented(
    compiled: Compiled, inputs: Mapping[str, Array], after_step: Callable[[int, Arenas], None]
) -> dict[str, Array]:
    """Outputs of one run; after_step(step index, {memory: uint8 view of its arena}) is called behind each step.

    inputs and outputs are under the model's own names; they lie in the arena, or are streamed where the model is
    built so.
    """
    in_arena = with_ports_in_arena(compiled)
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        for file_name, text in in_arena.sources(after_step=True).items():
            (folder / file_name).write_text(text, encoding="utf-8")
        with HostModel(folder, in_arena.interface) as model:
            arenas = {
                arena.memory: _view(model.library, union_name(in_arena.interface.model, arena.memory), arena.num_bytes)
                for arena in in_arena.plan.arenas
                if arena.num_bytes
            }
            hook = ctypes.CFUNCTYPE(None, ctypes.c_int32)(lambda step: after_step(step, arenas))
            pointer = ctypes.c_void_p.in_dll(model.library, f"{in_arena.interface.model}_after_step")
            pointer.value = ctypes.cast(hook, ctypes.c_void_p).value
            return model.run(inputs)


def trace(compiled: Compiled, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every whole tensor that a step wrote, by its name in the program, as it was right after that step.

    Streamed outputs are there too, as they went out.
    """
    in_arena = with_ports_in_arena(compiled)
    program, plan = in_arena.program, in_arena.plan
    seen: dict[str, Array] = {}

    def copy_out(step: int, arenas: Arenas) -> None:
        for name in writes(program.steps[step]):
            place, tensor = plan.placements.get(name), program.tensors[name]
            if tensor.ring or place is None:
                continue
            raw = arenas[place.memory][place.offset : place.offset + place.num_bytes]
            seen[name] = raw.copy().view(tensor.dtype)[tensor.element_places()].reshape(tensor.shape)

    outputs = run_instrumented(in_arena, inputs, copy_out)
    return {port.name: outputs[port.source] for port in in_arena.interface.outputs} | seen


def with_ports_in_arena(compiled: Compiled) -> Compiled:
    """The same program with inputs and outputs in the arena; streamed ones stay as they are."""
    if compiled.interface.io != "caller":
        return compiled
    program, plan = plan_memory(compiled.program, activations=compiled.platform.activations)
    return replace(compiled, program=program, plan=plan, interface=replace(compiled.interface, io="arena"))


def _view(library: ctypes.CDLL, symbol: str, num_bytes: int) -> Array:
    return np.ctypeslib.as_array((ctypes.c_uint8 * num_bytes).in_dll(library, symbol))
