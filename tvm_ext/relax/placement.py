"""Place the operators of a model on several back ends of TVM's virtual machine, by measured or predicted time.

    placed = tvm_ext.place(tvm_ext.load("model.onnx"), "mixed.toml", placing=tvm_ext.Placing(measure=True))
    print(placed.table())
    machine = relax.VirtualMachine(placed.compile(), tvm.cpu())

`tvm.compile(mod, target, relax_pipeline=tvm_ext.relax_pipeline("mixed.toml"))` does the same in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from math import ceil
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from codegen_c.backend.byoc import CODEGEN
from codegen_c.backend.tvm_regions import with_build
from codegen_c.composites.lower_operator import remembering_lower
from codegen_c.costs.predict import time_model
from relay_passes.analysis.processor_costs import NANOSECONDS, ProcessorCosts
from relay_passes.composites import attributes, call_new
from relay_passes.dataflow import bindings, build, infer, operands
from relay_passes.processors.backend_work import memory_of, moving
from relay_passes.processors.move_to_devices import BackendDevice, MoveToDevices
from relay_passes.processors.outline_backends import OutlineBackends, PartitionBackends, Patterns
from relay_passes.processors.place_backends import PlaceBackends
from relay_passes.processors.tvm_costs import OperatorCosts, TvmCosts
from relay_passes.regions.form_composites import FormComposites
from relay_passes.regions.outline_regions import OutlineRegions
from tvm_ext.compilation.stages import backend_of, before_order, order
from tvm_ext.core.decisions.composites import (
    CompositeKind,
    OperatorProcessor,
    PrimFuncs,
    ProcessorPlacement,
    Region,
    Symbol,
)
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.errors import BadOptions, BadPlatform, MissingTool
from tvm_ext.core.names import unique
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform, Processor
from tvm_ext.core.platform_parts import TvmBackend
from tvm_ext.report.listings import backend_table

HOST_TARGET = "llvm"


@dataclass(frozen=True, kw_only=True)
class Placing:
    """Choices for the placement of operators.

    measure: True to measure the time of each operator on this machine with each back end that supports it; False to use
    predicted costs. forced: operator by the model's own name -> name of the processor that has to run it. target: TVM
    target of the host code for measurements.
    """

    measure: bool = False
    forced: Mapping[str, str] = field(default_factory=dict)
    target: str | Mapping[str, Any] = HOST_TARGET


@dataclass(frozen=True, kw_only=True, eq=False)
class PlacedModule:
    """A module whose fused operators have an attribute with their processor, which your own passes may change.

    report: values for JSON: seconds of each operator on each processor, the chosen processors, and the totals. devices:
    arguments for `relax.VirtualMachine`.
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
        """Return the report as text."""
        return backend_table(self.report)

    def compile(self, target: str | Mapping[str, Any] = HOST_TARGET) -> Any:
        """Compile the module to an executable for `relax.VirtualMachine`. target: TVM target of the host code."""
        return tvm.compile(self.module, target=_target(target), relax_pipeline=self.pipeline)


def _target(given: str | Mapping[str, Any]) -> tvm.target.Target:
    """Return the TVM target of a name or of a dictionary in TVM's JSON form."""
    return tvm.target.Target(given if isinstance(given, str) else dict(given))


def is_placed(mod: tvm.IRModule) -> bool:
    """Return True if the operators of a module are already placed on processors."""
    main = mod["main"] if "main" in [var.name_hint for var in mod.get_global_vars()] else None
    return main is not None and ProcessorPlacement.read(main).report is not None


def with_own_code(platform: Platform, options: BuildOptions, placing: Placing | None) -> Platform:
    """Return the platform with an additional processor for TVM's own code on this machine, if it can be measured.

    It is added only to a platform of this machine with a single processor. Measured times need no rates of a processor.
    """
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
    """Place the operators of a loaded module. Raises BadOptions, BadPlatform, UnsupportedModel, MissingTool."""
    refuse_options(platform, options)
    prefix = options.name or ModelOrigin.read(loaded).name
    pipeline = lowering(platform, options, prefix)
    backend = backend_of(platform, options, remembering_lower())
    costs = _costs(platform, options)
    devices = machine_devices(devices_of(platform, options.tvm_processors_of(platform)))
    stopwatch = Stopwatch(
        compile=lambda mod: tvm.compile(mod, target=_target(placing.target), relax_pipeline=pipeline), devices=devices
    )
    if placing.measure:
        costs = [MeasuredCosts(costs=cost, stopwatch=stopwatch) for cost in costs]
    others = [cost.processor.tvm.seconds_per_call for cost in costs[1:] if cost.processor.tvm]
    stages = [
        *before_order(platform, backend, options),
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
    """Return the pipeline from a placed module to TVM's virtual machine. prefix: of the names of functions."""
    patterns = {one.name: found for one in options.tvm_processors_of(platform) if (found := patterns_of(one))}
    names = [processor.name for processor in options.tvm_processors_of(platform)]
    devices = devices_of(platform, options.tvm_processors_of(platform))

    @tvm.transform.module_pass(opt_level=0, name=f"tvm_ext.{platform.name}.placed")
    def lower(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        outlined = tvm.transform.Sequential([OutlineBackends(names, prefix), OutlineRegions(CODEGEN, prefix)])(mod)
        lowered = relax.transform.RunCodegen()(with_build(outlined, platform, options))
        lowered = lowered.without_attr("const_name_to_constant")  # the C text already contains the constants
        if patterns:
            lowered = PartitionBackends(patterns)(lowered)
            lowered = relax.transform.RunCodegen(entry_functions=_calling(lowered))(lowered)
        fused = relax.get_pipeline("zero")(lowered)  # fuses TVM's own operators as it does by default
        if devices:
            host = tvm.target.Target.current(allow_none=True) or tvm.target.Target(HOST_TARGET)
            fused = MoveToDevices(host, devices)(fused)
        return relax.get_pipeline("default_build")(fused)

    return lower


def _calling(mod: tvm.IRModule) -> list[str]:
    """Return the names of functions without a code generator, whose calls RunCodegen has to visit."""
    functions = {var.name_hint: func for var, func in mod.functions_items() if isinstance(func, relax.Function)}
    return sorted(name for name, func in functions.items() if not Region.read(func).codegen)


def refuse_options(platform: Platform, options: BuildOptions) -> None:
    """Raise BadOptions for options that a mix of back ends does not support."""
    others = ", ".join(processor.name for processor in options.tvm_processors_of(platform))
    alone = f"processors = {platform.processor.name}"
    if options.ram is not None or options.quantize == "auto":
        raise BadOptions(
            f"ram and quantize = 'auto' plan the memory of our C, and {others} allocate other memory; to meet a "
            f"budget, choose {alone}."
        )
    if options.placement_objective == "throughput" or options.placement_granularity != "none":
        raise BadOptions(
            f"placement_objective = 'throughput' and placement_granularity: TVM's virtual machine runs {others} and "
            f"our C one after the other, not in parallel; leave the options out, or choose {alone}."
        )


def _costs(platform: Platform, options: BuildOptions) -> Sequence[OperatorCosts]:
    """Return the predicted costs of the platform's first processor, followed by the costs of TVM's processors."""
    first: Processor = platform.processor
    ours = ProcessorCosts(
        processor=first, time=time_model(platform, optimize=options.compile_for), runs_floats=True,
        backend=backend_of(platform, options, remembering_lower()),
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
    """Back end for operators that our C does not support. It takes single operators, so that they are placed, too."""

    elementwise: frozenset[str] = frozenset()

    def refuses(self, composite: relax.Function) -> str | None:
        return None if len(composite.body.blocks[0].bindings) == 1 else "consists of several operators"


HOST_KEY = "cpu"


def patterns_of(processor: Processor) -> Patterns | None:
    """Return the patterns of a processor's BYOC back end; None for a processor with a TVM target.

    Raises MissingTool, BadPlatform if the back end or target cannot be used on this machine.
    """
    assert processor.tvm is not None
    if processor.tvm.target:
        _check_target(processor.name, processor.tvm.target)
        return None
    name = processor.tvm.codegen
    where = f"processors.{processor.name}.tvm.codegen = {name!r}"
    leave_out = f"or leave {processor.name} out of `processors`"
    if tvm_ffi.get_global_func(f"relax.ext.{name}", allow_missing=True) is None:
        raise MissingTool(
            f"{where}: this TVM has no function relax.ext.{name}, which compiles for it; use a TVM that was built with "
            f"it, import the package that registers it, {leave_out}."
        )
    patterns = relax.backend.get_patterns_with_prefix(f"{name}.")
    if not patterns:
        raise MissingTool(
            f"{where}: no patterns are registered under {name}., so the operators that it supports are unknown; import "
            f"the module that calls register_patterns of tvm.relax.backend.pattern_registry, {leave_out}."
        )
    return patterns


def devices_of(platform: Platform, processors: Sequence[Processor]) -> tuple[BackendDevice, ...]:
    """Return the devices of processors with a separate memory, numbered from 1 on the host and from 0 elsewhere."""
    found: list[BackendDevice] = []
    for processor in processors:
        if processor.tvm is None or not processor.tvm.target:
            continue  # a BYOC back end copies its data itself
        target = tvm.target.Target(processor.tvm.target)
        is_host = HOST_KEY in list(target.keys)
        if is_host and memory_of(processor, platform) == platform.activations:
            continue
        same = sum(device.target.kind.name == target.kind.name for device in found)
        found.append(BackendDevice(processor=processor.name, target=target, number=same + is_host))
    return tuple(found)


def machine_devices(devices: Sequence[BackendDevice]) -> list[tvm.runtime.Device]:
    """Return the devices for `relax.VirtualMachine`, with the host first."""
    kinds = [HOST_KEY if HOST_KEY in list(device.target.keys) else device.target.kind.name for device in devices]
    others = [tvm.device(kind, device.number) for kind, device in zip(kinds, devices, strict=True)]
    return [tvm.cpu(), *others]


def _check_target(processor: str, text: str) -> None:
    """Raise BadPlatform for an unknown TVM target, MissingTool if this machine cannot run it."""
    where = f"processors.{processor}.tvm.target = {text!r}"
    try:
        target = tvm.target.Target(text)
    except ValueError:
        raise BadPlatform(
            f"{where}: TVM {tvm.__version__} has no target of this name; examples are llvm and cuda."
        ) from None
    if HOST_KEY in list(target.keys):
        return
    kind = target.kind.name
    if not tvm.runtime.enabled(kind) or not tvm.device(kind).exist:
        built = f"finds no device {kind}" if tvm.runtime.enabled(kind) else f"was built without the {kind} runtime"
        raise MissingTool(
            f"{where}: this TVM {built}, and the result has to run here. Use a TVM built with {kind} on a machine with "
            f"a device of this kind, or leave {processor} out of `processors`."
        )


REPEATS = 15
LEAST_MILLISECONDS = 1
"""Duration of each repeat. The shortest repeat counts, because other work on the machine only adds time."""

Compile = Callable[[tvm.IRModule], object]
"""Function that compiles a module of placed fused operators to an executable of TVM's virtual machine."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Stopwatch:
    """Measures the seconds of operators, once for all operators that only differ in the values of their constants.

    compile: compiles a module of a single operator. devices: of the virtual machine. For a back end with a separate
    memory, the time includes the copies of the operator's data.
    """

    compile: Compile
    devices: Sequence[tvm.runtime.Device]
    known: dict[tuple[str, str], float] = field(default_factory=dict)

    def seconds(self, composite: relax.Function, processor: str) -> float:
        """Return the time of a call of a single operator. processor: its name, empty for our C."""
        key = processor, operator_key(composite)
        if key not in self.known:
            self.known[key] = self._timed(composite, processor)
        return self.known[key]

    def _timed(self, composite: relax.Function, processor: str) -> float:
        machine = relax.VirtualMachine(self.compile(alone(composite, processor)), list(self.devices))
        arrays = [tvm.runtime.tensor(_array(param.ty)) for param in composite.params]
        machine.save_function("main", "timed", *arrays)
        timer = machine.time_evaluator("timed", tvm.cpu(), repeat=REPEATS, min_repeat_ms=LEAST_MILLISECONDS)
        return float(timer().min)

    @cached_property
    def call_seconds(self) -> float:
        """Overhead of a call of our C: the time of an operator on a single element."""
        x = relax.Var("x", relax.TensorType((1,), "float32"))
        y = relax.VarBinding(relax.Var("y", x.ty), infer(relax.op.nn.relu(x)))
        return self.seconds(build([x], [y], [y.var], attrs=attributes("nn_relu", []), as_tuple=False), "")


@dataclass(frozen=True, kw_only=True)
class MeasuredCosts:
    """Measured times of operators on a processor. costs: its predicted costs, None for an unsupported operator.

    For our C, the overhead of a call is subtracted: a sequence of operators in our C is a single call, while each of
    TVM's own operators is a call.
    """

    costs: OperatorCosts
    stopwatch: Stopwatch

    @property
    def processor(self) -> Processor:
        return self.costs.processor

    def nanoseconds(self, composite: relax.Function) -> int | None:
        if self.costs.nanoseconds(composite) is None:
            return None
        is_ours = self.processor.kind == "core"
        seconds = self.stopwatch.seconds(composite, "" if is_ours else self.processor.name)
        call = self.stopwatch.call_seconds if is_ours else 0.0
        return max(1, ceil((seconds - call) * NANOSECONDS))


def alone(composite: relax.Function, processor: str) -> tvm.IRModule:
    """Return a module whose main function runs a single fused operator on a processor."""
    params = [relax.Var(f"input_{index}", param.ty) for index, param in enumerate(composite.params)]
    mod = tvm.IRModule(dict(PrimFuncs.read(composite).functions or {}))
    call = call_new(mod, "operator", OperatorProcessor(processor=processor).write(composite), params)
    result = relax.Var("result", call.ty)
    main = build(params, [relax.VarBinding(result, call)], [result], as_tuple=False)
    mod["main"] = Symbol(name="main").write(main)
    return mod


def operator_key(composite: relax.Function) -> str:
    """Return a text that is equal for fused operators with equal operators, types and attributes.

    The values of constants are not part of the text, because they do not affect the time.
    """
    numbers: dict[relax.Expr, int] = {param: index for index, param in enumerate(composite.params)}
    lines = [CompositeKind.read(composite).kind, *(str(param.ty) for param in composite.params)]
    functions = PrimFuncs.read(composite).functions or {}
    for binding in bindings(composite):
        call, shown = binding.value, []
        for leaf in operands(call):
            if isinstance(leaf, tvm.ir.GenericConst):
                shown.append(f"constant {leaf.ty}")
            elif leaf in numbers:
                shown.append(str(numbers[leaf]))
            else:
                shown.append(functions[leaf].script() if leaf in functions else str(leaf))
        said = [str(call.op), str(call.attrs)] if isinstance(call, relax.Call) else [str(call.index)]
        lines.append(" ".join([*said, *shown, str(binding.var.ty)]))
        numbers[binding.var] = len(numbers)
    return "\n".join(lines)


def _array(kind: relax.TensorType) -> np.ndarray:
    """Return an array of random floats between 0 and 1, or of integer zeros, because integers may be indices."""
    shape, dtype = [int(extent) for extent in kind.shape.values], np.dtype(str(kind.dtype))
    if dtype.kind != "f":
        return np.zeros(shape, dtype)
    return np.random.default_rng(0).random(shape).astype(dtype)
