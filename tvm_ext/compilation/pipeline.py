"""Compile a loaded model through all stages: fit it to the memories, lower it, plan its memory and write its C.

    compile_model -> compiler_of -> within_flash -> fit_in_flash -> Fitter -> the passes, then `_compiled`

`compiler_of` builds functions from the inside out. `within_flash` (`fitting/flash.py`) tries options until the weights
fit, `fit_in_flash` (`fitting/fit.py`) tries methods until the arena fits, and the `Fitter` compiles the model once for
each try. `fitter_of` gives it the stages, and `_compiled` is the last stage: the remaining passes, then
`compile_region`, which is lowering and the memory plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from importlib.metadata import version
from typing import Protocol

import tvm
from tvm import relax

from codegen_c.backend.build import Compiled, compile_region
from codegen_c.backend.byoc import CODEGEN, CodegenBackend, footprint_of
from codegen_c.composites.lower_operator import remembering_lower
from codegen_c.emit.banner import Origin
from codegen_c.kernels.measurements import UNMEASURED, KernelMeasurements
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
    sharing,
)
from tvm_ext.core.decisions.composites import PlacedPorts, ProcessorPlacement, Region
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
from tvm_ext.core.names import SEARCHED_MEMORY
from tvm_ext.core.options import BuildOptions, Quantize
from tvm_ext.core.platform import Platform
from tvm_ext.fitting.ahead import TriesAhead
from tvm_ext.fitting.fit import fit_in_flash
from tvm_ext.fitting.fitter import Fitter, Spread, Stages
from tvm_ext.fitting.flash import FlashTry, exceeds_flash, within_flash
from tvm_ext.frontends.calibration import Source
from tvm_ext.frontends.load import load
from tvm_ext.frontends.memory_scopes import in_scopes
from tvm_ext.frontends.source_lines import binding_text
from tvm_ext.services.job import OpenServices

_FITTERS = 2
"""Number of fitters that are cached, each with its search, for different measurements of kernels or options."""


class Compiler(Protocol):
    """Function that compiles a model with kernels chosen by the given measurements."""

    def __call__(self, measurements: KernelMeasurements) -> tuple[tvm.IRModule, Compiled]: ...


def compile_module(mod: tvm.IRModule, platform: Platform, options: BuildOptions) -> Compiled:
    """Compile a whole model as one subgraph to a program, a memory plan and an interface, and make it fit if it can.

    Raises UnsupportedModel with the names of operators that no stage can compile, DoesNotFit, and BadOptions if the
    options quantize the model, which takes the calibration data of `compile_model`.
    """
    return compile_model(mod, platform, options)[1]


def refuse_tune(options: BuildOptions, what: str) -> None:
    """Raise BadOptions if the options measure kernels. what: the function that uses the time model alone."""
    if options.tune:
        raise BadOptions(
            f"tune: {what} chooses kernels by the time model alone; only build() measures kernels. Remove tune here."
        )


def compile_within(mod: tvm.IRModule, platform: Platform, options: BuildOptions) -> Callable[[int | None], Compiled]:
    """Return `compile_module` as a function of the budget of the default memory; shared work is done once.

    With `options.flash` no kernel pre-transforms its weights to a larger form.
    """
    options = options if options.flash is None else replace(options, least_flash=True)
    loaded = load(mod, rounding=options.rounding)
    loaded, options = in_scopes(loaded, platform, options)
    forms = forms_of(loaded, platform, options, None)

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
    """Compile a model, and return the module that the C computes beside it: in QDQ form if quantized, of whole windows.

    calibration: as `read_calibration` takes it.
    services: they try several methods to make the model fit at the same time.
    Raises BadOptions if `calibration` and `options.quantize` contradict each other, BadInput, and all that
    `compile_module` raises.
    """
    return compiler_of(mod, platform, options, calibration, services)(UNMEASURED)


def compiler_of(
    mod: tvm.IRModule,
    platform: Platform,
    options: BuildOptions,
    calibration: Source | None = None,
    services: OpenServices | None = None,
) -> Compiler:
    """Return `compile_model` as a function of measurements of kernels.

    The model is quantized once, and the searches for the last measurements are kept: `--tune` calls the compiler first
    without measurements and then with them. Raises as `compile_model`, and so does the compiler.
    """
    loaded = load(mod, rounding=options.rounding)
    loaded, options = in_scopes(loaded, platform, options)
    data = calibration_of(loaded, platform, options, calibration)

    # Options are not hashable; their JSON is the key of the caches.
    @cache
    def known_forms(chosen: str, saved_bytes: int) -> Forms:
        return forms_of(loaded, platform, BuildOptions.from_json(chosen), data, saved_bytes=saved_bytes)

    @lru_cache(_FITTERS)
    def known_fitter(measurements: KernelMeasurements, forms: Forms, chosen: str) -> Fitter:
        tried = BuildOptions.from_json(chosen)
        return fitter_of(streamed_forms(forms, tried), platform, tried, services, measurements)

    def flash_try(measurements: KernelMeasurements, chosen: BuildOptions, saved_bytes: int) -> FlashTry:
        forms = known_forms(chosen.to_json(), saved_bytes)

        def fitter(least_flash: bool) -> Fitter:
            return known_fitter(measurements, forms, replace(chosen, least_flash=least_flash).to_json())

        fitted, method = fit_in_flash(fitter, platform, chosen)
        if method.options.quantize == "int8" and not computes_floats(platform, chosen):
            refuse_floats(fitted)
        return FlashTry(module=forms(method.options.quantize), compiled=fitted, quantize=method.options.quantize)

    def compiler(measurements: KernelMeasurements) -> tuple[tvm.IRModule, Compiled]:
        fitting = within_flash(partial(flash_try, measurements), options)
        return fitting.module, fitting.compiled

    return compiler


def fitter_of(
    forms: Forms,
    platform: Platform,
    options: BuildOptions,
    services: OpenServices | None = None,
    measurements: KernelMeasurements = UNMEASURED,
) -> Fitter:
    """Return the fitter of a loaded model, which the methods that make it fit call.

    forms: the module by the value of `quantize`.
    services: they compile it by several methods at the same time.
    measurements: costs of kernels on the platform's first processor.
    """
    lower, estimate = remembering_lower(), cache(footprint_of)  # methods and their tries lower the same operators

    def backend(tried: BuildOptions) -> CodegenBackend:
        return backend_of(platform, tried, lower, measurements=measurements, estimate=estimate)

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
        fitter.ahead = TriesAhead(forms, platform, services, fitter.outcome_here, measurements).outcome
    return fitter


def _compiled(
    fitting: tvm.IRModule,
    platform: Platform,
    options: BuildOptions,
    backend: CodegenBackend,
    limits: Mapping[str, int] | None,
    spread: Spread,
) -> Compiled:
    """Run the rest of the pipeline on a module after a method's pass. It may still exceed the limit: the caller checks.

    limits: the memories that may be used, with the bytes of each; None for the default memory alone.
    """
    source, names = ModelOrigin.read(fitting), PortNames.read(fitting)
    model = options.name or source.name
    placing = sharing(platform, options, backend, spread)
    costs = processor_costs(platform, options, backend, spread) if limits else []
    remaining = [*placing, *from_memory(platform, backend, model, None, limits, costs)]
    lowered = tvm.transform.Sequential(remaining)(fitting)
    states, warm_up = KeptStates.read(fitting).states, WarmUp.read(fitting)
    region = single_region(lowered, with_next_names(names.outputs, states))
    options = _with_found_ports(options, names, PlacedPorts.read(lowered["main"]))
    compiled = compile_region(
        region, platform, options, origin(source, platform), model=model, input_names=names.inputs,
        output_names=names.outputs, states=states, warm_up_runs=warm_up.runs,
        linked=LinkedInputs.read(fitting).inputs,
        scales=None if source.source_format == "tosa" else PortScales.read(fitting),
        layouts=PortLayouts.read(fitting), changed=ChangedPorts.read(fitting),
        rounding="tflite" if source.rounding == "tflite" else "onnx",
        lower=backend.lower, measurements=backend.target.measurements,
    )  # fmt: skip
    compiled = replace(compiled, goes_on=warm_up.goes_on)
    peak, placement = SchedulePeak.read(lowered["main"]), ProcessorPlacement.read(lowered["main"]).report
    if peak.peak_bytes is None and placement is None:
        return compiled
    return replace(
        compiled, schedule_peak_bytes=peak.peak_bytes, schedule_proved=peak.proved, placement=placement,
        added_instructions=SplitCost.read(lowered["main"]).instructions or 0,
        recomputed=Recomputed.read(lowered["main"]),
        moved_to_fit=PredictedTime.read(lowered["main"]).to_fit,
    )  # fmt: skip


def _with_found_ports(options: BuildOptions, names: PortNames, found: PlacedPorts) -> BuildOptions:
    """Return the options with the memory that was found for each input and output whose memory was to be searched."""
    said = options.place_port or {}
    if SEARCHED_MEMORY not in said.values():
        return options
    ports = [*zip(names.inputs, found.inputs, strict=True), *zip(names.outputs, found.outputs, strict=True)]
    chosen = {name: memory for name, memory in ports if memory and memory != SEARCHED_MEMORY}
    return replace(options, place_port=chosen or None)


def origin(source: ModelOrigin, platform: Platform) -> Origin:
    """Return the origin of a module that the banners of generated files state. Paths are cut to the file's name."""
    file = source.path.replace("\\", "/").rsplit("/", 1)[-1]
    return Origin(
        generator=f"tvm_ext {version('tvm-ext')}",
        model=file or f"a {source.source_format} module",
        sha256=source.sha256,
        platform=platform.name,
        operators={node.name: node.operator for node in source.nodes},
    )


def single_region(mod: tvm.IRModule, output_names: Sequence[str]) -> relax.Function:
    """Return the subgraph that is all of main. Raises UnsupportedModel with the names of other operators in main."""
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
            f"a package needs the whole model as C, but these operators are left over: {listed}.{_first_left(mod)} "
            "Remove them from the model, or run it through tvm.compile with tvm_ext.relax_pipeline, which leaves them "
            f"to TVM.{_halves(main)}"
        )
    if not _hands_over(main):
        raise UnsupportedModel(
            "the inputs and outputs of the compiled subgraph differ from those of the model. This is a defect of "
            "tvm_ext. Please report it with the model."
        )
    return regions[0]


def _first_left(mod: tvm.IRModule) -> str:
    """Return a sentence with the first operator of a Relax module that is left over; empty for models from files.

    Operators of files are known by their nodes' names, and the Relax text is not the user's.
    """
    origin = ModelOrigin.read(mod)
    left = next((binding for binding in bindings(mod["main"]) if op_name(binding.value)), None)
    if left is None or origin.source_format != "relax":
        return ""
    line = next((node.line for node in origin.nodes if left.var.name in node.outputs), "")
    return f" The first is {binding_text(left, line)}."


def _halves(main: relax.Function) -> str:
    """Return advice if operators that are left over compute in float16, which few processors do; else an empty text."""
    types = [binding.var.ty for binding in bindings(main) if op_name(binding.value)]
    if not any(isinstance(ty, relax.TensorType) and str(ty.dtype) == "float16" for ty in types):
        return ""
    return (
        " They compute in float16, as after relax.transform.ToMixedPrecision: give the module from before that pass. "
        "For small weights use quantize = 'int8'."
    )


def _hands_over(main: relax.Function) -> bool:
    """Return True if main passes its parameters to one subgraph and returns the subgraph's results, in their order."""
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
    """Raise UnsupportedModel with the names of the steps of a quantized model that compute in float."""
    computing = [call for call in compiled.program.kernel_calls() if call.implementation.computes_floats]
    if computing:
        names = [", ".join(call.source_nodes) or call.name for call in computing]
        raise UnsupportedModel(
            f"{compiled.platform.name} has no FPU, and these operators have no integer kernel: {'; '.join(names[:5])}"
            f"{f' and {len(names) - 5} more' if len(names) > 5 else ''}. Replace them in the model, or choose a "
            "processor with an FPU."
        )
