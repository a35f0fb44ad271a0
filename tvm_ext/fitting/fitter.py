"""Compile a model by the methods that make it fit, and keep intermediate results that several tries share."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self, TypeVar

import tvm

from codegen_c.arena.plan import check_capacity
from codegen_c.backend.build import Compiled
from codegen_c.costs.predict import predicted_cycles, time_model
from relay_passes.backend import Backend
from relay_passes.searched import Searched
from relay_passes.simplify.orient_sequences import TimeAxis
from tvm_ext.core.errors import DoesNotFit, PlanRejected
from tvm_ext.core.options import BuildOptions, Quantize
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.native_warnings import native_warnings_dropped
from tvm_ext.fitting.methods import FitMethod, MemoryPass
from tvm_ext.fitting.next_try import Offer, Tried, Try
from tvm_ext.fitting.smaller_plan import PlanCost


@dataclass(frozen=True, kw_only=True)
class TryOutcome:
    """Outcome of a try: bytes of the arenas by memory, empty if the pass changed nothing, and predicted instructions.

    cycles: predicted, of a run. num_cores: cores that run steps. single_cycles: on the best core alone, 0 if only one
    may run. is_held: True if all memories of the platform hold
    their arenas and weights. ports: memories other than the default one that hold inputs or outputs. rejected: the
    validator's objection to the plan, which then has no bytes.
    """

    num_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    instructions: int = 0
    cycles: float = 0.0
    num_cores: int = 1
    single_cycles: float = 0.0
    is_held: bool = True
    ports: tuple[str, ...] = ()
    rejected: str | None = None

    @property
    def cost(self) -> PlanCost:
        """Bytes in all RAMs, predicted cycles, and cores."""
        return PlanCost(num_bytes=sum(self.num_bytes.values()), cycles=self.cycles, num_cores=self.num_cores)

    @classmethod
    def of(cls, compiled: Compiled | None) -> Self:
        """Return the outcome of a compiled try with a valid plan. compiled: None if the pass changed nothing."""
        if compiled is None:
            return cls()
        plan, platform = compiled.plan, compiled.platform
        num_bytes = {memory.name: plan.bytes_in(memory.name) for memory in platform.memories if memory.kind == "ram"}
        try:
            check_capacity(compiled.program, plan, platform)
        except DoesNotFit:
            is_held = False
        else:
            is_held = True
        running = [steps for steps in compiled.parallel.lists if steps.runs_steps] if compiled.parallel else [None]
        return cls(
            num_bytes=num_bytes, instructions=compiled.modelled_instructions, cycles=_cycles(compiled),
            num_cores=len(running), single_cycles=_single_cycles(compiled), is_held=is_held,
            ports=ports_beside(compiled),
        )  # fmt: skip

    def to_json(self) -> str:
        """Return the outcome as text for `from_json`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Return the outcome from the text of `to_json`."""
        values = json.loads(text)
        return cls(**{**values, "ports": tuple(values["ports"])})

    def within(self, one: Try, limits: Mapping[str, int], home: str) -> Tried:
        """Return the result of a try under limits of memories.

        home: the default memory. A try with the default memory alone is only limited by it, and by the memories that
        ports are in.
        """
        if self.rejected is not None or not self.num_bytes:
            return Tried(one=one, rejected=self.rejected)
        others = [memory for memory in (self.ports if one.is_alone else limits) if memory != home]
        over = {memory: self.num_bytes[memory] - limits[memory] for memory in others}
        over = {memory: num_bytes for memory, num_bytes in over.items() if num_bytes > 0}
        return Tried(
            one=one, arena_bytes=self.num_bytes[home], instructions=self.instructions, cycles=self.cycles,
            num_cores=self.num_cores, single_cycles=self.single_cycles,
            fits=not over and self.is_held and self.num_bytes[home] <= limits[home],
            over_bytes=() if one.is_alone else tuple(over.items()),
        )  # fmt: skip


def ports_beside(compiled: Compiled) -> tuple[str, ...]:
    """Return the memories other than the platform's default one that hold a model's inputs and outputs."""
    program, platform = compiled.program, compiled.platform
    found = dict.fromkeys(program.tensors[name].memory for name in (*program.inputs, *program.outputs))
    return tuple(
        memory.name for memory in platform.memories if memory.name in found and memory.name != platform.activations
    )


def _cycles(compiled: Compiled) -> float:
    """Return the predicted cycles of a run: on several processors, from its start to its end."""
    time, added = time_model(compiled.platform, optimize=compiled.optimize), compiled.added_instructions
    if compiled.parallel is None or compiled.placement is None:
        return predicted_cycles(compiled.program, time, added_instructions=added)
    return compiled.placement["makespan_cycles"] + time.compute_cycles("", added)


def _single_cycles(compiled: Compiled) -> float:
    """Return the predicted cycles of whole operators on the best core alone; 0 if several were not considered."""
    alone = compiled.placement["single_processor"] if compiled.placement is not None else None
    return alone["makespan_cycles"] if alone else 0.0


T = TypeVar("T")
Spread = Literal["all", "first"] | int
"""Processors that run operators: all, or only the first core. A number: the first core and accelerators, in the order
of the operators, as far as this number of bytes in the default memory is enough."""


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The pipeline before and after the memory pass of a method.

    scheduled: returns the module before the pass, with scheduled operators. Arguments: quantization, True for kernels
    of least scratch, axis of images along which sequences lie.
    cut: cuts a scheduled module where it is faster with several memories. The last argument: limits of memories.
    compiled: compiles a module after the pass. Arguments: module, options, limits of memories (None for the default
    memory alone), processors that run operators.
    """

    scheduled: Callable[[Quantize, bool, TimeAxis], tvm.IRModule]
    cut: Callable[[Searched, BuildOptions, Mapping[str, int]], tvm.IRModule]
    compiled: Callable[[tvm.IRModule, BuildOptions, Mapping[str, int] | None, Spread], Compiled]
    backend: Callable[[BuildOptions], Backend]


@dataclass(frozen=True, kw_only=True)
class Way:
    """Options and pass by which a method compiles a model. memory_pass: runs after operators are ordered."""

    method: str
    options: BuildOptions
    memory_pass: MemoryPass = None


Asked = tuple[FitMethod, Try]
Ahead = Callable[[Asked, BuildOptions, Iterator[Asked]], TryOutcome | None]
"""Function that returns the outcome of a try from a service, and may start likely later tries there. It returns None if
no service compiles the try or the service failed. The options hold the limits of memories."""


class Fitter:
    """A model prepared for compilation by any method within any limit. ahead: services that compile tries in parallel.

    `compiled` is the way through the pipeline of one try: `Stages.scheduled`, the pass of the method or `Stages.cut`,
    then `Stages.compiled`. The search in `fit.py` calls it try after try.

    Modules and results are kept by their keys, because methods and budgets share most of the work.
    """

    ahead: Ahead | None = None

    def __init__(self, stages: Stages, platform: Platform) -> None:
        self.stages, self.platform = stages, platform
        self._made: dict[Hashable, Any] = {}

    def offers(self, method: FitMethod) -> tuple[Offer, ...]:
        """Return the offers of a method; empty for a method that saves scratch if the model uses no scratch."""

        def make() -> tuple[Offer, ...]:
            if method.saves_scratch and not self._has_scratch(method):
                return ()
            return method.offers(self._searched(method)) if method.offers else (Offer(),)

        return self._once(("offers", method.name), make)

    def known_offers(self, method: FitMethod) -> tuple[Offer, ...]:
        """Return the offers of a method if they are already known; otherwise an empty tuple."""
        return self._made.get(("offers", method.name), ())

    def way(self, method: FitMethod, index: int) -> Way:
        """Return the options and the pass of an offer."""
        offer = self.offers(method)[index]
        if method.make is None or offer.budget_bytes is None:
            return Way(method=method.name, options=method.options)
        memory_pass = method.make(self._searched(method), offer)
        return Way(method=method.name, options=method.options, memory_pass=memory_pass)

    def outcome(self, asked: Asked, options: BuildOptions, likely: Iterator[Asked]) -> TryOutcome:
        """Return the outcome of a try. options: with the limits of memories. likely: tries that may follow.

        Raises UnsupportedModel.
        """
        known = self.ahead(asked, options, likely) if self.ahead else None
        return known or self.outcome_here(asked, options)

    def outcome_here(self, asked: Asked, options: BuildOptions) -> TryOutcome:
        """Return the outcome of a try, compiled in this process."""
        try:
            return TryOutcome.of(self.compiled(*asked, options))
        except PlanRejected as rejected:
            return TryOutcome(rejected=str(rejected))

    @native_warnings_dropped()
    def compiled(self, method: FitMethod, one: Try, options: BuildOptions) -> Compiled | None:
        """Return the compiled model of a try; None if the method's pass changes nothing.

        options: with the limits of memories. Raises UnsupportedModel, PlanRejected.
        """
        limits = options.limits_bytes(self.platform)
        allowed = None
        if options.memories == "all" and len(limits) > 1 and not one.is_alone:
            less, ports = dict(one.less_bytes), self._searched(method).placed_bytes
            allowed = {
                memory: max(0, most - less.get(memory, 0) - ports.get(memory, 0)) for memory, most in limits.items()
            }
        module = self._once(("module", method.name, one.index), lambda: self._changed(method, one.index))
        if module is None:
            return None

        def within(memories: Mapping[str, int] | None, spread: Spread) -> Compiled:
            key = ("compiled", method.name, one.index, tuple(memories.items()) if memories else None, spread)

            def make() -> Compiled:
                changed = module if method.make or not memories else self._cut(method, memories)
                return self.stages.compiled(changed, method.options, memories, spread)

            return self._once(key, make)

        home = self.platform.activations
        narrower: list[Spread] = [limits[home], "first"] if options.offloads_of(self.platform) else ["first"]
        narrower = narrower if one.cores == "any" else []
        spread: Spread = "first" if one.cores == "first" else "all"
        compiled = within(allowed, spread)
        while compiled.placement is not None and _is_over(compiled, {home: limits[home]}) and narrower:
            # Processors that run in parallel keep more tensors alive than a single one.
            spread = narrower.pop(0)
            compiled = within(allowed, spread)
        # Tensors were spilled to another memory before overlaps were planned. With overlaps, the model may fit without.
        if compiled.moved_to_fit:
            at_home = within(None, spread)
            return at_home if at_home.plan.bytes_in(home) <= limits[home] else compiled
        return compiled

    def _cut(self, method: FitMethod, memories: Mapping[str, int]) -> tvm.IRModule:
        """Return the scheduled module, cut for several memories.

        The limit of the default memory is ignored: other methods meet it, and so all budgets share a single search.
        """
        home = self.platform.activations
        limits = {**memories, home: self.platform.memory(home).usable_bytes}
        known = self._searched(method)
        key = ("cut", *_kind(method), tuple(limits.items()))
        return self._once(key, lambda: self.stages.cut(known, method.options, limits))

    def _changed(self, method: FitMethod, index: int) -> tvm.IRModule | None:
        """Return the module after a method's pass; None if the pass changed nothing and `whole` is already compiled."""
        scheduled, way = self._searched(method).mod, self.way(method, index)
        if way.memory_pass is None:
            return scheduled
        changed = way.memory_pass(scheduled)
        return None if method.floor and changed["main"].same_as(scheduled["main"]) else changed

    def _searched(self, method: FitMethod) -> Searched:
        def make() -> Searched:
            return Searched(mod=self.stages.scheduled(*_kind(method)), backend=self.stages.backend(method.options))

        return self._once(("searched", *_kind(method)), make)

    def _has_scratch(self, method: FitMethod) -> bool:
        """Return True if the fastest kernels need scratch."""
        fastest = replace(method, options=replace(method.options, least_scratch=False))
        return any(node.extra_bytes for node in self._searched(fastest).graph.nodes)

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def _kind(method: FitMethod) -> tuple[Quantize, bool, TimeAxis]:
    """Return the arguments of `Stages.scheduled` for a method."""
    return method.options.quantize, method.options.least_scratch, method.time_axis


def _is_over(compiled: Compiled, limits: Mapping[str, int]) -> bool:
    """Return True if an arena takes more than the limit or the usable bytes of its memory."""
    plan, platform = compiled.plan, compiled.platform
    return any(
        plan.bytes_in(memory.name) > limits.get(memory.name, memory.usable_bytes)
        for memory in platform.memories
        if memory.kind == "ram"
    )
