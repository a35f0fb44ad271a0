"""Lines of generated C that are no longer than MOST_COLUMNS, comments included."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

MOST_COLUMNS = 120
"""Limit on every line of every generated file."""


def comment_block(paragraphs: Sequence[str]) -> str:
    """A comment of one or more paragraphs, each on lines of its own. The text is safe already (`text.comment`)."""
    lines = [line for paragraph in paragraphs for line in wrap(paragraph, MOST_COLUMNS - 6) or [""]]
    return "/* " + "\n * ".join(lines) + " */"


def folded(text: str) -> str:
    """The text with each line that is too long continued on the next one, four columns further in.

    Comments are broken between words, or within one that is a line by itself; code behind the last comma that is
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
        further = f"{indent} * " if words.startswith("/*") else f"{indent}* "
        return wrap(words, MOST_COLUMNS, initial_indent=indent, subsequent_indent=further)
    end = _break(line, len(indent))
    if end is None:
        return [line]
    return [line[:end].rstrip(), *_parts(f"{indent}    {line[end:].lstrip()}", is_comment=False)]


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
