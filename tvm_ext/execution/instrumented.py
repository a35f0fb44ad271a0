"""A host build of a model that stops after every step, so that callers can read and write its arenas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import numpy as np

from codegen_c.arena.plan import plan_memory
from codegen_c.backend.build import Compiled
from codegen_c.emit.memory import union_name
from codegen_c.emit.sharing import ALONE
from codegen_c.program.steps import writes
from tvm_ext.core.platform import QUICK_TOOLCHAIN
from tvm_ext.core.processes.wire import Value
from tvm_ext.execution.host_model import HostModel

Array = np.ndarray
Arenas = Mapping[str, Array]


class InstrumentedModel:
    """A model built once for many instrumented runs. Use as a context manager.

    Inputs and outputs are arrays by the model's own names. They lie in the arena, or are streamed if the model is built
    for streaming. Raises the errors of `HostModel`.
    """

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = with_ports_in_arena(_static(compiled))
        with TemporaryDirectory(prefix="tvm_ext_") as name:
            folder = Path(name)
            for file_name, text in self.compiled.sources(after_step=True).items():
                (folder / file_name).write_text(text, encoding="utf-8")
            self._host = HostModel(folder, self.compiled.interface, toolchain=QUICK_TOOLCHAIN)

    def run(self, inputs: Mapping[str, Array], after_step: Callable[[int, Arenas], None]) -> dict[str, Array]:
        """Run and return the outputs; after_step(step index, {memory: uint8 array of its arena}) is called each step.

        Bytes that after_step changes in the arrays are written back to the arenas.
        """

        def answer(step: int, arenas: Arenas) -> dict[str, Array]:
            before = {memory: arena.copy() for memory, arena in arenas.items()}
            after_step(step, arenas)
            return {memory: arena for memory, arena in arenas.items() if not np.array_equal(arena, before[memory])}

        return self._run_watched(inputs, [], answer)[0]

    def trace(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run and return every whole tensor by its name in the program, copied right after the step that wrote it.

        Ring buffers, and the frames pushed into a ring with a write index, are left out. Streamed outputs are included.
        """
        program, placements = self.compiled.program, self.compiled.plan.placements
        copied = [
            [
                (name, place.memory, place.offset, place.num_bytes)
                for name in writes(step)
                if (place := placements.get(name))
                and not program.tensors[name].ring
                and not program.has_moving_offset(name)
            ]
            for step in program.steps
        ]
        outputs, raw = self._run_watched(inputs, copied, None)
        seen: dict[str, Array] = {}
        for name, data in raw.items():
            tensor = program.tensors[name]
            seen[name] = data.view(tensor.dtype)[tensor.element_places()].reshape(tensor.shape)
        return {port.name: outputs[port.source] for port in self.compiled.interface.outputs} | seen

    def _run_watched(
        self,
        inputs: Mapping[str, Array],
        copied: Sequence[Sequence[tuple[str, str, int, int]]],
        ask: Callable[..., Value] | None,
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the outputs of a run and the copied bytes. copied: (name, memory, offset, bytes) for each step."""
        model = self.compiled.interface.model
        arenas = {
            a.memory: (union_name(model, a.memory), a.num_bytes) for a in self.compiled.plan.arenas if a.num_bytes
        }
        return self._host.run_watched(inputs, {"hook": f"{model}_after_step", "arenas": arenas, "copied": copied}, ask)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._host.close()


def run_instrumented(
    compiled: Compiled, inputs: Mapping[str, Array], after_step: Callable[[int, Arenas], None]
) -> dict[str, Array]:
    """Build an `InstrumentedModel` for a single run and return its outputs."""
    with InstrumentedModel(compiled) as model:
        return model.run(inputs, after_step)


def _static(compiled: Compiled) -> Compiled:
    """Return the same program and plan for one processor, with static arenas that can be found by their symbols."""
    interface = replace(compiled.interface, context="static", context_bytes=0, servers=(), in_flight=1)
    return replace(compiled, interface=interface, sharing=ALONE, parallel=None)


def with_ports_in_arena(compiled: Compiled) -> Compiled:
    """Return the same program with inputs and outputs in the arena; streamed ports stay unchanged."""
    if compiled.interface.io != "caller":
        return compiled
    program, plan = plan_memory(compiled.program, activations=compiled.platform.activations)
    return replace(compiled, program=program, plan=plan, interface=replace(compiled.interface, io="arena"))
