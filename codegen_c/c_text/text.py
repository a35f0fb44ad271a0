"""C text: literals, comments, indentation. The one place that knows how C is spelled."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from textwrap import indent

import numpy as np

from codegen_c.c_text.narrow_floats import NARROW_FLOATS

C_TYPES = {
    "float32": "float",
    "float64": "double",
    "bool": "bool",
    **dict.fromkeys(NARROW_FLOATS, "uint16_t"),
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
TYPES_OF_C = tuple(dtype for dtype in C_TYPES if dtype not in NARROW_FLOATS)
"""Element types that C11 computes with: not floats of 16 bits, which it holds as bits."""


def float_literal(value: float) -> str:
    """Shortest C literal that reads back as the same float32."""
    single = np.float32(value)
    if math.isnan(single):
        return "NAN"
    if math.isinf(single):
        return "INFINITY" if single > 0 else "(-INFINITY)"
    text = np.format_float_scientific(single, unique=True, trim="-", exp_digits=1)
    mantissa, exponent = text.split("e")
    if -5 < int(exponent) < 7:
        text = np.format_float_positional(single, unique=True, trim="0")
    elif "." not in mantissa:
        text = f"{mantissa}.0e{exponent}"
    return f"({text}f)" if text.startswith("-") else f"{text}f"


def comment(text: str) -> str:
    """Model-supplied text made harmless inside a C comment: printable ASCII, no end of comment, no line splice."""
    printable = "".join(c if " " <= c <= "~" else "?" for c in text).replace("\\", "/")
    return re.sub(r"\*(?=/)|/(?=\*)|\?(?=\?)", r"\g<0> ", printable)


class Compound(str):
    """C expression of several operands, which is put in parentheses where it is multiplied."""


def plus(expression: str, number: int) -> str:
    """`k + 3`, and just `k` for zero."""
    return Compound(f"{expression} + {number}") if number else expression


def times(expression: str, factor: int) -> str:
    """`(h + 1) * 40`, and the expression itself for one."""
    return expression if factor == 1 else scaled(expression, str(factor))


def scaled(expression: str, factor: str) -> str:
    """`(h + 1) * columns` of a `Compound`, `h * columns` of one operand."""
    text = f"({expression})" if isinstance(expression, Compound) else expression
    return Compound(f"{text} * {factor}")


def block(lines: Iterable[str] | str, depth: int = 1) -> str:
    """Lines indented by `depth` levels of four spaces."""
    text = lines if isinstance(lines, str) else "\n".join(lines)
    return indent(text, "    " * depth)


def double_literal(value: float) -> str:
    """Shortest C literal that reads back as the same float64."""
    if math.isnan(value):
        return "(double)NAN"
    if math.isinf(value):
        return "(double)INFINITY" if value > 0 else "(-(double)INFINITY)"
    text = repr(float(value))
    return f"({text})" if text.startswith("-") else text


_BYTES = {
    "int8": {value: str(value) for value in range(-128, 128)},
    "uint8": {value: f"{value}u" for value in range(256)},
}
"""Literal of each element of a byte. Weights are millions of these."""


def string_literal(text: str) -> str:
    """A C string of the text's bytes in UTF-8: others than printable ASCII as octal escapes, no trigraphs."""
    plain = {byte: chr(byte) for byte in range(32, 127) if chr(byte) not in '\\"?'}
    return '"' + "".join(plain.get(byte, f"\\{byte:03o}") for byte in text.encode()) + '"'


def literal(array: np.ndarray) -> list[str]:
    """Every element of a flat array as a C literal of its own type, for an initializer."""
    if array.dtype == np.float32:
        return _float_literals(array)
    if array.dtype == np.float64:
        return [double_literal(value) for value in array]
    if array.dtype == np.bool_:
        return ["true" if value else "false" for value in array]
    if str(array.dtype) in NARROW_FLOATS:
        array = array.view(np.uint16)
    if array.itemsize == 1:
        return [*map(_BYTES[str(array.dtype)].__getitem__, array.tolist())]
    suffix = {"uint16": "u", "uint32": "u", "uint64": "ull", "int64": "ll"}.get(str(array.dtype), "")
    least = np.iinfo(array.dtype).min
    words = [str(value) for value in array.tolist()]
    extreme = {"int32": "INT32_MIN", "int64": "INT64_MIN"}.get(str(array.dtype))
    if extreme:
        return [extreme if value == least else word + suffix for value, word in zip(array.tolist(), words, strict=True)]
    return [word + suffix for word in words]


def _float_literals(array: np.ndarray) -> list[str]:
    """`float_literal` of every element. What numpy prints is that literal unless it takes an exponent."""
    words = [f"({word}f)" if word[0] == "-" else f"{word}f" for word in array.astype("U").tolist()]
    size = np.abs(array)
    for index in np.flatnonzero(~((size == 0) | ((size > 1e-4) & (size < 1e5)))):
        words[index] = float_literal(array[index])
    return words


def filled(words: Sequence[str], width: int) -> list[str]:
    """`a, b, c,` as lines of at most `width` characters, each as full as it can be."""
    text = f"{', '.join(words)}, " if words else ""
    lines: list[str] = []
    begin = 0
    while begin < len(text):
        end = text.rfind(", ", begin, begin + width + 1)
        if end < 0:
            end = text.index(", ", begin)  # one word, longer than a line
        lines.append(text[begin : end + 1])
        begin = end + 2
    return lines
