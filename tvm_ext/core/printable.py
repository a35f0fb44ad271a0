"""Text and values on their way to terminals, tables, pages and files: nothing in them controls what shows them.

Names of tensors, files and operators are an author's own. An escape sequence among them would act on the terminal, a
bidirectional control would show another name than the one that is meant, and NaN is no JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import cast

_CONTROLS = (
    r"\x00-\x1f\x7f-\x9f"  # of terminals: escape sequences begin with them
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # of the direction of text
    r"\u2028\u2029"  # ends of lines that are no line feeds
    r"\u200b\u2060\ufeff\U000e0000-\U000e007f"  # letters that nobody sees
    r"\ud800-\udfff\ufffe\uffff"  # no characters at all
)
_HIDDEN = re.compile(f"[{_CONTROLS}]")
_HIDDEN_IN_LINES = re.compile(f"(?!\n)[{_CONTROLS}]")
_MARKDOWN = re.compile(r"[\\`*_\[\]<>|&#~]")


def printable(text: str) -> str:
    r"""The text with an escape in place of each character that controls or hides: `\x1b`, `\u202e`. One line."""
    return _HIDDEN.sub(_escape, text)


def printable_lines(text: str) -> str:
    """`printable`, of a text that may have several lines: an error with the output of a compiler, a table."""
    return _HIDDEN_IN_LINES.sub(_escape, text)


def markdown(text: str) -> str:
    """`printable`, with what Markdown and HTML would take for marks as plain characters."""
    return _MARKDOWN.sub(r"\\\g<0>", printable(text))


def markdown_code(text: str) -> str:
    """`printable` between backticks, as code: backticks of the text become apostrophes, bars no ends of cells."""
    return f"`{printable(text).replace('`', chr(39)).replace('|', '/')}`"


def json_text(value: object, indent: int | None = 2) -> str:
    """JSON that every parser reads: a number that JSON does not have, NaN or an infinity, is null."""
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
