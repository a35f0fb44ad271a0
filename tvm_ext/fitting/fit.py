"""Make a model fit its memory: a search over whole runs of the pipeline.

`methods.py` is the table of what may be tried, and `next_try.py` decides what is tried next:

1. whole: operators reordered, tensors overlapping; costs nothing.
2. split: sequences of operators run row by row through rings; a few more calls, nothing computed twice.
3. what computes twice: heads, attention a few heads after the other, by rows, whose dense layers' input is computed
   again for each; patches, strips of columns one after the other, each row by row, with halos that are computed
   twice; recompute, results computed again instead of kept; split and recompute, the same row by row where they are
   read.
4. least scratch: whole, split, heads or patches, with kernels that need no buffers of their own; they are slower.

Of all that fits the one of fewest modelled instructions is taken. With streamed inputs every way is a split: the
cheapest in which only rows of the inputs are kept, and where none fits, heads, patches, and kernels without buffers.
Where `quantize = "auto"` allows it, all of it is tried again with the model in int8, last of all. A plan that the
validator rejects is a defect of ours: it is reported and skipped.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from math import inf

from codegen_c.arena.plan import check_capacity
from codegen_c.backend.build import Attempt, Compiled
from tvm_ext.core.errors import DefectNotice, DoesNotFit, PlanRejected, UnsupportedModel
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.fitting.fitter import Fitter, Way, ports_beside
from tvm_ext.fitting.methods import FitMethod, fit_methods
from tvm_ext.fitting.next_try import Tried, likely_tries


def fit(fitter: Fitter, platform: Platform, options: BuildOptions) -> tuple[Compiled, Way]:
    """The best result within the limits, with all attempts on it, the one taken last, and how it was compiled.

    Raises DoesNotFit naming the nearest that can be had, and what else could help; PlanRejected where every plan is.
    """
    return _taken(fitter, platform, options, search(fitter, platform, options))


def fit_in_flash(
    fitter: Callable[[bool], Fitter],
    platform: Platform,
    options: BuildOptions,
) -> tuple[Compiled, Way]:
    """`fit`, where a model has to be made to fit also without weights that grow for speed; the better of both.

    Kernels of such weights take more scratch, which leaves less memory for tensors. fitter: by whether weights may not
    grow. Raises what `fit` does.
    """
    first = fitter(options.least_flash)
    found = search(first, platform, options)
    if _fits_at_once(found) or not _has_grown(first, found, options):
        return _taken(first, platform, options, found)
    other, least = fitter(True), replace(options, least_flash=True)
    direct = search(other, platform, least)
    if _worth(direct) < _worth(found):
        return _taken(other, platform, least, direct)
    return _taken(first, platform, options, found)


def _taken(
    fitter: Fitter,
    platform: Platform,
    options: BuildOptions,
    found: Found,
) -> tuple[Compiled, Way]:
    best = found.best
    if best is None:
        raise nothing_fits(fitter, platform, options, found)
    first = next(other.instructions for other in found.results if other.arena_bytes is not None)
    attempts = [_attempt(other, first) for other in found.results if other is not best and _is_told(other)]
    method = found.method(best)
    compiled = fitter.compiled(method, best.one, options)
    assert compiled is not None, "a result that fits is one"
    taken = replace(compiled, attempts=(*attempts, _attempt(best, first)))
    return taken, fitter.way(method, best.one.index)


def _fits_at_once(found: Found) -> bool:
    """True where the first try is the best, and of the ways that are looked at first."""
    return found.best is found.results[0] and found.method(found.best).group == 0


def _has_grown(fitter: Fitter, found: Found, options: BuildOptions) -> bool:
    """True where kernels whose weights grow are the best for any layer of the first result."""
    if options.least_flash or not found.reached:
        return False
    compiled = fitter.compiled(found.method(found.reached[0]), found.reached[0].one, options)
    return compiled is not None and compiled.program.has_grown_weights


def _worth(found: Found) -> tuple[float, ...]:
    """Rank of what a search came to, the better the less: by what it costs, or by the least that was reached."""
    best = found.best
    if best is not None:
        return 0, found.method(best).group, best.instructions
    return 1, min((tried.arena_bytes or 0 for tried in found.reached), default=inf)


def _is_told(tried: Tried) -> bool:
    """True for a part of the report: all but tries that found nothing, or that were to be tried with less."""
    return not tried.over_bytes and (tried.arena_bytes is not None or tried.rejected is not None)


def _attempt(tried: Tried, first: int) -> Attempt:
    """A try as the report has it. first: modelled instructions of the first one."""
    if tried.arena_bytes is None:
        return Attempt(method=tried.one.method, arena_bytes=None, added_instructions=None, rejected=tried.rejected)
    return Attempt(
        method=tried.one.method, arena_bytes=tried.arena_bytes, added_instructions=tried.instructions - first
    )


def nothing_fits(fitter: Fitter, platform: Platform, options: BuildOptions, found: Found) -> DoesNotFit | PlanRejected:
    """The error of a model that nothing makes fit."""
    rejected = [f"{tried.one.method}: {tried.rejected}" for tried in found.results if tried.rejected is not None]
    if not found.reached:
        return PlanRejected(
            f"every plan was rejected. {'; '.join(rejected)} This is a defect of tvm-ext: please report it with the "
            "model file and the options."
        )
    least: dict[str, int] = {}
    for tried in found.reached:
        num_bytes = tried.arena_bytes or 0
        least[tried.one.method] = min(num_bytes, least.get(tried.one.method, num_bytes))
    smallest = min(found.reached, key=lambda tried: tried.arena_bytes or 0)
    compiled = fitter.compiled(found.method(smallest), smallest.one, options)
    assert compiled is not None, "it has come to an arena"
    is_arena = (smallest.arena_bytes or 0) > options.limit_bytes(platform)
    nearest = nearest_bytes(fitter, platform, options, found) if is_arena else None
    said = [
        _excess(compiled, options),
        *_what_helps(compiled, options),
        *([f"The nearest budget that can be met is {nearest} B."] if nearest is not None else []),
        *([found.refused] if found.refused else []),
        *([f"Rejected, by a defect of tvm-ext: {'; '.join(rejected)}."] if rejected else []),
        f"Tried, best shown: {'; '.join(f'{method}: {num_bytes} B' for method, num_bytes in least.items())}.",
    ]
    return DoesNotFit(" ".join(said), nearest_bytes=nearest, least_bytes=least)


def _excess(compiled: Compiled, options: BuildOptions) -> str:
    """Reason why a result does not fit, with its arena of the default memory within a limit."""
    platform, most = compiled.platform, options.limits_bytes(compiled.platform)
    limits = {platform.activations: options.limit_bytes(platform)}
    limits |= {memory: most[memory] for memory in ports_beside(compiled)}
    try:
        check_capacity(compiled.program, compiled.plan, platform, limits)
    except DoesNotFit as error:
        return str(error)
    raise AssertionError("it does not fit")


def _what_helps(compiled: Compiled, options: BuildOptions) -> list[str]:
    """Options that were not given and would take less memory."""
    helps: list[str] = []
    if options.quantize == "none" and not compiled.is_quantized:
        helps.append("--quantize auto, with calibration data, makes the model int8 where float does not fit.")
    inputs = [compiled.program.tensors[name] for name in compiled.program.inputs]
    if options.io == "arena" and any(len(tensor.shape) == 4 and tensor.shape[0] == 1 for tensor in inputs):
        helps.append("--io stream holds only rows of the input.")
    if (
        options.io == "stream"
        and not options.reread
        and any(kind.implementation.callback for kind in compiled.program.kernel_calls())
    ):
        helps.append(
            "--reread asks for rows of the input again, where they can be had, for a strip of columns each time."
        )
    return helps


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
