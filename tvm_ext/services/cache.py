"""Results by the names of their jobs, in a folder: what was computed once is read back, in any later run."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from tvm_ext.core.errors import BadInput
from tvm_ext.services.job import Job, JobOutcome, OpenServices

FOLDER = "TVM_EXT_CACHE"
"""Environment variable: the folder of the cache."""


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
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"{self.folder}: cannot hold a cache: {error.strerror}; give --cache another folder."
            ) from None

    def get(self, key: str) -> JobOutcome | None:
        """The outcome that was kept; None where there is none, or what is there is damaged."""
        with suppress(OSError, ValueError, TypeError):
            digest, _, text = self._place(key).read_bytes().partition(b"\n")
            if hashlib.sha256(text).hexdigest().encode() == digest:
                kept = json.loads(text)
                result = kept.pop("result")
                return JobOutcome(result=None if result is None else result.encode("latin-1"), **kept)
        return None

    def put(self, key: str, outcome: JobOutcome) -> None:
        """Keep an outcome, whole or not at all. A full disk keeps nothing: the result is there all the same."""
        result = outcome.result
        kept = {**asdict(outcome), "result": None if result is None else result.decode("latin-1")}
        text = json.dumps(kept, sort_keys=True).encode()
        place = self._place(key)
        with suppress(OSError):
            place.parent.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
                file.write(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
            os.replace(file.name, place)

    def _place(self, key: str) -> Path:
        name = key + self.suffix
        return self.folder / name[:2] / name[2:]


def remembered(
    services: Services, cache: ResultCache, jobs: Iterable[Job], *, again: bool = False
) -> Iterator[tuple[int, JobOutcome]]:
    """Outcomes by index, as they come: those that the cache has at once, the others from services, and kept.

    again: jobs that came to nothing are done once more.
    """
    asked: list[tuple[int, str]] = []
    known: list[tuple[int, JobOutcome]] = []

    def unknown() -> Iterator[Job]:
        for index, job in enumerate(jobs):
            kept = cache.get(key := job.key)
            if kept is not None and not (again and kept.result is None):
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
