"""Outcomes of cases: ends that are right, ends to look at, and failures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

AGREES = "compiled and agrees"
WITHOUT_REFERENCE = "compiled, no reference"
READ = "read"
REFUSED = "refused"
SKIPPED = "skipped"
ACCEPTED = "accepted although the runtime refuses"
SLOW = "refused late or large"
UNVERIFIED = "rejected by verification, damaged file"
FOREIGN = "foreign exception"
RAN = "ran, wrote or connected"
SIGNAL = "signal"
OVER_TIME = "over time"
OVER_MEMORY = "over memory"
WRONG = "wrong answer"
NOT_FINITE = "wrong answer where values are not finite"
REJECTED = "plan rejected"
UNBUILT = "C not built or not run"
VERIFICATION = "verification failed, valid model"

# Where sums overflow, their order decides between an infinity and NaN; no format fixes it.
WARNINGS = (ACCEPTED, SLOW, UNVERIFIED, NOT_FINITE)
FAILURES = (RAN, FOREIGN, SIGNAL, OVER_TIME, OVER_MEMORY, WRONG, REJECTED, UNBUILT, VERIFICATION)
KINDS = (AGREES, WITHOUT_REFERENCE, READ, REFUSED, SKIPPED, *WARNINGS, *FAILURES)

REFUSAL_S, REFUSAL_BYTES = 5.0, 1 << 30
"""Limits of a refusal, in processor seconds and in resident bytes."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """End of one case.

    error: the exception's class, the signal's name, or the reference runtime that disagrees; where: file and line of
    the project nearest to the exception; both tell failures apart. detail: the whole message.
    """

    kind: str
    error: str = ""
    where: str = ""
    detail: str = ""
    stage: str = ""
    cpu_s: float = 0.0
    peak_bytes: int = 0

    @property
    def is_failure(self) -> bool:
        return self.kind in FAILURES

    @property
    def is_interesting(self) -> bool:
        """True for a failure or a warning."""
        return self.kind in (*FAILURES, *WARNINGS)

    @property
    def signature(self) -> tuple[str, str, str]:
        """The same for cases that most likely have the same cause."""
        return self.kind, self.error, self.where

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
