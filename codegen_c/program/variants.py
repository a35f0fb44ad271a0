"""Variants: several models for one task, ordered by quality, and the choice among them by what resources allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from fractions import Fraction
from math import ceil

NO_LIMIT_C = 1000
NONE = -1
_MOST = (1 << 32) - 1


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Amounts that are there now. current: index of the variant in use, NONE for none."""

    cycles: int
    free_bytes: int
    battery_percent: int
    temperature_c: int
    current: int = NONE


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Amounts that one variant needs: at least these cycles, bytes and charge, at most this temperature."""

    cycles: int
    free_bytes: int
    battery_percent: int
    temperature_c: int

    def are_met(self, found: Resources) -> bool:
        enough = found.cycles >= self.cycles and found.free_bytes >= self.free_bytes
        return enough and found.battery_percent >= self.battery_percent and found.temperature_c <= self.temperature_c


@dataclass(frozen=True, kw_only=True)
class Margins:
    """More than a variant's needs that is to be there before a worse one is left for it."""

    fraction: float
    battery_percent: int
    temperature_c: int

    def added_to(self, needs: Needs) -> Needs:
        """Needs with the margins; what has no limit keeps none."""
        factor = 1 + Fraction(repr(self.fraction))  # as written: 100 and a tenth of it are 110
        has_limit = needs.temperature_c < NO_LIMIT_C
        return Needs(
            cycles=min(ceil(needs.cycles * factor), _MOST),
            free_bytes=min(ceil(needs.free_bytes * factor), _MOST),
            battery_percent=needs.battery_percent + (self.battery_percent if needs.battery_percent else 0),
            temperature_c=needs.temperature_c - (self.temperature_c if has_limit else 0),
        )


def select(table: Sequence[tuple[Needs, Needs]], found: Resources) -> int:
    """Index of the best variant whose needs are met, NONE for none.

    table: for each, best first, its needs, and those with margins, which count while a worse one, or none, is in use.
    """
    current = found.current if 0 <= found.current < len(table) else len(table)
    return next((i for i, needs in enumerate(table) if needs[i < current].are_met(found)), NONE)


def edge_cases(table: Sequence[tuple[Needs, Needs]]) -> list[Resources]:
    """Resources at which each of a table's numbers is just met, and just not, for each variant that may be in use."""
    cases: dict[tuple[int, ...], Resources] = {}
    for current in range(NONE, len(table)):
        for pair in table:
            for needs in pair:
                cycles, free_bytes, battery, temperature = astuple(needs)
                for less in ((0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, -1)):
                    case = Resources(
                        cycles=max(cycles - less[0], 0), free_bytes=max(free_bytes - less[1], 0),
                        battery_percent=battery - less[2], temperature_c=temperature - less[3], current=current,
                    )  # fmt: skip
                    cases[astuple(case)] = case
    return list(cases.values())
