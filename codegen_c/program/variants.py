"""Variants: several models for one task, ordered by quality, and the choice between them by available resources."""

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
    """Available resources. current: index of the variant in use, or NONE."""

    cycles: int
    free_bytes: int
    battery_percent: int
    temperature_c: int
    current: int = NONE


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Thresholds of a variant: at least these cycles, bytes and charge, and at most this temperature."""

    cycles: int
    free_bytes: int
    battery_percent: int
    temperature_c: int

    def are_met(self, found: Resources) -> bool:
        """Return True if the available resources reach all thresholds."""
        enough = found.cycles >= self.cycles and found.free_bytes >= self.free_bytes
        return enough and found.battery_percent >= self.battery_percent and found.temperature_c <= self.temperature_c


@dataclass(frozen=True, kw_only=True)
class Margins:
    """Hysteresis: how much more than its thresholds must be available before a better variant replaces a worse one."""

    fraction: float
    battery_percent: int
    temperature_c: int

    def added_to(self, needs: Needs) -> Needs:
        """Return thresholds with the margins added. A threshold without a limit stays without one."""
        factor = 1 + Fraction(repr(self.fraction))  # exact as written: 100 plus a tenth is 110, not 111
        has_limit = needs.temperature_c < NO_LIMIT_C
        return Needs(
            cycles=min(ceil(needs.cycles * factor), _MOST),
            free_bytes=min(ceil(needs.free_bytes * factor), _MOST),
            battery_percent=needs.battery_percent + (self.battery_percent if needs.battery_percent else 0),
            temperature_c=needs.temperature_c - (self.temperature_c if has_limit else 0),
        )


def select(table: Sequence[tuple[Needs, Needs]], found: Resources) -> int:
    """Return the index of the best variant whose thresholds are met, or NONE.

    table: for each variant, best first, its thresholds without and with margins. Those with margins count while a worse
    variant, or none, is in use.
    """
    current = found.current if 0 <= found.current < len(table) else len(table)
    return next((i for i, needs in enumerate(table) if needs[i < current].are_met(found)), NONE)


def edge_cases(table: Sequence[tuple[Needs, Needs]]) -> list[Resources]:
    """Return resources that just meet, and just miss, each threshold, for each variant that may be in use."""
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
