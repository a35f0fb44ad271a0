"""Makes a model fit the memory it may take: whole runs of the pipeline, each decided by what came of those before.

`fit_methods.py` is the table of what may be tried, `next_try.py` decides what is tried next; here it is done:

1. whole: operators reordered, tensors overlapping; costs nothing.
2. split: sequences of operators run row by row through rings; a few more calls, nothing computed twice.
3. what computes twice: patches, strips of columns one after the other, each row by row, with halos that are computed
   twice; recompute, results computed again instead of kept; split and recompute, the same row by row where they are
   read.
4. least scratch: whole, split or patches, with kernels that need no buffers of their own; they are slower.

Of all that fits the one of fewest modelled instructions is taken. With streamed inputs every way is a split: the
cheapest in which only rows of the inputs are kept. Where `quantize = "auto"` allows it, all of it is tried again with
the model in int8, last of all. A plan that the validator rejects is a defect of ours: it is said, and left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version

from codegen_c.arena.plan import check_capacity
from codegen_c.backend.build import Attempt, Compiled
from tvm_ext.core.errors import DefectNotice, DoesNotFit, PlanRejected, UnsupportedModel
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.fit_methods import FitMethod, fit_methods
from tvm_ext.fitter import Fitter, Way
from tvm_ext.next_try import Tried, Try, next_try

Result = tuple[Tried, Compiled | None]


def fit(fitter: Fitter, platform: Platform, options: BuildOptions) -> tuple[Compiled, Way]:
    """The best result within the limits, with all attempts on it, the one taken last, and how it was compiled.

    Raises DoesNotFit naming the nearest that can be had, and what else could help; PlanRejected where every plan is.
    """
    found = _searched(fitter, platform, options, fit_methods(options))
    results, by_name = found.results, {method.name: method for method in found.methods}
    for tried, _ in results:
        if tried.rejected is not None:
            _say(by_name[tried.one.method], tried.rejected, platform)
    fitting = [(tried, compiled) for tried, compiled in results if tried.fits and compiled]
    if not fitting:
        raise _nothing_fits(found, options, lambda: _nearest_bytes(fitter, platform, options, found))
    tried, compiled = min(fitting, key=lambda result: (by_name[result[0].one.method].group, result[0].instructions))
    first = next(other.instructions for other, _ in results if other.arena_bytes is not None)
    attempts = [_attempt(other, first) for other, _ in results if other is not tried and _is_told(other)]
    taken = replace(compiled, attempts=(*attempts, _attempt(tried, first)))
    return taken, fitter.way(by_name[tried.one.method], tried.one.index)


@dataclass(frozen=True, kw_only=True)
class _Found:
    """Results of all tries within a limit. methods: those that compile the model; refused: why none of int8 does."""

    results: tuple[Result, ...]
    methods: tuple[FitMethod, ...]
    refused: str


def _searched(fitter: Fitter, platform: Platform, options: BuildOptions, methods: tuple[FitMethod, ...]) -> _Found:
    """Tries one way after the other until nothing better can come."""
    limit = options.limit_bytes(platform)
    results: list[Result] = []
    refused = ""
    while one := next_try(methods, fitter.offers, [tried for tried, _ in results], limit):
        method = next(method for method in methods if method.name == one.method)
        try:
            compiled = fitter.compiled(method, one, options)
        except UnsupportedModel as unsupported:
            if options.quantize != "auto" or method.options.quantize != "int8":
                raise
            refused = f"int8 is not possible: {unsupported}"
            methods = tuple(other for other in methods if other.options.quantize != method.options.quantize)
        except PlanRejected as rejected:
            results.append((Tried(one=one, rejected=str(rejected)), None))
        else:
            results.append((_tried(one, compiled, options), compiled))
    return _Found(results=tuple(results), methods=methods, refused=refused)


def _tried(one: Try, compiled: Compiled | None, options: BuildOptions) -> Tried:
    """Outcome of a try that the validator has nothing against."""
    if compiled is None:
        return Tried(one=one)
    platform, plan = compiled.platform, compiled.plan
    limits = {} if one.is_alone else options.limits_bytes(platform)
    over = {memory: plan.bytes_in(memory) - most for memory, most in limits.items() if memory != platform.activations}
    over = {memory: num_bytes for memory, num_bytes in over.items() if num_bytes > 0}
    return Tried(
        one=one, arena_bytes=plan.bytes_in(platform.activations), instructions=compiled.modelled_instructions,
        fits=not over and _excess(compiled, options) is None, over_bytes=tuple(over.items()),
    )  # fmt: skip


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


def _say(method: FitMethod, rejected: str, platform: Platform) -> None:
    """Tells the user of a plan of ours that the validator rejects."""
    warnings.warn(
        f"{method.name}: this plan was rejected and is not used: {rejected} This is a defect of tvm-ext, not of the "
        "model; other ways to make it fit are tried. Please report it with this line, the model file, the options, "
        f"platform {platform.name}, and tvm-ext {version('tvm-ext')}.",
        DefectNotice,
        stacklevel=2,
    )


def _excess(compiled: Compiled, options: BuildOptions) -> DoesNotFit | None:
    """Reason why a result does not fit, with its arena of the default memory within a limit; None if it does."""
    platform = compiled.platform
    limits = {platform.activations: options.limit_bytes(platform)}
    try:
        check_capacity(compiled.program, compiled.plan, platform, limits)
    except DoesNotFit as error:
        return error
    return None


def _reached(found: _Found) -> list[tuple[Tried, Compiled]]:
    """Results that the validator has nothing against, within what the other memories may give."""
    return [(tried, compiled) for tried, compiled in found.results if compiled and not tried.over_bytes]


def _nearest_bytes(fitter: Fitter, platform: Platform, options: BuildOptions, found: _Found) -> int:
    """The nearest budget of the default memory that can be met, where none is: the smallest arena that came out, if a
    search within that budget comes to it again, else what promises one."""
    arenas = [(tried.arena_bytes or 0, tried.one) for tried, _ in _reached(found)]
    least = min(num_bytes for num_bytes, _ in arenas)
    asked = options.ram if isinstance(options.ram, Mapping) else {}
    again = replace(options, ram={**asked, platform.activations: max(1, least)})
    if any(tried.fits for tried, _ in _searched(fitter, platform, again, found.methods).results):
        return least
    offers = {method.name: fitter.offers(method) for method in found.methods}
    return min(
        num_bytes if one.index == len(offers[one.method]) - 1
        else max(num_bytes, offers[one.method][one.index].arena_bytes)
        for num_bytes, one in arenas
    )  # fmt: skip


def _nothing_fits(found: _Found, options: BuildOptions, nearest_bytes: Callable[[], int]) -> DoesNotFit | PlanRejected:
    """The error of a model that nothing makes fit. nearest_bytes: asked for where it is the arena that is too large."""
    results, reached = found.results, _reached(found)
    rejected = [f"{tried.one.method}: {tried.rejected}" for tried, _ in results if tried.rejected is not None]
    if not reached:
        return PlanRejected(
            f"every plan was rejected. {'; '.join(rejected)} This is a defect of tvm-ext: please report it with the "
            "model file and the options."
        )
    tried, best = min(reached, key=lambda result: result[0].arena_bytes or 0)
    least: dict[str, int] = {}
    for other, _ in reached:
        least[other.one.method] = min(other.arena_bytes or 0, least.get(other.one.method, other.arena_bytes or 0))
    is_arena = (tried.arena_bytes or 0) > options.limit_bytes(best.platform)
    nearest = nearest_bytes() if is_arena else None
    said = [
        str(_excess(best, options)),
        *_what_helps(best, options),
        *([f"The nearest budget that can be met is {nearest} B."] if nearest is not None else []),
        *([found.refused] if found.refused else []),
        *([f"Rejected, by a defect of tvm-ext: {'; '.join(rejected)}."] if rejected else []),
        f"Tried, best shown: {'; '.join(f'{method}: {num_bytes} B' for method, num_bytes in least.items())}.",
    ]
    return DoesNotFit(" ".join(said), nearest_bytes=nearest, least_bytes=least)


def _what_helps(compiled: Compiled, options: BuildOptions) -> list[str]:
    """Options that were not given and would take less memory."""
    helps: list[str] = []
    if options.quantize == "none" and not compiled.is_quantized:
        helps.append("--quantize auto, with calibration data, makes the model int8 where float does not fit.")
    inputs = [compiled.program.tensors[name] for name in compiled.program.inputs]
    if options.io == "arena" and any(len(tensor.shape) == 4 and tensor.shape[0] == 1 for tensor in inputs):
        helps.append("--io stream holds only rows of the input.")
    return helps
