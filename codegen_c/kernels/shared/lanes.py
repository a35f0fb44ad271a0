"""C spelling of a float kernel's arithmetic on one float or a vector, and its epilogue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import block, float_literal
from codegen_c.kernels.contract import Parameter, Target
from codegen_c.operators.scalar import FUNCTIONS, Operand, ScalarProgram

# C spelling of a float kernel's arithmetic, on one float or on a vector of floats.

VECTOR_FUNCTIONS = ("add", "subtract", "multiply", "maximum", "minimum", "half")


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """`count` adjacent floats: 1 is plain float, other counts are the types of the target's tvm_ext_f32x<count>.h.

    half: True if activations are float16 in memory; they are widened when read and rounded when written. live: the
    number of lanes that are read and written; None: all.
    """

    count: int
    half: bool = False
    live: int | None = None

    @property
    def ctype(self) -> str:
        return "float" if self.count == 1 else f"tvm_ext_f32x{self.count}"

    @property
    def element(self) -> str:
        """C type of an activation's element."""
        return "uint16_t" if self.half else "float"

    @property
    def access_instructions(self) -> int:
        """Modelled instructions that read or write elements of activations."""
        return 2 if self.half else 1

    @property
    def includes(self) -> tuple[str, ...]:
        halves = ("tvm_ext_half.h", "tvm_ext_narrow.h", "tvm_ext_layer.h") if self.half else ()
        if self.count == 1:
            return halves
        kinds = ("", "halves_", "narrow_") if self.half else ("",)
        return (*(f"tvm_ext_{kind}f32x{self.count}.h" for kind in kinds), *halves)

    def read(self, array: str, index: str) -> str:
        """Return the expression of `count` elements of an activation from `index` on."""
        if not self.half:
            return self.load(array, index)
        if self.count == 1:
            return f"tvm_ext_of_half({array}[{index}])"
        return f"{self.ctype}_of_halves(&{array}[{index}])"

    def write(self, array: str, index: str, value: str) -> str:
        """Return a statement that writes elements of an activation from `index` on."""
        if not self.half:
            return self.store(array, index, value)
        if self.count == 1:
            return f"{array}[{index}] = tvm_ext_half({value});"
        return f"{self.ctype}_to_halves(&{array}[{index}], {value});"

    def load(self, array: str, index: str) -> str:
        """Return the expression of `count` floats of an array from `index` on."""
        if self.live is not None:
            return f"tvm_ext_load_live_f32x{self.count}(&{array}[{index}], {self.live})"
        return f"{array}[{index}]" if self.count == 1 else f"{self.ctype}_load(&{array}[{index}])"

    def store(self, array: str, index: str, value: str) -> str:
        """Return a statement that stores floats to an array from `index` on."""
        if self.live is not None:
            return f"tvm_ext_store_part_f32x{self.count}(&{array}[{index}], {self.live}, {value});"
        if self.count == 1:
            return f"{array}[{index}] = {value};"
        return f"{self.ctype}_store(&{array}[{index}], {value});"

    def number(self, value: float) -> str:
        """Return the expression of one number in all lanes."""
        literal = float_literal(value)
        return literal if self.count == 1 else f"{self.ctype}_splat({literal})"

    def fma(self, a: str, b: str, c: str) -> str:
        """Return the expression a * b + c, lane by lane."""
        return f"TVM_EXT_FMA({a}, {b}, {c})" if self.count == 1 else f"{self.ctype}_fma({a}, {b}, {c})"

    def fma_n(self, a: str, b: str, c: str) -> str:
        """Return the expression a * b + c, where a is one float for all lanes."""
        return f"TVM_EXT_FMA({a}, {b}, {c})" if self.count == 1 else f"{self.ctype}_fma_n({a}, {b}, {c})"

    def call(self, function: str, operands: list[str]) -> str:
        """Return the call of a scalar function; for vectors only functions in VECTOR_FUNCTIONS."""
        if self.count == 1:
            return FUNCTIONS[function].c.format(*operands)
        return f"{self.ctype}_{function}({', '.join(operands)})"


SCALAR = Lanes(count=1)


def native_lanes(target: Target) -> Lanes:
    """Return the widest vector of floats of the processor."""
    return Lanes(count=target.instruction_set.floats.lanes)


# The epilogue of a float kernel: the code that runs on each accumulator before it is stored, as an inline function.


@dataclass(frozen=True, kw_only=True)
class Finish:
    """The epilogue: a scalar program as `$_finish(value, operands…)`; an empty program needs no function."""

    program: ScalarProgram

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Distinct input and channel operands, in the order of first use: the function's further arguments."""
        used = (o for i in self.program.instructions for o in i.operands if o.kind in ("input", "channel"))
        return tuple(dict.fromkeys(used))

    def fits(self, lanes: Lanes) -> bool:
        """Return True if the program can run on vectors of these lanes."""
        return lanes.count == 1 or all(i.function in VECTOR_FUNCTIONS for i in self.program.instructions)

    def helper(self, *widths: Lanes) -> str:
        """Return the function's definitions for elements of these widths, scalar first; empty for an empty program."""
        kinds = {lanes.count: lanes for lanes in widths}
        return "\n".join(self._definition(kinds[n]) for n in sorted(kinds)) if self.program.instructions else ""

    def call(self, value: str, read: Callable[[Operand], str], lanes: Lanes = SCALAR) -> str:
        """Return the C expression of the finished element. read: returns the element of an input or channel operand."""
        if not self.program.instructions:
            return value
        arguments = [*([value] if self.program.reads_element else []), *map(read, self.operands)]
        return f"{_name(lanes)}({', '.join(arguments)})"

    def constants(self) -> tuple[tuple[str, np.ndarray], ...]:
        """Return the program's channel constants as (role, array)."""
        return tuple((f"channel{i}", array) for i, array in enumerate(self.program.channel_constants))

    def constant_parameters(self) -> tuple[Parameter, ...]:
        return tuple(Parameter(name=role, ctype="float", role="constant") for role, _ in self.constants())

    def input_parameters(self, ctype: str = "float") -> tuple[Parameter, ...]:
        """Return the parameters of the inputs beyond the first: residuals of the program. ctype: of their elements."""
        return tuple(Parameter(name=f"input{index}", ctype=ctype, role="input") for index in self.residuals())

    def residuals(self) -> tuple[int, ...]:
        """Return the indices of the inputs beyond the first that the program reads."""
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
