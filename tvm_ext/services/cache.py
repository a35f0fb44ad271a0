"""Cache of job results in a folder, by the names of the jobs, for later runs.

An entry holds the name of its job and a digest of its content. A damaged entry, an entry of another job, and an entry
that is not a regular file are computed again and replaced. The digest is no signature: everyone who can write to the
folder can forge an entry, and is trusted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from tvm_ext.core.errors import BadInput
from tvm_ext.core.files.kept_files import read_kept, write_kept
from tvm_ext.services.job import Job, JobOutcome, OpenServices

_FIELDS = {"key": str, "result": str | None, "kind": str, "problem": str}
"""Fields of an entry and their types."""


class Services(Protocol):
    """Workers that run jobs."""

    def outcomes(self, jobs: Iterable[Job | JobOutcome]) -> Generator[tuple[int, JobOutcome]]: ...

    def opened(self) -> AbstractContextManager[OpenServices]: ...


@dataclass(frozen=True, kw_only=True)
class ResultCache:
    """A folder of results. suffix: appended to names of jobs, for settings that affect outcomes, such as limits."""

    folder: Path
    suffix: str = ""

    def __post_init__(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise BadInput(
                f"{self.folder}: the cache folder cannot be created: {error.strerror}; give --cache another folder."
            ) from None

    def get(self, key: str) -> JobOutcome | None:
        """Return the cached outcome; None if there is no entry, or the entry is not valid for this job."""
        text = read_kept(self._place(key))
        if text is None:
            return None
        with suppress(ValueError, RecursionError):
            kept = json.loads(text)
            if not isinstance(kept, dict) or not _is_entry(fields := cast("dict[str, Any]", kept), key + self.suffix):
                return None
            result, kind, problem = fields["result"], fields["kind"], fields["problem"]
            return JobOutcome(result=None if result is None else result.encode("latin-1"), kind=kind, problem=problem)
        return None

    def put(self, key: str, outcome: JobOutcome) -> None:
        """Store an outcome as a whole or not at all. A failure, such as a full disk, is ignored: the result is kept."""
        result = outcome.result
        kept = {**asdict(outcome), "key": key + self.suffix}
        kept["result"] = None if result is None else result.decode("latin-1")
        write_kept(self._place(key), json.dumps(kept, sort_keys=True).encode())

    def _place(self, key: str) -> Path:
        name = key + self.suffix
        return self.folder / name[:2] / name[2:]


def _is_entry(fields: dict[str, Any], name: str) -> bool:
    """Return True if the fields are an outcome of the named job: a result, or the class and text of an error."""
    if fields.keys() != _FIELDS.keys() or not all(isinstance(fields[key], kind) for key, kind in _FIELDS.items()):
        return False
    return fields["key"] == name and (fields["result"] is None) == bool(fields["kind"])


def remembered(
    services: Services,
    cache: ResultCache,
    jobs: Iterable[Job | JobOutcome],
    *,
    again: bool = False,
    accepts: Callable[[JobOutcome], bool] = lambda _: True,
) -> Iterator[tuple[int, JobOutcome]]:
    """Yield (index, outcome) of each job as it is ready: from the cache, or from the services, which is then cached.

    An outcome among the jobs is yielded, and not cached. Memory only holds jobs without an outcome.
    again: True to run jobs again whose cached outcome is an error. accepts: returns False for an invalid outcome in the
    cache, whose job is then run again.
    """
    asked: dict[int, str] = {}

    def known_or_asked() -> Iterator[Job | JobOutcome]:
        for index, job in enumerate(jobs):
            if isinstance(job, JobOutcome):
                yield job
                continue
            kept = cache.get(key := job.key)
            if kept is not None and accepts(kept) and not (again and kept.result is None):
                yield kept
            else:
                asked[index] = key
                yield job

    for index, outcome in services.outcomes(known_or_asked()):
        if (key := asked.pop(index, None)) is not None:
            cache.put(key, outcome)
        yield index, outcome
