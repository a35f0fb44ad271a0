"""Element-wise arithmetic as a small program in static single assignment form, which runs in numpy and is written as C.

Kernels apply the program to each accumulator (bias, residual, activation), so a chain of element-wise operators needs
no memory traffic of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Function:
    """A scalar function: numpy on float32 arrays, C with {0}, {1} … for the operands, and modelled instructions."""

    numpy: Callable[..., Array]
    c: str
    instructions: int = 1
    arity: int = 1


def _erf(x: Array) -> Array:
    from math import erf

    return np.vectorize(erf, otypes=[np.float32])(x)


def _rsqrt(x: Array) -> Array:
    return np.float32(1) / np.sqrt(x)


def _raised(x: Array, low: Array) -> Array:
    return np.where(x < low, low, x)


def _lowered(x: Array, high: Array) -> Array:
    return np.where(high < x, high, x)


def _half(x: Array) -> Array:
    return x.astype(np.float16).astype(np.float32)


def _sigmoid(x: Array) -> Array:
    return np.float32(1) / (np.float32(1) + np.exp(-x))


FUNCTIONS: dict[str, Function] = {
    "add": Function(numpy=np.add, c="{0} + {1}", arity=2),
    "subtract": Function(numpy=np.subtract, c="{0} - {1}", arity=2),
    "multiply": Function(numpy=np.multiply, c="{0} * {1}", arity=2),
    "divide": Function(numpy=np.divide, c="{0} / {1}", instructions=14, arity=2),
    # The second operand is a number: NaN of the first operand passes through without an extra comparison.
    "maximum": Function(numpy=_raised, c="{0} < {1} ? {1} : {0}", instructions=4, arity=2),
    "minimum": Function(numpy=_lowered, c="{1} < {0} ? {1} : {0}", instructions=4, arity=2),
    # Both operands are elements of tensors: the result is NaN if either is.
    "larger": Function(numpy=np.maximum, c="({0} > {1} || {0} != {0}) ? {0} : {1}", instructions=7, arity=2),
    "smaller": Function(numpy=np.minimum, c="({0} < {1} || {0} != {0}) ? {0} : {1}", instructions=7, arity=2),
    "power": Function(numpy=np.power, c="powf({0}, {1})", instructions=120, arity=2),
    "negative": Function(numpy=np.negative, c="-{0}"),
    "abs": Function(numpy=np.abs, c="fabsf({0})"),
    "sqrt": Function(numpy=np.sqrt, c="sqrtf({0})", instructions=14),
    "rsqrt": Function(numpy=_rsqrt, c="1.0f / sqrtf({0})", instructions=28),
    "exp": Function(numpy=np.exp, c="expf({0})", instructions=40),
    "log": Function(numpy=np.log, c="logf({0})", instructions=40),
    "sin": Function(numpy=np.sin, c="sinf({0})", instructions=60),
    "cos": Function(numpy=np.cos, c="cosf({0})", instructions=60),
    "tanh": Function(numpy=np.tanh, c="tanhf({0})", instructions=80),
    "erf": Function(numpy=_erf, c="erff({0})", instructions=80),
    "sigmoid": Function(numpy=_sigmoid, c="1.0f / (1.0f + expf(-{0}))", instructions=56),
    "floor": Function(numpy=np.floor, c="floorf({0})", instructions=8),
    "ceil": Function(numpy=np.ceil, c="ceilf({0})", instructions=8),
    "round": Function(numpy=np.round, c="rintf({0})", instructions=8),
    # Rounding to float16 inside a float16 model.
    "half": Function(numpy=_half, c="tvm_ext_of_half(tvm_ext_half({0}))", instructions=4),
}


@dataclass(frozen=True, kw_only=True)
class Operand:
    """Operand of an instruction.

    value: result of an earlier instruction; index 0 is the element that the program is applied to. input: element of an
    activation; index among the operator's inputs. channel: element of a per-channel constant by the last axis; index
    among `channel_constants`. number: a literal.
    """

    kind: Literal["value", "input", "channel", "number"]
    index: int = 0
    number: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """An instruction: result = function(operands)."""

    function: str
    operands: tuple[Operand, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class ScalarProgram:
    """Instructions in order. The result is that of the last instruction, or the element itself if there are none.

    channel_constants: float32 arrays with the length of the last axis, for operands of kind `channel`.
    """

    instructions: tuple[Instruction, ...] = ()
    channel_constants: tuple[Array, ...] = ()

    @property
    def num_instructions(self) -> int:
        """Modelled machine instructions per element."""
        return sum(FUNCTIONS[instruction.function].instructions for instruction in self.instructions)

    @property
    def reads_element(self) -> bool:
        """True if the result depends on the element."""
        return not self.instructions or any(
            o.kind == "value" and o.index == 0 for i in self.instructions for o in i.operands
        )

    def inputs_read(self) -> tuple[int, ...]:
        """Return the indices of the kernel's inputs that the program reads, ascending."""
        used = {o.index for i in self.instructions for o in i.operands if o.kind == "input"}
        return tuple(sorted(used))

    def run(self, element: Array | None, inputs: Sequence[Array]) -> Array:
        """Run the program in numpy, in float32. `element` is value 0; operands broadcast."""
        values: list[Array | None] = [element]

        def read(operand: Operand) -> Array:
            if operand.kind == "value":
                value = values[operand.index]
                assert value is not None, "a program without an element must not read value 0"
                return value
            if operand.kind == "input":
                return inputs[operand.index]
            if operand.kind == "channel":
                return self.channel_constants[operand.index]
            return np.float32(operand.number)  # type: ignore[return-value]

        with np.errstate(all="ignore"):
            for instruction in self.instructions:
                function = FUNCTIONS[instruction.function].numpy
                values.append(np.asarray(function(*map(read, instruction.operands)), dtype=np.float32))
        result = values[-1]
        assert result is not None, "an empty program needs an element"
        return result

    def statements(
        self,
        element: str,
        read: Callable[[Operand], str],
        ctype: str,
        call: Callable[[str, list[str]], str],
        number: Callable[[float], str],
    ) -> tuple[list[str], str]:
        """Return C statements and the expression of the result.

        element: C expression of value 0. read: returns the expression of an input or channel operand. ctype: type of
        values. call, number: return the text of a function call and of a literal.
        """
        lines: list[str] = []
        names = [element]
        for index, instruction in enumerate(self.instructions, start=1):
            operands = [
                names[o.index] if o.kind == "value" else number(o.number) if o.kind == "number" else read(o)
                for o in instruction.operands
            ]
            lines.append(f"const {ctype} v{index} = {call(instruction.function, operands)};")
            names.append(f"v{index}")
        return lines, names[-1]


IDENTITY = ScalarProgram()
