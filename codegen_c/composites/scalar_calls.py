"""Translate element-wise operators of Relax to instructions of a ScalarProgram."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from codegen_c.composites.graph import Call, CallOperand, NoMatch
from codegen_c.operators.scalar import Instruction, Operand, ScalarProgram


class ProgramBuilder:
    """Builder of a ScalarProgram. values: operand of each variable of the composite."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.channels: list[np.ndarray] = []
        self.values: dict[Any, Operand] = {}
        self.inputs: list[int] = []

    def element(self, var: Any) -> None:
        """Define `var` as the element that the kernel computes."""
        self.values[var] = Operand(kind="value")

    def emit(self, function: str, *operands: Operand) -> Operand:
        """Append an instruction and return its result."""
        self.instructions.append(Instruction(function=function, operands=operands))
        return Operand(kind="value", index=len(self.instructions))

    def add(self, call: Call, num_channels: int) -> NoMatch | None:
        """Append one element-wise call. Return NoMatch if an operand is not an element, a number or one per channel."""
        rule = RULES.get(call.name)
        if rule is None or (call.name == "astype" and str(call.attrs.dtype) not in ("float16", "float32")):
            return NoMatch(f"{call.name} is not computed element by element")
        operands = [self._operand(value, num_channels) for value in call.operands]
        for operand in operands:
            if isinstance(operand, NoMatch):
                return operand
        self.values[call.var] = rule(self, call.attrs, [o for o in operands if isinstance(o, Operand)])
        return None

    def is_number(self, operand: Operand) -> bool:
        """Return True if an operand is constant and has no NaN."""
        if operand.kind == "channel":
            return not np.isnan(self.channels[operand.index]).any()
        return operand.kind == "number" and not math.isnan(operand.number)

    def program(self) -> ScalarProgram:
        """Return the program of all instructions."""
        return ScalarProgram(instructions=tuple(self.instructions), channel_constants=tuple(self.channels))

    def _operand(self, value: CallOperand, num_channels: int) -> Operand | NoMatch:
        if value.var is not None and value.var in self.values:
            return self.values[value.var]
        if value.parameter is not None:
            self.inputs.append(value.parameter)
            self.values[value.var] = Operand(kind="input", index=len(self.inputs) - 1)
            return self.values[value.var]
        if value.array is None or value.array.dtype != np.float32:
            return NoMatch("an operand is not float32")
        if value.array.size == 1:
            return Operand(kind="number", number=float(value.array.reshape(-1)[0]))
        if value.array.shape[-1:] == (num_channels,) and value.array.size == num_channels:
            self.channels.append(value.array.reshape(-1))
            return Operand(kind="channel", index=len(self.channels) - 1)
        return NoMatch("a constant is neither a number nor one number a channel")


def number(value: float) -> Operand:
    """Return an operand that is a constant number."""
    return Operand(kind="number", number=float(value))


Rule = Callable[[ProgramBuilder, Any, list[Operand]], Operand]


def _clip(builder: ProgramBuilder, attrs: Any, operands: list[Operand]) -> Operand:
    low, high = operands[1:]
    return builder.emit("minimum", builder.emit("maximum", operands[0], low), high)


def _extreme(bounded: str, either: str) -> Rule:
    """Return the rule of a minimum or maximum.

    A bound that is a number is the second operand: then NaN passes through, and one comparison is enough.
    """

    def rule(builder: ProgramBuilder, attrs: Any, operands: list[Operand]) -> Operand:
        first, second = operands
        for value, bound in ((first, second), (second, first)):
            if builder.is_number(bound):
                return builder.emit(bounded, value, bound)
        return builder.emit(either, first, second)

    return rule


def _gelu(builder: ProgramBuilder, attrs: Any, operands: list[Operand]) -> Operand:
    scaled = builder.emit("multiply", operands[0], number(math.sqrt(0.5)))
    half = builder.emit("multiply", operands[0], number(0.5))
    return builder.emit("multiply", half, builder.emit("add", builder.emit("erf", scaled), number(1.0)))


def _leaky_relu(builder: ProgramBuilder, attrs: Any, operands: list[Operand]) -> Operand:
    positive = builder.emit("maximum", operands[0], number(0.0))
    negative = builder.emit("minimum", operands[0], number(0.0))
    return builder.emit("add", positive, builder.emit("multiply", negative, number(float(attrs.alpha))))


def _silu(builder: ProgramBuilder, attrs: Any, operands: list[Operand]) -> Operand:
    return builder.emit("multiply", operands[0], builder.emit("sigmoid", operands[0]))


def _cast(builder: ProgramBuilder, attrs: Any, operands: list[Operand]) -> Operand:
    """Round for a cast to float16; a cast back to float32 changes nothing."""
    return builder.emit("half", operands[0]) if str(attrs.dtype) == "float16" else operands[0]


RULES: dict[str, Rule] = {
    **{
        name: (lambda builder, attrs, operands, _name=name: builder.emit(_name, *operands))
        for name in (
            "add subtract multiply divide power negative abs sqrt rsqrt exp log sin cos tanh erf sigmoid floor ceil "
            "round"
        ).split()
    },
    "maximum": _extreme("maximum", "larger"),
    "minimum": _extreme("minimum", "smaller"),
    "nn.relu": lambda builder, attrs, operands: builder.emit("maximum", operands[0], number(0.0)),
    "clip": _clip,
    "nn.gelu": _gelu,
    "nn.leakyrelu": _leaky_relu,
    "nn.silu": _silu,
    "astype": _cast,
}

ELEMENTWISE = frozenset(f"relax.{name}" for name in RULES if name != "astype")
