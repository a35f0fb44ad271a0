"""A state of the model and its tensors in a lowered program, and the place that runs keep for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from codegen_c.program.program import Program
from codegen_c.program.tensors import KeptState, Tensor, Update
from tvm_ext.core.model_states import ModelState
from tvm_ext.core.platform import STATE_MEMORY


@dataclass(frozen=True, kw_only=True, eq=False)
class KeptPair:
    """A state of the model, the tensor in which a run finds it, and the one in which it leaves it."""

    state: ModelState
    found: str
    left: str


def state_number(name: str, source: str, dtype: str) -> Tensor:
    """A number of the C's own that runs keep."""
    return Tensor(name=name, source=source, shape=(1,), dtype=dtype, memory=STATE_MEMORY, role="state")


def with_place(program: Program, pair: KeptPair, *, left: str, update: Update, tensor: Tensor | None = None) -> Program:
    """The program with the state in the place that runs keep. tensor: that holds it, by default the one found."""
    held = replace(tensor or program.tensors[pair.found], role="state", memory=STATE_MEMORY)
    state = KeptState(
        source=pair.state.name, tensor=held.name, initial=pair.state.initial, left=left, update=update,
        layout=pair.state.layout,
    )  # fmt: skip
    return replace(program, tensors={**program.tensors, held.name: held}, states=(*program.states, state))
