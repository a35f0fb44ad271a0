"""Tensors, constants and states of a program: what steps read and write. Plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from codegen_c.c_text.text import C_TYPES
from codegen_c.operators.kinds import Quantization
from tvm_ext.core.alignment import aligned

DTYPES = tuple(C_TYPES)


Update = Literal["none", "in place", "ring", "shift", "copy"]


@dataclass(frozen=True, kw_only=True)
class Ring:
    """A ring buffer of the last `stored` rows of a tensor: row h in slot (h + shift) % stored.

    A ring that is part of another one lies in the slots whose rows that one is done with.
    turn: name of the tensor that holds how many slots further on the rows lie in this run; empty for none. Only a
    state turns, from run to run.
    """

    rows: int
    stored: int
    shift: int = 0
    turn: str = ""


@dataclass(frozen=True, kw_only=True)
class Part:
    """The elements of `tensor` from `first` on; that tensor is no part itself.

    pitch: elements from one run to the next, None where they lie behind each other. run_axes: last axes of which a run
    is made: one, a pixel; two, a row of a strip of columns.
    """

    tensor: str
    first: int
    pitch: int | None = None
    run_axes: int = 1


@dataclass(frozen=True, kw_only=True)
class Strip:
    """Columns [begin, end) of the image that the model calls `source`."""

    source: str
    begin: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An activation: written by a step (or the caller), read by later ones.

    name: C identifier, unique in the program. source: the model's own name of it.
    layout: axes of the model's tensor in the order stored here ((0, 2, 3, 1): NCHW kept as NHWC);
    empty where both are the same. ring: which rows are kept at a time, None for all; the shape is that of the whole.
    part: where it lies inside another tensor, whose bytes it shares; written once, as itself or as that tensor.
    strip: which columns of one of the model's tensors it holds, None for one of its own.
    A state keeps its elements from one run to the next; only bytes that it does not keep are ever another tensor's.
    """

    name: str
    source: str
    shape: tuple[int, ...]
    dtype: str
    memory: str
    role: Literal["input", "output", "intermediate", "state"] = "intermediate"
    layout: tuple[int, ...] = ()
    quantization: Quantization | None = None
    ring: Ring | None = None
    part: Part | None = None
    strip: Strip | None = None

    @property
    def num_elements(self) -> int:
        """Elements of the whole tensor."""
        return math.prod(self.shape)

    @property
    def run_elements(self) -> int:
        """Elements that lie together where runs of a part lie apart."""
        return math.prod(self.shape[-(self.part.run_axes if self.part else 1) :])

    @property
    def stored_elements(self) -> int:
        """Elements of the rows kept at a time; from the first to the last one where pixels or rows lie apart."""
        if self.part and self.part.pitch:
            return int(self.element_places()[-1]) + 1
        return self.num_elements * self.ring.stored // self.ring.rows if self.ring else self.num_elements

    def element_places(self) -> np.ndarray:
        """Places of the elements of a whole tensor, counted from its first one; int[num_elements]."""
        if self.part is None or self.part.pitch is None:
            return np.arange(self.num_elements)
        runs = np.arange(self.num_elements // self.run_elements) * self.part.pitch
        return np.add.outer(runs, np.arange(self.run_elements)).reshape(-1)

    @property
    def num_bytes(self) -> int:
        """Bytes it occupies in memory."""
        return self.stored_elements * self.element_bytes

    @property
    def element_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize


@dataclass(frozen=True, kw_only=True, eq=False)
class Constant:
    """Weights as the kernel reads them. role: their name in the kernel, such as `weights` or `multiplier`.

    note: role, factors, type and shape, for the comment above the array.

    members: of an object that holds all constants of a layer, so that one transfer fetches them; its data are their
    bytes (`layer_object`). layer, member: of such a constant, the object's name and its own name in there.
    """

    name: str
    data: np.ndarray
    memory: str
    role: str = "values"
    note: str = ""
    members: tuple[Constant, ...] = ()
    layer: str = ""
    member: str = ""


def layer_object(name: str, members: Sequence[Constant]) -> Constant:
    """One constant of the bytes of several, each at a multiple of the alignment; the bytes between are 0."""
    padded = [np.zeros(aligned(one.data.nbytes), np.uint8) for one in members]
    for held, one in zip(padded, members, strict=True):
        held[: one.data.nbytes] = np.frombuffer(one.data.tobytes(), np.uint8)
    data = np.concatenate(padded)
    note = f"{len(members)} constants of a layer"
    return Constant(name=name, data=data, memory=members[0].memory, note=note, members=tuple(members))


@dataclass(frozen=True, kw_only=True, eq=False)
class KeptState:
    """A value that runs keep. tensor: where it lies, as the steps read it.

    initial: the elements of the tensor before the first run. left: the tensor of a run's result, a part of `tensor` or
    the very same; of a ring, `pushed` rows at its end. update: by which way a run changes it. layout: axes of the
    model's state in the order stored here, empty where both are the same.
    """

    source: str
    tensor: str
    initial: np.ndarray
    left: str
    update: Update
    pushed: int = 0
    layout: tuple[int, ...] = ()
