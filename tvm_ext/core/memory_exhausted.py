"""Tell exhausted memory from defects, under a limit of the process (`ulimit -v`) or on the whole machine.

Libraries report it in many forms: MemoryError, errno ENOMEM of a call, `std::bad_alloc` from C++, or a library that
cannot be mapped and is missing afterwards. Code that catches any exception calls `check_memory` first.
"""

from __future__ import annotations

import errno
import re

from tvm_ext.core.errors import OutOfMemory
from tvm_ext.core.processes.system import limit_addresses, most_used_bytes

_SAID = re.compile(
    r"bad_alloc|[Cc]an(?:no|')t allocate (?:memory|\d)|[Oo]ut of memory|memory exhausted|not enough memory|"
    r"failed to map segment|[Mm]emory allocation (?:still )?failed|can't start new thread|Killed signal terminated"
)
_NEAR_BYTES = 512 << 20
"""Least free address space below a limit that TVM's, PyTorch's or onnxruntime's libraries need to be mapped."""


def check_memory(error: BaseException) -> None:
    """Raise OutOfMemory where an exception, or one of its causes, reports that memory ran out."""
    if said := _said_by(error):
        raise OutOfMemory(message(said)) from None


def memory_message(error: BaseException) -> str | None:
    """Return a message for an unexpected exception where lack of memory explains it, or None.

    Under a limit that leaves no room for another library any exception may follow: a function may be missing because
    its library could not be mapped.
    """
    said = _said_by(error)
    if said is None and is_near_limit():
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return None if said is None else message(said)


def says_memory(text: str) -> bool:
    """Return True for the output of a tool or library that reports exhausted memory."""
    return bool(_SAID.search(text))


def message(said: str) -> str:
    """Return what ran out, the limit, and the way out.

    said: the words of the library that failed.
    """
    limit, used = limit_addresses(), most_used_bytes()
    if limit is None:
        return f"the machine's memory is exhausted ({said}). Close other programs, or use a smaller model."
    return (
        f"memory ran out under this process's limit ({said}): it may use {limit >> 10} KiB of addresses, and has used "
        f"{used >> 10} KiB. Raise the limit (ulimit -v, systemd's LimitAS), or remove it: ulimit -v unlimited."
    )


def is_near_limit() -> bool:
    """Return True where the process has a limit of addresses, and less is left than a library needs."""
    limit = limit_addresses()
    return limit is not None and limit - most_used_bytes() < _NEAR_BYTES


def is_limited() -> bool:
    """Return True where the process has a limit of addresses."""
    return limit_addresses() is not None


def _said_by(error: BaseException | None) -> str | None:
    """Return the words of an exception, or of one of its causes, that report exhausted memory, or None."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        text = " ".join(str(error).split())
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return text[:200] or type(error).__name__
        if found := _SAID.search(text):
            return text[max(0, found.start() - 60) : found.end() + 60]
        error = error.__cause__ or error.__context__
    return None
