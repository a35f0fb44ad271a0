"""Passes of a kernel over memory, as it models them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from codegen_c.kernels.figures import UNMEASURED, Block, KernelFigures
from codegen_c.kernels.user_functions import Callback, DriverCall
from codegen_c.operators.kinds import Operator, TensorType, Window
from codegen_c.targets.instruction_set import InstructionSet
from tvm_ext.core.platform import Processor
from tvm_ext.core.row_access import RowAccess

# Passes of a kernel over memory, as it models them.


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Passes of one run over memory, averaged over its bytes: modelled, for predictions of time.

    constants: reads of all constants. input: reads of the first input; other inputs are read once, as outputs are
    written once. scratch: reads and writes together.
    """

    constants: float = 1.0
    input: float = 1.0
    scratch: float = 2.0

    @classmethod
    def of_product(cls, macs: int, input_elements: int, rows: int, *, pixels: float, channels: float) -> Passes:
        """Passes of rows times constant weights, `pixels` by `channels` results at once, each straight from memory."""
        return cls(constants=max(1.0, rows / pixels), input=max(1.0, macs / channels / input_elements))


ONCE = Passes()


# Rows of a kernel's operands that are stored: a ring of some of them, or all, and where they lie.


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Rows kept of an operand: row h in slot (h + shift) % stored.

    stored_name, shift_name: parameters of the function that say so, where layers share it; empty for constants.
    """

    stored: int
    shift: int = 0
    stored_name: str = ""
    shift_name: str = ""

    @property
    def stored_text(self) -> str:
        """`stored` as C."""
        return self.stored_name or str(self.stored)

    @property
    def shift_text(self) -> str:
        """`shift` as C; empty for none."""
        return self.shift_name or (str(self.shift) if self.shift else "")

    def slot(self, row: int) -> int:
        return (row + self.shift) % self.stored


@dataclass(frozen=True, kw_only=True)
class StoredRows:
    """Stored rows of each operand; None means all of them.

    at_once: output rows that a call computes, where the first and the last may compute fewer; None: the only call
    computes all, or where rows are kept, any. Where all rows are stored, a plan may call for one after the other, the
    last first, if `Spatial` lets it (`descends`, nothing `behind`).
    call_rows: all numbers of rows that calls compute, where they are known.
    pitch: elements from one pixel of the output to the next, None: its channels. Other kernels write what lies between.
    row_pitch: the same from one row of a single image to the next, None: its columns. A multiple of the pixels'.
    """

    inputs: tuple[Kept | None, ...] = ()
    output: Kept | None = None
    at_once: int | None = None
    call_rows: frozenset[int] = frozenset()
    pitch: int | None = None
    row_pitch: int | None = None

    def input(self, index: int) -> Kept | None:
        return self.inputs[index] if index < len(self.inputs) else None


ALL_STORED = StoredRows()


# Contract of a kernel: the C it emits, what it reads and writes when, scratch, cost, and a numpy reference.
#
# A kernel file defines `KERNEL = Kernel(...)`; the registry finds it. Its constraints are small predicates
# whose docstring is the reason a user reads when one of them says no.
#
# A spatial kernel computes output rows [row_begin, row_end) and may read its input from, and write its output to, a
# ring buffer of rows: row h of a tensor of which R rows are stored lies in slot h % R. Splitting sequences,
# overlapping tensors and the plan's validator all build on that. A kernel that computes all at once may name one that
# does so by rows (`in_rows`): of tensors that are no images these are cut as `vector_rows` says.

Array = np.ndarray
Role = Literal["input", "output", "constant", "scratch", "row", "ring"]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of a kernel's C function. Constants are restrict; activations may overlap.

    Scratch is not, though nothing lies over it: GCC 12 at -O3, which knows the only address that it is given, took some
    accesses for those of the pointer and others for those of the object, and moved reads before writes.
    """

    name: str
    ctype: str
    role: Role

    def declaration(self) -> str:
        if self.role in ("row", "ring"):
            return f"int32_t {self.name}"
        qualifier = "const " if self.role in ("input", "constant") else ""
        restrict = "restrict " if self.role == "constant" else ""
        return f"{qualifier}{self.ctype} *{restrict}{self.name}"


@dataclass(frozen=True, kw_only=True)
class CFunction:
    """A kernel as text: its parameters in order, its body, and helper functions it calls.

    `$` in body and helpers stands for the function's own name, so that equal kernels have equal text. headers: name and
    text of headers that the user brought.
    """

    parameters: tuple[Parameter, ...]
    body: str
    helpers: str = ""
    includes: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Spatial:
    """Row behaviour of a spatial kernel: rows of an output image, and for each input what they read.

    A row range applies to every image of a batch; windows of stored rows are for single images. Output rows are
    written in ascending order; while one is written, the inputs of at most `behind` rows before it are still read.

    descends: whether it may be called for row after row from the last to the first; not where that costs much.
    accumulates: the rows are those of the only input. A call adds some to what the ones before it left in the kernel's
    outputs, the last one finishes the outputs. No byte of theirs may change in between.
    window: slides over the first input, where one does; read by models of cost alone.
    columns_at_once: columns of a row that are computed together, in ascending order. When one of them is written,
    everything that the columns before this group read has been read. 0 for a row that is written in any order.
    """

    output_rows: int
    inputs: tuple[RowAccess, ...]
    behind: int = 0
    descends: bool = True
    accumulates: bool = False
    window: Window | None = None
    columns_at_once: int = 0

    def __post_init__(self) -> None:
        assert all(access.output_rows == self.output_rows for access in self.inputs), "each output row reads something"

    def needed_from(self, index: int, row: int) -> int:
        """First row of an input that may still be read while output row `row` is written."""
        return self.inputs[index].needed_from[max(0, row - self.behind)]


@dataclass(frozen=True, kw_only=True)
class Target:
    """Conditions for a kernel: the processor, whether speed or size matters more, and whether scratch does most.

    least_flash: weights may not be stored in more bytes than the model's for speed. figures: measured, of ways to
    compute operators, which count before modelled ones. block: the one to take of those that the kernel offers; an
    empty one leaves it the choice.

    `codegen_c.targets.registry.target_of` makes one from a processor.
    """

    processor: Processor
    instruction_set: InstructionSet
    optimize: Literal["speed", "size"] = "speed"
    least_scratch: bool = False
    least_flash: bool = False
    figures: KernelFigures = UNMEASURED
    block: Block = ()

    @property
    def has_float(self) -> bool:
        return self.processor.fpu != "none"

    @property
    def is_offload(self) -> bool:
        """True of an accelerator, which takes what its driver takes and runs no C."""
        return self.processor.kind == "offload"


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A kernel that was not chosen: modelled cost and bytes of its constants, or why it refused."""

    kernel: str
    instructions: int | None = None
    constant_bytes: int | None = None
    grows_weights: bool = False
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Copy:
    """Elements of one input that stand in the output as they are: `count` of them, in one run or in runs of `run`.

    pitch: elements of the output from one such run to the next.
    """

    input: int
    source_first: int
    target_first: int
    count: int
    run: int = 0
    pitch: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Accumulating:
    """A kernel that may take its only input in equal parts, in order, and add to sums (`Spatial.accumulates`).

    row_counts: into how many parts. implement: the kernel for one of these, and for how many of them are stored.
    """

    row_counts: tuple[int, ...]
    implement: Callable[[int, StoredRows], Implementation]


@dataclass(frozen=True, kw_only=True, eq=False)
class Implementation:
    """A kernel applied to one operator.

    constants: (role, array) in the order of the function's constant parameters, packed as the code reads them.
    accumulation: order in which one output element is summed, fixed however the output is cut.
    instructions, passes: modelled; they rank variants, and are never reported as measurements.
    in_place: inputs the output may take the place of, element for element: each is read before it is written. Of one
        that is read through a window, a call reads all that a row needs before it writes the row. An output of fewer
        rows of the same elements may lie at the begin of such an input.
    reference: numpy on whole, stored-layout arrays, bit for bit for integers.
    exact: whether the reference gives the very bytes of the C code (integers) or agrees within rounding (float).
    integers_only: of one that is not exact, whether its C computes in integers anyway, as plain C may.
    correctly_rounded: of one that computes floats, whether each result is rounded once, so that every processor
        computes the bytes of the reference.
    alternatives: what else there was to choose from, for the report.
    keeping: the same kernel for operands of which only some rows are stored.
    in_rows: of one that computes all at once, the same operator by rows of its output, where there is such a kernel.
    accumulating: the same operator by rows of its input, where there is such a kernel.
    sums: what an accumulating kernel keeps between its calls beside its output: a second output, `reference`'s too.
    copies: of a kernel that does nothing but put elements elsewhere, all of them; such a step can be saved.
    pitched, row_pitched: whether `keeping` takes a pitch, and a pitch of rows.
    callback: the application's function that is called instead of `function`.
    driver: where `function` only starts an accelerator; outputs are there behind the driver's wait.
    grows_weights: whether constants take more bytes than the model's, for speed.
    rounds_input: whether it brings real numbers to integers that nobody sees, and computes with these.
    block: that it was given; empty for the kernel's own choice.
    """

    kernel: str
    function: CFunction
    reference: Callable[[list[Array]], list[Array]]
    constants: tuple[tuple[str, Array], ...] = ()
    scratch_bytes: int = 0
    macs: int = 0
    instructions: int = 0
    passes: Passes = ONCE
    accumulation: str = "none"
    spatial: Spatial | None = None
    in_place: tuple[int, ...] = ()
    exact: bool = False
    integers_only: bool = False
    correctly_rounded: bool = False
    alternatives: tuple[Alternative, ...] = ()
    keeping: Callable[[StoredRows], Implementation] | None = None
    in_rows: Callable[[StoredRows], Implementation] | None = None
    accumulating: Accumulating | None = None
    sums: TensorType | None = None
    copies: tuple[Copy, ...] = ()
    pitched: bool = False
    row_pitched: bool = False
    callback: Callback | None = None
    driver: DriverCall | None = None
    grows_weights: bool = False
    rounds_input: bool = False
    block: Block = ()

    @property
    def constant_bytes(self) -> int:
        return sum(array.nbytes for _, array in self.constants)

    @property
    def computes_floats(self) -> bool:
        """True where an FPU, or a library in place of one, is needed."""
        return not (self.exact or self.integers_only)

    @property
    def is_reproducible(self) -> bool:
        """True where every processor computes the bytes of the reference."""
        return self.correctly_rounded or not self.computes_floats


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Reason why a kernel does not take an operator, in words for the user."""

    kernel: str
    reason: str


Constraint = Callable[[Any, Target], bool]


def no_blocks(operator: Operator, target: Target) -> tuple[Block, ...]:
    """Blocks of a kernel that has its own choice alone."""
    return ()


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One way to compute one kind of operator. offload: by an accelerator; others are for cores alone.

    blocks: sizes of the blocks in which it can work, such as pixels by channels in registers; its own choice may be
    among them. They give the same bits; only who measures them asks for them (`Target.block`).
    """

    name: str
    operator: type[Operator]
    implement: Callable[[Any, Target, StoredRows], Implementation]
    constraints: tuple[Constraint, ...] = ()
    offload: bool = False
    blocks: Callable[[Any, Target], tuple[Block, ...]] = no_blocks

    def refuses(self, operator: Operator, target: Target) -> Refusal | None:
        """The first constraint that does not hold, as a value with its reason; None if all hold."""
        for holds in self.constraints:
            if not holds(operator, target):
                return Refusal(kernel=self.name, reason=" ".join((holds.__doc__ or holds.__name__).split()))
        return None
