"""The contract of a kernel: memory traffic, stored rows, and the implementation of one operator."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from codegen_c.kernels.measurements import UNMEASURED, Block, KernelMeasurements
from codegen_c.kernels.user_functions import Callback, DriverCall
from codegen_c.operators.kinds import Operator, TensorType, Window
from codegen_c.targets.instruction_set import InstructionSet
from tvm_ext.core.platform import Processor
from tvm_ext.core.row_access import RowAccess

# Memory traffic of a kernel, as it models it.


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Modelled memory traffic of one run in passes over the bytes of each operand, for predictions of time.

    constants: reads of all constants. input: reads of the first input; other inputs are read once, and outputs are
    written once. scratch: reads and writes together.
    """

    constants: float = 1.0
    input: float = 1.0
    scratch: float = 2.0

    @classmethod
    def of_product(cls, macs: int, input_elements: int, rows: int, *, pixels: float, channels: float) -> Passes:
        """Return the traffic of rows times constant weights, by blocks of `pixels` by `channels` results."""
        return cls(constants=max(1.0, rows / pixels), input=max(1.0, macs / channels / input_elements))


ONCE = Passes()


# Stored rows of a kernel's operands: a ring buffer of some rows, or all rows, and their layout.


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Stored rows of an operand as its kernel sees them: row h lies in slot (h + shift) % stored.

    `Ring` is the same for a tensor of the program.
    stored_name, shift_name: parameters of the function that hold the numbers if layers share it; empty for constants.
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

    at_once: output rows that a call computes; the first and the last call may compute fewer. None: a single call
    computes all rows, or any number if rows are kept. If all rows are stored, a plan may call for one row after the
    other, the last first, if `Spatial` allows it (`descends`, and `rows_still_read` is 0).
    call_rows: all numbers of rows that calls compute, if they are known. A call may compute more rows than `at_once`,
    if several calls of a sequence were merged: memory for the rows of a call is sized by `rows_of_calls`.
    pitch: elements from one pixel of the output to the next; None: its channels. Other kernels write the elements
    between.
    row_pitch: elements from one row of a single image to the next; None: its columns. A multiple of the pixels' pitch.
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


# Contract of a kernel: the C it emits, the order of its reads and writes, scratch, cost, and a numpy reference.
#
# A kernel file defines `KERNEL = Kernel(...)`; the registry finds it. Its constraints are small predicates whose
# docstring is the reason that a user reads when the constraint does not hold.
#
# A spatial kernel computes output rows [row_begin, row_end) and may read its input from, and write its output to, a
# ring buffer of rows: row h of a tensor of which R rows are stored lies in slot h % R. Splitting sequences, overlapping
# tensors and the plan's validator all build on this. A kernel that computes all rows at once may name a kernel that
# computes them one by one (`in_rows`): `vector_rows` defines the rows of tensors that are no images.

Array = np.ndarray
Role = Literal["input", "output", "constant", "scratch", "row", "ring"]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of a kernel's C function. Constants are restrict; activations may overlap.

    Scratch is not restrict, although nothing overlaps it: GCC 12 at -O3, which knows its only address, treated some
    accesses as those of the pointer and others as those of the object, and moved reads before writes.
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
    """A kernel as text: its parameters in order, its body, and helper functions that it calls.

    `$` in body and helpers stands for the function's own name, so that equal kernels have equal text. headers: name and
    text of headers that the user supplied.
    """

    parameters: tuple[Parameter, ...]
    body: str
    helpers: str = ""
    includes: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Spatial:
    """Row behaviour of a spatial kernel: the rows of the output image, and the rows of each input that they read.

    A row range applies to every image of a batch; windows of stored rows are for single images. Output rows are written
    in ascending order; while a row is written, the inputs of at most `rows_still_read` rows before it are still read.

    descends: True if calls may go from the last row to the first; False if this costs much.
    accumulates: the rows are those of the only input. Each call adds some rows to the kernel's outputs, and the last
    call finishes the outputs. No other code may change their bytes in between.
    window: the window that slides over the first input, if there is one; only cost models read it.
    columns_at_once: columns of a row that are computed together, in ascending order. When one of them is written, all
    inputs of the columns before this group have been read. 0 for a row that is written in any order.
    tile_rows: rows that a call computes in the time of the first of them, if it begins with it: those of a tile.
    """

    output_rows: int
    inputs: tuple[RowAccess, ...]
    rows_still_read: int = 0
    tile_rows: int = 1
    descends: bool = True
    accumulates: bool = False
    window: Window | None = None
    columns_at_once: int = 0

    def __post_init__(self) -> None:
        assert all(access.output_rows == self.output_rows for access in self.inputs), "each output row reads something"

    def needed_from(self, index: int, row: int) -> int:
        """Return the first row of an input that may still be read while output row `row` is written."""
        return self.inputs[index].needed_from[max(0, row - self.rows_still_read)]


@dataclass(frozen=True, kw_only=True)
class Target:
    """All that the choice of a kernel depends on beside the operator: the processor, speed or size, scratch and flash.

    core: for which the C is compiled, as -mcpu names it; empty if not known. least_flash: weights may not be stored in
    more bytes than the model's for speed. measurements: measured costs, which take precedence over modelled costs.
    block: the block size to use; an empty one leaves the choice to the kernel.

    `codegen_c.targets.registry.target_of` makes a target from a processor.
    """

    processor: Processor
    instruction_set: InstructionSet
    core: str = ""
    optimize: Literal["speed", "size"] = "speed"
    least_scratch: bool = False
    least_flash: bool = False
    measurements: KernelMeasurements = UNMEASURED
    block: Block = ()

    @property
    def has_float(self) -> bool:
        return self.processor.fpu != "none"

    @property
    def is_dual_issue(self) -> bool:
        """True for a core for which kernels order instructions so that two of them start in a cycle."""
        return self.core in self.instruction_set.dual_issue

    @property
    def is_offload(self) -> bool:
        """True for an accelerator, which runs the layers of its interface and no C."""
        return self.processor.kind == "offload"


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A kernel that was not chosen: its modelled cost and bytes of constants, or the reason of its refusal."""

    kernel: str
    instructions: int | None = None
    constant_bytes: int | None = None
    grows_weights: bool = False
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Copy:
    """Elements of one input that are copied to the output unchanged: `count` of them, in one run or in runs of `run`.

    pitch: elements of the output from one run to the next.
    """

    input: int
    source_first: int
    target_first: int
    count: int
    run: int = 0
    pitch: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Accumulating:
    """A kernel that may take its only input in equal parts, in order, and add them to sums (`Spatial.accumulates`).

    row_counts: possible numbers of parts. implement: the kernel for one of these numbers, and for the stored rows.
    """

    row_counts: tuple[int, ...]
    implement: Callable[[int, StoredRows], Implementation]


@dataclass(frozen=True, kw_only=True)
class SharedWindows:
    """A layer of a kernel that brings the windows of some pixels into scratch, and then computes all channels of them.

    Layers that read the same windows of one input can share the windows in scratch (`shared/shared_windows.py`).

    form: equal for layers whose windows have the same bytes in scratch. pixels: number of output pixels. at_once:
    pixels of a group, whose windows are in scratch at the same time. first: C expression for the first pixel of a group
    by the loop counter `m`. definitions: C structures and functions that the statements use. fill_definitions: those
    that only `fill` uses.
    fill: C statements that bring the windows of a group, from pixel `first` on, from `input` into `scratch`.
    regroup: C statements that change scratch ahead of `compute`. Layers without such statements are computed earlier.
    compute: C statements for all channels of a group.
    fill_instructions, compute_instructions: modelled, of all groups.
    """

    form: tuple[Hashable, ...]
    pixels: int
    at_once: int
    fill: tuple[str, ...]
    compute: tuple[str, ...]
    definitions: str
    fill_instructions: int
    compute_instructions: int
    first: str = "m"
    fill_definitions: str = ""
    regroup: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OpenEnd:
    """A loop that data end.

    macs, instructions: of the run with the fewest iterations. most_passes: the largest number of iterations, of which
    output 0 holds the number that ran; 0 for a loop inside another one.
    """

    macs: int
    instructions: int
    most_passes: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Implementation:
    """A kernel applied to one operator: its C, its cost, and what the memory plan may do with it.

    Emission reads `function`, `constants`, `callback` and `driver`. The choice of kernels and predictions of time read
    `instructions`, `passes`, `macs` and `scratch_bytes`. The memory plan, splits and states read `in_place`, `spatial`,
    `keeping`, `in_rows`, `accumulating`, `sums`, `copies` and the pitches. The report and verification read most of
    the others.

    constants: (role, array) in the order of the function's constant parameters, packed for the code.
    accumulation: order in which one output element is summed; it does not depend on how the output is split.
    instructions, passes: modelled; they rank variants, and are never reported as measurements.
    in_place: inputs whose memory the output may take, element for element: each element is read before it is written.
    For an input that is read through a window, a call reads everything that a row needs before it writes the row. An
    output of fewer rows of the same elements may lie at the begin of such an input.
    ascends: False if the elements of an output in place are not written in ascending order. The output then has to
    begin exactly where the input begins, not below it.
    next_states: pairs of an input and an output, which is the input's next value: the output may lie exactly where the
    input does, also if the kernel has several outputs.
    reference: numpy on whole arrays in the stored layout, bit for bit for integers.
    exact: True if the reference returns the very bytes of the C code (integers); else it agrees within rounding
    (floats).
    integers_only: for a kernel that is not exact, True if its C still computes in integers, as plain C may.
    correctly_rounded: for a kernel that computes floats, True if each result is rounded once, so that every processor
    computes the bytes of the reference.
    alternatives: kernels that were not chosen, which the report lists.
    keeping: makes the same kernel again, for operands of which only some rows are stored. Ring buffers of row sequences
    and of states, and parts of other tensors, use it after the choice of the kernel.
    in_rows: for a kernel that computes all rows at once, the same operator by rows of its output, if such a kernel
    exists.
    accumulating: the same operator by rows of its input, if such a kernel exists.
    sums: state of an accumulating kernel between its calls: a second output, also of `reference`.
    copies: for a kernel that only copies elements, all of its copies; the plan may make such a step unnecessary.
    pitched, row_pitched: True if `keeping` supports a pitch of pixels, or of rows.
    callback: the application's function that is called instead of `function`.
    driver: set if `function` only starts an accelerator; outputs are valid after the driver's wait.
    grows_weights: True if constants take more bytes than the model's, for speed.
    rounds_input: True if the kernel rounds real numbers to integers internally, and computes with these.
    block: block size that the kernel was given; empty for the kernel's own choice.
    windows: set if other layers can share the windows that the kernel brings into scratch.
    open_end: set if data end a loop of the kernel; `macs` and `instructions` are then those of all its iterations.
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
    ascends: bool = True
    next_states: tuple[tuple[int, int], ...] = ()
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
    windows: SharedWindows | None = None
    open_end: OpenEnd | None = None

    @property
    def goes_back(self) -> bool:
        """True if the kernel returns to earlier elements: an output in place then begins where its input does."""
        return not self.ascends or (self.spatial is not None and self.spatial.rows_still_read > 0)

    @property
    def constant_bytes(self) -> int:
        return sum(array.nbytes for _, array in self.constants)

    @property
    def computes_floats(self) -> bool:
        """True if the kernel needs an FPU, or a library in place of one."""
        return not (self.exact or self.integers_only)

    @property
    def is_reproducible(self) -> bool:
        """True if every processor computes the bytes of the reference."""
        return self.correctly_rounded or not self.computes_floats


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Reason why a kernel does not accept an operator, as a text for the user."""

    kernel: str
    reason: str


Constraint = Callable[[Any, Target], bool]


def no_blocks(operator: Operator, target: Target) -> tuple[Block, ...]:
    """Return the blocks of a kernel without a choice of block sizes: none."""
    return ()


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One strategy to compute one kind of operator. offload: by an accelerator; others are for processor cores.

    title: one line on what the kernel computes, for the reference of supported operators.
    blocks: sizes of the blocks in which the kernel can work, such as pixels by channels in registers; the kernel's own
    choice may be among them. All sizes give the same bits; only measurements request them (`Target.block`).
    """

    name: str
    title: str
    operator: type[Operator]
    implement: Callable[[Any, Target, StoredRows], Implementation]
    constraints: tuple[Constraint, ...] = ()
    offload: bool = False
    blocks: Callable[[Any, Target], tuple[Block, ...]] = no_blocks

    def refuses(self, operator: Operator, target: Target) -> Refusal | None:
        """Return the first constraint that does not hold, as a refusal with its reason; None if all hold."""
        for holds in self.constraints:
            if not holds(operator, target):
                return Refusal(kernel=self.name, reason=" ".join((holds.__doc__ or holds.__name__).split()))
        return None
