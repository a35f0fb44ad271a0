"""The stages a model passes through, as lists that read as a table of contents; registered with Relax by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version

import tvm
from tvm import relax

from codegen_c.backend.build import Compiled, compile_region
from codegen_c.backend.byoc import CODEGEN, CodegenBackend, codegen_options
from codegen_c.composites.lower_operator import Lower, lower_operator
from codegen_c.costs.predict import time_model
from codegen_c.emit.banner import Origin
from codegen_c.targets.registry import target_of
from codegen_c.tir.macs import macs_of_function
from relay_passes.dataflow import bindings, op_name, outputs, static_shape
from relay_passes.layout.convert_layout import ConvertLayout
from relay_passes.layout.flatten_channels_last import FlattenChannelsLast
from relay_passes.layout.stream_ports import StreamPorts
from relay_passes.memory.assign_memories import AssignMemories
from relay_passes.memory.schedule_operators import ScheduleOperators
from relay_passes.quantization.quantize_int8 import QuantizeInt8
from relay_passes.regions.copy_results import CopyResults
from relay_passes.regions.form_composites import FormComposites
from relay_passes.regions.outline_regions import OutlineRegions
from relay_passes.simplify.duplicate_dequantize import DuplicateDequantize
from relay_passes.simplify.expose_gathers import ExposeGathers
from relay_passes.simplify.expose_interpolations import ExposeInterpolations
from relay_passes.simplify.fold_batch_norm import FoldBatchNorm
from relay_passes.simplify.fold_constants import FoldConstants
from relay_passes.simplify.fold_pads import FoldPads
from relay_passes.simplify.move_integers import MoveIntegers
from relay_passes.simplify.slice_splits import SliceSplits
from relay_passes.streams.stream_windows import StreamWindows
from tvm_ext import guide
from tvm_ext.calibration import Calibration, Source, read_calibration
from tvm_ext.core.decisions.composites import Region
from tvm_ext.core.decisions.models import HopCost, KeptStates, LinkedInputs, ModelOrigin, PortNames, WarmUp
from tvm_ext.core.decisions.outcomes import PredictedTime, SchedulePeak, SplitCost
from tvm_ext.core.errors import BadOptions, UnsupportedModel
from tvm_ext.core.model_states import with_next_names
from tvm_ext.core.options import BuildOptions, Quantize
from tvm_ext.core.platform import Platform
from tvm_ext.fit import fit
from tvm_ext.fit_methods import MemoryPass
from tvm_ext.fitter import Fitter, Stages, Way
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.load import load


def _calibration(
    mod: tvm.IRModule, platform: Platform, options: BuildOptions, calibration: Source | None
) -> Calibration | None:
    """Data that a model is quantized with, checked; None where it is not to be quantized."""
    if options.quantize == "none":
        if calibration is not None:
            raise BadOptions("calibration data is given, but quantize = 'none'; ask for quantize = 'int8' or 'auto'.")
        return None
    if calibration is None:
        raise BadOptions(
            f"quantize = {options.quantize!r} needs calibration data: samples of what the model will see; give them as "
            "calibration, on the command line with --calibration FILE.npz."
        )
    if options.io_type == "float32" and platform.processor.fpu == "none":
        raise BadOptions(f"io_type = 'float32': {platform.name} has no FPU; leave inputs and outputs int8.")
    params = mod["main"].params[: len(mod["main"].params) - len(KeptStates.read(mod).states)]
    return read_calibration(calibration, {p.name: (static_shape(p), str(p.ty.dtype)) for p in params})


def _quantized(mod: tvm.IRModule, platform: Platform, options: BuildOptions, data: Calibration) -> tvm.IRModule:
    has_fpu = platform.processor.fpu != "none"
    backend = _backend(platform, options)
    stages = [
        FoldConstants(),
        FoldBatchNorm(),
        QuantizeInt8(
            data.samples, labels=data.labels, resets=data.resets, elementwise=backend.elementwise,
            float_allowed=has_fpu, float_io=options.io_type == "float32", min_snr_db=options.min_snr_db,
        ),
    ]  # fmt: skip
    return tvm.transform.Sequential(stages)(mod)


def passes(
    platform: Platform,
    options: BuildOptions,
    prefix: str,
    memory_pass: MemoryPass = None,
    limits: Mapping[str, int] | None = None,
) -> list[tvm.transform.Pass]:
    """From a loaded module to one whose regions are ready for code generation, in this order.

    memory_pass: what makes the model fit, where its order alone does not. limits: memories that may be used beside the
    default one, with it, and bytes that each may give; None uses the default one alone.
    """
    backend = _backend(platform, options)
    return [
        *_before_order(backend, options),
        *_order(backend),
        *_from_memory(platform, backend, prefix, memory_pass, limits),
    ]


def _before_order(backend: CodegenBackend, options: BuildOptions) -> list[tvm.transform.Pass]:
    """Passes that are the same for all kernels, however a model is made to fit."""
    return [
        # Phase 1. Constants become plain: weights are constants, quantized weights dequantize(constant).
        FoldConstants(),
        FoldBatchNorm(),
        FoldPads(),
        DuplicateDequantize(),
        SliceSplits(),
        # Operators that only move elements keep their layout, and quantized chains match once none stands in them.
        ExposeGathers(),
        MoveIntegers(),
        ExposeInterpolations(),
        # Phase 2. Every operator becomes one composite; quantized chains are matched before anything touches them.
        FormComposites(backend),
        CopyResults(),
        # Phase 3. Layout: channels last inside, the model's own order at its borders.
        ConvertLayout(),
        FlattenChannelsLast(),
        *([StreamPorts()] if options.io == "stream" else []),
    ]


def _order(backend: CodegenBackend) -> list[tvm.transform.Pass]:
    """The begin of phase 4. Memory: the order of operators that keeps the fewest bytes alive."""
    return [ScheduleOperators(backend)]


def _from_memory(
    platform: Platform,
    backend: CodegenBackend,
    prefix: str,
    memory_pass: MemoryPass,
    limits: Mapping[str, int] | None,
) -> list[tvm.transform.Pass]:
    """The end of phase 4, passes that leave fewer bytes alive, and what follows."""
    kernels, time = replace(backend, cost=None), time_model(platform)
    return [
        *([memory_pass] if memory_pass else []),
        *([AssignMemories(kernels, time, limits)] if limits else []),  # the time model has a calibration of its own
        # Phase 5. Runs of composites become regions; the order of bindings is the schedule.
        OutlineRegions(CODEGEN, prefix),
    ]


def _backend(platform: Platform, options: BuildOptions, lower: Lower = lower_operator) -> CodegenBackend:
    return CodegenBackend(
        target=target_of(platform.processor, optimize=options.optimize, least_scratch=options.least_scratch),
        cost=guide.learned_cost() if options.guide == "learned" else None,
        lower=lower,
    )


def compile_module(mod: tvm.IRModule, platform: Platform, options: BuildOptions) -> Compiled:
    """A whole model as one region: program, memory plan, interface; made to fit where it can be.

    Raises UnsupportedModel naming what no stage can compile, DoesNotFit, BadOptions where it is to be quantized.
    """
    return compile_model(mod, platform, options)[1]


def compile_within(mod: tvm.IRModule, platform: Platform, options: BuildOptions) -> Callable[[int | None], Compiled]:
    """`compile_module` for many budgets of the default memory; what they share is done once."""
    forms = _forms(load(mod), platform, options, None)
    fitter = _fitter(_streamed(forms, options), platform, options)
    return lambda ram: fit(fitter, platform, replace(options, ram=ram))[0]


def compile_model(
    mod: tvm.IRModule, platform: Platform, options: BuildOptions, calibration: Source | None = None
) -> tuple[tvm.IRModule, Compiled]:
    """`compile_module`, and the module whose answers it gives: in QDQ form where it was quantized, of whole windows.

    calibration: as `read_calibration` takes it. Raises BadOptions where that and `options.quantize` do not go together,
    BadInput, and what `compile_module` raises.
    """
    forms = _forms(load(mod), platform, options, calibration)
    compiled, way = fit(_fitter(_streamed(forms, options), platform, options), platform, options)
    if way.options.quantize == "int8" and platform.processor.fpu == "none":
        _refuse_floats(compiled)
    return forms(way.options.quantize), compiled


def _forms(
    mod: tvm.IRModule, platform: Platform, options: BuildOptions, calibration: Source | None
) -> Callable[[Quantize], tvm.IRModule]:
    """A loaded module as each way asks for it, float or quantized; the calibration data is checked at once."""
    data = _calibration(mod, platform, options, calibration)

    @cache
    def form(quantize: Quantize) -> tvm.IRModule:
        return mod if quantize == "none" or data is None else _quantized(mod, platform, options, data)

    return form


def _streamed(forms: Callable[[Quantize], tvm.IRModule], options: BuildOptions) -> Callable[[Quantize], tvm.IRModule]:
    """The forms with the window over time that they take turned into a stream of hops, where that is asked for."""
    if not options.hop:
        return forms
    ((name, hop),) = options.hop.items()
    axis = (options.hop_axis or {}).get(name)
    streams = StreamWindows(name, hop, axis, macs_of_function)
    stages = [FoldConstants(), FoldBatchNorm(), FoldPads(), SliceSplits(), streams]

    @cache
    def form(quantize: Quantize) -> tvm.IRModule:
        streamed = tvm.transform.Sequential(stages)(forms(quantize))
        _say_hop_cost(f"hop {name}={hop}", HopCost.read(streamed))
        return streamed

    return form


def _say_hop_cost(hop: str, cost: HopCost) -> None:
    """A notice where a hop computes more than what is new."""
    if cost.remarks:
        pays = "" if cost.macs < cost.window_macs else " This hop does not pay: leave it out."
        warnings.warn(
            f"{hop}: a run computes {cost.macs:,} multiply-accumulates, a whole window {cost.window_macs:,}; "
            f"{'; '.join(cost.remarks)}.{pays}",
            ModelNotice,
            stacklevel=2,
        )


def _fitter(forms: Callable[[Quantize], tvm.IRModule], platform: Platform, options: BuildOptions) -> Fitter:
    """A loaded model for the methods that make it fit. forms: the module, by how it is quantized."""
    lower = cache(lower_operator)  # the ways and their tries ask about the same composites

    def backend(tried: BuildOptions) -> CodegenBackend:
        return _backend(platform, tried, lower)

    @cache
    def composed(quantize: Quantize) -> tvm.IRModule:
        return tvm.transform.Sequential(_before_order(backend(options), options))(forms(quantize))

    def scheduled(quantize: Quantize, least_scratch: bool) -> tvm.IRModule:
        chosen = replace(options, least_scratch=least_scratch)
        return tvm.transform.Sequential(_order(backend(chosen)))(composed(quantize))

    stages = Stages(
        scheduled=scheduled,
        compiled=lambda module, chosen, limits: _compiled(module, platform, chosen, backend(chosen), limits),
        backend=backend,
        rank=guide.learned_rank() if options.guide == "learned" else None,
    )
    return Fitter(stages, platform)


def _compiled(
    fitting: tvm.IRModule,
    platform: Platform,
    options: BuildOptions,
    backend: CodegenBackend,
    limits: Mapping[str, int] | None,
) -> Compiled:
    """The pipeline behind what makes a model fit. limits: as `passes` takes them."""
    source, names = ModelOrigin.read(fitting), PortNames.read(fitting)
    model = options.name or source.name
    lowered = tvm.transform.Sequential(_from_memory(platform, backend, model, None, limits))(fitting)
    states, warm_up = KeptStates.read(fitting).states, WarmUp.read(fitting)
    region = _single_region(lowered, with_next_names(names.outputs, states))
    compiled = compile_region(
        region, platform, options, origin(source, platform), model=model, input_names=names.inputs,
        output_names=names.outputs, states=states, warm_up_runs=warm_up.runs,
        linked=LinkedInputs.read(fitting).inputs,
        lower=backend.lower,
    )  # fmt: skip
    peak = SchedulePeak.read(lowered["main"])
    if peak.peak_bytes is None:
        return compiled
    return replace(
        compiled, schedule_peak_bytes=peak.peak_bytes, schedule_proved=bool(peak.proved),
        added_instructions=SplitCost.read(lowered["main"]).instructions or 0,
        moved_to_fit=PredictedTime.read(lowered["main"]).to_fit,
    )  # fmt: skip


def _refuse_floats(compiled: Compiled) -> None:
    """Raises UnsupportedModel naming the steps of a quantized model whose C computes in float."""
    computing = [call for call in compiled.program.kernel_calls() if call.implementation.computes_floats]
    if computing:
        names = [", ".join(call.source_nodes) or call.name for call in computing]
        raise UnsupportedModel(
            f"{compiled.platform.name} has no FPU, and these steps have no integer kernel: {'; '.join(names[:5])}"
            f"{f' and {len(names) - 5} more' if len(names) > 5 else ''}. Replace them in the model, or choose a "
            "processor with an FPU."
        )


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


def _single_region(mod: tvm.IRModule, output_names: Sequence[str]) -> relax.Function:
    """The region that is the whole of main."""
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
        )
    if not _hands_over(main):
        raise UnsupportedModel(
            "the region's inputs and outputs are not the model's, in their order: a defect of tvm_ext. Please report "
            "it with the model."
        )
    return regions[0]


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


def relax_pipeline(
    platform: Platform | str, options: BuildOptions | None = None, *, calibration: Source | None = None
) -> tvm.transform.Pass:
    """For `tvm.compile(mod, target, relax_pipeline=...)`: regions run as our C, the rest as TVM compiles it."""
    board = Platform.load(platform) if isinstance(platform, str) else platform
    chosen = options or BuildOptions()
    if chosen.pin or chosen.keep:
        raise BadOptions(
            "pin and keep: inside tvm.compile the caller holds inputs and outputs; build a package instead."
        )

    if chosen.context == "caller":
        raise BadOptions(
            "context = 'caller': TVM calls compiled code without an instance; inside tvm.compile use context = "
            "'static', or build a package."
        )
    if chosen.hop:
        raise BadOptions("hop: inside tvm.compile the caller holds what runs keep; build a package instead.")
    if chosen.io == "stream":
        raise BadOptions(
            "io = 'stream': TVM hands whole tensors to compiled code; inside tvm.compile use io = 'arena' or 'caller', "
            "or build a package."
        )

    @tvm.transform.module_pass(opt_level=0, name=f"tvm_ext.{board.name}")
    def pipeline(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        loaded_forms = _forms(load(mod), board, chosen, calibration)
        forms = cache(lambda quantize: _with_states_as_ports(loaded_forms(quantize)))
        decides = chosen.ram is not None or chosen.quantize == "auto"
        decided = fit(_fitter(forms, board, chosen), board, chosen)[1] if decides else None
        way = decided or Way(method="whole", options=chosen)
        loaded = forms(way.options.quantize)
        prefix = chosen.name or ModelOrigin.read(loaded).name
        stages = passes(board, way.options, prefix, way.memory_pass)
        generate = relax.transform.RunCodegen(codegen_options(board, way.options))
        lowered = tvm.transform.Sequential([*stages, generate])(loaded)
        lowered = lowered.without_attr("const_name_to_constant")  # they stand in the C text already
        return relax.get_pipeline("default_build")(lowered)

    return pipeline


def _with_states_as_ports(mod: tvm.IRModule) -> tvm.IRModule:
    """The module whose caller holds its states: they are the last inputs and outputs, of the shapes they have there."""
    states, names = KeptStates.read(mod).states, PortNames.read(mod)
    if not states:
        return mod
    every = [*names.inputs, *(state.name for state in states)]
    ports = PortNames(inputs=tuple(every), outputs=tuple(with_next_names(names.outputs, states)))
    return KeptStates().write(ports.write(mod))


def register_pipelines() -> None:
    """Makes every shipped platform known to Relax as `tvm_ext.<platform>`."""
    for name in Platform.shipped():
        relax.register_pipeline(f"tvm_ext.{name}")(lambda name=name: relax_pipeline(name))


register_pipelines()
