"""Tensors, constants and states of a program, which steps read and write. Plain data."""

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
    """A ring buffer of the last `stored` rows of a tensor: row h is in slot (h + shift) % stored.

    A ring that is a part of another ring uses slots whose rows are no longer needed in that ring. write_index: name of
    the tensor that holds a number of slots to add to `shift` in this run; empty for none. Only rings of states advance
    from run to run.
    """

    rows: int
    stored: int
    shift: int = 0
    write_index: str = ""


@dataclass(frozen=True, kw_only=True)
class Part:
    """The elements of `tensor` from `first` on. That tensor is not a part itself.

    pitch: elements from one run of contiguous elements to the next; None if all elements are contiguous. run_axes:
    number of last axes that form a run: 1 for a pixel, 2 for a row of a strip of columns.
    """

    tensor: str
    first: int
    pitch: int | None = None
    run_axes: int = 1


@dataclass(frozen=True, kw_only=True)
class Strip:
    """Columns [begin, end) of the image with the model's name `source`."""

    source: str
    begin: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An activation: written by a step or the caller, read by later steps.

    name: C identifier, unique in the program. source: the model's own name. layout: axes of the model's tensor in
    stored order ((0, 2, 3, 1): NCHW stored as NHWC); empty if both are the same. ring: which rows are stored at a time,
    None for all; the shape is that of the whole tensor. part: its position inside another tensor, whose bytes it
    shares; it is written once, as itself or as that tensor. strip: which columns of a tensor of the model it holds;
    None if it is not a strip. A state keeps its elements from one run to the next; other tensors may only use bytes
    that it does not keep.
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
        """Number of elements of the whole tensor."""
        return math.prod(self.shape)

    @property
    def run_elements(self) -> int:
        """Number of contiguous elements in a run of a part."""
        return math.prod(self.shape[-(self.part.run_axes if self.part else 1) :])

    @property
    def stored_elements(self) -> int:
        """Number of elements of the stored rows. With a pitch, this includes the gaps between elements."""
        if self.part and self.part.pitch:
            return int(self.element_places()[-1]) + 1
        return self.num_elements * self.ring.stored // self.ring.rows if self.ring else self.num_elements

    def element_places(self) -> np.ndarray:
        """Return the offset of each element from the first, in elements; int[num_elements]."""
        if self.part is None or self.part.pitch is None:
            return np.arange(self.num_elements)
        runs = np.arange(self.num_elements // self.run_elements) * self.part.pitch
        return np.add.outer(runs, np.arange(self.run_elements)).reshape(-1)

    @property
    def num_bytes(self) -> int:
        """Bytes that the tensor takes in memory."""
        return self.stored_elements * self.element_bytes

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.dtype).itemsize


@dataclass(frozen=True, kw_only=True, eq=False)
class Constant:
    """Weights in the form that the kernel reads. role: their name in the kernel, such as `weights` or `multiplier`.

    note: role, factors, type and shape, for the comment above the array. members: constants of a layer's object
    (`layer_object`), which one transfer copies; its data are their bytes. layer, member: for such a member, the name of
    the object and its name in the object.
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
    """Return one constant with the bytes of several, each aligned; the padding is 0."""
    padded = [np.zeros(aligned(one.data.nbytes), np.uint8) for one in members]
    for held, one in zip(padded, members, strict=True):
        held[: one.data.nbytes] = np.frombuffer(one.data.tobytes(), np.uint8)
    data = np.concatenate(padded)
    note = f"{len(members)} constants of a layer"
    return Constant(name=name, data=data, memory=members[0].memory, note=note, members=tuple(members))


@dataclass(frozen=True, kw_only=True, eq=False)
class KeptState:
    """A value that is kept between runs. tensor: the tensor that holds it, as the steps read it.

    initial: the elements of the tensor before the first run. left: the tensor of the next value, which is `tensor` or a
    part of it; for a ring, `pushed` rows at its end. update: how a run changes it. layout: axes of the model's state in
    stored order, empty if both are the same.
    """

    source: str
    tensor: str
    initial: np.ndarray
    left: str
    update: Update
    pushed: int = 0
    layout: tuple[int, ...] = ()
