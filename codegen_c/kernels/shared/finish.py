"""The end of a float kernel: what runs on each accumulated element before it is stored, as one inline function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import block
from codegen_c.kernels.contract import Parameter
from codegen_c.kernels.shared.lanes import SCALAR, VECTOR_FUNCTIONS, Lanes
from codegen_c.operators.scalar import Operand, ScalarProgram


@dataclass(frozen=True, kw_only=True)
class Finish:
    """A scalar program as `$_finish(value, operands…)`; an empty program needs no function at all."""

    program: ScalarProgram

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Distinct input and channel operands, in the order of first use: the function's further arguments."""
        used = (o for i in self.program.instructions for o in i.operands if o.kind in ("input", "channel"))
        return tuple(dict.fromkeys(used))

    def fits(self, lanes: Lanes) -> bool:
        """True where the program can run on vectors of these lanes."""
        return lanes.count == 1 or all(i.function in VECTOR_FUNCTIONS for i in self.program.instructions)

    def helper(self, *widths: Lanes) -> str:
        """Definitions of the function for elements of these widths, scalar ones first; nothing for no program."""
        kinds = {lanes.count: lanes for lanes in widths}
        return "\n".join(self._definition(kinds[n]) for n in sorted(kinds)) if self.program.instructions else ""

    def call(self, value: str, read: Callable[[Operand], str], lanes: Lanes = SCALAR) -> str:
        """C expression of the finished element; `read` gives the element of an input or channel operand."""
        if not self.program.instructions:
            return value
        arguments = [*([value] if self.program.reads_element else []), *map(read, self.operands)]
        return f"{_name(lanes)}({', '.join(arguments)})"

    def constants(self) -> tuple[tuple[str, np.ndarray], ...]:
        """The program's channel constants as (role, array)."""
        return tuple((f"channel{i}", array) for i, array in enumerate(self.program.channel_constants))

    def constant_parameters(self) -> tuple[Parameter, ...]:
        return tuple(Parameter(name=role, ctype="float", role="constant") for role, _ in self.constants())

    def input_parameters(self, ctype: str = "float") -> tuple[Parameter, ...]:
        """Parameters for the inputs beyond the first: residuals the program reads. ctype: of their elements."""
        return tuple(Parameter(name=f"input{index}", ctype=ctype, role="input") for index in self.residuals())

    def residuals(self) -> tuple[int, ...]:
        """Indices of the inputs beyond the first that the program reads."""
        return tuple(index for index in self.program.inputs_read() if index > 0)

    def _definition(self, lanes: Lanes) -> str:
        lines, result = self.program.statements("value", _argument, lanes.ctype, lanes.call, lanes.number)
        names = [*(["value"] if self.program.reads_element else []), *map(_argument, self.operands)]
        arguments = ", ".join(f"{lanes.ctype} {name}" for name in names)
        head = f"static inline {lanes.ctype} {_name(lanes)}({arguments})"
        return f"{head}\n{{\n{block([*lines, f'return {result};'])}\n}}\n"


def _name(lanes: Lanes) -> str:
    return "$_finish" if lanes.count == 1 else f"$_finish_f32x{lanes.count}"


def _argument(operand: Operand) -> str:
    return f"{operand.kind}{operand.index}"
