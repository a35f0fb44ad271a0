"""Status codes of a package's functions; 0 is success. The process that runs a package on the host needs only these."""

from __future__ import annotations

NOT_RESET, NOT_READY = -1, -2
"""Status of a run: its states were never set; its window over time is not full yet."""

MISALIGNED = -3
"""Status of a run: the caller's block of memory is not aligned."""

FULL, EMPTY = -3, -4
"""Status of a pipeline: outputs must be taken before the next put; there is no output to take."""
