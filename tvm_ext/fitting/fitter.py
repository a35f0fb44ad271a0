"""Compiles one model by the methods that make it fit: what several tries or limits share is done once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import tvm

from codegen_c.backend.build import Compiled
from relay_passes.backend import Backend
from relay_passes.memory.set_rows_per_call import SetRowsPerCall
from relay_passes.searched import Searched
from relay_passes.solvers.recompute.search import Rank
from tvm_ext.core.errors import PlanRejected
from tvm_ext.core.options import BuildOptions, Quantize
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.native_warnings import native_warnings_dropped
from tvm_ext.fitting.methods import FitMethod, MemoryPass
from tvm_ext.fitting.next_try import Offer, Try
from tvm_ext.fitting.outcome import TryOutcome

T = TypeVar("T")
Spread = Literal["all", "first"] | int
"""Processors that operators go to: all, or the first core; a number: accelerators beside that core, in the order that
came, as far as so many bytes in the default memory are enough."""


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The pipeline in front of what makes a model fit, and behind it.

    scheduled: the module in front, by type of numbers, ordered for the fastest kernels or those of least scratch.
    cut: a scheduled module, with bytes that each memory may give, cut where it is faster with several memories.
    compiled: a module from behind, with such bytes; None: the default memory alone. Then, the processors that operators
    go to.
    """

    scheduled: Callable[[Quantize, bool], tvm.IRModule]
    cut: Callable[[Searched, BuildOptions, Mapping[str, int]], tvm.IRModule]
    compiled: Callable[[tvm.IRModule, BuildOptions, Mapping[str, int] | None, Spread], Compiled]
    backend: Callable[[BuildOptions], Backend]
    rank: Rank | None = None


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
            if method.saves_scratch and not self._has_scratch(method.options):
                return ()
            return method.offers(self._searched(method.options)) if method.offers else (Offer(),)

        return self._once(("offers", method.name), make)

    def known_offers(self, method: FitMethod) -> tuple[Offer, ...]:
        """The same where it is known by now; else none."""
        return self._made.get(("offers", method.name), ())

    def way(self, method: FitMethod, index: int) -> Way:
        """The way that an offer stands for."""
        offer = self.offers(method)[index]
        if method.make is None or offer.budget_bytes is None:
            return Way(method=method.name, options=method.options)
        memory_pass = method.make(self._searched(method.options), offer, self.stages.rank)
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
    def compiled(
        self, method: FitMethod, one: Try, options: BuildOptions, rows: Mapping[str, int] = MappingProxyType({})
    ) -> Compiled | None:
        """Result of a try; None where the method's pass finds nothing to change.

        options: with the limits of memories. rows: per call of sequences, by their names, in place of those that the
        pass chose. Raises UnsupportedModel, PlanRejected.
        """
        limits = options.limits_bytes(self.platform)
        allowed = None
        if options.memories == "all" and len(limits) > 1 and not one.is_alone:
            less, ports = dict(one.less_bytes), self._searched(method.options).placed_bytes
            allowed = {
                memory: max(0, most - less.get(memory, 0) - ports.get(memory, 0)) for memory, most in limits.items()
            }
        module = self._once(("module", method.name, one.index), lambda: self._changed(method, one.index))
        if module is None:
            return None
        again = tuple(sorted(rows.items()))

        def within(memories: Mapping[str, int] | None, spread: Spread) -> Compiled:
            key = ("compiled", method.name, one.index, tuple(memories.items()) if memories else None, spread, again)

            def make() -> Compiled:
                changed = module if method.make or not memories else self._cut(method, memories)
                if rows:
                    changed = SetRowsPerCall(rows)(changed)
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
        known = self._searched(method.options)
        key = ("cut", method.options.quantize, method.options.least_scratch, tuple(limits.items()))
        return self._once(key, lambda: self.stages.cut(known, method.options, limits))

    def _changed(self, method: FitMethod, index: int) -> tvm.IRModule | None:
        """The module behind a method's pass; None where the whole would be compiled once more."""
        scheduled, way = self._searched(method.options).mod, self.way(method, index)
        if way.memory_pass is None:
            return scheduled
        changed = way.memory_pass(scheduled)
        return None if method.floor and changed["main"].same_as(scheduled["main"]) else changed

    def _searched(self, options: BuildOptions) -> Searched:
        def make() -> Searched:
            module = self.stages.scheduled(options.quantize, options.least_scratch)
            return Searched(mod=module, backend=self.stages.backend(options))

        return self._once(("searched", options.quantize, options.least_scratch), make)

    def _has_scratch(self, options: BuildOptions) -> bool:
        """True where the fastest kernels need any scratch."""
        return any(node.extra_bytes for node in self._searched(replace(options, least_scratch=False)).graph.nodes)

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def _is_over(compiled: Compiled, limits: Mapping[str, int]) -> bool:
    """True where an arena takes more than a memory may give, or holds."""
    plan, platform = compiled.plan, compiled.platform
    return any(
        plan.bytes_in(memory.name) > limits.get(memory.name, memory.usable_bytes)
        for memory in platform.memories
        if memory.kind == "ram"
    )
