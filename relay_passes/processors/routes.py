"""Ways of values between processors: signals, what cores and DMAs move for accelerators, and time of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm import relax

from relay_passes.analysis.processor_costs import ProcessorCosts
from relay_passes.solvers.processors.driven import Driving
from relay_passes.solvers.processors.problem import Route
from tvm_ext.core.platform import Platform
from tvm_ext.core.time_model import CALL_CYCLES


def routes_of(costs: Sequence[ProcessorCosts], platform: Platform) -> dict[tuple[int, int], Route]:
    """Signals between cores; all share the memory of the tensors, so nothing else crosses.

    The first core speaks for accelerators.
    """
    callers = [costs[0] if cost.is_offload else cost for cost in costs]
    routes: dict[tuple[int, int], Route] = {}
    for source, one in enumerate(callers):
        for target, other in enumerate(callers):
            signal = platform.signal_between(one.processor.name, other.processor.name)
            if signal:
                routes[source, target] = Route(signal_time=one.from_cycles(signal.latency_cycles))
            elif one is other and source != target:
                routes[source, target] = Route()
    for source, target in routes:
        near = [platform.near_memory(costs[number].processor) or platform.activations for number in (source, target)]
        if near[0] != near[1]:
            routes[source, target] = _moving(costs[0], routes[source, target], near[0], near[1])
    return routes


def _moving(first: ProcessorCosts, route: Route, source: str, target: str) -> Route:
    """A route along which tensors are moved between memories; by way of the default one, where it is neither."""
    home, probe = first.time.platform.activations, 1 << 12
    ways = [(source, target)] if home in (source, target) else [(source, home), (home, target)]
    none, some = (
        sum(first.time.transfer_cycles(*way, num_bytes) for way in ways) for num_bytes in (0, probe)
    )  # fmt: skip
    time = first.from_cycles(probe * 1000) / (probe * 1000) * (some - none) / probe
    return replace(route, transfer_time=first.from_cycles(none + CALL_CYCLES), time_per_byte=time)


def driving_of(costs: Sequence[ProcessorCosts]) -> Driving | None:
    """The accelerators among processors; None without."""
    found = frozenset(number for number, cost in enumerate(costs) if cost.is_offload)
    return Driving(accelerators=found, call_time=costs[0].from_cycles(CALL_CYCLES)) if found else None


def fetch_time(composite: relax.Function | None, costs: Sequence[ProcessorCosts], cost: ProcessorCosts) -> int:
    """Time in which weights come to an accelerator that does not reach them."""
    platform = costs[0].time.platform
    near = platform.near_memory(cost.processor)
    if not near or composite is None or platform.reached_by(cost.processor.name, platform.weights):
        return 0
    num_bytes = cost.backend.footprint(composite).weights_bytes
    return costs[0].from_cycles(costs[0].time.transfer_cycles(platform.weights, near, num_bytes))
