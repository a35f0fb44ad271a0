"""Operators of a model shared among what TVM's virtual machine runs: our C, TVM's own code, BYOC back ends.

    placed = tvm_ext.place(tvm_ext.load("model.onnx"), "mixed.toml", placing=tvm_ext.Placing(measure=True))
    print(placed.table())
    machine = relax.VirtualMachine(placed.compile(), tvm.cpu())

`tvm.compile(mod, target, relax_pipeline=tvm_ext.relax_pipeline("mixed.toml"))` does the same in one step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from html import escape
from typing import Any

import tvm
from tvm import relax

from codegen_c.backend.byoc import CODEGEN
from codegen_c.backend.tvm_regions import codegen_options
from codegen_c.composites.lower_operator import lower_operator
from codegen_c.costs.predict import time_model
from relay_passes.analysis.processor_costs import ProcessorCosts
from relay_passes.processors.memory_ways import memory_of, moving
from relay_passes.processors.move_to_devices import MoveToDevices
from relay_passes.processors.outline_backends import OutlineBackends, PartitionBackends
from relay_passes.processors.place_backends import PlaceBackends
from relay_passes.processors.tvm_costs import OperatorCosts, TvmCosts
from relay_passes.regions.form_composites import FormComposites
from relay_passes.regions.outline_regions import OutlineRegions
from tvm_ext.core.decisions.composites import Region
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.decisions.processors import ProcessorPlacement
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.names import unique
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform, Processor
from tvm_ext.core.platform_parts import TvmBackend
from tvm_ext.report.backend_table import backend_table
from tvm_ext.stages import backend_of, before_order, order
from tvm_ext.tvm_backends import devices_of, machine_devices, patterns_of
from tvm_ext.tvm_measure import MeasuredCosts, Stopwatch

HOST_TARGET = "llvm"


@dataclass(frozen=True, kw_only=True)
class Placing:
    """Choices of placing. measure: time each operator on this machine, by each back end that takes it, where else
    costs are predicted. forced: operator, by the model's own name -> name of the processor that is to run it.
    target: of the code that TVM makes for the host, when operators are timed."""

    measure: bool = False
    forced: Mapping[str, str] = field(default_factory=dict)
    target: str | Mapping[str, Any] = HOST_TARGET


@dataclass(frozen=True, kw_only=True, eq=False)
class PlacedModule:
    """A module whose composites say the processor that runs them, which a pass of your own may change.

    report: values for JSON: seconds of each operator on each processor, what was chosen, and the totals. devices: as
    `relax.VirtualMachine` takes them.
    """

    module: tvm.IRModule
    report: Mapping[str, Any]
    pipeline: tvm.transform.Pass
    devices: Sequence[tvm.runtime.Device]

    def __repr__(self) -> str:
        return f"<PlacedModule\n{self.table()}\n>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.table())}</pre>"

    def table(self) -> str:
        """The report as text."""
        return backend_table(self.report)

    def compile(self, target: str | Mapping[str, Any] = HOST_TARGET) -> Any:
        """The executable for `relax.VirtualMachine`. target: of the code that TVM makes for the host."""
        return tvm.compile(self.module, target=_target(target), relax_pipeline=self.pipeline)


def _target(given: str | Mapping[str, Any]) -> tvm.target.Target:
    """A target by its name, or by what TVM's JSON says of it."""
    return tvm.target.Target(given if isinstance(given, str) else dict(given))


def is_placed(mod: tvm.IRModule) -> bool:
    """True where operators have their processors already."""
    main = mod["main"] if "main" in [var.name_hint for var in mod.get_global_vars()] else None
    return main is not None and ProcessorPlacement.read(main).report is not None


def with_own_code(platform: Platform, options: BuildOptions, placing: Placing | None) -> Platform:
    """The platform, and beside its core TVM's own code for this machine, where that can be measured and nothing else is
    there to place on: times that are measured need no rates."""
    is_here = not platform.toolchain.prefix and platform.board is None
    if not (placing and placing.measure and is_here and options.processors is None):
        return platform
    if len(platform.processors) > 1:
        return platform
    first, taken = platform.processor, {part.name for part in (*platform.processors, *platform.memories)}
    own = Processor(
        name=unique(HOST_TARGET, taken), isa=first.isa, clock_hz=first.clock_hz, kind="tvm", watts=first.watts,
        tvm=TvmBackend(target=HOST_TARGET),
    )  # fmt: skip
    return replace(platform, processors=(first, own))


def placed_module(loaded: tvm.IRModule, platform: Platform, options: BuildOptions, placing: Placing) -> PlacedModule:
    """A loaded module, placed. Raises BadOptions, BadPlatform, UnsupportedModel, MissingTool."""
    refuse_options(platform, options)
    prefix = options.name or ModelOrigin.read(loaded).name
    pipeline = lowering(platform, options, prefix)
    backend = backend_of(platform, options, cache(lower_operator))
    costs = _costs(platform, options)
    devices = machine_devices(devices_of(platform, options.tvm_processors_of(platform)))
    stopwatch = Stopwatch(
        compile=lambda mod: tvm.compile(mod, target=_target(placing.target), relax_pipeline=pipeline), devices=devices
    )
    if placing.measure:
        costs = [MeasuredCosts(costs=cost, stopwatch=stopwatch) for cost in costs]
    others = [cost.processor.tvm.seconds_per_call for cost in costs[1:] if cost.processor.tvm]
    stages = [
        *before_order(backend, options),
        *order(backend),
        FormComposites(_Whatever()),
        PlaceBackends(
            platform, backend, costs, call_seconds=stopwatch.call_seconds if placing.measure else max(others),
            forced=placing.forced, measured=placing.measure, by_energy=options.placement_objective == "energy",
        ),
    ]  # fmt: skip
    module = tvm.transform.Sequential(stages)(loaded)
    report = ProcessorPlacement.read(module["main"]).report or {}
    return PlacedModule(module=module, report=report, pipeline=pipeline, devices=devices)


def lowering(platform: Platform, options: BuildOptions, prefix: str) -> tvm.transform.Pass:
    """From a placed module to TVM's virtual machine. prefix: of the functions' names."""
    patterns = {one.name: found for one in options.tvm_processors_of(platform) if (found := patterns_of(one))}
    names = [processor.name for processor in options.tvm_processors_of(platform)]
    devices = devices_of(platform, options.tvm_processors_of(platform))

    @tvm.transform.module_pass(opt_level=0, name=f"tvm_ext.{platform.name}.placed")
    def lower(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        generate = relax.transform.RunCodegen(codegen_options(platform, options))
        ours = [OutlineBackends(names, prefix), OutlineRegions(CODEGEN, prefix), generate]
        lowered = tvm.transform.Sequential(ours)(mod)
        lowered = lowered.without_attr("const_name_to_constant")  # they stand in the C text already
        if patterns:
            lowered = PartitionBackends(patterns)(lowered)
            lowered = relax.transform.RunCodegen(entry_functions=_calling(lowered))(lowered)
        fused = relax.get_pipeline("zero")(lowered)  # TVM's own operators, as it fuses them by default
        if devices:
            host = tvm.target.Target.current(allow_none=True) or tvm.target.Target(HOST_TARGET)
            fused = MoveToDevices(host, devices)(fused)
        return relax.get_pipeline("default_build")(fused)

    return lower


def _calling(mod: tvm.IRModule) -> list[str]:
    """Functions that are no code generator's themselves, of which all calls are to be looked at."""
    functions = {var.name_hint: func for var, func in mod.functions_items() if isinstance(func, relax.Function)}
    return sorted(name for name, func in functions.items() if not Region.read(func).codegen)


def refuse_options(platform: Platform, options: BuildOptions) -> None:
    """Raises BadOptions for what a mix of back ends has no place for."""
    others = ", ".join(processor.name for processor in options.tvm_processors_of(platform))
    alone = f"processors = {platform.processor.name}"
    if options.ram is not None or options.quantize == "auto":
        raise BadOptions(
            f"ram and quantize = 'auto' plan the memory of our C, and {others} take their own; to fit a budget "
            f"choose {alone}."
        )
    if options.placement_objective == "throughput" or options.placement_granularity != "none":
        raise BadOptions(
            f"placement_objective = 'throughput' and placement_granularity: TVM's virtual machine runs {others} and "
            f"our C in turn, not at once; leave them out, or choose {alone}."
        )


def _costs(platform: Platform, options: BuildOptions) -> Sequence[OperatorCosts]:
    """Predicted costs, of the platform's first processor before those of TVM's."""
    first: Processor = platform.processor
    ours = ProcessorCosts(
        processor=first, time=time_model(platform), runs_floats=True,
        backend=replace(backend_of(platform, options, cache(lower_operator)), cost=None),
    )  # fmt: skip
    others = [
        TvmCosts(
            processor=one, patterns=patterns_of(one),
            nanoseconds_per_byte=moving(platform, platform.activations, memory_of(one, platform))[1],
        )
        for one in options.tvm_processors_of(platform)
    ]  # fmt: skip
    return [ours, *others]


class _Whatever:
    """Takes what our C does not, operator by operator, so that it is placed, too."""

    elementwise: frozenset[str] = frozenset()

    def refuses(self, composite: relax.Function) -> str | None:
        return None if len(composite.body.blocks[0].bindings) == 1 else "is more than one operator"
