"""Convolutions as products of pixels and channels: one description for all targets, of which each supplies parts.

A kernel computes P pixels and C channels at a time: operands are packed, inner products are summed, and an
epilogue requantizes the sums. The loops over rows and pixels are C in a header of the target, which takes the shapes
of the layer as one structure. A `ProductKernel` joins these, and a bit width is one more `Family` of the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from codegen_c.c_text.text import C_TYPES, Value
from codegen_c.kernels.contract import (
    ONCE,
    CFunction,
    Constraint,
    Implementation,
    Kernel,
    Parameter,
    Passes,
    SharedWindows,
    StoredRows,
    Target,
    no_blocks,
)
from codegen_c.kernels.measurements import Block
from codegen_c.kernels.shared.layer import image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.window import ROW_PARAMETERS, spatial
from codegen_c.operators.kinds import Array, Operator, QConv2d, TensorType

SCRATCH = Parameter(name="scratch", ctype="uint8_t", role="scratch")


class HasRange(Protocol):
    """A requantization that is valid only for sums up to some size."""

    def fits(self, low: Array, high: Array) -> bool:
        """Return True if sums from low to high can be requantized."""
        ...


def room_for_sums(
    rescale: Callable[[Any], HasRange], bounds: Callable[[Any], tuple[Array, Array]], *, least_factor: str
) -> Constraint:
    """Return the constraint that the requantization of a layer holds for all its sums.

    rescale: the layer's requantization. bounds: the least and the largest sum of each channel. least_factor: the
    factor from which on the requantization scales sums up, in words.
    """

    def sums_leave_room(operator: Operator, target: Target) -> bool:
        return rescale(operator).fits(*bounds(operator))

    sums_leave_room.__doc__ = (
        f"where a channel's factor is {least_factor} or more, its sums must be small enough to be scaled up"
    )
    return sums_leave_room


@dataclass(frozen=True, kw_only=True)
class Family:
    """Operators of one bit width that a kernel accepts, with the name and the title of the kernel for them.

    constraints: conditions an operator must meet, each with the reason of its refusal. blocks: sizes of blocks from
    which a measurement may choose.
    """

    name: str
    title: str
    operator: type[QConv2d]
    constraints: tuple[Constraint, ...]
    blocks: Callable[[Any, Target], tuple[Block, ...]] = no_blocks


@dataclass(frozen=True, kw_only=True)
class Loops:
    """Loops in C over the output rows and pixels of a convolution, which a header defines.

    function, layer: the C function, and the type of the structure that holds the shapes of the layer. has_window: True
    if that structure has a member for the window. columns_at_once: as in `Spatial`. is_read_first: True if all channels
    of a pixel are summed or packed before one of them is written, so that a pointwise convolution may write over its
    input. pitched, row_pitched: as in `Implementation`. accumulation: the order in which products are added.
    """

    function: str
    layer: str
    includes: tuple[str, ...]
    accumulation: str = "exact"
    has_window: bool = True
    columns_at_once: int = 0
    is_read_first: bool = False
    pitched: bool = True
    row_pitched: bool = True

    def call(self, stored: StoredRows, parts: Parts) -> str:
        """Return the body of the kernel's function: statements before the loops, and their call.

        Loops take the layer, functions of the layer, statements' variables, activations, constants, scratch and rows.
        """
        rings, layer = with_rings(self.layer, stored)
        scratch = () if parts.scratch is None else (parts.scratch,)
        arguments = (layer, *parts.leading, "input", "output", *parts.tables, *scratch, "row_begin", "row_end")
        return "\n".join([*rings, *parts.statements, f"{parts.function or self.function}({', '.join(arguments)});"])

    def shapes(self, operator: QConv2d, stored: StoredRows, members: Mapping[str, Value]) -> str:
        """Return the shapes of the layer as a constant: its images, its window, and members of the target's own."""
        images: dict[str, Value] = {"input": image(operator.inputs[0]), "output": image(operator.output, stored=stored)}
        window: dict[str, Value] = {"window": sliding_window(operator.window)} if self.has_window else {}
        return shapes(self.layer, {**images, **window, **members})

    def definitions(self, operator: QConv2d, stored: StoredRows, parts: Parts) -> str:
        """Return the shapes of the layer, and the functions that the loops call."""
        return "\n".join([self.shapes(operator, stored, parts.members), *parts.functions])


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Parts of a convolution kernel that differ by target: packed operands, inner product, epilogue and their cost.

    parameters, constants: packed weights, initial accumulators and factors.
    members: members of the layer's structure that the inner product and the epilogue read.
    function: name of other loops in the same header, if a kind of window has its own loops.
    functions: definitions of the C functions that the loops call for a group of pixels.
    statements: C before the call of the loops. leading: arguments of the loops before the activations.
    tables: arguments for the constants.
    scratch: argument for the scratch; None if the loops take no scratch. The kernel's function has a scratch parameter
        if scratch_bytes is above zero.
    includes: headers that are needed besides the header of the loops.
    rows_still_read, descends, tile_rows: as in `Spatial`. instructions, passes, grows_weights, windows: as in
        `Implementation`.
    is_in_place: the output may replace the input, even if the loops in general do not allow it.
    pitched: pixels of the output may have gaps between them, if the loops allow it.
    """

    parameters: tuple[Parameter, ...]
    constants: tuple[tuple[str, Array], ...]
    members: Mapping[str, Value]
    instructions: int
    function: str = ""
    functions: Sequence[str] = ()
    leading: Sequence[str] = ()
    statements: Sequence[str] = ()
    tables: Sequence[str] = ("weights", "factors")
    scratch: str | None = "scratch"
    scratch_bytes: int = 0
    includes: tuple[str, ...] = ()
    rows_still_read: int = 0
    descends: bool = True
    tile_rows: int = 1
    is_in_place: bool = False
    pitched: bool = True
    passes: Passes = ONCE
    grows_weights: bool = False
    windows: SharedWindows | None = None


@dataclass(frozen=True, kw_only=True)
class ProductKernel:
    """A convolution of a target: its loops, and the parts that it supplies for an operator.

    reference: the operator in numpy. parts: made for an operator, a target and the rows that are stored.
    """

    loops: Loops
    reference: Callable[[Any, list[Array]], list[Array]]
    parts: Callable[[Any, Target, StoredRows], Parts]

    def kernel(self, family: Family) -> Kernel:
        """Return the kernel for operators of one bit width."""

        def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
            return self.implementation(family.name, operator, target, stored)

        return Kernel(
            name=family.name, title=family.title, operator=family.operator, implement=implement,
            constraints=family.constraints, blocks=family.blocks,
        )  # fmt: skip

    def implementation(self, name: str, operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
        """Return the kernel applied to one operator."""
        source, output, loops = operator.inputs[0], operator.output, self.loops
        parts = self.parts(operator, target, stored)
        access = spatial(operator.window, source, output, columns_at_once=loops.columns_at_once)

        def reference(inputs: list[Array]) -> list[Array]:
            return self.reference(operator, inputs)

        return Implementation(
            kernel=name,
            function=CFunction(
                parameters=(
                    *activations(source, output),
                    *parts.parameters,
                    *((SCRATCH,) if parts.scratch_bytes else ()),
                    *ROW_PARAMETERS,
                ),
                body=loops.call(stored, parts),
                helpers=loops.definitions(operator, stored, parts),
                includes=(*loops.includes, *parts.includes),
            ),
            reference=reference,
            constants=parts.constants,
            scratch_bytes=parts.scratch_bytes,
            macs=output.num_elements * operator.weight[0].size,
            instructions=parts.instructions,
            passes=parts.passes,
            accumulation=loops.accumulation,
            spatial=replace(
                access, rows_still_read=parts.rows_still_read, descends=parts.descends, tile_rows=parts.tile_rows
            ),
            in_place=(0,) if parts.is_in_place or (loops.is_read_first and _keeps_shape(operator)) else (),
            exact=True,
            pitched=loops.pitched and parts.pitched,
            row_pitched=loops.row_pitched,
            grows_weights=parts.grows_weights,
            windows=parts.windows,
        )


def activations(source: TensorType, output: TensorType) -> tuple[Parameter, Parameter]:
    """Return the parameters of a layer's input and output."""
    return (
        Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
        Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
    )


def _keeps_shape(operator: QConv2d) -> bool:
    """Return True if each output pixel depends on the input pixel at its position only, and has as many channels."""
    return operator.window.is_pointwise and operator.inputs[0].shape == operator.output.shape
