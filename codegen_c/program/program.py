"""The program that runs: tensors, constants, and steps in order. Plain data, independent of tvm and of C text.

`lowering/` creates a Program from a region, and everything after it reads the Program: the arena assigns offsets to its
tensors, the emitters write it as C, `reference.py` runs it in numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from codegen_c.kernels.user_functions import DriverCall
from codegen_c.program.steps import KernelCall, Step, Transfer, calls
from codegen_c.program.tensors import Constant, KeptState, Tensor
from tvm_ext.core.platform import LINKED_MEMORY, STATE_MEMORY


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A model, or a region of one, ready for planning and emission. inputs and outputs name tensors.

    states: values kept between runs. Their tensors are in `STATE_MEMORY`, which is a struct inside the memory
    `state_home`. ready: tensor whose only element marks that the states were set; empty without states. warm_up_runs:
    runs after a reset whose outputs are not valid yet. warmed_up: tensor that counts these runs.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: dict[str, Tensor]
    states: tuple[KeptState, ...] = ()
    state_home: str = ""
    ready: str = ""
    warm_up_runs: int = 0
    warmed_up: str = ""
    constants: dict[str, Constant] = field(default_factory=dict[str, "Constant"])
    steps: tuple[Step, ...] = ()

    def kernel_calls(self) -> Iterator[KernelCall]:
        """Yield every kernel call once, in order, including the calls of a loop's body."""
        for step in self.steps:
            for inner in calls(step):
                if isinstance(inner, KernelCall):
                    yield inner

    def moves(self) -> list[Transfer]:
        """Return every transfer between two memories of the platform, in order."""
        return [
            inner
            for step in self.steps
            for inner in calls(step)
            if isinstance(inner, Transfer)
            and self.platform_memory(self.memory_of_source(inner))
            != self.platform_memory(self.tensors[inner.target].memory)
        ]

    def platform_memory(self, memory: str) -> str:
        """Return the platform's memory that contains a memory of the program."""
        return self.state_home if memory in (STATE_MEMORY, LINKED_MEMORY) else memory

    def has_moving_offset(self, name: str) -> bool:
        """Return True if a tensor is the new rows of a ring of states, whose offset differs from run to run."""
        part = self.tensors[name].part
        ring = self.tensors[part.tensor].ring if part else None
        return ring is not None and ring.write_index != ""

    @property
    def linked(self) -> tuple[str, ...]:
        """Inputs that other models of a bundle write to. No other tensor of any model may overlap them."""
        return tuple(name for name in self.inputs if self.tensors[name].memory == LINKED_MEMORY)

    @property
    def kept(self) -> tuple[str, ...]:
        """Tensors whose bytes are kept between runs, including the write indices of rings."""
        return tuple(tensor.name for tensor in self.tensors.values() if tensor.role == "state")

    def kept_bytes(self, state: KeptState) -> int:
        """Return the bytes at the begin of a state's tensor that the next run reads. A shifted window does not keep
        all.
        """
        return self.tensors[state.left if state.update == "shift" else state.tensor].num_bytes

    def memory_of_source(self, transfer: Transfer) -> str:
        """Return the memory of a transfer's source."""
        held: dict[str, Constant] | dict[str, Tensor] = self.constants if transfer.source_is_constant else self.tensors
        return held[transfer.source].memory

    @property
    def weights_bytes(self) -> int:
        """Bytes of all constants."""
        return sum(one.data.nbytes for one in self.constant_objects)

    @property
    def constant_objects(self) -> list[Constant]:
        """Constants that are objects in memory. Constants of a layer that one transfer copies are a single object."""
        return [constant for constant in self.constants.values() if not constant.layer]

    @property
    def has_grown_weights(self) -> bool:
        """True if pre-transformed weights of any kernel take more bytes than the model's."""
        return any(call.implementation.grows_weights for call in self.kernel_calls())


def parts_of(program: Program) -> dict[str, list[Tensor]]:
    """Return the parts of each tensor that has parts."""
    found: dict[str, list[Tensor]] = {}
    for tensor in program.tensors.values():
        if tensor.part:
            found.setdefault(tensor.part.tensor, []).append(tensor)
    return found


def drivers_of(program: Program) -> dict[str, DriverCall]:
    """Return the driver of each accelerator that a program starts, by processor."""
    return {driver.processor: driver for call in program.kernel_calls() if (driver := call.implementation.driver)}
