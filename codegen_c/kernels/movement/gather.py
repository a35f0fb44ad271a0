"""Kernel for padding, slicing, repeating and nearest neighbours, any element type, by an index list for each axis.

T[A, B, ...] -> T[P, Q, ...]. Runs of elements are copied or filled; all elements outside the input are one value. For
one NHWC image, row h of the output reads the input row of its index, if indices do not descend.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import C_TYPES, Compound, block, literal, loop, plus, times
from codegen_c.kernels.contract import CFunction, Copy, Implementation, Kernel, Parameter, Spatial, StoredRows, Target
from codegen_c.kernels.shared.copies import copy_instructions, fill_instructions
from codegen_c.kernels.shared.window import ROW_PARAMETERS, slot
from codegen_c.operators.kinds import Array, Gather
from tvm_ext.core.row_access import RowAccess

INSTRUCTIONS_A_RUN = 8
"""Modelled: the index of a run, and the loop around the copy."""
LETTERS = "nhwcijkl"


@dataclass(frozen=True, kw_only=True)
class _Axis:
    """Axis of a gather: elements outside of the input at its begin and end, and the indices between them.

    table: the constant with the indices, if one is needed.
    """

    before: int
    after: int
    places: Array
    extent: int
    table: str

    @property
    def is_whole(self) -> bool:
        return not self.before and not self.after and np.array_equal(self.places, np.arange(self.extent))

    @property
    def is_run(self) -> bool:
        return bool((np.diff(self.places) == 1).all())

    @property
    def step(self) -> int | None:
        """Difference of successive indices; None if they differ."""
        steps = np.unique(np.diff(self.places))
        return int(steps[0]) if len(steps) == 1 else 0 if not len(steps) else None

    @property
    def factor(self) -> int | None:
        """Divisor, 2 to 8, that maps an output index to its input index (repeated elements); None if there is none."""
        number = np.arange(len(self.places)) + self.before
        return next((factor for factor in range(2, 9) if np.array_equal(self.places, number // factor)), None)

    @property
    def needs_table(self) -> bool:
        """True if no formula gives the indices."""
        return self.step is None and self.factor is None

    def place(self, index: str) -> str:
        """Return the C expression of the input index of output element `index`."""
        if self.step is not None:
            start = int(self.places[0]) - self.step * self.before
            return plus(times(index, self.step), start) if self.step else str(start)
        if self.factor is not None:
            return Compound(f"{index} / {self.factor}")
        return f"{self.table}[{index} - {self.before}]" if self.before else f"{self.table}[{index}]"


def reference(operator: Gather, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    result = inputs[0]
    outside = np.zeros(operator.output.shape, dtype=bool)
    for axis, places in enumerate(operator.places):
        result = np.take(result, np.maximum(places, 0), axis=axis)
        outside |= (places < 0).reshape([-1 if i == axis else 1 for i in range(len(operator.places))])
    return [np.where(outside, np.array(operator.value).astype(result.dtype), result)]


def fills_ends(operator: Gather, target: Target) -> bool:
    """elements outside the input must lie before and after the elements inside, along each axis"""
    return all(_contiguous(places) for places in operator.places)


def _contiguous(places: Array) -> bool:
    inside = np.flatnonzero(places >= 0)
    return inside.size > 0 and inside.size == inside[-1] - inside[0] + 1


def axes_of(operator: Gather) -> list[_Axis]:
    found: list[_Axis] = []
    for number, (places, extent) in enumerate(zip(operator.places, operator.inputs[0].shape, strict=True)):
        inside = np.flatnonzero(places >= 0)
        before, end = int(inside[0]), int(inside[-1]) + 1
        found.append(
            _Axis(
                before=before, after=len(places) - end, places=places[before:end], extent=extent,
                table=f"places{number}",
            )
        )  # fmt: skip
    return found


def implement(operator: Gather, target: Target, stored: StoredRows) -> Implementation:
    axes, output = axes_of(operator), operator.output
    rows = _rows(operator)
    text = _Text(operator=operator, axes=tuple(axes), stored=stored, by_rows=rows is not None)
    ctype = C_TYPES[output.dtype]
    tables = tuple((axis.table, axis.places.astype(np.int32)) for axis in axes[: text.depth] if axis.needs_table)
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=ctype, role="input"),
                Parameter(name="output", ctype=ctype, role="output"),
                *(Parameter(name=name, ctype="int32_t", role="constant") for name, _ in tables),
                *(ROW_PARAMETERS if rows else ()),
            ),
            body="\n".join(text.level(0, "", "")),
            includes=("string.h",),
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=tables,
        instructions=text.instructions(),
        spatial=rows,
        exact=True,
        copies=_long_run(operator),
        pitched=not any(axis.before or axis.after for axis in axes),
    )


def _long_run(operator: Gather) -> tuple[Copy, ...]:
    """Return the output as one run of the input, if it is one."""
    first = count = 0
    for axis, extent in zip(axes_of(operator), operator.inputs[0].shape, strict=True):
        is_single_run = axis.is_run and not axis.before and not axis.after
        if not is_single_run or (count > 1 and len(axis.places) < extent):
            return ()
        first, count = first * extent + int(axis.places[0]), max(count, 1) * len(axis.places)
    return (Copy(input=0, source_first=first, target_first=0, count=count),)


def _rows(operator: Gather) -> Spatial | None:
    shape, places = operator.output.shape, operator.places
    if len(shape) != 4 or shape[0] != 1 or operator.inputs[0].shape[0] != 1 or places[0][0] != 0:
        return None
    # If a row read no input, the output could start where the input still lies; the arena's overlaps do not expect
    # this.
    if (places[1] < 0).any() or (np.diff(places[1]) < 0).any():
        return None
    begins = tuple(places[1].tolist())
    access = RowAccess(input_rows=operator.inputs[0].shape[1], begins=begins, ends=tuple(place + 1 for place in begins))
    return Spatial(output_rows=shape[1], inputs=(access,))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Text:
    """Writer of the loops. depth: axes that need a loop; the axes after them are copied at once."""

    operator: Gather
    axes: tuple[_Axis, ...]
    stored: StoredRows
    by_rows: bool

    @property
    def suffix(self) -> str:
        """Suffix of the pointers from which elements are counted: to a row, or to the whole tensor."""
        return "_row" if self.by_rows else ""

    @property
    def depth(self) -> int:
        """Axes before the longest tail that is copied whole."""
        depth = len(self.axes)
        least = len(self.axes) - 1 if self.stored.pitch else 0
        while depth > max(2 if self.by_rows else 0, least) and self.axes[depth - 1].is_whole:
            depth -= 1
        return depth

    def instructions(self) -> int:
        """Return the modelled instructions:

        runs that are copied, and elements that are filled before and after them.
        """
        shape = self.operator.output.shape
        item_bytes = np.dtype(self.operator.output.dtype).itemsize
        total, turns, run = 0, 1, self.operator.output.num_elements
        for index, axis in enumerate(self.axes[: self.depth]):
            ends = [end * self._stride(shape, index) for end in (axis.before, axis.after) if end]
            total += turns * sum(fill_instructions(count * item_bytes) for count in ends)
            is_run = index + 1 == self.depth and axis.is_run and not (self.by_rows and index == 1)
            run = self._stride(shape, index) * (len(axis.places) if is_run else 1)
            turns *= 1 if is_run else len(axis.places)
        return total + turns * (INSTRUCTIONS_A_RUN + copy_instructions(run * item_bytes))

    def _apart(self, index: int) -> int:
        """Return the elements of the output from one index of an axis to the next."""
        shape = self.operator.output.shape
        spread = shape if self.stored.pitch is None else (*shape[:-1], self.stored.pitch)
        return self._stride(spread, index)

    def _stride(self, shape: tuple[int, ...], index: int) -> int:
        return int(np.prod(shape[index + 1 :], dtype=np.int64))

    def level(self, index: int, to: str, source: str) -> list[str]:
        """Return the code of all axes from `index` on, from output element `to` and input element `source` on."""
        if index >= self.depth:
            return self._copy(to, source, self._stride(self.operator.output.shape, index - 1))
        axis, output = self.axes[index], self.operator.output.shape
        out, into = self._apart(index), self._stride(self.operator.inputs[0].shape, index)
        is_together = self.stored.pitch is None or index + 1 == len(self.axes)
        is_rows = self.by_rows and index == 1
        if not is_rows and output[index] == 1 and not axis.before and not axis.after:
            return self.level(index + 1, to, _sum(source, str(int(axis.places[0]) * into)))
        if not is_rows and index + 1 == self.depth and axis.is_run and is_together:
            return [
                *self._fill(to, axis.before * out),
                *self._copy(
                    _sum(to, str(axis.before * out)),
                    _sum(source, str(int(axis.places[0]) * into)),
                    len(axis.places) * out,
                ),
                *self._fill(_sum(to, str((axis.before + len(axis.places)) * out)), axis.after * out),
            ]
        name, end = LETTERS[index % len(LETTERS)], axis.before + len(axis.places)
        if is_rows:
            return self._row_loop(axis, to, source, out, into)
        inner = self.level(index + 1, _sum(to, times(name, out)), _sum(source, times(axis.place(name), into)))
        return [
            *self._fill(to, axis.before * out),
            *loop(name, end, inner, begin=axis.before),
            *self._fill(_sum(to, str(end * out)), axis.after * out),
        ]

    def _row_loop(self, axis: _Axis, to: str, source: str, out: int, into: int) -> list[str]:
        begin, end = axis.before, axis.before + len(axis.places)
        outside = [f"h < {begin}"] * bool(axis.before) + [f"h >= {end}"] * bool(axis.after)
        ctype = C_TYPES[self.operator.output.dtype]
        row = self._fill("", out)
        place = slot(axis.place("h"), self.stored.input(0))
        lines = [f"{ctype} *output_row = &output[{times(slot('h', self.stored.output), out)}];"]
        if outside:
            lines += [f"if ({' || '.join(outside)}) {{", block([*row, "continue;"]), "}"]
        lines += [f"const {ctype} *input_row = &input[{times(place, into)}];"]
        lines += self.level(2, "", "")
        return ["for (int32_t h = row_begin; h < row_end; ++h) {", block(lines), "}"]

    def _copy(self, to: str, source: str, count: int) -> list[str]:
        if count == 1:
            return [f"output{self.suffix}[{to or '0'}] = input{self.suffix}[{source or '0'}];"]
        places = f"&output{self.suffix}[{to or '0'}], &input{self.suffix}[{source or '0'}]"
        return [f"memcpy({places}, {self._size(count)});"]

    def _fill(self, to: str, count: int) -> list[str]:
        if count == 0:
            return []
        array = f"output{self.suffix}"
        value = np.array(self.operator.value).astype(self.operator.output.dtype)
        if np.unique(np.frombuffer(value.tobytes(), np.uint8)).size == 1:
            byte = value.tobytes()[0]
            return [f"memset(&{array}[{to or '0'}], {byte}, {self._size(count)});"]
        (word,) = literal(value.reshape(1))
        place = _sum(to, "fill")
        return loop("fill", count, [f"{array}[{place}] = {word};"])

    def _size(self, count: int) -> str:
        itemsize = np.dtype(self.operator.output.dtype).itemsize
        return f"{count}u * sizeof output[0]" if itemsize > 1 else str(count)


def _sum(first: str, second: str) -> str:
    return " + ".join(part for part in (first, second) if part and part != "0")


KERNEL = Kernel(
    name="gather",
    title="Padding, slicing, repetition and nearest neighbours of any element type, with an index list per axis",
    operator=Gather,
    implement=implement,
    constraints=(fills_ends,),
)
