"""The program that runs: tensors, constants, and steps in order. Plain data; nothing here knows tvm or C text.

A Program is what `lowering/` makes of a region and what everything after it reads: the arena gives its tensors places,
the emitters write it as C, `reference.py` runs it in numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from codegen_c.kernels.contract import ALL_STORED, Implementation, StoredRows
from codegen_c.kernels.user_functions import DriverCall
from codegen_c.operators.kinds import Operator
from codegen_c.program.tensors import Constant, KeptState, Tensor
from tvm_ext.core.platform import LINKED_MEMORY, STATE_MEMORY
from tvm_ext.core.row_schedule import Schedule, in_turn
from tvm_ext.core.row_sequence import RowCall


@dataclass(frozen=True, kw_only=True)
class AffineRow:
    """base + step * (iteration of the enclosing Loop); step 0 outside of one."""

    base: int
    step: int = 0

    def at(self, iteration: int) -> int:
        return self.base + self.step * iteration


@dataclass(frozen=True, kw_only=True)
class Turned:
    """A number of slots: that which the tensor `turn` holds, and `shift` more."""

    turn: str
    shift: int


@dataclass(frozen=True, kw_only=True)
class RowRange:
    """Output rows [begin, end) that one call of a spatial kernel computes."""

    begin: AffineRow
    end: AffineRow


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelCall:
    """One operator as one C function.

    inputs, outputs, constants: names in the program, in the order of the kernel's parameters.
    input_shapes: shapes the kernel sees; a reshape costs nothing, so a tensor may have another one. Empty: as stored.
    rows: None computes the whole output; otherwise the part given, for kernels that are spatial.
    source_nodes: the model's own names of the operators fused here.
    fetched: (constant, tensor) of constants that are read from a tensor that they were copied to before.
    scratch_memory: where its scratch lies; empty for the platform's default memory.
    processor: what runs it, of the platform; empty for the platform's first one.
    computes: its operator as a C identifier (`operators.titles`).
    rings: values of the function's parameters of that role, where layers of other rings share it, or a ring turns.
    weight_bits: those in which its operator's weights are stored, where it is quantized.
    operator: as its composite was read; None of what was made without one.
    stored: rows that are stored of its operands, as its implementation has them.
    """

    name: str
    implementation: Implementation
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    input_shapes: tuple[tuple[int, ...], ...] = ()
    constants: tuple[str, ...] = ()
    source_nodes: tuple[str, ...] = ()
    rows: RowRange | None = None
    fetched: tuple[tuple[str, str], ...] = ()
    scratch_memory: str = ""
    processor: str = ""
    computes: str = ""
    rings: tuple[int | Turned, ...] = ()
    weight_bits: int = 8
    operator: Operator | None = None
    stored: StoredRows = ALL_STORED

    def seen_shape(self, position: int, tensor: Tensor) -> tuple[int, ...]:
        """Shape in which the kernel sees the tensor that is its input `position`."""
        return self.input_shapes[position] if self.input_shapes else tensor.shape


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Copy of a whole tensor, or of a constant, into another tensor of the same bytes, within or between memories.

    number: of a copy that goes on while later steps run, until a `Wait` for it; they count up from 0 in the order in
    which they start, and end in it. None: a copy that is done when the step is.
    processor: the core that copies; empty for the platform's first one, which also starts what a DMA does.
    """

    name: str
    source: str
    target: str
    number: int | None = None
    processor: str = ""
    source_is_constant: bool = False


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Blocks until transfers are done. Before that, nothing touches their targets or writes to their sources."""

    name: str
    transfers: tuple[Transfer, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class DriverWait:
    """Blocks until an accelerator is done with a call that started it, on the processor that did.

    Before that the accelerator reads the call's inputs and writes its outputs, at any time.
    """

    name: str
    call: KernelCall


@dataclass(frozen=True, kw_only=True)
class Loop:
    """`body`, `count` times in series; the iteration enters through the body's affine rows.

    Tensors a loop touches are live during the whole of it.
    """

    name: str
    count: int
    body: tuple[KernelCall | Transfer | Wait, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class RowSteps:
    """Kernels that run row by row in series, each as late as it can (`tvm_ext.core.row_sequence`).

    schedule: every call of the body's kernels, as the generated C makes them.
    Tensors that only the body touches may be rings; all tensors that it touches are live during the whole of it.
    """

    name: str
    body: tuple[KernelCall, ...]
    schedule: Schedule

    @cached_property
    def calls(self) -> tuple[RowCall, ...]:
        """The calls one by one, in the order they run."""
        return tuple(in_turn(self.schedule))


Call = KernelCall | Transfer | Wait | DriverWait
Step = Call | Loop | RowSteps


def calls(step: Step) -> tuple[Call, ...]:
    """The calls a step is made of: itself, or the body of a loop or sequence as it stands."""
    return step.body if isinstance(step, Loop | RowSteps) else (step,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A model, or a region of one, ready for planning and emission. inputs and outputs name tensors.

    states: what runs keep; their tensors lie in `STATE_MEMORY`, which is a struct of its own inside `state_home`.
    ready: tensor whose one number says that they were set; empty where there are none.
    warm_up_runs: runs behind a reset whose outputs are no answers yet; warmed_up: tensor that counts them.
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
        """Every kernel call once, in order; those of a loop's body as they stand."""
        for step in self.steps:
            for inner in calls(step):
                if isinstance(inner, KernelCall):
                    yield inner

    def moves(self) -> list[Transfer]:
        """Every transfer from one memory to another, in order."""
        return [
            inner
            for step in self.steps
            for inner in calls(step)
            if isinstance(inner, Transfer)
            and self.home(self.memory_of_source(inner)) != self.home(self.tensors[inner.target].memory)
        ]

    def home(self, memory: str) -> str:
        """The platform's memory that one of the program's lies in."""
        return self.state_home if memory in (STATE_MEMORY, LINKED_MEMORY) else memory

    def turns(self, name: str) -> bool:
        """True where a tensor lies elsewhere in each run: it is new rows of a ring that runs keep."""
        part = self.tensors[name].part
        ring = self.tensors[part.tensor].ring if part else None
        return ring is not None and ring.turn != ""

    @property
    def linked(self) -> tuple[str, ...]:
        """Inputs whose bytes nothing else ever takes, in any model of a bundle: others write to them."""
        return tuple(name for name in self.inputs if self.tensors[name].memory == LINKED_MEMORY)

    @property
    def kept(self) -> tuple[str, ...]:
        """Tensors whose bytes runs keep, those of turns among them."""
        return tuple(tensor.name for tensor in self.tensors.values() if tensor.role == "state")

    def kept_bytes(self, state: KeptState) -> int:
        """Bytes at the begin of a state's tensor that the next run finds; of a window that moves up not all."""
        return self.tensors[state.left if state.update == "shift" else state.tensor].num_bytes

    def memory_of_source(self, transfer: Transfer) -> str:
        held: dict[str, Constant] | dict[str, Tensor] = self.constants if transfer.source_is_constant else self.tensors
        return held[transfer.source].memory

    @property
    def weights_bytes(self) -> int:
        return sum(one.data.nbytes for one in self.constant_objects)

    @property
    def constant_objects(self) -> list[Constant]:
        """Constants that are objects in memory: those of a layer that one transfer fetches are one together."""
        return [constant for constant in self.constants.values() if not constant.layer]

    @property
    def has_grown_weights(self) -> bool:
        """True where constants of any kernel take more bytes than the model's, for speed."""
        return any(call.implementation.grows_weights for call in self.kernel_calls())


def processor_of(step: Step) -> str:
    """Processor that runs a step; empty for the platform's first one, which runs copies that say no other."""
    running = (call.processor for call in calls(step) if isinstance(call, KernelCall | Transfer))
    return next(filter(None, running), "")


def parts_of(program: Program) -> dict[str, list[Tensor]]:
    """The parts of each tensor that has any."""
    found: dict[str, list[Tensor]] = {}
    for tensor in program.tensors.values():
        if tensor.part:
            found.setdefault(tensor.part.tensor, []).append(tensor)
    return found


def reads(step: Step) -> tuple[str, ...]:
    """Names of the tensors a step reads."""
    return tuple(dict.fromkeys(name for call in calls(step) for name in _inputs(call)))


def writes(step: Step) -> tuple[str, ...]:
    """Names of the tensors a step writes."""
    return tuple(dict.fromkeys(name for call in calls(step) for name in _outputs(call)))


def scratch_bytes(step: Step) -> int:
    """Bytes of scratch a step needs while it runs."""
    return max((c.implementation.scratch_bytes for c in calls(step) if isinstance(c, KernelCall)), default=0)


def scratch_memory(step: Step, default: str) -> str:
    """Memory that a step's scratch lies in."""
    return next((c.scratch_memory for c in calls(step) if isinstance(c, KernelCall) and c.scratch_memory), default)


def _inputs(call: Call) -> tuple[str, ...]:
    if isinstance(call, DriverWait):
        return _inputs(call.call)
    if isinstance(call, KernelCall):
        return (*call.inputs, *(tensor for _, tensor in call.fetched))
    return tuple(transfer.source for transfer in transfers_of(call) if not transfer.source_is_constant)


def _outputs(call: Call) -> tuple[str, ...]:
    if isinstance(call, KernelCall | DriverWait):
        return call.outputs if isinstance(call, KernelCall) else call.call.outputs
    return tuple(transfer.target for transfer in transfers_of(call))


def transfers_of(call: Call) -> tuple[Transfer, ...]:
    """Transfers that a call begins, or waits for."""
    if isinstance(call, KernelCall | DriverWait):
        return ()
    return call.transfers if isinstance(call, Wait) else (call,)


def drivers_of(program: Program) -> dict[str, DriverCall]:
    """Drivers of the accelerators that a program starts, by processor."""
    return {driver.processor: driver for call in program.kernel_calls() if (driver := call.implementation.driver)}
