"""Compile one model by the methods that make it fit, and keep what several attempts share."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self, TypeVar

import tvm

from codegen_c.arena.plan import check_capacity
from codegen_c.backend.build import Compiled
from relay_passes.backend import Backend
from relay_passes.searched import Searched
from relay_passes.simplify.orient_sequences import TimeAxis
from tvm_ext.core.errors import DoesNotFit, PlanRejected
from tvm_ext.core.options import BuildOptions, Quantize
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.native_warnings import native_warnings_dropped
from tvm_ext.fitting.methods import FitMethod, MemoryPass
from tvm_ext.fitting.next_try import Offer, Tried, Try


@dataclass(frozen=True, kw_only=True)
class TryOutcome:
    """Bytes of arenas by memory, none where a method's pass found nothing to change, and modelled instructions.

    is_held: all memories of the platform hold their arenas and weights. ports: memories beside the default one that
    inputs and outputs were placed in. rejected: objection of the validator to the plan, which then has no bytes.
    """

    num_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    instructions: int = 0
    is_held: bool = True
    ports: tuple[str, ...] = ()
    rejected: str | None = None

    @classmethod
    def of(cls, compiled: Compiled | None) -> Self:
        """The outcome of a compiled try that the validator has nothing against; None where nothing was found."""
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
        return cls(
            num_bytes=num_bytes, instructions=compiled.modelled_instructions, is_held=is_held,
            ports=ports_beside(compiled),
        )  # fmt: skip

    def to_json(self) -> str:
        """The outcome as text that `from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """The outcome that `to_json` wrote."""
        values = json.loads(text)
        return cls(**{**values, "ports": tuple(values["ports"])})

    def within(self, one: Try, limits: Mapping[str, int], home: str) -> Tried:
        """The outcome of a try where memories may give these bytes. home: the default one, whose limit tells alone
        where the try has no other memory, but for those that ports are in."""
        if self.rejected is not None or not self.num_bytes:
            return Tried(one=one, rejected=self.rejected)
        others = [memory for memory in (self.ports if one.is_alone else limits) if memory != home]
        over = {memory: self.num_bytes[memory] - limits[memory] for memory in others}
        over = {memory: num_bytes for memory, num_bytes in over.items() if num_bytes > 0}
        return Tried(
            one=one, arena_bytes=self.num_bytes[home], instructions=self.instructions,
            fits=not over and self.is_held and self.num_bytes[home] <= limits[home],
            over_bytes=() if one.is_alone else tuple(over.items()),
        )  # fmt: skip


def ports_beside(compiled: Compiled) -> tuple[str, ...]:
    """Memories of the platform, but its default one, that a model's inputs and outputs lie in."""
    program, platform = compiled.program, compiled.platform
    found = dict.fromkeys(program.tensors[name].memory for name in (*program.inputs, *program.outputs))
    return tuple(
        memory.name for memory in platform.memories if memory.name in found and memory.name != platform.activations
    )


T = TypeVar("T")
Spread = Literal["all", "first"] | int
"""Processors that operators go to: all, or the first core; a number: accelerators beside that core, in the order that
came, as far as so many bytes in the default memory are enough."""


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The pipeline in front of what makes a model fit, and behind it.

    scheduled: the module in front, by type of numbers, ordered for the fastest kernels or those of least scratch, with
    sequences as images along an axis.
    cut: a scheduled module, with bytes that each memory may give, cut where it is faster with several memories.
    compiled: a module from behind, with such bytes; None: the default memory alone. Then, the processors that operators
    go to.
    """

    scheduled: Callable[[Quantize, bool, TimeAxis], tvm.IRModule]
    cut: Callable[[Searched, BuildOptions, Mapping[str, int]], tvm.IRModule]
    compiled: Callable[[tvm.IRModule, BuildOptions, Mapping[str, int] | None, Spread], Compiled]
    backend: Callable[[BuildOptions], Backend]


@dataclass(frozen=True, kw_only=True)
class Way:
    """Options and pass that compile a model to take less memory. memory_pass: runs behind the order of operators."""

    method: str
    options: BuildOptions
    memory_pass: MemoryPass = None


Asked = tuple[FitMethod, Try]
Ahead = Callable[[Asked, BuildOptions, Iterator[Asked]], TryOutcome | None]
"""Outcome of a try that somebody else compiles, who may begin those that are likely to follow; None: nobody does, or it
came to no end there. Options: with the limits of memories."""


class Fitter:
    """One model, ready to be compiled by any method within any limit. ahead: who compiles tries beside this one."""

    ahead: Ahead | None = None

    def __init__(self, stages: Stages, platform: Platform) -> None:
        self.stages, self.platform = stages, platform
        self._made: dict[Hashable, Any] = {}

    def offers(self, method: FitMethod) -> tuple[Offer, ...]:
        """Budgets to ask a method for; none that saves scratch where there is none."""

        def make() -> tuple[Offer, ...]:
            if method.saves_scratch and not self._has_scratch(method):
                return ()
            return method.offers(self._searched(method)) if method.offers else (Offer(),)

        return self._once(("offers", method.name), make)

    def known_offers(self, method: FitMethod) -> tuple[Offer, ...]:
        """The same where it is known by now; else none."""
        return self._made.get(("offers", method.name), ())

    def way(self, method: FitMethod, index: int) -> Way:
        """The way that an offer stands for."""
        offer = self.offers(method)[index]
        if method.make is None or offer.budget_bytes is None:
            return Way(method=method.name, options=method.options)
        memory_pass = method.make(self._searched(method), offer)
        return Way(method=method.name, options=method.options, memory_pass=memory_pass)

    def outcome(self, asked: Asked, options: BuildOptions, likely: Iterator[Asked]) -> TryOutcome:
        """Outcome of a try. options: with the limits of memories. likely: tries that may follow.

        Raises UnsupportedModel.
        """
        known = self.ahead(asked, options, likely) if self.ahead else None
        return known or self.outcome_here(asked, options)

    def outcome_here(self, asked: Asked, options: BuildOptions) -> TryOutcome:
        """The same without help."""
        try:
            return TryOutcome.of(self.compiled(*asked, options))
        except PlanRejected as rejected:
            return TryOutcome(rejected=str(rejected))

    @native_warnings_dropped()
    def compiled(self, method: FitMethod, one: Try, options: BuildOptions) -> Compiled | None:
        """Result of a try; None where the method's pass finds nothing to change.

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
        spread: Spread = "all"
        compiled = within(allowed, spread)
        while compiled.placement is not None and _is_over(compiled, {home: limits[home]}) and narrower:
            spread = narrower.pop(0)  # processors at once keep more alive than one
            compiled = within(allowed, spread)
        if compiled.moved_to_fit:  # overlaps are planned after places are chosen, and may make it fit unmoved
            at_home = within(None, spread)
            return at_home if at_home.plan.bytes_in(home) <= limits[home] else compiled
        return compiled

    def _cut(self, method: FitMethod, memories: Mapping[str, int]) -> tvm.IRModule:
        """The scheduled module cut for several memories, whatever the default one may give: other methods see to that,
        and budgets of it share what is searched for."""
        home = self.platform.activations
        limits = {**memories, home: self.platform.memory(home).usable_bytes}
        known = self._searched(method)
        key = ("cut", *_kind(method), tuple(limits.items()))
        return self._once(key, lambda: self.stages.cut(known, method.options, limits))

    def _changed(self, method: FitMethod, index: int) -> tvm.IRModule | None:
        """The module behind a method's pass; None where the whole would be compiled once more."""
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
        """True where the fastest kernels need any scratch."""
        fastest = replace(method, options=replace(method.options, least_scratch=False))
        return any(node.extra_bytes for node in self._searched(fastest).graph.nodes)

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def _kind(method: FitMethod) -> tuple[Quantize, bool, TimeAxis]:
    """Kind of scheduled module that a method starts from."""
    return method.options.quantize, method.options.least_scratch, method.time_axis


def _is_over(compiled: Compiled, limits: Mapping[str, int]) -> bool:
    """True where an arena takes more than a memory may give, or holds."""
    plan, platform = compiled.plan, compiled.platform
    return any(
        plan.bytes_in(memory.name) > limits.get(memory.name, memory.usable_bytes)
        for memory in platform.memories
        if memory.kind == "ram"
    )
