"""Tries of a model, one after the other, each decided by what came of those before, within one limit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version

from tvm_ext.core.errors import DefectNotice, UnsupportedModel
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.fitting.fitter import Fitter
from tvm_ext.fitting.methods import FitMethod, fit_methods
from tvm_ext.fitting.next_try import Tried, likely_tries


@dataclass(frozen=True, kw_only=True)
class Found:
    """Results of all tries within a limit. methods: those that compile the model; refused: why none of int8 does."""

    results: tuple[Tried, ...]
    methods: tuple[FitMethod, ...]
    refused: str = ""

    @property
    def best(self) -> Tried | None:
        """The result to take; None where nothing fits."""
        fitting = [tried for tried in self.results if tried.fits]
        return min(fitting, key=lambda tried: (self.method(tried).group, tried.instructions), default=None)

    @property
    def reached(self) -> list[Tried]:
        """Results that the validator has nothing against, within what the other memories may give."""
        return [tried for tried in self.results if tried.arena_bytes is not None and not tried.over_bytes]

    def method(self, tried: Tried) -> FitMethod:
        """The method of a result."""
        return next(method for method in self.methods if method.name == tried.one.method)


def search(
    fitter: Fitter, platform: Platform, options: BuildOptions, methods: tuple[FitMethod, ...] | None = None
) -> Found:
    """Tries one way after the other until nothing better can come. methods: None for all.

    Raises UnsupportedModel.
    """
    methods = fit_methods(options) if methods is None else methods
    limit = options.limit_bytes(platform)
    limits = {**options.limits_bytes(platform), platform.activations: limit}
    results: list[Tried] = []
    refused = ""
    while (tries := likely_tries(methods, fitter.offers, results, limit, fitter.known_offers)) and (
        one := next(tries, None)
    ):
        by_name = {method.name: method for method in methods}
        likely = ((by_name[other.method], other) for other in tries)
        try:
            outcome = fitter.outcome((by_name[one.method], one), options, likely)
        except UnsupportedModel as unsupported:
            if options.quantize != "auto" or by_name[one.method].options.quantize != "int8":
                raise
            refused = f"int8 is not possible: {unsupported}"
            methods = tuple(other for other in methods if other.options.quantize != "int8")
        else:
            results.append(outcome.within(one, limits, platform.activations))
            if outcome.rejected is not None:
                _say(one.method, outcome.rejected, platform)
    return Found(results=tuple(results), methods=methods, refused=refused)


def nearest_bytes(fitter: Fitter, platform: Platform, options: BuildOptions, found: Found) -> int:
    """The nearest budget of the default memory that can be met, where none is: the smallest arena that came out, if a
    search within that budget comes to it again, else what promises one."""
    arenas = [(tried.arena_bytes or 0, tried.one) for tried in found.reached]
    least = min(num_bytes for num_bytes, _ in arenas)
    asked = options.ram_bytes if isinstance(options.ram_bytes, Mapping) else {}
    again = replace(options, ram={**asked, platform.activations: max(1, least)})
    if search(fitter, platform, again, found.methods).best is not None:
        return least
    offers = {method.name: fitter.offers(method) for method in found.methods}
    return min(
        num_bytes if one.index == len(offers[one.method]) - 1
        else max(num_bytes, offers[one.method][one.index].arena_bytes)
        for num_bytes, one in arenas
    )  # fmt: skip


def _say(method: str, rejected: str, platform: Platform) -> None:
    """Tells the user of a plan of ours that the validator rejects."""
    warnings.warn(
        f"{method}: this plan was rejected and is not used: {rejected} This is a defect of tvm-ext, not of the "
        "model; other ways to make it fit are tried. Please report it with this line, the model file, the options, "
        f"platform {platform.name}, and tvm-ext {version('tvm-ext')}.",
        DefectNotice,
        stacklevel=3,
    )
