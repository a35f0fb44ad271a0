"""Compiled objects in the user's cache folder, by everything that affects an object.

The name of an entry is a hash of the compiler, its flags, and the text of the source and its headers (`unit_text`),
which has no comments. A file of a changed model whose code and constants are the same is therefore not compiled again,
although the hash of the model in its comments and headers differs. Until it is compiled, no program runs: the
preprocessor would take as long as compiling a short file.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from tvm_ext.core.files.kept_files import default_folder, read_kept, write_kept
from tvm_ext.core.processes.process import run_program
from tvm_ext.core.unit_text import unit_text

MOST_BYTES = 1 << 30
"""Limit of all entries. The entries that were not used for the longest time are removed first."""

_FOLDER = "objects"
_FOLDERS = 64
_UNKEPT_FLAGS = (
    "--coverage", "-fprofile", "-ftest-coverage", "-fstack-usage", "-fcallgraph", "-fdump", "-save-temps", "-g",
    "-I", "-include", "-imacros", "-iquote", "-isystem",
)  # fmt: skip
"""Beginnings of flags with which a compiler writes more than an object, or reads files of which the cache knows
nothing."""
_OTHER_FOLDERS = ("CPATH", "C_INCLUDE_PATH")
"""Environment variables that name further folders of headers."""
_TIME_LIMIT_S = 20


def compile_kept(
    head: Sequence[str], source: Path, folders: Sequence[Path], target: Path, compile_one: Callable[[], None]
) -> None:
    """Write an object to `target`: from the cache, or by `compile_one`, whose object is then kept.

    head: compiler and flags, without paths. folders: of headers, in the order of their search. Equal sources of
    several threads are compiled once. A cache that cannot be read or written has no other effect.
    """
    text = None
    if not any(flag.startswith(_UNKEPT_FLAGS) for flag in head) and not any(map(os.environ.get, _OTHER_FOLDERS)):
        text = _text(source, folders, tuple(head))
    if text is None:
        compile_one()
        return
    key = _key(tuple(head), source.name, text)
    entry = default_folder() / _FOLDER / f"{int(key[:8], 16) % _FOLDERS:02}" / key
    with _alone(key):
        kept = read_kept(entry)
        if kept is not None:
            target.write_bytes(kept)
            with suppress(OSError):
                os.utime(entry)
            return
        target.unlink(missing_ok=True)
        compile_one()
        if target.is_file() and write_kept(entry, target.read_bytes()):
            _limit(entry.parent, MOST_BYTES // _FOLDERS)


def _text(source: Path, folders: Sequence[Path], head: tuple[str, ...]) -> bytes | None:
    """Return the text that names an object; None where it cannot be told, and the compiler reports what is missing."""
    system = _system_folders(head)
    with suppress(OSError):
        return unit_text(source, folders, system) if system else None
    return None


def _key(head: tuple[str, ...], name: str, text: bytes) -> str:
    """Return the name of the entry of a source. name: of the source, which is in the object's symbols."""
    native = _native() if any("native" in flag for flag in head) else ""
    told = json.dumps([_identity(head), head, name, native, os.environ.get("SOURCE_DATE_EPOCH", "")])
    return hashlib.sha256(told.encode() + b"\0" + text).hexdigest()


_LOCKS: dict[str, tuple[threading.Lock, list[None]]] = {}
_LOCKS_LOCK = threading.Lock()


@contextmanager
def _alone(key: str) -> Generator[None]:
    """Let one thread at a time work on an entry."""
    with _LOCKS_LOCK:
        lock, waiting = _LOCKS.setdefault(key, (threading.Lock(), []))
        waiting.append(None)
    try:
        with lock:
            yield
    finally:
        with _LOCKS_LOCK:
            waiting.pop()
            if not waiting:
                del _LOCKS[key]


def _limit(folder: Path, most_bytes: int) -> None:
    """Remove entries of a folder until the rest takes at most this number of bytes."""
    with suppress(OSError):
        entries = sorted(((one.stat(), one) for one in folder.iterdir()), key=lambda pair: -pair[0].st_mtime_ns)
        total = 0
        for status, entry in entries:
            total += status.st_size
            if total > most_bytes:
                entry.unlink(missing_ok=True)


@cache
def _native() -> str:
    """Return a text that names the processor for which `-march=native` compiles."""
    lines: list[str] = []
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        lines = re.findall(r"^(?:vendor_id|cpu family|model|stepping|flags|Features)\s*:.*$", text, re.MULTILINE)
    return "\n".join([platform.machine(), platform.processor(), *dict.fromkeys(lines)])


@cache
def _system_folders(head: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the folders in which a compiler looks for headers of the system; none if it does not tell."""
    with suppress(OSError):
        done = run_program([*head, "-E", "-v", "-x", "c", os.devnull], Path("/"), seconds=_TIME_LIMIT_S)
        found = re.search(r"^#include <\.\.\.> search starts here:\n(.*?)^End of search list", done.stderr, re.M | re.S)
        return tuple(Path(line.strip()) for line in found[1].splitlines()) if found else ()
    return ()


@cache
def _identity(head: tuple[str, ...]) -> str:
    """Return a text that changes with the compiler: its version, and its programs with their sizes and times.

    The compiler is asked for its programs with all flags, because it may be a wrapper of another one.
    """
    names = [head[0]]
    said: list[str] = []
    for question in ("--version", "-print-prog-name=cc1", "-print-prog-name=as"):
        with suppress(OSError):
            done = run_program([*head, question], Path("/"), seconds=_TIME_LIMIT_S)
            said.append(done.stdout)
            names += done.stdout.split() if question != "--version" else []
    for name in names:
        if place := shutil.which(name):
            status = Path(place).resolve().stat()
            said.append(f"{place} {status.st_size} {status.st_mtime_ns}")
    return "\n".join(said)
