"""A loaded model through all the stages: made to fit, lowered, its C planned and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from importlib.metadata import version
from typing import Protocol

import tvm
from tvm import relax

from codegen_c.backend.build import Compiled, compile_region
from codegen_c.backend.byoc import CODEGEN, CodegenBackend
from codegen_c.composites.lower_operator import remembering_lower
from codegen_c.emit.banner import Origin
from codegen_c.kernels.figures import UNMEASURED, KernelFigures
from relay_passes.dataflow import bindings, op_name, outputs
from relay_passes.simplify.orient_sequences import TimeAxis
from tvm_ext.compilation.model_forms import Forms, calibration_of, forms_of, streamed_forms
from tvm_ext.compilation.stages import (
    backend_of,
    before_order,
    computes_floats,
    cutting,
    from_memory,
    order,
    processor_costs,
    proposing,
    sharing,
)
from tvm_ext.core.decisions.composites import ProcessorPlacement, Region
from tvm_ext.core.decisions.models import (
    ChangedPorts,
    KeptStates,
    LinkedInputs,
    ModelOrigin,
    PortLayouts,
    PortNames,
    PortScales,
    PredictedTime,
    Recomputed,
    SchedulePeak,
    SplitCost,
    WarmUp,
)
from tvm_ext.core.errors import BadOptions, UnsupportedModel
from tvm_ext.core.model_nodes import with_next_names
from tvm_ext.core.options import BuildOptions, Quantize
from tvm_ext.core.platform import Platform
from tvm_ext.fitting.ahead import TriesAhead
from tvm_ext.fitting.fit import fit_in_flash
from tvm_ext.fitting.fitter import Fitter, Spread, Stages
from tvm_ext.fitting.flash import FlashTry, exceeds_flash, within_flash
from tvm_ext.frontends.calibration import Source
from tvm_ext.frontends.load import load
from tvm_ext.services.job import OpenServices

_FITTERS = 2
"""Searches of a model that are kept, for as many measurements of kernels or sets of options."""


class Compiler(Protocol):
    """A model, by the figures that its kernels are chosen by."""

    def __call__(self, figures: KernelFigures) -> tuple[tvm.IRModule, Compiled]: ...


def compile_module(mod: tvm.IRModule, platform: Platform, options: BuildOptions) -> Compiled:
    """A whole model as one region: program, memory plan, interface; made to fit where it can be.

    Raises UnsupportedModel naming what no stage can compile, DoesNotFit, BadOptions where it is to be quantized.
    """
    return compile_model(mod, platform, options)[1]


def refuse_tune(options: BuildOptions, what: str) -> None:
    """Raises BadOptions where kernels are to be measured; what: that which chooses by the model alone."""
    if options.tune:
        raise BadOptions(
            f"tune: {what} chooses kernels by modelled figures; build() measures them. Leave tune out here."
        )


def compile_within(mod: tvm.IRModule, platform: Platform, options: BuildOptions) -> Callable[[int | None], Compiled]:
    """`compile_module` for many budgets of the default memory; what they share is done once.

    Where `options.flash` is given, no weights grow for speed.
    """
    options = options if options.flash is None else replace(options, least_flash=True)
    forms = forms_of(load(mod), platform, options, None)

    @cache
    def fitter(least_flash: bool) -> Fitter:
        return fitter_of(streamed_forms(forms, options), platform, replace(options, least_flash=least_flash))

    def within(ram: int | None) -> Compiled:
        compiled = fit_in_flash(fitter, platform, replace(options, ram=ram))[0]
        if options.flash_bytes is not None and compiled.program.weights_bytes > options.flash_bytes:
            raise exceeds_flash(compiled, options)
        return compiled

    return within


def compile_model(
    mod: tvm.IRModule,
    platform: Platform,
    options: BuildOptions,
    calibration: Source | None = None,
    services: OpenServices | None = None,
) -> tuple[tvm.IRModule, Compiled]:
    """`compile_module`, and the module whose answers it gives: in QDQ form where it was quantized, of whole windows.

    calibration: as `read_calibration` takes it. services: they compile it in several ways at once, where it has to be
    made to fit. Raises BadOptions where that and `options.quantize` do not go together,
    BadInput, and what `compile_module` raises.
    """
    return compiler_of(mod, platform, options, calibration, services)(UNMEASURED)


def compiler_of(
    mod: tvm.IRModule,
    platform: Platform,
    options: BuildOptions,
    calibration: Source | None = None,
    services: OpenServices | None = None,
) -> Compiler:
    """`compile_model` for several figures of kernels, which the compiler chooses these by; it is quantized once, and
    searched once for each of the last figures.

    Raises what that does; the compiler does so, too.
    """
    loaded = load(mod)
    data = calibration_of(loaded, platform, options, calibration)

    @cache
    def known_forms(chosen: str, saved_bytes: int) -> Forms:
        return forms_of(loaded, platform, BuildOptions.from_json(chosen), data, saved_bytes=saved_bytes)

    @lru_cache(_FITTERS)
    def known_fitter(figures: KernelFigures, forms: Forms, chosen: str) -> Fitter:
        tried = BuildOptions.from_json(chosen)
        return fitter_of(streamed_forms(forms, tried), platform, tried, services, figures)

    def compiled(figures: KernelFigures, chosen: BuildOptions, saved_bytes: int) -> FlashTry:
        forms = known_forms(chosen.to_json(), saved_bytes)

        def fitter(least_flash: bool) -> Fitter:
            return known_fitter(figures, forms, replace(chosen, least_flash=least_flash).to_json())

        made, way = fit_in_flash(fitter, platform, chosen)
        if way.options.quantize == "int8" and not computes_floats(platform, chosen):
            refuse_floats(made)
        return FlashTry(module=forms(way.options.quantize), compiled=made, quantize=way.options.quantize)

    def compiler(figures: KernelFigures) -> tuple[tvm.IRModule, Compiled]:
        found = within_flash(partial(compiled, figures), options)
        return found.module, found.compiled

    return compiler


def fitter_of(
    forms: Forms,
    platform: Platform,
    options: BuildOptions,
    services: OpenServices | None = None,
    figures: KernelFigures = UNMEASURED,
) -> Fitter:
    """A loaded model for the methods that make it fit. forms: the module, by how it is quantized; services: they
    compile it in several ways at once; figures: of kernels, measured on the platform's first processor."""
    lower = remembering_lower()  # the ways and their tries ask about the same composites

    def backend(tried: BuildOptions) -> CodegenBackend:
        return backend_of(platform, tried, lower, figures=figures)

    @cache
    def composed(quantize: Quantize, time_axis: TimeAxis) -> tvm.IRModule:
        ahead = before_order(platform, backend(options), options, time_axis)
        return tvm.transform.Sequential(ahead)(forms(quantize))

    def scheduled(quantize: Quantize, least_scratch: bool, time_axis: TimeAxis) -> tvm.IRModule:
        chosen = replace(options, least_scratch=least_scratch)
        return tvm.transform.Sequential(order(backend(chosen)))(composed(quantize, time_axis))

    stages = Stages(
        scheduled=scheduled,
        cut=lambda known, chosen, limits: cutting(platform, chosen, backend(chosen), limits, known)(known.mod),
        compiled=lambda module, chosen, limits, spread: _compiled(
            module, platform, chosen, backend(chosen), limits, spread
        ),
        backend=backend,
    )
    fitter = Fitter(stages, platform)
    if services:
        fitter.ahead = TriesAhead(forms, platform, services, fitter.outcome_here, figures).outcome
    return fitter


def _compiled(
    fitting: tvm.IRModule,
    platform: Platform,
    options: BuildOptions,
    backend: CodegenBackend,
    limits: Mapping[str, int] | None,
    spread: Spread,
) -> Compiled:
    """The pipeline behind what makes a model fit. limits: as `passes` takes them."""
    source, names = ModelOrigin.read(fitting), PortNames.read(fitting)
    model = options.name or source.name
    placing = sharing(platform, options, backend, spread)
    costs = processor_costs(platform, options, backend, spread) if limits else []
    behind = [*placing, *from_memory(platform, backend, model, None, limits, costs, proposing(options))]
    lowered = tvm.transform.Sequential(behind)(fitting)
    states, warm_up = KeptStates.read(fitting).states, WarmUp.read(fitting)
    region = single_region(lowered, with_next_names(names.outputs, states))
    compiled = compile_region(
        region, platform, options, origin(source, platform), model=model, input_names=names.inputs,
        output_names=names.outputs, states=states, warm_up_runs=warm_up.runs,
        linked=LinkedInputs.read(fitting).inputs, scales=PortScales.read(fitting),
        layouts=PortLayouts.read(fitting), changed=ChangedPorts.read(fitting),
        rounding="tflite" if source.rounding == "tflite" else "onnx",
        lower=backend.lower, figures=backend.target.figures,
    )  # fmt: skip
    peak, placement = SchedulePeak.read(lowered["main"]), ProcessorPlacement.read(lowered["main"]).report
    if peak.peak_bytes is None and placement is None:
        return compiled
    return replace(
        compiled, schedule_peak_bytes=peak.peak_bytes, schedule_proved=peak.proved, placement=placement,
        added_instructions=SplitCost.read(lowered["main"]).instructions or 0,
        recomputed=Recomputed.read(lowered["main"]),
        moved_to_fit=PredictedTime.read(lowered["main"]).to_fit,
    )  # fmt: skip


def origin(source: ModelOrigin, platform: Platform) -> Origin:
    """A module as banners name it."""
    file = source.path.replace("\\", "/").rsplit("/", 1)[-1]
    return Origin(
        generator=f"tvm_ext {version('tvm-ext')}",
        model=file or f"a {source.source_format} module",
        sha256=source.sha256,
        platform=platform.name,
        operators={node.name: node.operator for node in source.nodes},
    )


def single_region(mod: tvm.IRModule, output_names: Sequence[str]) -> relax.Function:
    """The region that is the whole of main. Raises UnsupportedModel naming what else main computes."""
    main = mod["main"]
    constant = [
        name for name, result in zip(output_names, outputs(main), strict=True) if not isinstance(result, relax.Var)
    ]
    if constant:
        raise UnsupportedModel(
            f"these outputs do not depend on any input: {', '.join(constant)}. Remove them from the model's outputs."
        )
    left = [name for binding in bindings(main) if (name := op_name(binding.value))]
    regions = [func for _, func in mod.functions_items() if Region.read(func).codegen == CODEGEN]
    if not left and not regions:
        raise UnsupportedModel("the model computes nothing: its outputs are its inputs. There is nothing to compile.")
    if left or len(regions) != 1:
        listed = ", ".join(f"{name} ({left.count(name)} times)" for name in dict.fromkeys(left))
        raise UnsupportedModel(
            f"a package needs the whole model as C, but this is left over: {listed}. Remove these operators from the "
            "model, or run it through tvm.compile with tvm_ext.relax_pipeline, which leaves them to TVM."
            f"{_halves(main)}"
        )
    if not _hands_over(main):
        raise UnsupportedModel(
            "the region's inputs and outputs are not the model's, in their order: a defect of tvm_ext. Please report "
            "it with the model."
        )
    return regions[0]


def _halves(main: relax.Function) -> str:
    """Advice where what is left over computes in float16, which few processors do; else empty."""
    types = [binding.var.ty for binding in bindings(main) if op_name(binding.value)]
    if not any(isinstance(ty, relax.TensorType) and str(ty.dtype) == "float16" for ty in types):
        return ""
    return (
        " They compute in float16, as relax.transform.ToMixedPrecision makes it: hand over the module as it was before "
        "that; weights stay as small with quantize = 'int8'."
    )


def _hands_over(main: relax.Function) -> bool:
    """True where main hands its parameters to one region and returns the region's results, in their order."""
    values = {binding.var: binding.value for binding in bindings(main)}
    (region,) = (var for var, value in values.items() if isinstance(value, relax.Call))
    results = outputs(main)
    given = [values.get(result) for result in results]
    in_order = len(results) == 1 and results[0].same_as(region)
    in_order |= all(
        isinstance(value, relax.TupleGetItem) and value.tuple_value.same_as(region) and value.index == index
        for index, value in enumerate(given)
    )
    params = list(values[region].args)
    return in_order and len(params) == len(main.params) and all(map(relax.Var.same_as, params, main.params))


def refuse_floats(compiled: Compiled) -> None:
    """Raises UnsupportedModel naming the steps of a quantized model whose C computes in float."""
    computing = [call for call in compiled.program.kernel_calls() if call.implementation.computes_floats]
    if computing:
        names = [", ".join(call.source_nodes) or call.name for call in computing]
        raise UnsupportedModel(
            f"{compiled.platform.name} has no FPU, and these steps have no integer kernel: {'; '.join(names[:5])}"
            f"{f' and {len(names) - 5} more' if len(names) > 5 else ''}. Replace them in the model, or choose a "
            "processor with an FPU."
        )
