"""Text of C: literals, initializers, comments, line breaks and indentation."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from textwrap import indent

import numpy as np

from codegen_c.c_text.narrow_floats import NARROW_FLOATS, bits_of

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


def loop(name: str, end: int, lines: Sequence[str], *, step: int = 1, ctype: str = "int32_t") -> list[str]:
    """Lines of a loop over `name` from 0 to `end`. A single turn is a block, in which `name` is 0."""
    if 0 < end <= step:
        named = any(re.search(rf"\b{name}\b", line) for line in lines)
        return ["{", block([*([f"const {ctype} {name} = 0;"] if named else []), *lines]), "}"]
    zero, suffix = ("0u", "u") if ctype == "size_t" else ("0", "")
    advance = f"++{name}" if step == 1 else f"{name} += {step}"
    return [f"for ({ctype} {name} = {zero}; {name} < {end}{suffix}; {advance}) {{", block(lines), "}"]


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


MOST_COLUMNS = 120
"""Limit on every line of every generated file."""


def comment_block(paragraphs: Sequence[str], *, columns: int = 0) -> str:
    """A comment of one or more paragraphs, each on lines of its own. The text is safe already (`text.comment`).

    columns: by which it will be indented.
    """
    width = MOST_COLUMNS - columns - len("/*  */")
    lines = [line for paragraph in paragraphs for line in _wrapped(paragraph, width)]
    return "/* " + "\n * ".join(lines) + " */"


def folded(text: str) -> str:
    """The text with each line that is too long continued on the next one, four columns further in.

    Comments are broken between words, or within one that is longer than a line; code behind the last comma that is
    inside the fewest parentheses, or else at a space, or behind a parenthesis. Preprocessor lines stay.
    """
    lines = text.split("\n")
    if all(len(line) <= MOST_COLUMNS for line in lines):
        return text
    found: list[str] = []
    inside_comment = False
    for line in lines:
        found += _parts(line, is_comment=inside_comment or line.lstrip().startswith("/* "))
        last, closed = line.rfind("/*"), line.rfind("*/")
        inside_comment = last > closed or (inside_comment and closed < 0)
    return "\n".join(found)


def _parts(line: str, *, is_comment: bool) -> list[str]:
    if len(line) <= MOST_COLUMNS or line.lstrip().startswith("#") or line.endswith("\\"):
        return [line]
    words = line.lstrip()
    indent = line[: len(line) - len(words)]
    if is_comment:
        return _comment_parts(words, indent)
    end = _break(line, len(indent))
    if end is None:
        return [line]
    return [line[:end].rstrip(), *_parts(f"{indent}    {line[end:].lstrip()}", is_comment=False)]


def _comment_parts(words: str, indent: str) -> list[str]:
    """Lines for one line of a comment that is too long. Its marks are no words: none stands on a line alone."""
    mark = next((mark for mark in ("/* ", "* ") if words.startswith(mark)), "")
    further = f"{indent} * " if mark == "/* " else f"{indent}* "
    text = words.removeprefix(mark).rstrip()
    first, *others = _wrapped(text.removesuffix("*/").rstrip(), MOST_COLUMNS - len(further))
    parts = [f"{indent}{mark}{first}", *(f"{further}{line}" for line in others)]
    if not text.endswith("*/"):
        return parts
    if len(parts[-1]) + len(" */") > MOST_COLUMNS:
        return [*parts, f"{further.rstrip()}/"]
    return [*parts[:-1], f"{parts[-1]} */"]


def _wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most that width, broken between words, and within words that are longer than a line."""
    lines = [""]
    for number, word in enumerate(text.split(" ")):
        gap = " " if number else ""
        for part in _parts_of_word(word, width):
            if len(lines[-1]) + len(gap) + len(part) <= width:
                lines[-1] += gap + part
            elif part:
                lines.append(part)
            gap = ""
    return [line.rstrip() for line in lines]


def _parts_of_word(word: str, width: int) -> list[str]:
    """The word, or where it is too long its parts between `;`, between `/`, and pieces of those without either."""
    if len(word) <= width:
        return [word]
    for separator in ";/":
        parts = [part for part in re.split(f"(?<={separator})", word) if part]
        if len(parts) > 1:
            return [shorter for part in parts for shorter in _parts_of_word(part, width)]
    return [word[begin : begin + width] for begin in range(0, len(word), width)]


def _break(line: str, begin: int) -> int | None:
    """Position where a line of code may be broken; None where there is none."""
    depth, inside_string = 0, False
    commas: list[tuple[int, int]] = []
    spaces: list[int] = []
    opened: list[int] = []
    for index in range(begin, MOST_COLUMNS):
        character = line[index]
        if character == '"' and line[index - 1] != "\\":
            inside_string = not inside_string
        if inside_string:
            continue
        depth += (character in "([{") - (character in ")]}")
        if character == "(":
            opened.append(index + 1)
        if character == " " and index > begin:
            spaces.append(index)
            if line[index - 1] == ",":
                commas.append((depth, -index))
    if commas:
        return -min(commas)[1]
    return next((found[-1] for found in (spaces, opened) if found), None)


def number(value: float, dtype: str) -> str:
    """A constant of exactly this value: `0.1f`, `INFINITY`, `-3`, `7u`, `INT64_C(5)`, `INT32_MIN`."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype == "float32":
        return float_literal(value)
    if dtype == "float64":
        return _double(float(value))
    if dtype in NARROW_FLOATS:
        return str(bits_of(value, dtype))
    return _integer(int(value), dtype)


def _double(value: float) -> str:
    if not math.isfinite(value):
        return f"(double){float_literal(value)}"
    text = repr(value)
    text = text if any(mark in text for mark in ".e") else f"{text}.0"
    return f"({text})" if text.startswith("-") else text


def _integer(value: int, dtype: str) -> str:
    bits = int(dtype.lstrip("uint"))
    if dtype.startswith("uint"):
        return f"UINT64_C({value})" if bits == 64 else f"{value}u" if bits == 32 else str(value)
    if bits >= 32 and value == -(2 ** (bits - 1)):
        return f"INT{bits}_MIN"  # C has no literal for it: the minus sign is an operator
    text = f"INT64_C({value})" if bits == 64 else str(value)
    return f"({text})" if value < 0 and bits < 64 else text


Value = int | bool | str | Mapping[str, "Value"]
"""A number, a truth value, C text, or the members of an inner structure."""

_MOST_COLUMNS = 108


def structure(ctype: str, name: str, members: Mapping[str, Value]) -> list[str]:
    """Lines that define a constant of a structure type, one or more for each member."""
    return [f"const {ctype} {name} = {{", *(line for key in members for line in _member(key, members[key])), "};"]


def _member(name: str, value: Value) -> list[str]:
    """Lines of one member: one, or more with as many members of an inner structure each as there is room for."""
    line = f"    .{name} = {_text(value)},"
    if len(line) <= _MOST_COLUMNS or not isinstance(value, Mapping):
        return [line]
    words = [f".{key} = {_text(inner)}" for key, inner in value.items()]
    return [f"    .{name} = {{", *(f"        {part}" for part in filled(words, _MOST_COLUMNS - 8)), "    },"]


def _text(value: Value) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'.{name} = {_text(inner)}' for name, inner in value.items())}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
