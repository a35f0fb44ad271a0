"""Stages of the pipeline, as lists of passes that read as a table of contents.

A build runs these lists in this order:

1. `quantizing`: if tvm_ext quantizes the model. The result is a float module in QDQ form.
2. `changing` and `streaming`: other forms of inputs and outputs, and new frames in place of a window over time.
3. `before_order`, phases 0 to 3: constants, composites, layout. From here on each operator is a composite.
4. `order`, phase 4: the order of operators, which is the schedule.
5. The pass of a method that makes the model fit (`fitting/methods.py`), or else `cutting` for several memories.
6. `sharing`: operators on several processors.
7. `from_memory`, the end of phase 4 and phase 5: memories of tensors, then the region functions.

`model_forms.py` runs steps 1 and 2. `pipeline.py` runs the others through a `Fitter`, which repeats steps 5 to 7 for
each method that it tries. `passes` is a shorter list without these searches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import tvm
from tvm import relax

from codegen_c.backend.byoc import CODEGEN, CodegenBackend, Estimate, footprint_of
from codegen_c.composites.lower_operator import Lower, lower_operator, remembering_lower
from codegen_c.costs.predict import time_model
from codegen_c.kernels.fourier.fourier_f32 import is_transform
from codegen_c.kernels.measurements import UNMEASURED, KernelMeasurements
from codegen_c.targets.registry import instruction_set_of, target_of
from codegen_c.tir.lower import macs_of_function
from codegen_c.tir.repeat import with_count
from relay_passes.analysis.choose_precision import WeightBits
from relay_passes.analysis.module_costs import ModuleCosts, module_costs
from relay_passes.analysis.processor_costs import ProcessorCosts
from relay_passes.layout.cancel_moves import CancelMoves
from relay_passes.layout.change_inputs import ChangeInputs
from relay_passes.layout.convert_layout import ConvertLayout
from relay_passes.layout.flatten_channels_last import FlattenChannelsLast
from relay_passes.layout.index_outputs import IndexOutputs
from relay_passes.layout.join_spectra import JoinSpectra
from relay_passes.layout.stream_ports import StreamPorts
from relay_passes.memory.assign_memories import AssignMemories
from relay_passes.memory.cut_for_memories import CutForMemories
from relay_passes.memory.place_ports import LeavePorts, PlacePorts
from relay_passes.memory.schedule_operators import ScheduleOperators
from relay_passes.processors.place_processors import PlaceProcessors
from relay_passes.processors.reach_accelerators import ReachAccelerators
from relay_passes.quantization.leave_costly import CostRule
from relay_passes.quantization.quantize_int8 import QuantizeInt8
from relay_passes.regions.copy_results import CopyResults
from relay_passes.regions.form_composites import FormComposites
from relay_passes.regions.limit_grown_weights import LimitGrownWeights
from relay_passes.regions.outline_regions import OutlineRegions
from relay_passes.regions.pack_weights import PackWeights
from relay_passes.searched import Searched
from relay_passes.simplify.drop_roundings import DropRoundings
from relay_passes.simplify.duplicate_dequantize import DuplicateDequantize
from relay_passes.simplify.expand_einsums import ExpandEinsums
from relay_passes.simplify.expose_gathers import ExposeGathers
from relay_passes.simplify.expose_interpolations import ExposeInterpolations
from relay_passes.simplify.fold_batch_norm import FoldBatchNorm
from relay_passes.simplify.fold_constants import FoldConstants
from relay_passes.simplify.fold_pads import FoldPads
from relay_passes.simplify.fold_permutes import FoldPermutes
from relay_passes.simplify.join_writes import JoinWrites
from relay_passes.simplify.merge_reshapes import MergeReshapes
from relay_passes.simplify.move_integers import MoveIntegers
from relay_passes.simplify.narrow_quantize import NarrowQuantize
from relay_passes.simplify.note_port_layouts import NotePortLayouts
from relay_passes.simplify.note_port_scales import NotePortScales
from relay_passes.simplify.orient_sequences import OrientSequences, TimeAxis
from relay_passes.simplify.recognize_dynamic_layers import RecognizeDynamicLayers
from relay_passes.simplify.recognize_group_norms import RecognizeGroupNorms
from relay_passes.simplify.recognize_leaks import RecognizeLeaks
from relay_passes.simplify.recognize_normalizations import RecognizeNormalizations
from relay_passes.simplify.share_matrices import ShareMatrices
from relay_passes.simplify.simplify_softmax import SimplifySoftmax
from relay_passes.simplify.slice_splits import SliceSplits
from relay_passes.simplify.slice_takes import SliceTakes
from relay_passes.simplify.turn_products import TurnProducts
from relay_passes.simplify.turn_transposed import TurnTransposed
from relay_passes.streams.stream_windows import StreamWindows
from tvm_ext.core.decisions.decision import carried_over
from tvm_ext.core.errors import ExtensionFailed, TvmExtError
from tvm_ext.core.extensions import PASSES, Extension, extensions
from tvm_ext.core.input_forms import InputForm
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform, Processor
from tvm_ext.fitting.fitter import Spread
from tvm_ext.fitting.methods import MemoryPass
from tvm_ext.frontends.calibration import Calibration


def quantizing(
    platform: Platform, options: BuildOptions, data: Calibration, saved_bytes: int = 0
) -> list[tvm.transform.Pass]:
    """Return the passes that bring a loaded float module to QDQ form. They run before all others.

    saved_bytes: bytes of weights that 4-bit weights must save in addition to what the options ask for.
    """
    packs_depthwise = instruction_set_of(platform.processor).packs_depthwise
    bits = WeightBits(weights=options.weights, saved_bytes=saved_bytes, packs_depthwise=packs_depthwise)
    return [
        *ahead_of_quantizing(),
        QuantizeInt8(
            data.samples, labels=data.labels, resets=data.resets, elementwise=backend_of(platform, options).elementwise,
            float_allowed=computes_floats(platform, options), float_io=options.io_type == "float32",
            min_snr_db=options.min_snr_db, bits=bits, activations=options.activations, is_transform=is_transform,
            cost_rule=cost_rule(platform, options) if saved_bytes == 0 else None,
        ),
    ]  # fmt: skip


def cost_rule(platform: Platform, options: BuildOptions) -> CostRule | None:
    """Return how predicted costs count where a model is quantized; None where no core has measured times.

    Operators are left in float for their cost only where the options ask for int8 alone: not with quantize = 'auto',
    which looks for a model that fits, with a limit of flash, or with other widths of weights or activations. The peak
    may rise up to half of the memory, because an arena may be larger than the peak.
    """
    core = platform.processor
    has_times = instruction_set_of(core).times_of(platform.core_of(core), options.compile_for) is not None
    if not has_times or not computes_floats(platform, options):
        return None
    plain = replace(options, io="arena", place_port=None)
    backend = backend_of(platform, plain, remembering_lower(), estimate=cache(footprint_of))
    costs = replace(processor_costs(platform, plain, backend, "first")[0], runs_floats=True)

    def costs_of(mod: tvm.IRModule) -> ModuleCosts | None:
        return module_costs(tvm.transform.Sequential(before_order(platform, backend, plain))(mod), costs)

    has_widths = options.weights != "int8" or options.activations != "int8"
    is_bound = options.quantize == "auto" or has_widths or options.flash_bytes is not None
    return CostRule(
        costs_of=costs_of, moves_to_float=not is_bound,
        most_peak_bytes=options.limit_bytes(platform) // 2,
    )  # fmt: skip


def ahead_of_quantizing() -> list[tvm.transform.Pass]:
    """Return the passes that rewrite a float module ahead of its quantization."""
    return [
        FoldConstants(), TurnTransposed(), FoldBatchNorm(is_transform), FoldPads(), JoinWrites(), OrientSequences(),
        *attention(), RecognizeGroupNorms(), TurnProducts(),
    ]  # fmt: skip


def attention() -> list[tvm.transform.Pass]:
    """Return the passes that bring attention and normalizations from any exporter to one form."""
    return [
        ExpandEinsums(), ShareMatrices(), RecognizeLeaks(), SliceSplits(), MergeReshapes(), SimplifySoftmax(),
        RecognizeNormalizations(),
    ]  # fmt: skip


def changing(options: BuildOptions) -> list[tvm.transform.Pass]:
    """Return the passes that change inputs and outputs of a module to the form in which firmware has them."""
    forms = {name: InputForm.parse(text) for name, text in (options.input or {}).items()}
    return [
        *([NotePortScales(), NotePortLayouts(), ChangeInputs(forms)] if forms else []),
        *([IndexOutputs(options.argmax)] if options.argmax else []),
    ]


def streaming(name: str, hop: int, axis: int | None) -> list[tvm.transform.Pass]:
    """Return the passes that turn a window over time into a stream of new frames. They run after `changing`."""
    streams = StreamWindows(name, hop, axis, macs_of_function, with_count)
    return [FoldConstants(), FoldBatchNorm(is_transform), FoldPads(), JoinWrites(), *attention(), SliceTakes(), streams]


def passes(
    platform: Platform,
    options: BuildOptions,
    prefix: str,
    memory_pass: MemoryPass = None,
    limits: Mapping[str, int] | None = None,
) -> list[tvm.transform.Pass]:
    """Return the passes from a loaded module to a module whose subgraphs are ready for code generation, in order.

    `tvm.compile` and tests run this list. A build does not: it tries several methods to make the model fit, and shares
    the first passes between them (`pipeline.fitter_of`).
    memory_pass: the pass of a method that makes the model fit if its schedule alone does not; None for no method.
    limits: the default memory and others that may be used, with the bytes of each; None for the default memory alone.
    """
    backend = backend_of(platform, options)
    return [
        *before_order(platform, backend, options),
        *order(backend),
        *from_memory(platform, backend, prefix, memory_pass, limits),
    ]


def before_order(
    platform: Platform, backend: CodegenBackend, options: BuildOptions, time_axis: TimeAxis = "rows"
) -> list[tvm.transform.Pass]:
    """Return the passes before the schedule. time_axis: the axis of time in the images that sequences become."""
    return [
        # Phase 0. Passes of other distributions, on the module as it was loaded.
        *extension_passes(),
        # Phase 1. Constants become plain: weights are constants, quantized weights dequantize(constant).
        FoldConstants(),
        NotePortScales(),
        NotePortLayouts(),
        TurnTransposed(),
        FoldBatchNorm(is_transform),
        FoldPads(),
        JoinWrites(),
        OrientSequences(time_axis),
        *attention(),
        RecognizeDynamicLayers(),
        NarrowQuantize(),
        DuplicateDequantize(),
        # Operators that only move elements keep their layout, and quantized chains match once none stands in them.
        ExposeGathers(),
        MoveIntegers(),
        ExposeInterpolations(),
        FoldPermutes(),
        DropRoundings(),
        # Phase 2. Every operator becomes one composite; quantized chains are matched before any pass changes them.
        FormComposites(backend),
        CopyResults(),
        # Phase 3. Layout: channels last inside, the model's own order at its borders.
        ConvertLayout(moves_crops=options.io != "stream"),
        FlattenChannelsLast(),
        CancelMoves(),
        JoinSpectra(backend),
        *([PackWeights(backend)] if options.weights != "int8" or options.flash else []),
        *([_limit_grown_weights(platform, options, backend)] if _limits_grown_weights(backend, options) else []),
        *(
            [StreamPorts(rereads=options.reread)]
            if options.io == "stream"
            else [LeavePorts()]
            if options.io == "caller"
            else []
        ),
        *([PlacePorts(options.place_port)] if options.place_port else []),
    ]


def _limits_grown_weights(backend: CodegenBackend, options: BuildOptions) -> bool:
    """Return True if weights are pre-transformed only where that is worth the flash, or within `flash`."""
    if options.least_flash or options.optimize == "size":
        return False
    is_scarce = backend.target.instruction_set.runs_from_flash
    return options.flash is not None or (options.optimize == "balanced" and is_scarce)


def _limit_grown_weights(platform: Platform, options: BuildOptions, backend: CodegenBackend) -> tvm.transform.Pass:
    """Return the pass that limits pre-transformed weights. With optimize = 'speed', only `flash` limits them."""
    costs, most_bytes = processor_costs(platform, options, backend, "first")[0], options.flash_bytes
    if options.optimize == "balanced":
        return LimitGrownWeights(costs, most_bytes=most_bytes)
    return LimitGrownWeights(costs, share=None, most_bytes=most_bytes)


def order(backend: CodegenBackend) -> list[tvm.transform.Pass]:
    """Return the first pass of phase 4, Memory: it finds the schedule that keeps the fewest bytes alive."""
    return [ScheduleOperators(backend)]


def cutting(
    platform: Platform, options: BuildOptions, backend: CodegenBackend, limits: Mapping[str, int], known: Searched
) -> tvm.transform.Pass:
    """Return the pass that cuts operators so that more of them run in fast memory. It runs after the schedule.

    limits: as `passes` takes them. known: the operators of main and the segments that they can be cut into.
    A model on several processors is left alone.
    """
    if len(options.cores_of(platform)) > 1 or options.offloads_of(platform):
        return tvm.transform.Sequential([])
    return CutForMemories(backend, time_model(platform, optimize=options.compile_for), limits, known)


def sharing(
    platform: Platform, options: BuildOptions, backend: CodegenBackend, spread: Spread = "all"
) -> list[tvm.transform.Pass]:
    """Return the passes that place operators on several processors; none for one processor. They run after `cutting`.

    spread: the processors to place operators on; a number allows accelerators while that many bytes are enough.
    """
    costs = processor_costs(platform, options, backend, spread)
    if len(costs) < 2:
        return []
    tight_bytes = spread if isinstance(spread, int) else None
    placing = PlaceProcessors(
        platform, costs, options.placement_objective, options.placement_granularity, tight_bytes=tight_bytes
    )
    return [placing, *([ReachAccelerators(platform)] if any(cost.is_offload for cost in costs) else [])]


def processor_costs(
    platform: Platform, options: BuildOptions, backend: CodegenBackend, spread: Spread
) -> list[ProcessorCosts]:
    """Return the costs of each processor that operators may be placed on, the platform's first processor first."""
    cores = options.cores_of(platform)
    others = () if spread == "first" else options.offloads_of(platform)
    soft = not computes_floats(platform, options)  # without any FPU all processors compute floats in software
    return [
        ProcessorCosts(
            processor=core, time=time_model(platform, core.name, optimize=options.compile_for),
            runs_floats=soft or core.fpu != "none",
            backend=backend_of(
                platform, options, backend.lower, core, backend.target.measurements, backend.estimate
            ),
        )
        for core in (*(cores if spread == "all" else cores[:1]), *others)
    ]  # fmt: skip


def computes_floats(platform: Platform, options: BuildOptions) -> bool:
    """Return True if a processor that the options allow has an FPU."""
    return any(core.fpu != "none" for core in options.cores_of(platform))


def from_memory(
    platform: Platform,
    backend: CodegenBackend,
    prefix: str,
    memory_pass: MemoryPass,
    limits: Mapping[str, int] | None,
    costs: Sequence[ProcessorCosts] = (),
) -> list[tvm.transform.Pass]:
    """Return the last passes of phase 4, which save memory and assign memories, and phase 5.

    costs: the result of `processor_costs` if several processors may run operators.
    """
    others = {cost.processor.name: cost for cost in costs[1:]}
    time = time_model(platform, optimize=backend.target.optimize)
    return [
        *([memory_pass] if memory_pass else []),
        *([AssignMemories(backend, time, limits, others)] if limits else []),
        # Phase 5. Runs of composites become regions; the order of bindings is the schedule.
        OutlineRegions(CODEGEN, prefix),
    ]


def backend_of(
    platform: Platform,
    options: BuildOptions,
    lower: Lower = lower_operator,
    core: Processor | None = None,
    measurements: KernelMeasurements = UNMEASURED,
    estimate: Estimate = footprint_of,
) -> CodegenBackend:
    """Return the interface through which passes query code generation about the kernels of a processor.

    core: by default the platform's first processor. measurements: costs of kernels on the platform's first processor.
    """
    chosen = core or platform.processor
    return CodegenBackend(
        target=target_of(
            chosen,
            core=platform.core_of(chosen),
            optimize=options.compile_for,
            least_scratch=options.least_scratch,
            least_flash=options.least_flash,
            measurements=measurements if chosen.name == platform.processor.name else UNMEASURED,
        ),
        lower=lower,
        estimate=estimate,
    )


def extension_passes() -> list[tvm.transform.Pass]:
    """Return the passes of other installed distributions, in order of their entry points' names.

    Raises ExtensionFailed if a pass cannot be loaded.
    """
    return [_checked(extension) for extension in extensions(PASSES)]


def _checked(extension: Extension) -> tvm.transform.Pass:
    """Wrap the pass of an extension so that it raises ExtensionFailed if the pass fails or its result is unusable."""

    @tvm.transform.module_pass(opt_level=0, name=f"tvm_ext.extension.{extension.name}")
    def checked(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        where = f"pass {extension.said}"
        try:
            value = extension.value
            transform = value if isinstance(value, tvm.transform.Pass) else value()
            after = transform(mod)
        except TvmExtError:
            raise
        except Exception as error:  # whatever the other distribution's code raises
            raise ExtensionFailed(f"{where}: {type(error).__name__}: {error}. Fix or uninstall it.") from error
        if fault := _fault(after):
            raise ExtensionFailed(f"{where}: its result is not a well-formed module: {fault}. Fix or uninstall it.")
        if _signature(after) != _signature(mod):
            raise ExtensionFailed(
                f"{where}: it changed main from {_signature(mod)} to {_signature(after)}. A pass has to keep inputs "
                "and outputs."
            )
        return carried_over(after, mod)

    return checked


def _fault(after: object) -> str:
    """Return the reason why a value is not a well-formed module; an empty text if it is."""
    if not isinstance(after, tvm.IRModule):
        return f"it is of type {type(after).__name__}"
    try:
        relax.analysis.well_formed(after)
    except Exception as error:  # TVM raises errors of many classes
        return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
    return ""


def _signature(mod: tvm.IRModule) -> str:
    main = mod["main"]
    return f"({', '.join(f'{param.name}: {param.ty}' for param in main.params)}) -> {main.ret_ty}"
