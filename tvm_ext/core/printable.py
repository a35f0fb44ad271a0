"""Make text and values safe for terminals, tables, pages and files.

An untrusted author chooses the names of tensors, files and operators. An escape sequence in a name would control the
terminal, a bidirectional control would show another name, and NaN is not JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import cast

_CONTROLS = (
    r"\x00-\x1f\x7f-\x9f"  # controls of terminals, which start escape sequences
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # controls of the direction of text
    r"\u2028\u2029"  # line ends other than line feeds
    r"\u200b\u2060\ufeff\U000e0000-\U000e007f"  # invisible characters
    r"\ud800-\udfff\ufffe\uffff"  # code points that are no characters
)
_HIDDEN = re.compile(f"[{_CONTROLS}]")
_HIDDEN_IN_LINES = re.compile(f"(?!\n)[{_CONTROLS}]")
_MARKDOWN = re.compile(r"[\\`*_\[\]<>|&#~]")


def printable(text: str) -> str:
    r"""The text with an escape in place of each character that controls or hides: `\x1b`, `\u202e`. One line."""
    return _HIDDEN.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Apply `printable` to a text of several lines, such as an error with a compiler's output, or a table."""
    return _HIDDEN_IN_LINES.sub(_escape, text)


def markdown(text: str) -> str:
    """Apply `printable`, and escape what Markdown and HTML would interpret."""
    return _MARKDOWN.sub(r"\\\g<0>", printable(text))


def markdown_code(text: str) -> str:
    """Apply `printable` and add backticks, as code.

    Backticks in the text become apostrophes, and bars become slashes.
    """
    return f"`{printable(text).replace('`', chr(39)).replace('|', '/')}`"


def json_text(value: object, indent: int | None = 2) -> str:
    """Return JSON that every parser reads. NaN and infinities, which JSON lacks, become null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in cast("list[object]", value)]
    return value


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("ascii", "backslashreplace").decode() if found[0] > "\x7f" else f"\\x{ord(found[0]):02x}"
