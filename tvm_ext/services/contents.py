"""Large inputs of jobs, which a process receives once: later jobs name them by their hash."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence

LEAST_BYTES = 16 << 10
"""Inputs from this size on are named by their hash."""
MOST_KEPT = 4
"""Number of inputs that a process keeps. Successive jobs usually share their model and its samples."""

Sent = bytes | list[str]
"""An input as it is sent: its bytes, or a list with its hash alone."""


class KeptInputs:
    """The large inputs of a worker's last jobs."""

    def __init__(self) -> None:
        self._kept = OrderedDict[str, bytes]()

    def received(self, sent: Sequence[Sent], ask: Callable[[str], bytes]) -> list[bytes]:
        """Return the inputs of a job. ask: returns the input with a hash, for an input that is not kept."""
        inputs = [one if isinstance(one, bytes) else self._input(one[0], ask) for one in sent]
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return inputs

    def _input(self, digest: str, ask: Callable[[str], bytes]) -> bytes:
        if digest not in self._kept:
            self._kept[digest] = ask(digest)
        self._kept.move_to_end(digest)
        return self._kept[digest]


class NamedInputs:
    """The inputs of a job as they are sent, and what a worker may ask for."""

    def __init__(self, inputs: Sequence[bytes]) -> None:
        self._by_digest: dict[str, bytes] = {}
        self.sent: list[Sent] = [self._sent(one) for one in inputs]

    def _sent(self, content: bytes) -> Sent:
        if len(content) < LEAST_BYTES:
            return content
        digest = hashlib.sha256(content).hexdigest()
        self._by_digest[digest] = content
        return [digest]

    def asked(self, digest: str) -> bytes:
        """Return the input with a hash."""
        return self._by_digest[digest]
