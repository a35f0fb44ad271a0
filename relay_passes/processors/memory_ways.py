"""Memories of back ends inside of TVM's virtual machine, and the time of copies between them."""

from __future__ import annotations

from math import ceil

from relay_passes.analysis.processor_costs import NANOSECONDS
from tvm_ext.core.errors import BadPlatform
from tvm_ext.core.platform import Platform, Processor


def memory_of(processor: Processor, platform: Platform) -> str:
    """The memory in which a processor of TVM's, or our first core, has its tensors: that of all, or one of its own."""
    own = [memory.name for memory in platform.memories if platform.reached_by(processor.name, memory.name)]
    return platform.activations if not own or platform.activations in own else own[0]


def moving(platform: Platform, source: str, target: str) -> tuple[int, float]:
    """Nanoseconds of a transfer's start, and of each byte. Cycles of links are those of the first processor.

    Raises BadPlatform where no link joins the two.
    """
    if source == target:
        return 0, 0.0
    if platform.activations not in (source, target):  # from one back end's memory to another's: through that of all
        first, second = moving(platform, source, platform.activations), moving(platform, platform.activations, target)
        return first[0] + second[0], first[1] + second[1]
    link = platform.link_between(source, target) or platform.link_between(target, source)
    if link is None:
        raise BadPlatform(
            f"{platform.name}: no way joins {source} and {target}, which TVM copies tensors between; add a [[links]] "
            "table with its rate."
        )
    cycle = NANOSECONDS / platform.processor.clock_hz
    return ceil(link.latency_cycles * cycle), cycle / link.bytes_per_cycle
