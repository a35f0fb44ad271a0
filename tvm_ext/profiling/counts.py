"""Counts of one run, as the plugin wrote them: calls of the run function, executions of each block of code in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tvm_ext.core.errors import RunFailed
from tvm_ext.core.kernel_time import Traffic


@dataclass(frozen=True, kw_only=True)
class CallSite:
    """A call in the run function: address behind it, function called, lowest address of the stack stored to below.

    The first of all stands for the run function itself. lowest: None where nothing was stored there.
    """

    site: int
    target: int
    lowest: int | None


@dataclass(frozen=True, kw_only=True)
class BlockCount:
    """Executions of a block in a call. taken: how often it was left elsewhere than at its end.

    traffic: by number of the memory and whether it was stored to.
    """

    addresses: tuple[int, ...]
    call: int
    executed: int
    taken: int
    traffic: Mapping[tuple[int, bool], Traffic] = field(default_factory=dict[tuple[int, bool], Traffic])


@dataclass(frozen=True, kw_only=True)
class RunCounts:
    """Counts of one run. stack_top: address below which the run function stores; None where it stores nothing."""

    stack_top: int | None
    calls: tuple[CallSite, ...]
    blocks: tuple[BlockCount, ...]


def read_counts(path: Path) -> RunCounts:
    """The plugin's file. Raises RunFailed where it wrote none."""
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError:
        lines = []
    if not lines:
        raise RunFailed(
            "QEMU's plugin counted no run: the firmware ended before it, or its run function never returned."
        )
    top = next(int(words[1], 16) for words in lines if words[0] == "T")
    calls = [tuple(int(word, 16) for word in words[2:]) for words in lines if words[0] == "L"]
    blocks = {int(words[1]): tuple(int(word, 16) for word in words[2:]) for words in lines if words[0] == "B"}
    traffic: dict[tuple[int, int], dict[tuple[int, bool], Traffic]] = {}
    for words in lines:
        if words[0] == "M":
            block, call, memory, is_store, transactions, bursts, num_bytes = map(int, words[1:])
            traffic.setdefault((block, call), {})[memory, bool(is_store)] = Traffic(
                transactions=transactions, bursts=bursts, num_bytes=num_bytes
            )
    counted = [tuple(map(int, words[1:])) for words in lines if words[0] == "E"]
    return RunCounts(
        stack_top=top or None,
        calls=tuple(
            CallSite(site=site, target=target, lowest=None if lowest == (1 << 64) - 1 else lowest)
            for site, target, lowest in calls
        ),
        blocks=tuple(
            BlockCount(
                addresses=blocks[block], call=call, executed=executed, taken=taken,
                traffic=traffic.get((block, call), {}),
            )
            for block, call, executed, taken in counted
        ),
    )  # fmt: skip
