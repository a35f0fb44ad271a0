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
"""Element types that C11 can compute with. It has no 16-bit floats; their bits are stored as uint16_t."""


def any_type(ctype: str) -> str:
    """Return the type of tvm_ext_kernels.h that has the values of `ctype` and may access any object.

    int8_t and uint8_t are character types, which may do so by themselves.
    """
    return ctype if ctype in ("int8_t", "uint8_t") else f"tvm_ext_any_{ctype.removesuffix('_t')}"


def float_literal(value: float) -> str:
    """Return the shortest C literal that reads back as the same float32."""
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
    """Make text from a model safe inside a C comment: printable ASCII, no end of comment, trigraph or line splice."""
    printable = "".join(c if " " <= c <= "~" else "?" for c in text).replace("\\", "/")
    return re.sub(r"\*(?=/)|/(?=\*)|\?(?=\?)", r"\g<0> ", printable)


class Compound(str):
    """C expression of several operands, which needs parentheses as a factor of a product."""


def plus(expression: str, number: int) -> str:
    """Return the sum `k + 3`, or only `k` if the number is 0."""
    return Compound(f"{expression} + {number}") if number else expression


def times(expression: str, factor: int) -> str:
    """Return the product `(h + 1) * 40`, or only the expression if the factor is 1."""
    return expression if factor == 1 else scaled(expression, str(factor))


def scaled(expression: str, factor: str) -> str:
    """Return the product `(h + 1) * columns` for a `Compound`, `h * columns` for a single operand."""
    text = f"({expression})" if isinstance(expression, Compound) else expression
    return Compound(f"{text} * {factor}")


def block(lines: Iterable[str] | str, depth: int = 1) -> str:
    """Indent lines by `depth` levels of four spaces."""
    text = lines if isinstance(lines, str) else "\n".join(lines)
    return indent(text, "    " * depth)


def loop(
    name: str, end: int | str, lines: Sequence[str], *, begin: int | str = 0, step: int = 1, ctype: str = "int32_t"
) -> list[str]:
    """Return the lines of a loop over `name` from `begin` to `end`, each a number or a C expression.

    One iteration between numbers becomes a block in which `name` is a constant, or only a block if the lines do not
    name it. The lines must not contain `break` or `continue` for the loop itself.
    """
    suffix = "u" if ctype == "size_t" else ""
    first, last = (f"{bound}{suffix}" if isinstance(bound, int) else bound for bound in (begin, end))
    if isinstance(begin, int) and isinstance(end, int) and begin < end <= begin + step:
        named = any(re.search(rf"\b{name}\b", line) for line in lines)
        return ["{", block([*([f"const {ctype} {name} = {first};"] if named else []), *lines]), "}"]
    advance = f"++{name}" if step == 1 else f"{name} += {step}"
    return [f"for ({ctype} {name} = {first}; {name} < {last}; {advance}) {{", block(lines), "}"]


def double_literal(value: float) -> str:
    """Return the shortest C literal that reads back as the same float64."""
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
"""C literal of every 8-bit value. A table, because models have millions of 8-bit weights."""


def string_literal(text: str) -> str:
    """Return a C string literal of the text in UTF-8. Bytes outside printable ASCII are octal escapes; no trigraphs."""
    plain = {byte: chr(byte) for byte in range(32, 127) if chr(byte) not in '\\"?'}
    return '"' + "".join(plain.get(byte, f"\\{byte:03o}") for byte in text.encode()) + '"'


def literal(array: np.ndarray) -> list[str]:
    """Return a C literal of the array's type for each element of a flat array."""
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
    """Return `float_literal` of every element.

    numpy's own text is already this literal unless it has an exponent, and converting the whole array at once is fast.
    """
    words = [f"({word}f)" if word[0] == "-" else f"{word}f" for word in array.astype("U").tolist()]
    size = np.abs(array)
    for index in np.flatnonzero(~((size == 0) | ((size > 1e-4) & (size < 1e5)))):
        words[index] = float_literal(array[index])
    return words


def filled(words: Sequence[str], width: int) -> list[str]:
    """Arrange words as `a, b, c,` in lines of at most `width` characters, each filled as far as possible."""
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
"""Longest line of a generated file, in characters."""


def comment_block(paragraphs: Sequence[str], *, columns: int = 0) -> str:
    """Return a C comment in which each paragraph begins on a new line. `comment` has made the text safe before.

    columns: the indentation that the caller will add.
    """
    width = MOST_COLUMNS - columns - len("/*  */")
    lines = [line for paragraph in paragraphs for line in _wrapped(paragraph, width)]
    return "/* " + "\n * ".join(lines) + " */"


def folded(text: str) -> str:
    """Break lines that are too long; the rest of a line continues four columns further in.

    A comment is broken between words, or inside a word that is longer than a line. Code is broken after the last comma
    that is inside the fewest parentheses, else at a space, else after an opening parenthesis. Preprocessor lines are
    left alone.
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
    """Break one comment line that is too long. The comment marks are never left alone on a line as words would be."""
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
    """Wrap text to a width: between words, and inside words that are longer than a line."""
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
    """Split a word that is longer than `width`: after each `;`, else after each `/`, else into pieces of `width`."""
    if len(word) <= width:
        return [word]
    for separator in ";/":
        parts = [part for part in re.split(f"(?<={separator})", word) if part]
        if len(parts) > 1:
            return [shorter for part in parts for shorter in _parts_of_word(part, width)]
    return [word[begin : begin + width] for begin in range(0, len(word), width)]


def _break(line: str, begin: int) -> int | None:
    """Return the position at which a line of code can be broken, or None."""
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
    """Return a C constant of exactly this value: `0.1f`, `INFINITY`, `-3`, `7u`, `INT64_C(5)` or `INT32_MIN`."""
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
"""Value of a structure member: a number, a bool, C text, or the members of a nested structure."""

_MOST_COLUMNS = 108


def structure(ctype: str, name: str, members: Mapping[str, Value]) -> list[str]:
    """Return the lines that define a constant of a structure type, at least one line for each member."""
    return [f"const {ctype} {name} = {{", *(line for key in members for line in _member(key, members[key])), "};"]


def _member(name: str, value: Value) -> list[str]:
    """Return the lines of one member. A nested structure that does not fit on one line fills several."""
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
