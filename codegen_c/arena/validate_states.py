"""Rules for states kept between runs: when steps may read one, and how the next run must find it.

A byte's owner does not tell old elements of a state from new ones, so this replays moments instead: of each tensor of a
state, the elements that are of this run.
"""

from __future__ import annotations

import numpy as np

from codegen_c.program.program import Program
from codegen_c.program.steps import Call, KernelCall, Transfer, calls
from codegen_c.program.tensors import KeptState
from tvm_ext.core.errors import PlanRejected
from tvm_ext.core.platform import STATE_MEMORY


def check_states(program: Program) -> None:
    """Raises PlanRejected with the state and the step that reads elements no longer there, or not yet."""
    owners: dict[str, str] = {}
    for state in program.states:
        if state.tensor in owners:
            raise PlanRejected(f"{state.source} and {owners[state.tensor]} are kept in one tensor, {state.tensor}.")
        owners[state.tensor] = state.source
        tensor = program.tensors[state.tensor]
        if tensor.role != "state" or tensor.memory != STATE_MEMORY:
            raise PlanRejected(f"{state.source}: {state.tensor} does not lie where runs keep states.")
        _replay(program, state)


def _replay(program: Program, state: KeptState) -> None:
    """Elements [0, n) of the tensor, and whether this run has written them."""
    tensor = program.tensors[state.tensor]
    fresh = np.zeros(tensor.num_elements, dtype=bool)
    for index, step in enumerate(program.steps):
        for call in calls(step):
            where = f"step {index} ({step.name})"
            for position, name in enumerate(_read(call)):
                _check_read(program, state, fresh, name, where)
                if name == state.tensor and _overwrites(program, state, call) and not _is_in_place(call, position):
                    raise PlanRejected(f"{where}: writes state {state.source} while it still reads it.")
            for name in _written(call):
                part = program.tensors[name].part
                if name == state.tensor:
                    raise PlanRejected(f"{where}: writes over all of state {state.source}, which only parts may be.")
                if part and part.tensor == state.tensor:
                    fresh[part.first : part.first + program.tensors[name].num_elements] = True
    wanted = np.ones_like(fresh)
    if state.update == "none":
        wanted[:] = False
    elif state.update == "ring":
        wanted[: -(tensor.num_elements // _rows(tensor.shape) * state.pushed)] = False
    elif state.update == "shift":
        wanted = fresh  # the moved end, and what was new
    if not np.array_equal(fresh, wanted) or (state.update != "none" and not fresh.any()):
        raise PlanRejected(f"state {state.source}: a run leaves {int(fresh.sum())} elements of {fresh.size} in it.")


def _check_read(program: Program, state: KeptState, fresh: np.ndarray, name: str, where: str) -> None:
    """The state as found is read before any of it is written, a window with its new end, a part as written."""
    tensor = program.tensors[name]
    if name == state.tensor:
        old = not fresh.any()
        window = state.update in ("ring", "shift")
        if (window and (old or fresh[0])) or (not window and not old):
            raise PlanRejected(f"{where}: reads state {state.source} when it is not what the step needs.")
    elif tensor.part and tensor.part.tensor == state.tensor:
        held = fresh[tensor.part.first : tensor.part.first + tensor.num_elements]
        moves_up = state.update == "shift" and not fresh[0]
        if not held.all() and not moves_up:
            raise PlanRejected(f"{where}: reads {name}, a part of state {state.source}, before it is written.")


def _rows(shape: tuple[int, ...]) -> int:
    return next((extent for extent in shape if extent > 1), 1)


def _overwrites(program: Program, state: KeptState, call: Call) -> bool:
    parts = (program.tensors[name].part for name in _written(call))
    return state.update not in ("ring", "shift") and any(part and part.tensor == state.tensor for part in parts)


def _is_in_place(call: Call, position: int) -> bool:
    return isinstance(call, KernelCall) and position in call.implementation.in_place


def _read(call: Call) -> tuple[str, ...]:
    if isinstance(call, KernelCall):
        return call.inputs
    return (call.source,) if isinstance(call, Transfer) and not call.source_is_constant else ()


def _written(call: Call) -> tuple[str, ...]:
    if isinstance(call, KernelCall):
        return call.outputs
    return (call.target,) if isinstance(call, Transfer) else ()
