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


def with_own_memory(platform: Platform, owner: str, *, capacity_bytes: int, dma: bool = False) -> Platform:
    """A platform with a memory `own` that one core alone reaches, eight times as fast as the one for tensors now is.

    On a board it is bank 0 of the SSE-200's own SRAM, which that core has to itself by convention: QEMU models none.
    """
    home, board = platform.memory(platform.activations), platform.board
    slow = replace(home, read_bytes_per_cycle=0.5, write_bytes_per_cycle=0.5)
    own = replace(
        home, name="own", capacity_bytes=capacity_bytes, read_bytes_per_cycle=4.0, write_bytes_per_cycle=4.0,
        section=".bss.own" if board else None, address=0x3000_0000 if board else None,
    )  # fmt: skip
    links = [Link(source=owner, target="own", bytes_per_cycle=4)]
    ends = (home.name, "own"), ("own", home.name)
    links += [Link(source=one, target=other, bytes_per_cycle=4, dma=True) for one, other in ends] if dma else []
    memories = [slow if memory is home else memory for memory in platform.memories]
    return replace(platform, memories=(*memories, own), links=(*platform.links, *links))
