"""Steps of a program as plain data: kernel calls, copies and waits, in loops and row sequences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

from codegen_c.kernels.contract import ALL_STORED, Implementation, StoredRows
from codegen_c.operators.kinds import Operator
from codegen_c.program.tensors import Tensor
from tvm_ext.core.row_sequence import RowCall, RowLoop, Schedule, in_turn


@dataclass(frozen=True, kw_only=True)
class AffineRow:
    """Row base + step * (iteration of the enclosing Loop). step is 0 outside of a loop."""

    base: int
    step: int = 0

    def at(self, iteration: int) -> int:
        """Return the row in an iteration."""
        return self.base + self.step * iteration


@dataclass(frozen=True, kw_only=True)
class WriteIndex:
    """A number of slots: the write index of a ring, which `tensor` holds, plus `shift`."""

    tensor: str
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


class _Step:
    """The tensors that a step touches, which are listed once because many searches ask for them."""

    @cached_property
    def read_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for call in calls(cast("Step", self)) for name in _inputs(call)))

    @cached_property
    def written_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for call in calls(cast("Step", self)) for name in _outputs(call)))


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelCall(_Step):
    """An operator as a call of a C function.

    inputs, outputs, constants: names in the program, in the order of the kernel's parameters.
    input_shapes: shapes that the kernel sees, which differ from the tensor's after a reshape. Empty: as stored.
    rows: output rows that the call computes; None for all. Only for spatial kernels.
    source_nodes: the model's own names of the operators that are fused here.
    prefetched: (constant, tensor) for each constant that is read from a tensor to which it was copied before.
    scratch_memory: memory of its scratch; empty for the platform's default memory.
    processor: processor that runs it; empty for the platform's first processor.
    computes: its operator as a C identifier (`operators.titles`).
    rings: arguments for the function's parameters with role `ring`, if layers with other rings share the function or a
    ring advances from run to run.
    weight_bits: bits in which the weights of a quantized operator are stored.
    operator: the operator of its composite; None for a call without one.
    stored: the rows of its operands that are stored, as in its implementation.
    selection: the choice that the kernel makes between inputs; None if it needs all inputs.
    joined: the calls that this call replaces, if it computes several layers; `operator` is then None.
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
    prefetched: tuple[tuple[str, str], ...] = ()
    scratch_memory: str = ""
    processor: str = ""
    computes: str = ""
    rings: tuple[int | WriteIndex, ...] = ()
    weight_bits: int = 8
    operator: Operator | None = None
    stored: StoredRows = ALL_STORED
    selection: Selection | None = None
    joined: tuple[KernelCall, ...] = ()
    guards: tuple[Guard, ...] = ()

    def seen_shape(self, position: int, tensor: Tensor) -> tuple[int, ...]:
        """Return the shape in which the kernel sees the tensor that is its input `position`."""
        return self.input_shapes[position] if self.input_shapes else tensor.shape


@dataclass(frozen=True, kw_only=True)
class Transfer(_Step):
    """Copy of a whole tensor, or of a constant, to another tensor of the same size, within or between memories.

    number: for an asynchronous copy that runs while later steps run, until a `Wait`. Numbers count up from 0 in the
    order in which transfers start, which is also the order in which they end. None: the copy is done when the step
    ends. processor: the core that copies; empty for the platform's first core, which also starts DMA transfers.
    """

    name: str
    source: str
    target: str
    number: int | None = None
    processor: str = ""
    source_is_constant: bool = False


@dataclass(frozen=True, kw_only=True)
class Wait(_Step):
    """Wait until transfers are done. Before that, no step may touch their targets or write to their sources."""

    name: str
    transfers: tuple[Transfer, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class DriverWait(_Step):
    """Wait until an accelerator has finished a call, on the processor that started it.

    Before that, the accelerator reads the call's inputs and writes its outputs at any time.
    """

    name: str
    call: KernelCall


@dataclass(frozen=True, kw_only=True)
class Loop(_Step):
    """Repeat `body` `count` times. The iteration enters through the affine rows of the body.

    All tensors that a loop touches are live during the whole loop.
    """

    name: str
    count: int
    body: tuple[KernelCall | Transfer | Wait, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class RowSteps(_Step):
    """Kernels that run row by row in series, each as late as possible (`tvm_ext.core.row_sequence`).

    schedule: every call of the body's kernels, in the order of the generated C. Tensors that only the body touches may
    be ring buffers. All tensors that it touches are live during the whole step.
    awaited: waits between the calls, each with the index in the body of the kernel that needs its transfers first.
    """

    name: str
    body: tuple[KernelCall, ...]
    schedule: Schedule
    awaited: tuple[tuple[int, Wait], ...] = ()

    @cached_property
    def calls(self) -> tuple[RowCall, ...]:
        """The calls in the order in which they run."""
        return tuple(in_turn(self.schedule))

    @cached_property
    def waits(self) -> dict[int, tuple[Wait, ...]]:
        """The waits, by the index of the entry of the schedule ahead of which they stand.

        That entry is the first with a call of the kernel. In a loop the wait would be repeated.
        """
        found: dict[int, tuple[Wait, ...]] = {}
        for operator, wait in self.awaited:
            entry = next(index for index, one in enumerate(self.schedule) if _has_call_of(operator, one))
            found[entry] = (*found.get(entry, ()), wait)
        return found


def _has_call_of(operator: int, entry: RowCall | RowLoop) -> bool:
    return any(call.operator == operator for call in in_turn((entry,)))


Call = KernelCall | Transfer | Wait | DriverWait
Step = Call | Loop | RowSteps


def calls(step: Step) -> tuple[Call, ...]:
    """Return the calls that a step consists of: itself, or the body of a loop or sequence."""
    return step.body if isinstance(step, Loop | RowSteps) else (step,)


def processor_of(step: Step) -> str:
    """Return the processor that runs a step; empty for the platform's first processor."""
    running = (call.processor for call in calls(step) if isinstance(call, KernelCall | Transfer))
    return next(filter(None, running), "")


def reads(step: Step) -> tuple[str, ...]:
    """Return the names of the tensors that a step reads."""
    return step.read_names


def writes(step: Step) -> tuple[str, ...]:
    """Return the names of the tensors that a step writes."""
    return step.written_names


def scratch_bytes(step: Step) -> int:
    """Return the bytes of scratch that a step needs while it runs."""
    return max((c.implementation.scratch_bytes for c in calls(step) if isinstance(c, KernelCall)), default=0)


def scratch_memory(step: Step, default: str) -> str:
    """Return the memory of a step's scratch."""
    return next((c.scratch_memory for c in calls(step) if isinstance(c, KernelCall) and c.scratch_memory), default)


def _inputs(call: Call) -> tuple[str, ...]:
    if isinstance(call, DriverWait):
        return _inputs(call.call)
    if isinstance(call, KernelCall):
        return (*call.inputs, *(tensor for _, tensor in call.prefetched), *(guard.condition for guard in call.guards))
    return tuple(transfer.source for transfer in transfers_of(call) if not transfer.source_is_constant)


def _outputs(call: Call) -> tuple[str, ...]:
    if isinstance(call, KernelCall | DriverWait):
        return call.outputs if isinstance(call, KernelCall) else call.call.outputs
    return tuple(transfer.target for transfer in transfers_of(call))


def transfers_of(call: Call) -> tuple[Transfer, ...]:
    """Return the transfers that a call starts or waits for."""
    if isinstance(call, KernelCall | DriverWait):
        return ()
    return call.transfers if isinstance(call, Wait) else (call,)
