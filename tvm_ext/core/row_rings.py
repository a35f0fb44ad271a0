"""Rings that two results of a row sequence share: an output written over the rows of its input that are done with.

An operator that reads what a row needs before it writes the row may put it where the oldest row of its input lies:
output row r lies where row r - lag of the input lay. One ring then holds the input's rows still to be read, and behind
them the output's. Such guests may have guests of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tvm_ext.core.row_sequence import RowSequence


@dataclass(frozen=True, kw_only=True)
class Guest:
    """An operator's output that may lie in the ring of its producer `host`, `lag` rows behind its place there."""

    host: int
    lag: int


@dataclass(frozen=True)
class RowRings:
    """guests: by operator, those that may share a ring; each host has one, and its output no other reader."""

    sequence: RowSequence
    guests: Mapping[int, Guest]

    @cached_property
    def _guest_of(self) -> dict[int, int]:
        return {guest.host: index for index, guest in self.guests.items()}

    def _chain(self, host: int) -> list[tuple[int, int]]:
        """(operator, its lag behind the host) of a host and all that might share its ring."""
        found = [(host, 0)]
        while (guest := self._guest_of.get(found[-1][0])) is not None:
            found.append((guest, found[-1][1] + self.guests[guest].lag))
        return found

    @cached_property
    def _rows(self) -> tuple[tuple[int, ...], ...]:
        """Per operator, rows of a ring for itself, for itself and a guest, and so on; 0 where nobody reads it."""
        consumers = self.sequence.consumers
        needs = [[(index, reader.needed_from) for index, reader in readers] for readers in consumers]
        chains = [
            [(needs[index], lag) for index, lag in self._chain(host)] if consumers[host] else []
            for host in range(len(needs))
        ]
        made = [0] * len(chains)
        most = [[0] * max(1, len(chain)) for chain in chains]
        for host, _, end in self.sequence.calls:
            made[host] = needed = end
            for depth, (readers, lag) in enumerate(chains[host]):
                for index, needed_from in readers:
                    needed = min(needed, needed_from[made[index]] - lag)
                most[host][depth] = max(most[host][depth], end - needed)
        return tuple(map(tuple, most))

    @cached_property
    def _depths(self) -> tuple[int, ...]:
        """Number of guests in each operator's ring, were it a host: all that need no more rows together than apart."""
        depths = [0] * len(self._rows)
        for host in reversed(range(len(depths))):
            guest = self._guest_of.get(host)
            if guest is not None:
                together = self._rows[host][1 + depths[guest]]
                apart = self._rows[host][0] + self._rows[guest][depths[guest]]
                if together <= apart and together < self.sequence.operators[host].num_rows:
                    depths[host] = 1 + depths[guest]
        return tuple(depths)

    def rows(self) -> tuple[int, ...]:
        """Per operator, rows of its ring and of all that lie in it, were it not in another one itself."""
        return tuple(rows[depth] for rows, depth in zip(self._rows, self._depths, strict=True))

    def shared(self) -> dict[int, Guest]:
        """The guests that lie in their hosts' rings."""
        return {index: guest for index, guest in self.guests.items() if self._depths[guest.host]}

    def lying(self) -> tuple[tuple[int, ...], ...]:
        """Per operator, those whose outputs lie in its ring themselves, not in a guest's."""
        found: list[tuple[int, ...]] = [()] * len(self._rows)
        for index, guest in self.shared().items():
            found[guest.host] = (*found[guest.host], index)
        return tuple(found)


def possible_guests(sequence: RowSequence, row_bytes: Sequence[int], apart: Sequence[bool]) -> dict[int, Guest]:
    """Guests by operator: outputs of the host's number and size of rows, where nobody else reads the host's.

    row_bytes: of each operator's output. apart: whether an output has a place of its own, as it outlives the sequence.
    """
    found: dict[int, Guest] = {}
    for index, operator in enumerate(sequence.operators):
        if apart[index] or not sequence.consumers[index]:
            continue
        for reader in operator.readers:
            host, lag = reader.producer, reader.lag
            if host is None or lag is None or apart[host] or len(sequence.consumers[host]) > 1:
                continue
            same_rows = sequence.operators[host].num_rows == operator.num_rows
            if same_rows and row_bytes[host] == row_bytes[index]:
                found[index] = Guest(host=host, lag=lag)
                break
    return found
