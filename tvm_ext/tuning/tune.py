"""Compile a model by measurements of its kernels: compile by predictions, measure candidates, compile again."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence

import tvm

from codegen_c.arena.memory_plan import live_profile
from codegen_c.backend.build import Compiled
from codegen_c.kernels.measurements import KernelMeasurements, KernelMethod
from codegen_c.kernels.registry import KernelCandidate
from codegen_c.program.steps import KernelCall, calls
from tvm_ext.compilation.pipeline import Compiler
from tvm_ext.core.alignment import aligned
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.core.files.kept_files import default_folder
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.at_once import at_once
from tvm_ext.core.progress import Progress, stage
from tvm_ext.execution.runner import Runner
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.services.cache import ResultCache
from tvm_ext.tuning.layers import TunedLayer, digests_of, layer_calls, layers_of, method_of
from tvm_ext.tuning.layers_program import MeasuredMethod
from tvm_ext.tuning.measure import Bench, measured_ways
from tvm_ext.tuning.record import TunedMethods, Tuning
from tvm_ext.tuning.remembered import MethodMeasurement

_COSTS_MORE = "with the kernels that measured best, a slower method would be needed to make the model fit; "
_WITH_ROOM = f"{_COSTS_MORE}the best kernels whose scratch fits into memory that is free during their layers are taken"
_NO_MORE_MEMORY = f"{_COSTS_MORE}the best kernels that take no more memory than the predicted choice are taken"
_AS_MODELLED = f"{_COSTS_MORE}the predicted choice is kept"
Made = tuple[tvm.IRModule, Compiled]
_Rung = tuple[str, KernelMeasurements]


def compile_tuned(
    compiler: Compiler,
    modelled: Made,
    platform: Platform,
    options: BuildOptions,
    jobs: int | None,
    progress: Progress | None,
    runner: Runner | None = None,
) -> tuple[tvm.IRModule, Compiled, Tuning]:
    """Compile a model with the kernels that measured best. Return its module, its C and the measurements.

    The module has the same results as the C and is used for verification. runner: of a device that measures instead of
    QEMU, a firmware at a time. A better kernel is not taken if the model then does not fit, or only by a slower method.
    Raises the errors of the compiler; BadOptions for a platform without a board; MissingTool, BuildFailed, RunFailed;
    VerificationFailed if a kernel computes a wrong result.
    """
    bench = Bench.of(platform, options, runner)
    layers = layers_of(modelled[1], options)
    cache = ResultCache(folder=default_folder())
    with stage(progress, f"measuring kernels of {len(layers)} layers on {bench.place}"):
        measurements, known = _measurements(layers, bench, cache, 1 if runner else jobs)
    found = KernelMeasurements(
        methods={
            layer.digest: {method: one.cost for method, one in measurements[layer.digest].items()} for layer in layers
        }
    )
    with stage(progress, "compiling the model by the measurements"):
        (mod, compiled), notice = _best(compiler, modelled, _rungs(modelled[1], options, layers, found), layers)
    if notice:
        warnings.warn(f"tune: {modelled[1].interface.model}: {notice}.", ModelNotice, stacklevel=2)
    chosen = {digest: method_of(calls[0]) for digest, calls in digests_of(compiled).items()}
    rows = tuple(
        TunedMethods(
            layer=layer, measurements=measurements[layer.digest], chosen=chosen.get(layer.digest, layer.modelled)
        )
        for layer in layers
    )
    tuning = Tuning(platform=platform, table=bench.table, rows=rows, known=known, notice=notice, device=bench.device)
    return mod, compiled, tuning


def _measurements(
    layers: Sequence[TunedLayer], bench: Bench, cache: ResultCache, jobs: int | None
) -> tuple[dict[str, dict[KernelMethod, MethodMeasurement]], int]:
    """Return the measurements by digest and candidate, and how many were cached."""
    asked = [
        MeasuredMethod(name=f"w{number}_{place}", layer=layer, candidate=candidate)
        for number, layer in enumerate(layers)
        for place, candidate in enumerate(layer.methods)
        if len(layer.methods) > 1
    ]
    with at_once(jobs) as threads:
        found, known = measured_ways(asked, bench, cache, threads)
    measurements: dict[str, dict[KernelMethod, MethodMeasurement]] = {layer.digest: {} for layer in layers}
    for method, one in found.items():
        measurements[method.layer.digest][method.candidate.method] = one
    return measurements, known


def _best(compiler: Compiler, modelled: Made, rungs: Iterable[_Rung], layers: Sequence[TunedLayer]) -> tuple[Made, str]:
    """First tuned build that costs no more than the baseline, and why later measurements were not used."""
    for notice, allowed in rungs:
        if _same_choice(layers, allowed):
            return modelled, notice and _AS_MODELLED
        try:
            mod, compiled = compiler(allowed)
        except DoesNotFit:
            continue
        if _fits_as_cheaply(compiled, modelled[1]):
            return (mod, compiled), notice
    return modelled, _AS_MODELLED


def _rungs(
    modelled: Compiled, options: BuildOptions, layers: Sequence[TunedLayer], measurements: KernelMeasurements
) -> Iterator[_Rung]:
    """Yield (warning, measurements) to compile by, restricted to fewer candidates each time; first all, no warning."""
    sizes = {(layer.digest, candidate.method): _memory(candidate) for layer in layers for candidate in layer.methods}
    first = {layer.digest: sizes[layer.digest, layer.modelled] for layer in layers}
    free = _free_bytes(modelled, options)
    room = {layer.digest: min(free.get(step, 0) for step in layer.steps) for layer in layers}

    def has_room(digest: str, method: KernelMethod) -> bool:
        return sizes[digest, method][0] <= first[digest][0] + room[digest]

    def takes_no_more(digest: str, method: KernelMethod) -> bool:
        return all(own <= most for own, most in zip(sizes[digest, method], first[digest], strict=True))

    yield "", measurements
    yield _WITH_ROOM, measurements.only(has_room)
    yield _NO_MORE_MEMORY, measurements.only(takes_no_more)


def _memory(candidate: KernelCandidate) -> tuple[int, int]:
    """Return the aligned bytes of scratch, and the bytes of constants, of a candidate."""
    return aligned(candidate.made.scratch_bytes), candidate.made.constant_bytes


def _free_bytes(compiled: Compiled, options: BuildOptions) -> dict[str, int]:
    """Return the free bytes of the default memory while a layer runs, by the name of its call."""
    home, program = compiled.platform.activations, compiled.program
    limit, live = options.limit_bytes(compiled.platform), live_profile(program, compiled.plan).get(home, [])
    return {
        one.name: max(0, limit - num_bytes)
        for step, num_bytes in zip(program.steps, live, strict=False)
        for call in calls(step)
        for one in (call.joined if isinstance(call, KernelCall) and call.joined else (call,))
    }


def _same_choice(layers: Sequence[TunedLayer], measurements: KernelMeasurements) -> bool:
    """Return True if the candidates that measured best are the predicted choice."""
    best = {digest: min(found, key=found.__getitem__) for digest, found in measurements.methods.items() if found}
    return all(best.get(layer.digest, layer.modelled) == layer.modelled for layer in layers)


def _fits_as_cheaply(compiled: Compiled, modelled: Compiled) -> bool:
    """Return True if making the model fit added no more predicted instructions and calls than without measurements."""
    calls, before = (len(layer_calls(one.program)) for one in (compiled, modelled))
    return calls <= before and compiled.added_instructions <= modelled.added_instructions
