"""A generated file as pieces of whole lines: facts about lines come from the pieces and are never parsed from text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

PieceKind = Literal["text", "function", "step", "constant"]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Lines of a file. name: of the function, step or constant; steps: the program's calls that they serve."""

    text: str
    kind: PieceKind = "text"
    name: str = ""
    steps: tuple[str, ...] = ()


def joined(pieces: Sequence[Piece]) -> str:
    return "\n".join(piece.text for piece in pieces)


def line_ranges(pieces: Sequence[Piece]) -> Iterator[tuple[Piece, int, int]]:
    """Yield each piece with the lines [begin, end) that it occupies in the joined text, counted from 1."""
    begin = 1
    for piece in pieces:
        end = begin + piece.text.count("\n") + 1
        yield piece, begin, end
        begin = end
