"""Compile a region function to program, memory plan, interface and C sources, for packages and for `tvm.compile`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

from tvm import relax

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate import check_reach, validate
from codegen_c.arena.validate_order import validate_order
from codegen_c.arena.validate_successive import validate_successive
from codegen_c.backend.ports import kept_tensors, kept_values, port_names, ports_of, tensor_named
from codegen_c.backend.share import check_driven, check_shared, driver_names, processors_of, shared_plan
from codegen_c.composites.lower_operator import Lower, lower_operator
from codegen_c.emit.banner import Origin
from codegen_c.emit.functions import CONTEXT_NAMES, RESERVED
from codegen_c.emit.layer_files import layer_files_of
from codegen_c.emit.memory import context_bytes
from codegen_c.emit.pieces import Piece
from codegen_c.emit.sharing import ALONE, Sharing
from codegen_c.emit.sources import emit_sources
from codegen_c.emit.trace import emit_trace
from codegen_c.emit.weights import weights_pieces
from codegen_c.kernels.measurements import UNMEASURED, KernelMeasurements
from codegen_c.lowering.driver_waits import with_waits
from codegen_c.lowering.lower_region import lower_region
from codegen_c.lowering.merge_steps import merge_steps
from codegen_c.lowering.share_windows import with_shared_windows
from codegen_c.lowering.views import with_views
from codegen_c.operators.kinds import Rounding
from codegen_c.program.extreme_runs import instructions_of, worst_run
from codegen_c.program.guards import with_guards
from codegen_c.program.interface import Interface
from codegen_c.program.parallel import ParallelProgram
from codegen_c.program.program import Program, drivers_of
from codegen_c.targets.registry import target_of
from tvm_ext.core.alignment import ALIGNMENT_BYTES
from tvm_ext.core.decisions.models import ChangedPorts, PortLayouts, PortScales, Recomputed
from tvm_ext.core.model_nodes import ModelNode, ModelState
from tvm_ext.core.options import BuildOptions, CompileFor
from tvm_ext.core.platform import LINKED_MEMORY, STATE_MEMORY, Platform

_UNSCALED, _NO_LAYOUTS, _UNCHANGED = PortScales(), PortLayouts(), ChangedPorts()

MOST_GROWTH = 1.01
"""Factor of the arena that joined layers may take, which have the same peak of live bytes but other offsets."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A method that was tried to make a model fit, and its outcome.

    added_instructions: modelled instructions beyond those of the first attempt. rejected: the validator's reason for
    rejecting the plan, which is a defect of the compiler; bytes and instructions are None then. cores: number of cores
    that run the operators.
    """

    method: str
    arena_bytes: int | None
    added_instructions: int | None
    rejected: str | None = None
    cores: int = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Compiled:
    """A compiled region: its program, memory plan and interface.

    schedule_peak_bytes, schedule_proved: peak of live bytes in the order chosen before lowering, and True if no order
    has a lower peak; None if unknown. added_instructions: modelled instructions that splitting adds. moved_to_fit: True
    if tensors are in several memories only because the live bytes before lowering exceeded the default memory.
    attempts: all attempts to make the model fit, in order; the last gave this result. placement: predicted results of
    placing operators on several processors; None if all run on the first. recomputed: operators that run again; None if
    there was no search for them. sharing: files that other models of a bundle share with this model. parallel: the
    program as per-core schedules; None if the platform's first processor runs all of it. goes_on: True for a stream of
    new frames whose outputs depend on all frames since the reset, because states of recurrent layers go on. optimize:
    what the C is to be compiled for.
    """

    program: Program
    plan: MemoryPlan
    interface: Interface
    origin: Origin
    platform: Platform
    schedule_peak_bytes: int | None = None
    schedule_proved: bool | None = None
    added_instructions: int = 0
    recomputed: Recomputed | None = None
    moved_to_fit: bool = False
    attempts: tuple[Attempt, ...] = ()
    placement: Mapping[str, Any] | None = None
    sharing: Sharing = ALONE
    parallel: ParallelProgram | None = None
    goes_on: bool = False
    optimize: CompileFor = "speed"

    @property
    def is_stream(self) -> bool:
        """True if a run takes only the new frames of a window over time."""
        return self.goes_on or self.interface.warm_up_runs > 0

    @property
    def modelled_instructions(self) -> int:
        """Modelled instructions of the worst run and of splitting. They rank methods and are no measurement."""
        run = worst_run(self.program, instructions_of)
        return sum(call.implementation.instructions for call in run.kernel_calls()) + self.added_instructions

    @cached_property
    def is_quantized(self) -> bool:
        """True if any step computes in integers with scales."""
        tensors, calls = self.program.tensors, [(call, call.implementation) for call in self.program.kernel_calls()]
        return any(m.rounds_input or (m.exact and tensors[c.outputs[0]].quantization) for c, m in calls)

    @cached_property
    def _weights(self) -> dict[str, list[Piece]]:
        """Text of the weights, cached because it is long and both the sources and their trace need it."""
        return weights_pieces(self.program, self.interface.model, self.origin, self.platform, self.sharing)

    @property
    def weights_files(self) -> tuple[str, ...]:
        """Return the names of the C files of constants."""
        return tuple(self._weights)

    def sources(self, *, after_step: bool = False) -> dict[str, str]:
        """Return the C text of each file. after_step as in `model_pieces`, for one processor."""
        parts = (self.program, self.plan, self.interface, self.origin, self.platform)
        return emit_sources(
            *parts, after_step=after_step, sharing=self.sharing, parallel=self.parallel, weights=self._weights
        )

    @property
    def processor_of_source(self) -> dict[str, str]:
        """Processor that runs each C file which the platform's first processor does not run."""
        if self.parallel is None:
            return {}
        files = layer_files_of(self.parallel, self.platform, self.interface.model)
        return {one.file: one.processor for one in files[1:]}

    @property
    def own_flags(self) -> dict[str, tuple[str, ...]]:
        """Return the compiler flags of each C file that `processor_of_source` names."""
        named = self.platform.processor_named
        return {file: self.platform.flags_of(named(name)) for file, name in self.processor_of_source.items()}

    def trace(self, nodes: Sequence[ModelNode], common: Mapping[str, Sequence[Piece]] = MappingProxyType({})) -> str:
        """Return the text of `trace.json`.

        nodes: nodes of the model, in order. common: pieces of the files that several models of a bundle share.
        """
        parts = (self.program, self.plan, self.interface, self.origin, self.platform)
        return emit_trace(*parts, nodes, self._weights, self.sharing, common, self.parallel)


def compile_region(
    region: relax.Function,
    platform: Platform,
    options: BuildOptions,
    origin: Origin,
    *,
    model: str,
    input_names: Sequence[str] = (),
    output_names: Sequence[str] = (),
    states: Sequence[ModelState] = (),
    warm_up_runs: int = 0,
    linked: Sequence[str] = (),
    scales: PortScales | None = _UNSCALED,
    layouts: PortLayouts = _NO_LAYOUTS,
    changed: ChangedPorts = _UNCHANGED,
    rounding: Rounding = "onnx",
    lower: Lower = lower_operator,
    measurements: KernelMeasurements = UNMEASURED,
) -> Compiled:
    """Lower a region, plan its memory and validate the plan.

    input_names, output_names: the model's own names, in the region's order; by default the variables' names. states:
    states of the model, which are the parameters after the inputs and the results after the outputs. warm_up_runs: runs
    after a reset that return no outputs. linked: inputs, by the model's own names, that other models of a bundle write
    to. scales, layouts: of inputs and outputs, by the model's own names; scales are None for a format whose integers
    have none. changed: inputs and outputs whose form differs from the file's. rounding: rounding of halves in the
    quantize functions of the ports. lower: as in `CodegenBackend`. measurements: costs of kernels on the platform's
    first processor. This function does not check that the plan fits the memories; see `check_capacity`. Raises
    UnsupportedModel, PlanRejected.
    """
    targets = {
        core.name: target_of(
            core, core=platform.core_of(core), optimize=options.compile_for,
            least_scratch=options.least_scratch, least_flash=options.least_flash,
            measurements=measurements if core.name == platform.processor.name else UNMEASURED,
        )
        for core in platform.processors
        if core.kind in ("core", "offload")
    }  # fmt: skip
    reserved = {*RESERVED, STATE_MEMORY, LINKED_MEMORY, *(memory.name for memory in platform.memories)}
    reserved |= CONTEXT_NAMES if options.context == "caller" else set[str]()
    reserved |= driver_names(platform, model)
    names = port_names(input_names, output_names, options.rename, reserved, changed.indexed)
    program = lower_region(
        region, platform, targets, reserved=reserved, lower=lower, states=states, warm_up_runs=warm_up_runs,
        names=names, staged=options.placement_objective == "throughput",
    )  # fmt: skip
    program = _with_linked(program, dict(zip(input_names, program.inputs, strict=True)) if linked else {}, linked)
    program = _with_placed(program, input_names, output_names, options.place_port or {})
    if options.context == "caller":  # states are part of the instance, like the arena
        program = replace(program, state_home=platform.activations)
    used = processors_of(program, platform)
    check_shared(used, options)
    check_driven(program, used, options)
    held = {*program.inputs, *program.outputs} if options.io != "arena" else set[str]()
    kept = kept_tensors(program, options.keep, held)
    program, plan, parallel = _planned(program, platform, options, used, held, {*kept, *program.linked})
    servers = tuple(steps.processor for steps in parallel.lists[1:]) if parallel else ()
    # A plan larger than the memory itself is not checked byte by byte: nothing is built from it.
    if all(arena.num_bytes <= platform.memory(arena.inside).usable_bytes for arena in plan.arenas):
        check_reach(program, plan, platform, parallel)
        if parallel:
            validate_order(parallel, plan)
            validate_successive(parallel, plan)
        else:
            validate(program, plan)
    interface = Interface(
        model=model,
        io=options.io,
        inputs=ports_of(
            program,
            program.inputs,
            input_names,
            scales and (scales.inputs or {}),
            layouts.inputs or {},
            changed.inputs or {},
        ),
        outputs=ports_of(
            program, program.outputs, output_names, scales and (scales.outputs or {}), layouts.outputs or {}
        ),
        state_bytes=plan.state_bytes,
        warm_up_runs=warm_up_runs,
        context=options.context,
        context_bytes=context_bytes(plan) if options.context == "caller" else 0,
        context_alignment_bytes=max((arena.alignment_bytes for arena in plan.arenas), default=ALIGNMENT_BYTES),
        servers=servers,
        in_flight=parallel.in_flight if parallel else 1,
        has_hooks=options.hooks,
        rounding=rounding,
        labels=options.labels,
        kept=kept_values(program, plan, kept, in_flight=parallel.in_flight if parallel else 1),
    )
    used_bytes = plan.memories_bytes
    used_bytes[platform.weights] = used_bytes.get(platform.weights, 0) + program.weights_bytes
    origin = replace(origin, memories=tuple(used_bytes.items()))
    return Compiled(
        program=program, plan=plan, interface=interface, origin=origin, platform=platform, parallel=parallel,
        optimize=options.compile_for,
    )  # fmt: skip


def _planned(
    program: Program,
    platform: Platform,
    options: BuildOptions,
    processors: Sequence[str],
    held: Collection[str],
    kept: Collection[str],
) -> tuple[Program, MemoryPlan, ParallelProgram | None]:
    """Return the program and the plan that take the fewest bytes. It is the last step that changes the program.

    Compares the program with copies removed, with calls merged, and unchanged, then the best of these with the program
    in which layers that read the same windows are joined. processors: the processors that run
    steps. For several processors, calls are not merged, and the program is returned as per-core schedules. held:
    tensors in the caller's memory. kept: tensors that no other tensor may overlap.
    """
    pinned = {tensor_named(program, name): offset for name, offset in (options.pin or {}).items()}
    viewed = with_views(program, apart={*pinned, *kept})
    alignments = {memory.name: memory.alignment_bytes for memory in platform.memories}
    plan = partial(
        plan_memory,
        activations=platform.activations,
        held_by_caller=held,
        pinned=pinned,
        kept=kept,
        alignments=alignments,
    )
    if len(processors) > 1:
        candidates = [with_waits(one, at_once=at_once) for at_once in (False, True) for one in (viewed, program)]
        pipelined = options.placement_objective == "throughput"
        shared = shared_plan(dict.fromkeys(candidates), processors, platform, plan, pipelined=pipelined, held=held)
        if len(shared[2].lists) > 1:
            return shared
        program = viewed  # the other processors would only run copies, which are removed
    guarded = with_guards(viewed)
    # Calls are not merged into loops where some of them run only if a branch is taken.
    joined = with_shared_windows(viewed, apart={*pinned, *kept})
    unguarded = dict.fromkeys([merge_steps(viewed), viewed, program])
    candidates = unguarded if guarded is viewed else dict.fromkeys([guarded, with_guards(program)])
    found = min((plan(with_waits(candidate)) for candidate in candidates), key=_bytes)
    if guarded is viewed and joined is not viewed:
        found = _faster(found, plan(with_waits(joined)), options.limit_bytes(platform))
    # Guards may lengthen lifetimes. If the plan exceeds the limit, all steps run instead.
    if candidates is not unguarded and _bytes(found) > options.limit_bytes(platform):
        found = min((plan(with_waits(candidate)) for candidate in unguarded), key=_bytes)
    # If it still does not fit, waits right after the starts shorten lifetimes, without concurrency.
    if drivers_of(program) and _bytes(found) > options.limit_bytes(platform):
        found = min((plan(with_waits(candidate, at_once=True)) for candidate in candidates), key=_bytes)
    return *found, None


def _faster(
    found: tuple[Program, MemoryPlan], joined: tuple[Program, MemoryPlan], limit_bytes: int
) -> tuple[Program, MemoryPlan]:
    """Return the plan with joined layers, unless it takes more bytes than joining may add or than there are."""
    most = max(_bytes(found), min(int(_bytes(found) * MOST_GROWTH), limit_bytes))
    return joined if _bytes(joined) <= most else found


def _bytes(planned: tuple[Program, MemoryPlan]) -> int:
    return planned[1].arena_bytes


def _with_placed(
    program: Program, input_names: Sequence[str], output_names: Sequence[str], memories: Mapping[str, str]
) -> Program:
    """Return the program with some inputs and outputs, and their parts, moved to other memories.

    memories: memory by the model's own name of an input or output.
    """
    named = [*zip(program.inputs, input_names, strict=False), *zip(program.outputs, output_names, strict=False)]
    placed = {tensor: memories[name] for tensor, name in named if name in memories}
    if not placed:
        return program
    parts = {
        name: placed[one.part.tensor] for name, one in program.tensors.items() if one.part and one.part.tensor in placed
    }
    moved = {name: replace(program.tensors[name], memory=memory) for name, memory in {**parts, **placed}.items()}
    return replace(program, tensors={**program.tensors, **moved})


def _with_linked(program: Program, inputs: Mapping[str, str], linked: Sequence[str]) -> Program:
    """Return the program with the linked inputs in a separate struct. inputs: tensor by the model's own name."""
    moved = {inputs[name]: replace(program.tensors[inputs[name]], memory=LINKED_MEMORY) for name in linked}
    return replace(program, tensors={**program.tensors, **moved}) if moved else program
