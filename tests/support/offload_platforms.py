"""Platforms with an accelerator for tests: its driver takes conv2d, depthwise, dense layers of bytes, or all kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tvm_ext.core.platform import Link, Offload, OffloadOperator, Platform, Processor

KINDS = ("conv2d", "depthwise", "dense")
OF_FLOATS = "_f32"
ALL_KINDS = [f"{kind}{ending}" for ending in ("", OF_FLOATS) for kind in (*KINDS, "max_pool", "average_pool", "add")]
COSTS = {"cycles_per_call": 200, "cycles_per_mac": 0.125, "cycles_per_byte": 0.25}


def offload_of(kinds: Mapping[str, Mapping[str, Any]]) -> Offload:
    """A driver that takes operators of these kinds, which end in `OF_FLOATS` for floats, with what is said of each."""
    entries = [
        {
            "kind": kind.removesuffix(OF_FLOATS), "start": f"npu_{kind}", "most_kernel": (11, 11),
            "types": ("float32",) if kind.endswith(OF_FLOATS) else ("int8", "uint8"),
            "most_shape": (1, 4096) if "dense" in kind else (4, 256, 256, 1024), **said,
        }
        for kind, said in kinds.items()
    ]  # fmt: skip
    operators = tuple(OffloadOperator(**entry) for entry in entries)
    return Offload(header="npu_driver.h", wait="npu_wait", operators=operators)


def with_accelerator(
    base: Platform | str, kinds: Mapping[str, Mapping[str, Any]] | None = None, *, clock_hz: int | None = None
) -> Platform:
    """A platform with an accelerator `npu` beside its cores, which reaches all memories.

    kinds: operators it takes, by default `KINDS`, at 200 cycles a call, 1/8 a product, 1/4 a byte.
    """
    platform = Platform.load(base) if isinstance(base, str) else base
    taken = {kind: COSTS for kind in KINDS} if kinds is None else kinds
    npu = Processor(
        name="npu", isa="npu", clock_hz=clock_hz or platform.processor.clock_hz, kind="offload", watts=0.000_1,
        offload=offload_of(taken),
    )  # fmt: skip
    links = [Link(source="npu", target=memory.name, bytes_per_cycle=4) for memory in platform.memories]
    return replace(platform, processors=(*platform.processors, npu), links=(*platform.links, *links))


def with_far_accelerator(base: Platform | str, *, dma: bool = False, reaches_weights: bool = True) -> Platform:
    """The same, whose accelerator reaches a ram of its own, and weights; a DMA joins it to the default one, or none."""
    platform = with_accelerator(base)
    home, board = platform.memory(platform.activations), platform.board
    own = replace(
        home, name="npu_ram", capacity_bytes=1 << 16, section=".bss.npu_ram" if board else None,
        address=0x2100_0000 if board else None,
    )  # fmt: skip
    links = [link for link in platform.links if link.source != "npu"]
    links += [Link(source="npu", target="npu_ram", bytes_per_cycle=4)]
    links += [Link(source="npu", target=platform.weights, bytes_per_cycle=4)] if reaches_weights else []
    if dma:
        ends = (home.name, "npu_ram"), ("npu_ram", home.name), (platform.weights, "npu_ram")
        links += [Link(source=one, target=other, bytes_per_cycle=4, dma=True) for one, other in ends]
    else:
        links.append(Link(source=platform.processor.name, target="npu_ram", bytes_per_cycle=4))
    return replace(platform, memories=(*platform.memories, own), links=tuple(links))
