"""Markdown of generated pages: tables, cells, headings."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence

NOTICE = "<!-- Written by `python documentation/write.py`; a test compares. -->"


def page(title: str, *parts: str) -> str:
    """Return a whole page, with a blank line between its parts."""
    return "\n\n".join([f"# {title}", NOTICE, *(part.strip("\n") for part in parts if part.strip())]) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *([cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(text: str) -> str:
    """Return the text in the form that a cell of a table can hold."""
    return " ".join(text.split()).replace("|", "\\|")


def documented(thing: object) -> str:
    """Return the docstring without its indentation. Raises ValueError for an object without a docstring."""
    text = inspect.getdoc(thing)
    if not text:
        raise ValueError(f"{thing}: has no docstring, and stands on a page.")
    return text
