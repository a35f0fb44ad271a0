"""Steps of a program as plain data: calls of kernels, copies and waits, in loops and by rows; what a step touches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from codegen_c.kernels.contract import ALL_STORED, Implementation, StoredRows
from codegen_c.operators.kinds import Operator
from codegen_c.program.tensors import Tensor
from tvm_ext.core.row_sequence import RowCall, Schedule, in_turn


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


@dataclass(frozen=True, kw_only=True)
class Guard:
    """Condition of a step. condition: a bool tensor of one element. holds: the value for which the step runs."""

    condition: str
    holds: bool


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Choice of a kernel call between some of its inputs, which are given by position.

    condition: the input whose only element chooses. when: for True and for False, the inputs that the result needs for
    that value only.
    """

    condition: int
    when: dict[bool, frozenset[int]]


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
    selection: the choice that the kernel makes between inputs; None if it needs all inputs.
    guards: the call runs if all of these conditions hold. If it is skipped, no step reads its outputs.
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
    selection: Selection | None = None
    guards: tuple[Guard, ...] = ()

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


def processor_of(step: Step) -> str:
    """Processor that runs a step; empty for the platform's first one, which runs copies that say no other."""
    running = (call.processor for call in calls(step) if isinstance(call, KernelCall | Transfer))
    return next(filter(None, running), "")


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
        return (*call.inputs, *(tensor for _, tensor in call.fetched), *(guard.condition for guard in call.guards))
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
