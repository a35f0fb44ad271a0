"""Make a model fit its memory: a search over whole runs of the pipeline.

`methods.py` is the table of methods, and `next_try.py` decides which method and budget is tried next:

1. whole: reorder operators and overlap tensors. This costs no time.
2. split: run sequences of operators row by row through ring buffers. This adds a few calls and computes nothing twice.
3. methods that compute values twice. heads: run attention a few heads at a time, row by row, and compute the input of
   its dense layers again for each part. patches: run strips of columns one after the other, row by row, and compute
   their halos twice. recompute: compute results again instead of keeping them. split and recompute: the same, row by
   row at the reader.
4. least scratch: whole, split, heads or patches, with slower kernels that need no scratch.

Of all results that fit, the one with the fewest predicted instructions is taken. If `whole` fits and the user set no
limit, a split that costs almost no time is taken instead (`smaller_plan.py`). With streamed inputs every method is a
split: the cheapest that keeps only rows of the inputs; if none fits, heads, patches, and kernels without scratch. If
`quantize = "auto"`, all methods are tried again with the model in int8, last of all. A plan that the validator rejects
is a defect of tvm_ext: it is reported and skipped.
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
from tvm_ext.fitting.next_try import Cores, Tried, likely_tries
from tvm_ext.fitting.smaller_plan import METHOD as SMALLER
from tvm_ext.fitting.smaller_plan import is_worth, may_shrink, smaller_tries


def fit(fitter: Fitter, platform: Platform, options: BuildOptions) -> tuple[Compiled, Way]:
    """Return the best result within the limits, with all attempts (the chosen last), and how it was compiled.

    Raises DoesNotFit with the smallest budget that can be met and options that could help; PlanRejected if the
    validator rejects every plan.
    """
    return _taken(fitter, platform, options, search(fitter, platform, options))


def fit_in_flash(
    fitter: Callable[[bool], Fitter],
    platform: Platform,
    options: BuildOptions,
) -> tuple[Compiled, Way]:
    """Fit a model with and without pre-transformed weights, and return the better result.

    Kernels with pre-transformed weights take more scratch, which leaves less memory for tensors; the second search only
    runs if the first did not fit at once and uses kernels of this kind. fitter: returns the fitter; its argument is
    True to forbid pre-transformed weights. Raises the errors of `fit`.
    """
    first = fitter(options.least_flash)
    found = search(first, platform, options)
    if _fits_at_once(found):
        return _taken(first, platform, options, _with_smaller_plan(first, platform, options, found))
    if not _has_grown(first, found, options):
        return _taken(first, platform, options, found)
    other, least = fitter(True), replace(options, least_flash=True)
    direct = search(other, platform, least)
    if _worth(direct) < _worth(found):
        return _taken(other, platform, least, direct)
    return _taken(first, platform, options, found)


def _with_smaller_plan(fitter: Fitter, platform: Platform, options: BuildOptions, found: Found) -> Found:
    """Add the tries of a smaller plan to a search that whole layers ended; it is the best result if it is worth it.

    If tensors lie in several memories, the search for them has already chosen rows or whole layers by time.
    """
    whole, method = found.results[0], next((one for one in found.methods if one.name == SMALLER), None)
    if method is None or not may_shrink(options, platform):
        return found
    known = fitter.outcome((found.method(whole), whole.one), options, iter(()))
    if sum(bool(num_bytes) for num_bytes in known.num_bytes.values()) > 1:
        return found
    limits = {**options.limits_bytes(platform), platform.activations: options.limit_bytes(platform)}
    results = list(found.results)
    for one in smaller_tries(fitter.offers(method), whole, known.cost.terms):
        outcome = fitter.outcome((method, one), options, iter(()))
        results.append(outcome.within(one, limits, platform.activations))
        if outcome.rejected is not None:
            _say(one.method, outcome.rejected, platform)
        elif results[-1].fits and is_worth(outcome.cost, known.cost):
            return replace(found, results=tuple(results), smaller=results[-1])
    return replace(found, results=tuple(results), smaller=whole)


def _taken(
    fitter: Fitter,
    platform: Platform,
    options: BuildOptions,
    found: Found,
) -> tuple[Compiled, Way]:
    """Return the best result of a search with its attempts. Raises DoesNotFit, PlanRejected."""
    best = found.best
    if best is None:
        raise nothing_fits(fitter, platform, options, found)
    first = next(
        other.instructions
        for other in found.results
        if other.arena_bytes is not None and (other.one.cores == best.one.cores)
    )
    attempts = [_attempt(other, first) for other in found.results if other is not best and _is_told(other)]
    method = found.method(best)
    compiled = fitter.compiled(method, best.one, options)
    assert compiled is not None, "a result that fits was compiled"
    taken = replace(compiled, attempts=(*attempts, _attempt(best, first)))
    return taken, fitter.way(method, best.one.index)


def _fits_at_once(found: Found) -> bool:
    """Return True if the first try is the best result and belongs to the first group of methods."""
    return found.best is found.results[0] and found.method(found.best).group == 0


def _has_grown(fitter: Fitter, found: Found, options: BuildOptions) -> bool:
    """Return True if a layer of the first result uses a kernel with pre-transformed weights."""
    if options.least_flash or not found.reached:
        return False
    compiled = fitter.compiled(found.method(found.reached[0]), found.reached[0].one, options)
    return compiled is not None and compiled.program.has_grown_weights


def _worth(found: Found) -> tuple[float, ...]:
    """Return the rank of a search, lower is better: by the cost of the best fit, or by the smallest arena reached."""
    best = found.best
    if best is not None:
        return 0, *found.rank(best)
    return 1, min((tried.arena_bytes or 0 for tried in found.reached), default=inf)


def _is_told(tried: Tried) -> bool:
    """Return True if the report lists the try: not if its pass changed nothing, or it was repeated with less memory."""
    return not tried.over_bytes and (tried.arena_bytes is not None or tried.rejected is not None)


def _attempt(tried: Tried, first: int) -> Attempt:
    """Return a try as an entry of the report. first: predicted instructions of the first try."""
    if tried.arena_bytes is None:
        return Attempt(method=tried.one.method, arena_bytes=None, added_instructions=None, rejected=tried.rejected)
    return Attempt(
        method=tried.one.method, arena_bytes=tried.arena_bytes, added_instructions=tried.instructions - first,
        cores=tried.num_cores,
    )  # fmt: skip


def nothing_fits(fitter: Fitter, platform: Platform, options: BuildOptions, found: Found) -> DoesNotFit | PlanRejected:
    """Return the error for a model that no method makes fit."""
    rejected = [f"{tried.one.method}: {tried.rejected}" for tried in found.results if tried.rejected is not None]
    if not found.reached:
        return PlanRejected(
            f"the validator rejected every memory plan. {'; '.join(rejected)} This is a defect of tvm-ext: please "
            "report it with the model file and the options."
        )
    least: dict[str, int] = {}
    for tried in found.reached:
        num_bytes = tried.arena_bytes or 0
        least[tried.one.method] = min(num_bytes, least.get(tried.one.method, num_bytes))
    smallest = min(found.reached, key=lambda tried: tried.arena_bytes or 0)
    compiled = fitter.compiled(found.method(smallest), smallest.one, options)
    assert compiled is not None, "a result with an arena was compiled"
    is_arena = (smallest.arena_bytes or 0) > options.limit_bytes(platform)
    nearest = nearest_bytes(fitter, platform, options, found) if is_arena else None
    said = [
        _excess(compiled, options),
        *_what_helps(compiled, options),
        *([f"The nearest budget that can be met is {nearest} B."] if nearest is not None else []),
        *([found.refused] if found.refused else []),
        *([f"Rejected because of a defect of tvm-ext: {'; '.join(rejected)}."] if rejected else []),
        f"Best of each method: {'; '.join(f'{method}: {num_bytes} B' for method, num_bytes in least.items())}.",
    ]
    return DoesNotFit(" ".join(said), nearest_bytes=nearest, least_bytes=least)


def _excess(compiled: Compiled, options: BuildOptions) -> str:
    """Return the message that says why a result does not fit."""
    platform, most = compiled.platform, options.limits_bytes(compiled.platform)
    limits = {platform.activations: options.limit_bytes(platform)}
    limits |= {memory: most[memory] for memory in ports_beside(compiled)}
    try:
        check_capacity(compiled.program, compiled.plan, platform, limits)
    except DoesNotFit as error:
        return str(error)
    raise AssertionError("the result fits, but the search rejected it")


def _what_helps(compiled: Compiled, options: BuildOptions) -> list[str]:
    """Return sentences on options that would reduce the memory and were not given."""
    helps: list[str] = []
    if options.quantize == "none" and not compiled.is_quantized:
        helps.append("--quantize auto with calibration data uses int8 if float does not fit.")
    inputs = [compiled.program.tensors[name] for name in compiled.program.inputs]
    if options.io == "arena" and any(len(tensor.shape) == 4 and tensor.shape[0] == 1 for tensor in inputs):
        helps.append("--io stream keeps only rows of the input in memory.")
    if (
        options.io == "stream"
        and not options.reread
        and any(kind.implementation.callback for kind in compiled.program.kernel_calls())
    ):
        helps.append(
            "--reread reads the rows of the input once for each strip of columns, if your input can be read again."
        )
    return helps


@dataclass(frozen=True, kw_only=True)
class Found:
    """Results of all tries within a limit. methods: that can compile the model. refused: why int8 methods cannot.

    smaller: the result to take, if a smaller plan was sought for a model that fits anyway.
    """

    results: tuple[Tried, ...]
    methods: tuple[FitMethod, ...]
    refused: str = ""
    smaller: Tried | None = None

    @property
    def best(self) -> Tried | None:
        """The result to take; None if no result fits."""
        if self.smaller:
            return self.smaller
        return min((tried for tried in self.results if tried.fits), key=self.rank, default=None)

    @property
    def single_cycles(self) -> float:
        """The fewest cycles that a result is predicted to take on one core."""
        return min((tried.single_cycles for tried in self.results if tried.single_cycles), default=0.0)

    def rank(self, tried: Tried) -> tuple[float, ...]:
        """Return the rank of a result that fits, lower is better: cores add up instructions, but not time."""
        cost = tried.instructions if tried.one.cores == "any" else tried.cycles
        return self.method(tried).group, cost

    @property
    def reached(self) -> list[Tried]:
        """Results with a valid plan that is within the limits of all memories except the default one."""
        return [tried for tried in self.results if tried.arena_bytes is not None and not tried.over_bytes]

    def method(self, tried: Tried) -> FitMethod:
        """Return the method of a result."""
        return next(method for method in self.methods if method.name == tried.one.method)


def search(
    fitter: Fitter, platform: Platform, options: BuildOptions, methods: tuple[FitMethod, ...] | None = None
) -> Found:
    """Compile try after try until no better result is possible. methods: None for all.

    On several cores, all methods are tried with all cores before any is tried with the first core alone, which is only
    done if nothing fits, or if one core might be faster. Raises UnsupportedModel.
    """
    methods = fit_methods(options) if methods is None else methods
    if not _may_share(options, platform):
        return _search(fitter, platform, options, methods, "any")
    shared = _search(fitter, platform, options, methods, "all")
    best = shared.best
    if best and shared.method(best).group == 0 and best.cycles <= shared.single_cycles:
        return shared
    last = shared.method(best).group if best else max(method.group for method in methods)
    within = tuple(method for method in shared.methods if method.group <= last)
    alone = _search(fitter, platform, options, within, "first")
    return replace(shared, results=(*shared.results, *alone.results), refused=shared.refused or alone.refused)


def _may_share(options: BuildOptions, platform: Platform) -> bool:
    """Return True if every try of a build is made for all cores first.

    Stages of a pipeline, accelerators, and cores that are chosen for their energy give up the other cores try by try.
    """
    return (
        len(options.cores_of(platform)) > 1
        and not options.offloads_of(platform)
        and options.placement_objective == "makespan"
    )


def _search(
    fitter: Fitter, platform: Platform, options: BuildOptions, methods: tuple[FitMethod, ...], cores: Cores
) -> Found:
    """Compile try after try on some cores until no better result is possible. Raises UnsupportedModel."""
    limit = options.limit_bytes(platform)
    limits = {**options.limits_bytes(platform), platform.activations: limit}
    results: list[Tried] = []
    refused = ""
    while (tries := likely_tries(methods, fitter.offers, results, limit, fitter.known_offers, cores)) and (
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
    """Return the smallest budget of the default memory that can be met, after a search without a fit.

    This is the smallest arena of the tries if a search within that budget finds a fit again. Otherwise it is the
    smallest budget at which the search is certain to try an offer of that size. Tries for all cores do not count,
    because they skip offers.
    """
    arenas = [(tried.arena_bytes or 0, tried.one) for tried in found.reached if tried.one.cores != "all"]
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
    """Warn the user of a plan that the validator rejected."""
    warnings.warn(
        f"{method}: this plan was rejected and is not used: {rejected} This is a defect of tvm-ext, not of the "
        "model; other methods are tried. Please report it with this line, the model file, the options, platform "
        f"{platform.name}, and tvm-ext {version('tvm-ext')}.",
        DefectNotice,
        stacklevel=3,
    )
