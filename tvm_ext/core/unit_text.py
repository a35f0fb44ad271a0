"""The text of a C source and of its headers, for the names of kept objects. No preprocessor runs.

Two sources of equal text give equal objects by the same compiler. The text has no comments, and no hash of a model that
no line of code reads, so that it is the same for models of which only these differ. Headers of the project are found as
compilers find them, and are part of the text in branches of `#if` that are not taken, too. Headers of the system are
part of it by their places, sizes and times, as the programs of the compiler are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

_COMMENT = re.compile(
    rb"""//(?:\\\r?\n|[^\n])*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL
)  # with strings, in which no comment begins
_BLANK_LINES = re.compile(rb"(?<!\\)\n[ \t\r]*(?=\n)")
_SPLICE = re.compile(rb"\\\r?\n")
_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include\b[ \t]*([^\r\n]*?)[ \t\r]*$", re.MULTILINE)
_NAMED = re.compile(rb'"([^"]+)"|<([^>]+)>')
_UNREADABLE = re.compile(
    rb"__(?:DATE|TIME|TIMESTAMP|LINE)__|\bassert\b|__has_(?:include|embed)|#[ \t]*(?:include_next|import|embed)\b"
    rb"|\.inc(?:bin|lude)\b|%:|\?\?="
)
"""What makes an object depend on more than these texts, also on numbers of lines, or hides a directive from the
patterns above."""
_HASH = re.compile(rb'^#define \w+_MODEL_SHA256 "[^"\n]*"\r?\n', re.MULTILINE)
_IN_HASH = b"SHA256"
_MOST_CACHED_BYTES = 1 << 16


def unit_text(source: Path, folders: Sequence[Path], system: Sequence[Path]) -> bytes | None:
    """Return the text of a source and of all that it includes; None where the text does not tell what is compiled.

    folders: of the project's headers, in the order in which the compiler searches them after the folder of the file
    that includes. system: the folders that it searches last. Raises OSError for a file that cannot be read.
    """
    parts: list[bytes] = []
    waiting, seen = [source], {source}
    while waiting:
        file = waiting.pop()
        text = _without_comments(file.read_bytes())
        if _UNREADABLE.search(text):
            return None
        parts += [file.name.encode(), text]
        for said in _INCLUDE.findall(_SPLICE.sub(b"", text)):
            named = _NAMED.fullmatch(said)
            if named is None:  # a macro gives the name
                return None
            name = os.fsdecode(named[1] or named[2])
            own = _found(name, [file.parent, *folders] if named[1] else folders)
            if own is None:
                parts.append(_told(name, _found(name, system)))
            elif own not in seen:
                seen.add(own)
                waiting.append(own)
    return _without_hashes(b"\0\n".join(parts))


def _found(name: str, folders: Sequence[Path]) -> Path | None:
    return next((folder / name for folder in folders if os.path.isfile(folder / name)), None)


def _told(name: str, header: Path | None) -> bytes:
    """Return what the text says of a header of the system; None for one that is not there, as for other processors."""
    if header is None:
        return name.encode()
    status = header.stat()
    return f"{header} {status.st_size} {status.st_mtime_ns}".encode()


def _without_comments(text: bytes) -> bytes:
    """Return a text without comments and without the blank lines that they leave."""
    return _cached(text) if len(text) <= _MOST_CACHED_BYTES else _reduced(text)


@lru_cache(maxsize=256)
def _cached(text: bytes) -> bytes:
    """Return what `_reduced` does. The headers that all packages share are many, and are read in each build."""
    return _reduced(text)


def _reduced(text: bytes) -> bytes:
    return _BLANK_LINES.sub(b"", _COMMENT.sub(_kept, text))


def _kept(found: re.Match[bytes]) -> bytes:
    """Return a string as it is, and a comment as a space."""
    return b" " if found[0].startswith(b"/") else found[0]


def _without_hashes(text: bytes) -> bytes:
    """Return the text without hashes of models, if code mentions none of them."""
    hashes = _HASH.findall(text)
    return _HASH.sub(b"", text) if text.count(_IN_HASH) == len(hashes) else text
