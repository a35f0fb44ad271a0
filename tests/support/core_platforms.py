"""Platforms of several cores for tests: the host's, as fast as is said."""

from __future__ import annotations

from dataclasses import replace

from tvm_ext.core.platform import Link, Platform, Signal


def host_cores(*clocks_hz: int, watts: float = 1.0, latency_cycles: int = 40) -> Platform:
    """Cores `cpu`, `cpu1`, `cpu2` and so on of the host, each at its clock, that share all memories."""
    host = Platform.load("host")
    names = ["cpu", *(f"cpu{number}" for number in range(1, len(clocks_hz)))]
    cores = [
        replace(host.processor, name=name, clock_hz=clock, watts=watts)
        for name, clock in zip(names, clocks_hz, strict=True)
    ]
    links = [
        Link(source=name, target=memory.name, bytes_per_cycle=host.links[0].bytes_per_cycle)
        for name in names
        for memory in host.memories
    ]
    signals = [
        Signal(source=one, target=other, latency_cycles=latency_cycles)
        for one in names
        for other in names
        if one != other
    ]
    return replace(host, name="host_cores", processors=tuple(cores), links=tuple(links), signals=tuple(signals))
