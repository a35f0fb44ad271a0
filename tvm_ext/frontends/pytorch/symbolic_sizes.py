"""Symbolic sizes of exported programs: parse arithmetic on symbols, and print it again.

torch passes the text of a size to sympy.sympify, which is Python's eval, so only text that this file writes may reach
it. The text may be in sympy's constructor form, which torch writes (`Mul(Integer(2), Symbol('s0', integer=True))`), or
in arithmetic form (`2*s0 + 1`).

sympy computes without limits: nine powers of nine in a row never end. So each expression carries an upper bound of its
magnitude in bits, where a symbol counts 64, and is refused beyond `MOST_BITS`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from tvm_ext.frontends.pytorch.plain_json import Damaged, shown

SYMBOL = r"(?:[suz]|zuf)\d{1,4}"
SYMBOL_BITS, MOST_BITS = 64, 4096
_FLOAT_BITS = 1024
_MOST_CHARACTERS, _MOST_PARTS, _MOST_DEPTH, _MOST_EXTREMES = 20_000, 400, 60, 16
_MOST_EXPONENT = 8
_TOKEN = re.compile(r"\s*(?:(\d+(?!\w))|([A-Za-z_]\w*)|'([^'\\\s]*)'|(\*\*|//|[-+*(),=]))")
_SYMBOL = re.compile(SYMBOL)
_REAL = re.compile(r"-?\d+(?:\.\d*)?(?:e[+-]?\d{1,3})?")
_ASSUMPTIONS = ("positive", "nonnegative", "integer", "real")


def bits_of_sum(bits: Sequence[int]) -> int:
    return max(bits) + len(bits).bit_length()


def bits_of_power(bits: int, exponent: int, where: str) -> int:
    """Return the bits of a power. Raises Damaged for exponents that no size of a tensor has."""
    if not -1 <= exponent <= _MOST_EXPONENT:
        raise Damaged(f"{where}: the exponent {exponent} of a symbolic size is not from -1 to {_MOST_EXPONENT}")
    return bits * max(abs(exponent), 1)


def bits_of_constant(value: float) -> int:
    return value.bit_length() if isinstance(value, int) else _FLOAT_BITS


@dataclass(frozen=True, kw_only=True)
class _Function:
    """A function of sympy or torch: the allowed numbers of arguments, and the bits of its result."""

    least: int
    most: int
    bits: Callable[[Sequence[int]], int]


_ONE = _Function(least=1, most=1, bits=max)
_TWO = _Function(least=2, most=2, bits=max)
_EXTREME = _Function(least=1, most=8, bits=max)
_RELATION = _Function(least=2, most=2, bits=lambda _: 1)
_LOGIC = _Function(least=1, most=32, bits=lambda _: 1)
_FUNCTIONS: Mapping[str, _Function] = {
    "Add": _Function(least=1, most=64, bits=bits_of_sum),
    "Mul": _Function(least=1, most=64, bits=sum),
    "FloatTrueDiv": _Function(least=2, most=2, bits=sum),
    "IntTrueDiv": _Function(least=2, most=2, bits=sum),
    "Where": _Function(least=3, most=3, bits=max),
    **dict.fromkeys(("FloorDiv", "CeilDiv", "CleanDiv", "Mod", "PythonMod"), _TWO),
    **dict.fromkeys(("ToFloat", "TruncToInt", "TruncToFloat", "FloorToInt", "CeilToInt", "RoundToInt"), _ONE),
    **dict.fromkeys(("Max", "Min"), _EXTREME),
    **dict.fromkeys(("Equality", "Eq", "Unequality", "Ne", "StrictLessThan", "Lt", "LessThan", "Le"), _RELATION),
    **dict.fromkeys(("StrictGreaterThan", "Gt", "GreaterThan", "Ge"), _RELATION),
    **dict.fromkeys(("And", "Or", "Not"), _LOGIC),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A part of an expression in sympy's constructor form, with its magnitude.

    value: of an integer.
    """

    text: str
    bits: int
    value: int | None = None


def read_expression(value: Any, where: str) -> str:
    """Read the text of a symbolic size, and return it in sympy's constructor form. Raises Damaged."""
    if not isinstance(value, str) or len(value) > _MOST_CHARACTERS:
        raise Damaged(f"{where}: a symbolic size is no arithmetic expression: {shown(value)}")
    parser = _Parser(value, where)
    part = parser.sum(0)
    parser.end()
    if part.bits > MOST_BITS:
        raise Damaged(f"{where}: a symbolic size may take {part.bits} bits, more than {MOST_BITS}: {shown(value)}")
    return part.text


class _Parser:
    """Recursive descent over the tokens of a text."""

    def __init__(self, text: str, where: str) -> None:
        self._text, self._where, self._at, self._parts, self._extremes = text, where, 0, 0, 0
        self._kind, self._token = 0, ""
        self._advance()

    def end(self) -> None:
        if self._kind:
            self._fail()

    def sum(self, depth: int) -> _Part:
        """Parse products with plus or minus between them."""
        terms = [self._product(depth)]
        while self._token in ("+", "-") and self._kind == 4:
            negate = self._take(self._token) == "-"
            term = self._product(depth)
            terms.append(_negated(term) if negate else term)
        return terms[0] if len(terms) == 1 else self._call("Add", terms)

    def _product(self, depth: int) -> _Part:
        left = self._signed(depth)
        while self._token in ("*", "//") and self._kind == 4:
            name = "Mul" if self._take(self._token) == "*" else "FloorDiv"
            left = self._call(name, [left, self._signed(depth)])
        return left

    def _signed(self, depth: int) -> _Part:
        """Parse a power with its leading sign."""
        self._parts += 1
        if depth > _MOST_DEPTH or self._parts > _MOST_PARTS:
            raise Damaged(f"{self._where}: a symbolic size has too many parts: {shown(self._text)}")
        if self._kind == 4 and self._token == "-":
            self._take("-")
            return _negated(self._signed(depth + 1))
        base = self._atom(depth)
        if self._kind == 4 and self._token == "**":
            self._take("**")
            base = self._to_power([base, self._atom(depth)])
        return base

    def _atom(self, depth: int) -> _Part:
        if self._kind == 4 and self._token == "(":
            self._take("(")
            inner = self.sum(depth + 1)
            self._take(")")
            return inner
        return self._integer() if self._kind == 1 else self._named(depth)

    def _named(self, depth: int) -> _Part:
        if self._kind != 2:
            self._fail()
        name = self._token
        self._advance()
        if name in ("true", "false", "True", "False"):
            return _Part(text=name.lower(), bits=1)
        if not (self._kind == 4 and self._token == "("):
            return self._symbol(name, "")
        self._take("(")
        if name == "Symbol":
            return self._symbol(self._quoted(), self._assumptions())
        if name == "Float":
            return self._float()
        arguments = [self.sum(depth + 1)]
        while self._token == ",":
            self._take(",")
            arguments.append(self.sum(depth + 1))
        self._take(")")
        return self._call(name, arguments)

    def _call(self, name: str, arguments: Sequence[_Part]) -> _Part:
        if name in ("Pow", "PowByNatural"):
            return self._to_power(arguments)
        if name in ("Integer", "Rational"):
            values = [argument.value for argument in arguments]
            if (
                len(values) != (1 if name == "Integer" else 2)
                or None in values
                or (name == "Rational" and not values[1])
            ):
                self._fail()
            written = f"{name}({', '.join(map(str, values))})"
            return _Part(
                text=written, bits=sum(part.bits for part in arguments), value=values[0] if name == "Integer" else None
            )
        function = _FUNCTIONS.get(name)
        if function is None or not function.least <= len(arguments) <= function.most:
            self._fail()
        if function is _EXTREME:  # sympy compares each pair of their arguments
            self._extremes += len(arguments)
            if self._extremes > _MOST_EXTREMES:
                raise Damaged(f"{self._where}: a symbolic size has too many Max and Min: {shown(self._text)}")
        text = f"{name}({', '.join(part.text for part in arguments)})"
        return _Part(text=text, bits=function.bits([part.bits for part in arguments]))

    def _to_power(self, arguments: Sequence[_Part]) -> _Part:
        if len(arguments) != 2 or arguments[1].value is None:
            self._fail()
        base, exponent = arguments
        assert exponent.value is not None
        bits = bits_of_power(base.bits, exponent.value, self._where)
        return _Part(text=f"Pow({base.text}, Integer({exponent.value}))", bits=bits)

    def _integer(self) -> _Part:
        if len(self._token) > 19:
            self._fail()
        value = int(self._token)
        self._advance()
        return _Part(text=f"Integer({value})", bits=bits_of_constant(value), value=value)

    def _symbol(self, name: str, assumptions: str) -> _Part:
        if not _SYMBOL.fullmatch(name):
            self._fail()
        return _Part(text=f"Symbol('{name}'{assumptions})", bits=SYMBOL_BITS)

    def _assumptions(self) -> str:
        """Parse the rest of a symbol: `, positive=True, integer=True)`."""
        written = ""
        while self._token == ",":
            self._take(",")
            name = self._token
            if name not in _ASSUMPTIONS or f"{name}=" in written:
                self._fail()
            self._advance()
            self._take("=")
            self._take("True")
            written += f", {name}=True"
        self._take(")")
        return written

    def _float(self) -> _Part:
        """Parse the rest of a float: `'1.5', precision=53)`."""
        digits = self._quoted()
        if not _REAL.fullmatch(digits) or not math.isfinite(float(digits)):
            self._fail()
        for expected in (",", "precision", "=", "53", ")"):
            self._take(expected)
        return _Part(text=f"Float('{digits}', precision=53)", bits=_FLOAT_BITS)

    def _quoted(self) -> str:
        if self._kind != 3:
            self._fail()
        quoted = self._token
        self._advance()
        return quoted

    def _take(self, expected: str) -> str:
        if self._token != expected or self._kind == 3:
            self._fail()
        self._advance()
        return expected

    def _advance(self) -> None:
        """Move to the next token. Kind 0 is the end, followed by numbers, names, strings and signs."""
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            if self._text[self._at :].strip():
                self._fail()
            self._kind, self._token = 0, ""
            return
        self._at, self._kind, self._token = found.end(), found.lastindex or 0, found.group(found.lastindex or 0)

    def _fail(self) -> NoReturn:
        raise Damaged(f"{self._where}: a symbolic size is no arithmetic expression: {shown(self._text)}")


def _negated(part: _Part) -> _Part:
    if part.value is not None:
        return _Part(text=f"Integer({-part.value})", bits=part.bits, value=-part.value)
    return _Part(text=f"Mul(Integer(-1), {part.text})", bits=part.bits)
