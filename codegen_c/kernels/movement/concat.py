"""Kernel for concatenation along one axis, any element type: runs of elements are copied.

T[..., A, ...], T[..., B, ...] ... -> T[..., A + B + ..., ...]. If NHWC images are joined along columns or channels, row
h of the output reads row h of every input. A part may be a constant of the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import C_TYPES, block, loop, plus, times
from codegen_c.kernels.contract import CFunction, Copy, Implementation, Kernel, Parameter, Spatial, StoredRows, Target
from codegen_c.kernels.shared.copies import copy_instructions
from codegen_c.kernels.shared.window import ROW_PARAMETERS, row_by_row, row_elements, slot
from codegen_c.operators.kinds import Concat, TensorType

INSTRUCTIONS_A_RUN = 3
"""Modelled: addresses of a copy, and increments of the pointers; the loop around the copies takes as many."""


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A part of the output. name: of the C parameter. input: its index among the inputs; None for a constant."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    input: int | None

    @property
    def num_elements(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


def _parts(operator: Concat) -> list[_Part]:
    """Return the inputs and the constants in the order of the output."""
    parts: list[_Part] = []
    inputs = list(enumerate(operator.inputs))
    for position in range(len(operator.inputs) + len(operator.constants)):
        array = operator.constants.get(position)
        if array is not None:
            name = f"constant{position}"
            parts.append(_Part(name=name, shape=array.shape, dtype=str(array.dtype), input=None))
        else:
            index, tensor = inputs.pop(0)
            parts.append(_Part(name=f"input{index}", shape=tensor.shape, dtype=tensor.dtype, input=index))
    return parts


def reference(operator: Concat, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    parts = [
        inputs[part.input] if part.input is not None else operator.constants[position]
        for position, part in enumerate(_parts(operator))
    ]
    return [np.concatenate(parts, axis=operator.axis)]


def one_type(operator: Concat, target: Target) -> bool:
    """all tensors must have one element type, and the axis must be one of theirs"""
    same = all(part.dtype == operator.output.dtype for part in _parts(operator))
    return same and 0 <= operator.axis < len(operator.output.shape)


def runs_of(tensor: TensorType | _Part, axis: int) -> int:
    """Return the number of a tensor's elements that are contiguous in the output."""
    return int(np.prod(tensor.shape[axis:], dtype=np.int64))


def implement(operator: Concat, target: Target, stored: StoredRows) -> Implementation:
    output, rows = operator.output, _rows(operator)
    ctype = C_TYPES[output.dtype]
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                *(Parameter(name=f"input{i}", ctype=ctype, role="input") for i in range(len(operator.inputs))),
                Parameter(name="output", ctype=ctype, role="output"),
                *(Parameter(name=f"constant{i}", ctype=ctype, role="constant") for i in operator.constants),
                *(ROW_PARAMETERS if rows else ()),
            ),
            body=_by_rows(operator, stored) if rows else _whole(operator, stored),
            includes=("string.h",),
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=tuple((f"constant{i}", array.reshape(-1)) for i, array in operator.constants.items()),
        instructions=_instructions(operator),
        spatial=rows,
        exact=True,
        copies=_copies_of(operator),
        pitched=_joins_channels(operator),
        row_pitched=rows is not None,
    )


def _instructions(operator: Concat) -> int:
    """Return the modelled instructions: one copy for each input in each iteration of the loop around the copies."""
    turns = int(np.prod(operator.output.shape[: operator.axis], dtype=np.int64))
    item_bytes = np.dtype(operator.output.dtype).itemsize
    parts = _parts(operator)
    copies = sum(copy_instructions(runs_of(part, operator.axis) * item_bytes) for part in parts)
    runs = len(parts) + (turns > 1)
    return turns * (copies + runs * INSTRUCTIONS_A_RUN)


def _joins_channels(operator: Concat) -> bool:
    return operator.axis == len(operator.output.shape) - 1


def _joins_columns(operator: Concat) -> bool:
    shape = operator.output.shape
    return len(shape) == 4 and shape[0] == 1 and operator.axis == 2


def _copies_of(operator: Concat) -> tuple[Copy, ...]:
    """Return the copies of each input into the output: one run, or one run per pixel, or per row of one image.

    Return none if a part is a constant: then the step is always necessary.
    """
    if operator.constants:
        return ()
    one_run = int(np.prod(operator.output.shape[: operator.axis], dtype=np.int64)) == 1
    if not one_run and not _joins_channels(operator) and not _joins_columns(operator):
        return ()
    runs = [runs_of(tensor, operator.axis) for tensor in operator.inputs]
    return tuple(
        Copy(
            input=index,
            source_first=0,
            target_first=sum(runs[:index]),
            count=tensor.num_elements,
            run=0 if one_run else run,
            pitch=0 if one_run else runs_of(operator.output, operator.axis),
        )
        for index, (tensor, run) in enumerate(zip(operator.inputs, runs, strict=True))
    )


def _rows(operator: Concat) -> Spatial | None:
    shape = operator.output.shape
    if len(shape) != 4 or shape[0] != 1 or operator.axis < 2:
        return None
    return row_by_row(shape[1], len(operator.inputs))


def _by_rows(operator: Concat, stored: StoredRows) -> str:
    shape = operator.output.shape
    count = 1 if operator.axis == 2 else shape[2]
    lines: list[str] = []
    for part in _parts(operator):
        at = "h" if part.input is None else slot("h", stored.input(part.input))
        row = times(at, part.num_elements // shape[1])
        lines += [f"const {C_TYPES[part.dtype]} *{part.name}_row = &{part.name}[{row}];"]
    row = times(slot("h", stored.output), row_elements(stored, operator.output))
    lines += [f"{C_TYPES[operator.output.dtype]} *output_row = &output[{row}];"]
    lines += _copies(operator, stored, count, "w", "_row")
    return "\n".join(["for (int32_t h = row_begin; h < row_end; ++h) {", block(lines), "}"])


def _whole(operator: Concat, stored: StoredRows) -> str:
    num_runs = int(np.prod(operator.output.shape[: operator.axis], dtype=np.int64))
    return "\n".join(_copies(operator, stored, num_runs, "i", ""))


def _copies(operator: Concat, stored: StoredRows, count: int, index: str, suffix: str) -> list[str]:
    """Return one memcpy per part, in a loop over the axes before the joined one."""
    total, begin = stored.pitch or runs_of(operator.output, operator.axis), 0
    lines: list[str] = []
    for part in _parts(operator):
        run = runs_of(part, operator.axis)
        if run == 0:
            continue
        to, source = (str(begin), "0") if count == 1 else (plus(times(index, total), begin), times(index, run))
        size = f"{run}u * sizeof output{suffix}[0]" if np.dtype(part.dtype).itemsize > 1 else str(run)
        lines += [f"memcpy(&output{suffix}[{to}], &{part.name}{suffix}[{source}], {size});"]
        begin += run
    return lines if count == 1 else loop(index, count, lines)


KERNEL = Kernel(
    name="concat",
    title="Concatenation of tensors of any element type",
    operator=Concat,
    implement=implement,
    constraints=(one_type,),
)
