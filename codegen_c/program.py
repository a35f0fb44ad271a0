"""What runs, in order: tensors, constants, and steps. Plain data; nothing here knows tvm or C text.

A Program is what `lower.py` makes of a region and what everything after it reads: the arena gives its
tensors places, the emitters write it as C, `reference.py` runs it in numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from codegen_c.kernels.contract import Implementation

DTYPES = ("float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """real = scale * (integer - zero_point), one pair for the whole tensor."""

    scale: float
    zero_point: int


@dataclass(frozen=True, kw_only=True)
class Ring:
    """Of a tensor's rows, only the last `stored` are kept: row h in slot (h + shift) % stored.

    A ring that is part of another one lies in the slots whose rows that one is done with.
    """

    rows: int
    stored: int
    shift: int = 0


@dataclass(frozen=True, kw_only=True)
class Part:
    """The elements of `tensor` from `first` on; that tensor is no part itself."""

    tensor: str
    first: int


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An activation: written by a step (or the caller), read by later ones.

    name: C identifier, unique in the program. source: the model's own name of it.
    layout: axes of the model's tensor in the order stored here ((0, 2, 3, 1): NCHW kept as NHWC);
    empty where both are the same. ring: which rows are kept at a time, None for all; the shape is that of the whole.
    part: where it lies inside another tensor, whose bytes it shares; written once, as itself or as that tensor.
    """

    name: str
    source: str
    shape: tuple[int, ...]
    dtype: str
    memory: str
    role: Literal["input", "output", "intermediate"] = "intermediate"
    layout: tuple[int, ...] = ()
    quantization: Quantization | None = None
    ring: Ring | None = None
    part: Part | None = None

    @property
    def num_elements(self) -> int:
        """Of the whole tensor."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def stored_elements(self) -> int:
        """Of the rows kept at a time."""
        return self.num_elements * self.ring.stored // self.ring.rows if self.ring else self.num_elements

    @property
    def num_bytes(self) -> int:
        """That it takes in memory."""
        return self.stored_elements * self.element_bytes

    @property
    def element_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize


@dataclass(frozen=True, kw_only=True, eq=False)
class Constant:
    """Weights as the kernel reads them. note: layer, role and layout, for the comment above the array."""

    name: str
    data: np.ndarray
    memory: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Affine:
    """base + step * (iteration of the enclosing Loop); step 0 outside of one."""

    base: int
    step: int = 0

    def at(self, iteration: int) -> int:
        return self.base + self.step * iteration


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Output rows [begin, end) that one call of a spatial kernel computes."""

    begin: Affine
    end: Affine


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelCall:
    """One operator as one C function.

    inputs, outputs, constants: names in the program, in the order of the kernel's parameters.
    input_shapes: shapes the kernel sees; a reshape costs nothing, so a tensor may have another one.
    rows: None computes the whole output; otherwise the part given, for kernels that are spatial.
    source_nodes: the model's own names of the operators fused here.
    """

    name: str
    implementation: Implementation
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    input_shapes: tuple[tuple[int, ...], ...]
    constants: tuple[str, ...] = ()
    source_nodes: tuple[str, ...] = ()
    rows: Rows | None = None


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Copy of a whole tensor into another one of the same bytes, within or between memories."""

    name: str
    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class Loop:
    """`body`, `count` times in series; the iteration enters through the body's Affine rows.

    Tensors a loop touches are live during the whole of it.
    """

    name: str
    count: int
    body: tuple[KernelCall | Transfer, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Sequence:
    """Kernels that run row by row in series, each as late as it can (`tvm_ext.core.row_sequence`).

    rows_per_call: of each kernel of the body; first_rows: of their first calls, 0 where that is no other number.
    Tensors that only the body touches may be rings; all tensors that it
    touches are live during the whole of it.
    """

    name: str
    body: tuple[KernelCall, ...]
    rows_per_call: tuple[int, ...]
    first_rows: tuple[int, ...] = ()

    def first_of(self, index: int) -> int:
        """Rows of a kernel's first call."""
        return (self.first_rows[index] if self.first_rows else 0) or self.rows_per_call[index]


Step = KernelCall | Transfer | Loop | Sequence


def calls(step: Step) -> tuple[KernelCall | Transfer, ...]:
    """The calls a step is made of: itself, or the body of a loop or sequence as it stands."""
    return step.body if isinstance(step, Loop | Sequence) else (step,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A model, or a region of one, ready for planning and emission. inputs and outputs name tensors."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: dict[str, Tensor]
    constants: dict[str, Constant] = field(default_factory=dict[str, "Constant"])
    steps: tuple[Step, ...] = ()

    def kernel_calls(self) -> Iterator[KernelCall]:
        """Every kernel call once, in order; those of a loop's body as they stand."""
        for step in self.steps:
            for inner in calls(step):
                if isinstance(inner, KernelCall):
                    yield inner

    @property
    def weights_bytes(self) -> int:
        return sum(constant.data.nbytes for constant in self.constants.values())


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


def _inputs(call: KernelCall | Transfer) -> tuple[str, ...]:
    return (call.source,) if isinstance(call, Transfer) else call.inputs


def _outputs(call: KernelCall | Transfer) -> tuple[str, ...]:
    return (call.target,) if isinstance(call, Transfer) else call.outputs
