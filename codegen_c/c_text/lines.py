"""Lines of generated C that are no longer than MOST_COLUMNS, comments included."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
