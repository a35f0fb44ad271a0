"""A page of docs/ as a reader follows it: files that it shows, commands that it says, output that it promises."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_BLOCK = re.compile(
    r"(?:^File `(?P<name>[\w.]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, kw_only=True)
class PageStep:
    """A block of a page: a file to write, commands to run, or the output of the last of them."""

    kind: Literal["file", "commands", "output"]
    name: str
    text: str


def page_steps(page: Path) -> Iterator[PageStep]:
    """Blocks in the order of the page; those that are neither of the three are only to be read."""
    for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        if found["name"]:
            yield PageStep(kind="file", name=found["name"], text=found["text"])
        elif found["kind"] == "sh":
            yield PageStep(kind="commands", name="", text=found["text"])
        elif found["kind"] == "text":
            yield PageStep(kind="output", name="", text=found["text"])
