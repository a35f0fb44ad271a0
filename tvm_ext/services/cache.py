"""Results by the names of their jobs, in a folder: what was computed once is read back, in any later run.

An entry holds the name of its job and a digest of itself. An entry that does not parse, that is damaged or cut off,
that belongs to another job or is no plain file is computed again and replaced. Nothing here tells an entry that this
program wrote from one that somebody else made up with a digest: who writes to the folder is trusted with figures.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from tvm_ext.core.errors import BadInput
from tvm_ext.core.processes.system import NO_LINK, PLAIN_FILE_FLAGS
from tvm_ext.services.job import Job, JobOutcome, OpenServices

FOLDER = "TVM_EXT_CACHE"
"""Environment variable: the folder of the cache."""


_MOST_BYTES = 64 << 20
_FIELDS = {"key": str, "result": str | None, "kind": str, "problem": str}
"""Fields of an entry and their types."""


class Services(Protocol):
    """Whoever does jobs."""

    def outcomes(self, jobs: Iterable[Job]) -> Generator[tuple[int, JobOutcome]]: ...

    def opened(self) -> AbstractContextManager[OpenServices]: ...


def default_folder() -> Path:
    """The folder that TVM_EXT_CACHE names, else one of the user's."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(FOLDER) or home / "tvm_ext")


@dataclass(frozen=True, kw_only=True)
class ResultCache:
    """A folder of results. suffix: joined to jobs' names, for outcomes that limits decide, too."""

    folder: Path
    suffix: str = ""

    def __post_init__(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise BadInput(
                f"{self.folder}: cannot hold a cache: {error.strerror}; give --cache another folder."
            ) from None

    def get(self, key: str) -> JobOutcome | None:
        """The outcome that was kept; None where there is none, or where the entry is not what `put` writes for it."""
        with suppress(OSError, ValueError, RecursionError):
            digest, _, text = _read_plain(self._place(key)).partition(b"\n")
            if digest != hashlib.sha256(text).hexdigest().encode():
                return None
            kept = json.loads(text)
            if not isinstance(kept, dict) or not _is_entry(fields := cast("dict[str, Any]", kept), key + self.suffix):
                return None
            result, kind, problem = fields["result"], fields["kind"], fields["problem"]
            return JobOutcome(result=None if result is None else result.encode("latin-1"), kind=kind, problem=problem)
        return None

    def put(self, key: str, outcome: JobOutcome) -> None:
        """Keep an outcome, whole or not at all. A full disk keeps nothing: the result is there all the same."""
        result = outcome.result
        kept = {**asdict(outcome), "key": key + self.suffix}
        kept["result"] = None if result is None else result.decode("latin-1")
        text = json.dumps(kept, sort_keys=True).encode()
        place = self._place(key)
        with suppress(OSError):
            place.parent.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
                try:
                    file.write(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
                    file.flush()
                    os.replace(file.name, place)
                except OSError:
                    os.unlink(file.name)
                    raise

    def _place(self, key: str) -> Path:
        name = key + self.suffix
        return self.folder / name[:2] / name[2:]


def _read_plain(path: Path) -> bytes:
    """Bytes of a file. Raises OSError for a link, for what is no plain file, and for one that is too large."""
    with open(os.open(path, os.O_RDONLY | NO_LINK | PLAIN_FILE_FLAGS), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            raise OSError("is no entry")
        return file.read(_MOST_BYTES)


def _is_entry(fields: dict[str, Any], name: str) -> bool:
    """True for the fields of an outcome of that job: a result, or the class of an error and its text."""
    if fields.keys() != _FIELDS.keys() or not all(isinstance(fields[key], kind) for key, kind in _FIELDS.items()):
        return False
    return fields["key"] == name and (fields["result"] is None) == bool(fields["kind"])


def remembered(
    services: Services,
    cache: ResultCache,
    jobs: Iterable[Job],
    *,
    again: bool = False,
    accepts: Callable[[JobOutcome], bool] = lambda _: True,
) -> Iterator[tuple[int, JobOutcome]]:
    """Outcomes by index, as they come: those that the cache has at once, the others from services, and kept.

    again: jobs that came to nothing are done once more. accepts: false for an outcome of the cache that no such job
    has; the job is done again.
    """
    asked: list[tuple[int, str]] = []
    known: list[tuple[int, JobOutcome]] = []

    def unknown() -> Iterator[Job]:
        for index, job in enumerate(jobs):
            kept = cache.get(key := job.key)
            if kept is not None and accepts(kept) and not (again and kept.result is None):
                known.append((index, kept))
                continue
            asked.append((index, key))
            yield job

    for place, outcome in services.outcomes(unknown()):
        index, key = asked[place]
        cache.put(key, outcome)
        yield from _drained(known)
        yield index, outcome
    yield from _drained(known)


def _drained(known: list[tuple[int, JobOutcome]]) -> Iterator[tuple[int, JobOutcome]]:
    while known:
        yield known.pop(0)
