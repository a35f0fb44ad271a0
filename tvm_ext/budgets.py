"""One model within many budgets of the default memory; what they share is done once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import tvm

from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.fitting.fit import nothing_fits
from tvm_ext.fitting.search import nearest_bytes, search
from tvm_ext.load import load
from tvm_ext.model_forms import forms_of, streamed_forms
from tvm_ext.pipeline import fitter_of, refuse_tune
from tvm_ext.services.job import OpenServices

STEPS = 8


@dataclass(frozen=True, kw_only=True)
class Point:
    """One way to run a model: bytes of arena in the default memory, instructions as modelled, how it was reached."""

    arena_bytes: int
    modelled_instructions: int
    method: str


class Budgets:
    """One model, ready for any budget. services: they compile it in several ways at once."""

    def __init__(
        self, mod: tvm.IRModule, platform: Platform, options: BuildOptions, services: OpenServices | None = None
    ) -> None:
        refuse_tune(options, "a search over budgets")
        forms = streamed_forms(forms_of(load(mod), platform, options, None), options)
        self._fitter = fitter_of(forms, platform, options, services)
        self._platform, self._options = platform, options

    def point(self, budget: int | None) -> Point:
        """The point within a budget of the default memory. Raises DoesNotFit."""
        options = replace(self._options, ram=budget)
        found = search(self._fitter, self._platform, options)
        best = found.best
        if best is None:
            raise nothing_fits(self._fitter, self._platform, options, found)
        return Point(arena_bytes=best.arena_bytes or 0, modelled_instructions=best.instructions, method=best.one.method)

    def least_bytes(self) -> int:
        """The least budget that can be met. Raises DoesNotFit where it is not the arena that is too large."""
        options = replace(self._options, ram=1)
        found = search(self._fitter, self._platform, options)
        if found.best is not None:
            return max(1, found.best.arena_bytes or 0)
        if all((tried.arena_bytes or 0) <= 1 for tried in found.reached):
            raise nothing_fits(self._fitter, self._platform, options, found)
        return nearest_bytes(self._fitter, self._platform, options, found)


def budgets_of(most: int, least: int) -> list[int]:
    """Budgets between the most bytes that a model takes and the least that it can do with."""
    return [most - (most - least) * step // (STEPS - 1) for step in range(1, STEPS)]
