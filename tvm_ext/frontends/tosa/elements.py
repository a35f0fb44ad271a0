"""Element-wise operators of TOSA on integers and booleans, exact to the specification.

An element-wise operator is not a loop of its own: it becomes a function of an element, and a chain of such operators
one loop without tensors between them. So RESCALE, RESCALE, ADD, RESCALE, which is an addition of int8 tensors, reads
and writes bytes. Limits of the numbers are known along a chain: where they fit into 32 bits, sums and clips have 32
bits, and a result that cannot leave its type is not clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax, te, tirx

from relay_passes.dataflow import array_of, static_shape
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tosa.read_file import TosaNode
from tvm_ext.frontends.tosa.schema import BITS, STORED

At = Sequence[tirx.Expr]
ReadAt = Callable[[Sequence[te.Tensor], At], tirx.Expr]

LARGEST_ELEMENT = 48
"""Operators in the expression of an element, beyond which a chain is divided into two loops."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Elements:
    """A tensor whose elements are computed where they are read.

    type_name: element type in TOSA.
    sources: the tensors from which `read` computes an element at an index.
    size: the number of operators in the expression of an element.
    limits: the least and the largest number, or None for those of the type.
    """

    shape: tuple[int, ...]
    type_name: str
    sources: tuple[relax.Expr, ...]
    read: ReadAt
    size: int = 0
    limits: tuple[int, int] | None = None

    @classmethod
    def of(cls, value: relax.Expr, type_name: str) -> Elements:
        return cls(shape=static_shape(value), type_name=type_name, sources=(value,), read=lambda s, at: s[0](*at))

    @property
    def constant(self) -> np.ndarray | None:
        """The numbers of a constant, or None."""
        return array_of(self.sources[0]) if len(self.sources) == 1 and not self.size else None

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest number that an element may be."""
        numbers = self.constant
        if numbers is not None and numbers.size:
            return int(numbers.min()), int(numbers.max())
        half = 1 << (BITS.get(self.type_name, 64) - 1)
        return self.limits or (-half, half - 1)

    def broadcast(self, shape: tuple[int, ...]) -> ReadAt:
        """Return a reader with an index into a larger shape. A constant of a single number becomes a literal."""
        numbers = self.constant
        if numbers is not None and numbers.size == 1:
            return lambda sources, at: tirx.const(numbers.reshape(-1)[0].item(), str(numbers.dtype))
        kept = self.shape
        if len(kept) != len(shape):
            raise Refused(f"its operands have ranks {len(kept)} and {len(shape)}")

        def read(sources: Sequence[te.Tensor], at: At) -> tirx.Expr:
            return self.read(sources, [0 if extent == 1 else index for extent, index in zip(kept, at, strict=True)])

        return read

    def computed(self, builder: relax.BlockBuilder) -> relax.Expr:
        """Return the tensor itself, with a loop that computes it."""
        if not self.size:
            return self.sources[0]
        dtype = STORED[self.type_name]

        def compute(*sources: te.Tensor) -> te.Tensor:
            return te.compute(self.shape, lambda *at: cast(self.read(sources, at), dtype), "elements")

        return builder.emit(builder.call_te(compute, *self.sources, primfunc_name_hint="elements"))


def combined(
    operands: Sequence[Elements],
    function: Callable[..., tirx.Expr],
    type_name: str,
    *,
    shape: tuple[int, ...] | None = None,
    limits: tuple[int, int] | None = None,
) -> Elements:
    """Return the element-wise function of operands, which are repeated along axes of extent 1 to one shape."""
    if shape is None:
        try:
            shape = tuple(np.broadcast_shapes(*(operand.shape for operand in operands)))
        except ValueError:
            raise Refused("its operands cannot be repeated to one shape") from None
    readers = [operand.broadcast(shape) for operand in operands]
    sources = tuple(dict.fromkeys(source for operand in operands for source in operand.sources))
    places = [[sources.index(source) for source in operand.sources] for operand in operands]

    def read(given: Sequence[te.Tensor], at: At) -> tirx.Expr:
        own = [[given[place] for place in chosen] for chosen in places]
        return function(*(reader(tensors, at) for reader, tensors in zip(readers, own, strict=True)))

    size = 1 + sum(operand.size for operand in operands)
    return Elements(shape=shape, type_name=type_name, sources=sources, read=read, size=size, limits=limits)


def cast(value: tirx.Expr, dtype: str) -> tirx.Expr:
    return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)


def wide(value: tirx.Expr | int) -> tirx.Expr:
    return tirx.const(value, "int64") if isinstance(value, int) else cast(value, "int64")


def clipped(value: tirx.Expr, low: int, high: int) -> tirx.Expr:
    return tirx.max(tirx.min(value, wide(high)), wide(low))


def _fits(bounds: tuple[int, int], bits: int = 32) -> bool:
    return -(1 << (bits - 1)) <= bounds[0] and bounds[1] < 1 << (bits - 1)


def _clipped_from(value: tirx.Expr, bounds: tuple[int, int], low: int, high: int) -> tirx.Expr:
    """Return a value clipped to [low, high], with the least arithmetic that its bounds need."""
    if low <= bounds[0] and bounds[1] <= high:
        return value
    if not _fits(bounds) or not _fits((low, high)):
        return clipped(wide(value), low, high)
    most, least = (tirx.const(limit, "int32") for limit in (high, low))
    return tirx.max(tirx.min(cast(value, "int32"), most), least)


def _common(bounds: tuple[int, int], low: int, high: int) -> tuple[int, int]:
    """Return the bounds of a clipped value."""
    return min(max(bounds[0], low), high), max(min(bounds[1], high), low)


def wrapped(value: tirx.Expr, bits: int) -> tirx.Expr:
    """Return the lowest bits of an int64 as a signed number.

    A cast to a narrower type would be simpler, but TVM assumes that a cast does not change the range of its operand.
    """
    half, mask = wide(1 << (bits - 1)), wide((1 << bits) - 1)
    return ((value + half) & mask) - half


def limits_of(type_name: str) -> tuple[int, int]:
    """Return the least and largest number of an integer type."""
    bits = BITS[type_name]
    # The least number of 4 bits is -7: the specification leaves -8 out.
    return (-7 if bits == 4 else -(1 << (bits - 1))), (1 << (bits - 1)) - 1


def rescale(node: TosaNode, operands: Sequence[Elements], type_name: str) -> Elements:
    """Convert RESCALE: (x - input_zp) * multiplier / 2^shift, rounded, plus output_zp, saturated.

    DOUBLE_ROUND rounds twice where the shift exceeds 31, as TensorFlow Lite Micro does.
    """
    value, *parameters = operands
    factors = Rescaling.of(node, parameters)
    given, result = BITS[value.type_name], BITS[type_name]
    from_unsigned, to_unsigned = bool(node.attributes["input_unsigned"]), bool(node.attributes["output_unsigned"])
    low, high = (0, (1 << result) - 1) if to_unsigned else limits_of(type_name)
    channels = [given for given in factors.channels if given is not None]
    bounds = factors.bounds((0, (1 << given) - 1) if from_unsigned else value.bounds)

    def element(x: tirx.Expr, *own: tirx.Expr) -> tirx.Expr:
        steps = (wide(x) & wide((1 << given) - 1)) if from_unsigned else wide(x)
        steps = steps - wide(factors.input_zp)
        read = iter(own)
        multiplier, shift = (
            wide(next(read)) if channel is not None else wide(int(one))
            for channel, one in zip(factors.channels, (factors.multiplier[0], factors.shift[0]), strict=True)
        )
        product = steps * multiplier
        total = product + (wide(1) << (shift - wide(1)))
        if factors.rounds_twice:
            second = wide(1 << 30) - wide(1 << 31) * wide(steps < wide(0))
            total = total + tirx.Select(shift > wide(31), second, wide(0))
        scaled = _clipped_from((total >> shift) + wide(factors.output_zp), bounds, low, high)
        return cast(wrapped(wide(scaled), result) if to_unsigned else scaled, STORED[type_name])

    limits = None if to_unsigned else _common(bounds, low, high)
    operands = [value, *(channel for channel in channels)]
    return combined(operands, element, type_name, shape=value.shape, limits=limits)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rescaling:
    """Parameters of a RESCALE.

    multiplier, shift: int64, of one element or of one for each channel.
    channels: multipliers and shifts as operands that broadcast along the last axis, or None for single numbers.
    """

    multiplier: np.ndarray
    shift: np.ndarray
    input_zp: int
    output_zp: int
    rounds_twice: bool
    channels: tuple[Elements | None, Elements | None]

    def bounds(self, given: tuple[int, int]) -> tuple[int, int]:
        """Return the bounds of results ahead of the clip. given: bounds of the numbers; results rise with them."""

        def scaled(number: int, multiplier: int, shift: int) -> int:
            steps = number - self.input_zp
            second = (1 << 30) - (steps < 0) * (1 << 31) if self.rounds_twice and shift > 31 else 0
            return ((steps * multiplier + (1 << (shift - 1)) + second) >> shift) + self.output_zp

        factors = [(int(one), int(other)) for one, other in zip(self.multiplier, self.shift, strict=True)]
        return min(scaled(given[0], *pair) for pair in factors), max(scaled(given[1], *pair) for pair in factors)

    @classmethod
    def of(cls, node: TosaNode, parameters: Sequence[Elements]) -> Rescaling:
        """Return the parameters. Raises Refused for computed parameters, and for INEXACT_ROUND."""
        rounding = node.attributes["rounding_mode"]
        if rounding not in ("SINGLE_ROUND", "DOUBLE_ROUND"):
            raise Refused(f"its rounding mode is {rounding}, whose results differ from device to device")
        if node.attributes["scale32"] is False and rounding == "DOUBLE_ROUND":
            raise Refused("DOUBLE_ROUND needs scale32")
        multiplier, shift = (number_array(one, "multipliers and shifts").reshape(-1) for one in parameters[:2])
        zero_points = [
            single_number(one, "zero points", unsigned=bool(node.attributes[flag]))
            for one, flag in zip(parameters[2:], ("input_unsigned", "output_unsigned"), strict=True)
        ]
        if shift.size != multiplier.size or (multiplier < 0).any() or (shift < 2).any() or (shift > 62).any():
            raise Refused("its multipliers or shifts are outside of their range")
        is_single = multiplier.size == 1
        channels = (None, None) if is_single else tuple(_along_channels(one) for one in parameters[:2])
        return cls(
            multiplier=multiplier, shift=shift, input_zp=zero_points[0], output_zp=zero_points[1],
            rounds_twice=rounding == "DOUBLE_ROUND" and bool((shift > 31).any()), channels=channels,  # type: ignore[arg-type]
        )  # fmt: skip


def _along_channels(given: Elements) -> Elements:
    """Return a vector as an operand that is indexed by the last axis of any shape."""

    class _Channels(Elements):
        def broadcast(self, shape: tuple[int, ...]) -> ReadAt:
            return lambda sources, at: self.read(sources, at[-1:])

    return _Channels(shape=given.shape, type_name=given.type_name, sources=given.sources, read=given.read)


def number_array(operand: Elements, what: str) -> np.ndarray:
    """Return the numbers of a constant operand as int64. Raises Refused for one that depends on data."""
    found = operand.constant
    if found is None:
        raise Refused(f"its {what} depend on data")
    return found.astype(np.int64)


def single_number(operand: Elements, what: str, *, unsigned: bool = False) -> int:
    """Return the only number of a constant operand.

    unsigned: True for a number whose bits are those of an unsigned one.
    """
    found = number_array(operand, what)
    if found.size != 1:
        raise Refused(f"its {what} are {found.size} numbers")
    number = int(found.reshape(()) if found.ndim == 0 else found.reshape(-1)[0])
    return number & ((1 << BITS[operand.type_name]) - 1) if unsigned else number


def clamp(node: TosaNode, operands: Sequence[Elements], type_name: str) -> Elements:
    low, high = clamp_limits(node, type_name)
    bounds = operands[0].bounds
    return combined(
        operands, lambda x: _clipped_from(x, bounds, low, high), type_name, limits=_common(bounds, low, high)
    )


def clamp_limits(node: TosaNode, type_name: str) -> tuple[int, int]:
    """Return the limits of a CLAMP of integers."""
    low, high = (
        one if isinstance(one, int) else int.from_bytes(bytes(one)[: BITS[type_name] // 8], "little", signed=True)  # type: ignore[arg-type]
        for one in (node.attributes["min_val"], node.attributes["max_val"])
    )
    if low > high:
        raise Refused(f"its least value {low} is above its largest {high}")
    return low, high


def multiply(node: TosaNode, operands: Sequence[Elements], type_name: str) -> Elements:
    """Convert MUL. Products of int32 are shifted to the right, with halves up, if the shift is not zero."""
    shift = single_number(operands[2], "shift") if len(operands) > 2 else 0
    if not 0 <= shift <= 63:
        raise Refused(f"its shift {shift} is not 0 to 63")

    def element(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        product = wide(a) * wide(b)
        return wrapped((product + wide(1 << (shift - 1))) >> wide(shift) if shift else product, 32)

    return combined(operands[:2], element, type_name)


def negate(node: TosaNode, operands: Sequence[Elements], type_name: str) -> Elements:
    value, *zero_points = operands
    given, wanted = [single_number(one, "zero points") for one in zero_points] or (0, 0)

    def element(x: tirx.Expr) -> tirx.Expr:
        return clipped(wide(given + wanted) - wide(x), *limits_of(type_name))

    return combined([value], element, type_name)


def table(node: TosaNode, operands: Sequence[Elements], type_name: str) -> Elements:
    """Convert TABLE: 256 elements for int8, or 513 for int16 with linear interpolation between them."""
    value, entries = operands
    count = {"int8": 256, "int16": 513}.get(value.type_name)
    if entries.shape != (count,):
        raise Refused(f"a table of {entries.shape} for {value.type_name} is not supported")
    sources = (*value.sources, *entries.sources)
    num_read = len(value.sources)

    def read(given: Sequence[te.Tensor], at: At) -> tirx.Expr:
        own, listed = given[:num_read], given[num_read:]
        place = cast(value.read(own, at), "int32") + tirx.const(1 << (BITS[value.type_name] - 1), "int32")
        if count == 256:
            return entries.read(listed, [place])
        index = place >> tirx.const(7, "int32")
        first, second = (cast(entries.read(listed, [index + tirx.const(step, "int32")]), "int32") for step in (0, 1))
        return first * tirx.const(128, "int32") + (second - first) * (place & tirx.const(127, "int32"))

    # The expression contains the index four times.
    size = 1 + (1 if count == 256 else 4) * value.size
    return Elements(shape=value.shape, type_name=type_name, sources=sources, read=read, size=size)


def convert_type(node: TosaNode, operands: Sequence[Elements], type_name: str) -> Elements:
    """Convert CAST between integers and booleans. A narrower type keeps the lowest bits."""

    def element(x: tirx.Expr) -> tirx.Expr:
        if type_name == "bool":
            return tirx.NE(x, tirx.const(0, x.ty.dtype))
        given = operands[0].type_name
        narrows = given != "bool" and BITS[given] > BITS[type_name]
        return wrapped(wide(x), BITS[type_name]) if narrows else x

    return combined(operands, element, type_name)


def _shift_left(a: tirx.Expr, b: tirx.Expr, bits: int) -> tirx.Expr:
    return wrapped((wide(a) & wide((1 << bits) - 1)) << wide(b), bits)


def _shift_right(a: tirx.Expr, b: tirx.Expr, bits: int) -> tirx.Expr:
    return wrapped((wide(a) & wide((1 << bits) - 1)) >> wide(b), bits)


def _leading_zeros(a: tirx.Expr, bits: int) -> tirx.Expr:
    """Return the number of powers of two that are above a number, which has that many leading zero bits."""
    number = wide(a) & wide((1 << bits) - 1)
    return sum((wide(number < wide(1 << bit)) for bit in range(bits)), wide(0))


def arithmetic_right_shift(node: TosaNode, operands: Sequence[Elements], type_name: str) -> Elements:
    rounds = bool(node.attributes["round"])

    def element(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        value, shift = wide(a), wide(b)
        if not rounds:
            return value >> shift
        # One more bit at the end, which is zero for a shift by zero, is the bit that was shifted out last.
        doubled = (value * wide(2)) >> shift
        return (doubled >> wide(1)) + (doubled & wide(1))

    return combined(operands, element, type_name)


def divide(node: TosaNode, operands: Sequence[Elements], type_name: str) -> Elements:
    """Convert INTDIV, which rounds to zero. The specification gives no result for a divisor of zero; here it is `a`."""

    def element(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        divisor = wide(b)
        return wrapped(tirx.truncdiv(wide(a), tirx.Select(tirx.EQ(divisor, wide(0)), wide(1), divisor)), 32)

    return combined(operands, element, type_name)


Convert = Callable[[TosaNode, Sequence[Elements], str], Elements]


def _plain(function: Callable[..., tirx.Expr]) -> Convert:
    return lambda node, operands, type_name: combined(operands, function, type_name)


def _of_bits(function: Callable[..., tirx.Expr]) -> Convert:
    def convert(node: TosaNode, operands: Sequence[Elements], type_name: str) -> Elements:
        bits = BITS[operands[0].type_name]
        return combined(operands, lambda *values: function(*values, bits), type_name)

    return convert


def _sum(sign: int) -> Convert:
    def convert(node: TosaNode, operands: Sequence[Elements], type_name: str) -> Elements:
        (low, high), second = (operand.bounds for operand in operands)
        less, more = second if sign > 0 else (-second[1], -second[0])
        bounds = low + less, high + more

        def element(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
            if not _fits(bounds):
                return wrapped(wide(a) + wide(sign) * wide(b), 32)
            first, second = cast(a, "int32"), cast(b, "int32")
            return first + second if sign > 0 else first - second

        return combined(operands, element, type_name, limits=bounds if _fits(bounds) else None)

    return convert


CONVERTERS: dict[str, Convert] = {
    "ABS": _plain(lambda x: wrapped(tirx.max(wide(x), wide(0) - wide(x)), 32)),
    "ADD": _sum(1),
    "ARITHMETIC_RIGHT_SHIFT": arithmetic_right_shift,
    "BITWISE_AND": _plain(lambda a, b: a & b),
    "BITWISE_NOT": _plain(lambda x: ~x),
    "BITWISE_OR": _plain(lambda a, b: a | b),
    "BITWISE_XOR": _plain(lambda a, b: a ^ b),
    "CAST": convert_type,
    "CLAMP": clamp,
    "CLZ": _of_bits(_leading_zeros),
    "EQUAL": _plain(lambda a, b: tirx.EQ(a, b)),
    "GREATER": _plain(lambda a, b: tirx.GT(a, b)),
    "GREATER_EQUAL": _plain(lambda a, b: tirx.GE(a, b)),
    "IDENTITY": _plain(lambda x: x),
    "INTDIV": divide,
    "LOGICAL_AND": _plain(lambda a, b: tirx.And(a, b)),
    "LOGICAL_LEFT_SHIFT": _of_bits(_shift_left),
    "LOGICAL_NOT": _plain(lambda x: tirx.Not(x)),
    "LOGICAL_OR": _plain(lambda a, b: tirx.Or(a, b)),
    "LOGICAL_RIGHT_SHIFT": _of_bits(_shift_right),
    "LOGICAL_XOR": _plain(lambda a, b: tirx.NE(cast(a, "int8"), cast(b, "int8"))),
    "MAXIMUM": _plain(tirx.max),
    "MINIMUM": _plain(tirx.min),
    "MUL": multiply,
    "NEGATE": negate,
    "RESCALE": rescale,
    "SELECT": _plain(lambda condition, a, b: tirx.Select(condition, a, b)),
    "SUB": _sum(-1),
    "TABLE": table,
}
"""Converters of element-wise operators on integers and booleans, by name."""
