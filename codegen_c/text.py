"""C text: literals, comments, indentation, identifiers. The one place that knows how C is spelled."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from textwrap import indent

import numpy as np

C_TYPES = {
    "float32": "float",
    "float64": "double",
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

_KEYWORDS = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    _Alignas _Alignof _Atomic _Bool _Complex _Generic _Imaginary _Noreturn _Static_assert _Thread_local bool true
    false asm typeof main alignas alignof class delete export friend mutable namespace new operator private protected
    public template this throw try typename union using virtual catch nullptr constexpr""".split()
)


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
    printable = "".join(c if " " <= c <= "~" else "?" for c in text)
    return printable.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?").replace("\\", "/")


def identifier(text: str, *, fallback: str = "x") -> str:
    """A legal, lower-case C identifier close to `text`; at most 40 characters, never a keyword of C or C++."""
    word = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:40].strip("_") or fallback
    word = word if word[0].isalpha() else f"{fallback}_{word}"
    return f"{word}_" if word in _KEYWORDS else word


def unique(word: str, taken: set[str]) -> str:
    """`word`, or word_2, word_3 …, whichever is free; the choice is added to `taken`."""
    candidate, number = word, 1
    while candidate in taken:
        number += 1
        candidate = f"{word}_{number}"
    taken.add(candidate)
    return candidate


def block(lines: Iterable[str] | str, depth: int = 1) -> str:
    """Lines indented by `depth` levels of four spaces."""
    text = lines if isinstance(lines, str) else "\n".join(lines)
    return indent(text, "    " * depth)
