"""Estimate the cycles of each layer from the counts of the QEMU plugin."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tvm_ext.core.errors import RunFailed
from tvm_ext.core.time_model import NONE, TimeModel, Traffic
from tvm_ext.profiling.core_table import CoreTable
from tvm_ext.profiling.instructions import FirmwareInstruction
from tvm_ext.profiling.profile import WAITS, FunctionProfile, LayerProfile, MemoryProfile

ELSEWHERE = "elsewhere"
"""Name for addresses outside of the platform's memories, such as registers of peripherals."""

FunctionRange = tuple[str, int, int]


@dataclass(frozen=True, kw_only=True)
class Firmware:
    """Firmware of a run: its instructions by address, its functions, the names of its memories."""

    instructions: Mapping[int, FirmwareInstruction]
    functions: Sequence[FunctionRange]
    memories: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class _Sums:
    """Sums over the blocks of a layer."""

    instructions: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    executed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    cycles: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    traffic: dict[tuple[int, bool], Traffic] = field(default_factory=dict[tuple[int, bool], Traffic])


def layer_profiles(
    counts: RunCounts, names: Sequence[str], firmware: Firmware, table: CoreTable, time: TimeModel
) -> list[LayerProfile]:
    """Return the profiles of layers in the order of their first run. names: layer of each call.

    Raises RunFailed for an executed instruction that is not in the disassembly.
    """
    sums: dict[str, _Sums] = {name: _Sums() for name in names}
    costs: dict[tuple[int, ...], tuple[list[FirmwareInstruction], list[float]]] = {}
    functions = sorted((begin, end, name) for name, begin, end in firmware.functions)
    for block in joined(counts.blocks, firmware.instructions):
        if block.addresses not in costs:
            code = _code(block, firmware)
            costs[block.addresses] = code, table.block_cycles(code)
        code, cycles = costs[block.addresses]
        _add(sums[names[block.call]], block, code, cycles, table, time, firmware.memories, _function(functions, block))
    lowest: dict[str, list[int]] = {}
    for name, call in zip(names, counts.calls, strict=True):
        lowest.setdefault(name, []).extend([call.lowest] if call.lowest is not None else [])
    return [
        LayerProfile(
            name=name, kernel=None, macs=None, instructions=dict(own.instructions),
            functions=tuple(
                FunctionProfile(name=function, instructions=own.executed[function], cycles=dict(spent))
                for function, spent in sorted(own.cycles.items(), key=lambda item: -sum(item[1].values()))
            ),
            memories=tuple(_memories(own.traffic, firmware.memories, time)),
            stack_bytes=counts.stack_top - min(lowest[name]) if counts.stack_top and lowest[name] else None,
        )
        for name, own in sums.items()
    ]  # fmt: skip


def joined(blocks: Sequence[BlockCount], instructions: Mapping[int, FirmwareInstruction]) -> list[BlockCount]:
    """Return the blocks of a run, with those joined into one that QEMU splits although no branch lies between them.

    QEMU ends a block after an instruction that changes the type of vectors or a control register, and at a page. The
    parts run equally often in a call, one after the other, so the core overlaps their instructions.
    """
    addresses = sorted(instructions)
    following = dict(pairwise(addresses))
    begins = {(block.call, block.addresses[0]): block for block in blocks}

    def continuation(block: BlockCount) -> BlockCount | None:
        last = block.addresses[-1]
        if last not in instructions or instructions[last].kind in ("branch", "loop") or block.taken:
            return None
        after = begins.get((block.call, following.get(last, -1)))
        return after if after is not None and after.executed == block.executed else None

    found: list[BlockCount] = []
    continued = {id(after) for block in blocks if (after := continuation(block)) is not None}
    for block in blocks:
        if id(block) in continued:
            continue
        whole = block
        while (after := continuation(whole)) is not None:
            whole = BlockCount(
                addresses=whole.addresses + after.addresses, call=whole.call, executed=whole.executed,
                taken=after.taken, traffic=_added(whole.traffic, after.traffic),
            )  # fmt: skip
        found.append(whole)
    return found


def _added(
    first: Mapping[tuple[int, bool], Traffic], second: Mapping[tuple[int, bool], Traffic]
) -> dict[tuple[int, bool], Traffic]:
    """Return the traffic of two blocks together."""
    total = dict(first)
    for key, traffic in second.items():
        before = total.get(key, NONE)
        total[key] = Traffic(
            transactions=before.transactions + traffic.transactions, bursts=before.bursts + traffic.bursts,
            num_bytes=before.num_bytes + traffic.num_bytes,
        )  # fmt: skip
    return total


def wait_cycles(traffic: Traffic, memory: str, time: TimeModel, *, is_store: bool) -> float:
    """Return the cycles that a memory adds to the instructions; 0 if the platform does not describe its timing."""
    if memory == ELSEWHERE or not time.reaches(memory):
        return 0.0
    return time.wait_cycles(memory, traffic, is_store=is_store)


def _add(
    into: _Sums,
    block: BlockCount,
    code: Sequence[FirmwareInstruction],
    cycles: Sequence[float],
    table: CoreTable,
    time: TimeModel,
    memories: Sequence[str],
    function: str,
) -> None:
    """Add the executions of a block to the sums of its layer."""
    spent = into.cycles[function]
    into.executed[function] += block.executed * len(code)
    for one, each in zip(code, cycles, strict=True):
        into.instructions[one.kind] += block.executed
        spent[one.kind] += block.executed * each
    spent[code[-1].kind] += block.taken * table.taken_cycles(code[-1])
    into.traffic.update(_added(into.traffic, block.traffic))
    for key, traffic in block.traffic.items():
        number, is_store = key
        if waits := wait_cycles(traffic, _memory(memories, number), time, is_store=is_store):
            spent[WAITS] += waits


def _code(block: BlockCount, firmware: Firmware) -> list[FirmwareInstruction]:
    """Return the instructions of a block. Raises RunFailed for an address that is not in the disassembly."""
    unknown = [address for address in block.addresses if address not in firmware.instructions]
    if unknown:
        raise RunFailed(
            f"the firmware executed address {unknown[0]:#x}, at which its disassembly has no instruction; compile the "
            "model again."
        )
    return [firmware.instructions[address] for address in block.addresses]


def _function(functions: Sequence[tuple[int, int, str]], block: BlockCount) -> str:
    """Return the name of the function that contains a block; its address if the ELF file has no name for it."""
    address = block.addresses[0]
    position = bisect_right(functions, (address, 1 << 64, "")) - 1
    if position >= 0 and functions[position][0] <= address < functions[position][1]:
        return functions[position][2]
    return f"{address:#x}"


def _memories(
    traffic: Mapping[tuple[int, bool], Traffic], memories: Sequence[str], time: TimeModel
) -> list[MemoryProfile]:
    """Return the profile of each memory that was accessed."""
    found: list[MemoryProfile] = []
    for number in sorted({number for number, _ in traffic}):
        name = _memory(memories, number)
        loaded, stored = traffic.get((number, False), NONE), traffic.get((number, True), NONE)
        waits = wait_cycles(loaded, name, time, is_store=False) if loaded.num_bytes else 0.0
        waits += wait_cycles(stored, name, time, is_store=True) if stored.num_bytes else 0.0
        found.append(
            MemoryProfile(
                name=name, loads=round(loaded.transactions), load_bursts=round(loaded.bursts),
                loaded_bytes=round(loaded.num_bytes), stores=round(stored.transactions),
                store_bursts=round(stored.bursts), stored_bytes=round(stored.num_bytes), wait_cycles=waits,
            )
        )  # fmt: skip
    return found


def _memory(memories: Sequence[str], number: int) -> str:
    return memories[number] if number < len(memories) else ELSEWHERE


@dataclass(frozen=True, kw_only=True)
class CallSite:
    """A call in the run function; the first entry of a run stands for the run function itself.

    site: return address. target: address of the called function. lowest: lowest stack address that was stored to; None
    if nothing was stored.
    """

    site: int
    target: int
    lowest: int | None


@dataclass(frozen=True, kw_only=True)
class BlockCount:
    """Executions of a basic block in a call. taken: number of executions that ended with a taken branch.

    traffic: by the index of the memory, and True for stores.
    """

    addresses: tuple[int, ...]
    call: int
    executed: int
    taken: int
    traffic: Mapping[tuple[int, bool], Traffic] = field(default_factory=dict[tuple[int, bool], Traffic])


@dataclass(frozen=True, kw_only=True)
class RunCounts:
    """Counts of a run. stack_top: address below which the run function stores; None if it stores nothing."""

    stack_top: int | None
    calls: tuple[CallSite, ...]
    blocks: tuple[BlockCount, ...]


def read_counts(path: Path) -> RunCounts:
    """Read the counts that the plugin wrote. Raises RunFailed if there are none."""
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError:
        lines = []
    if not lines:
        raise RunFailed(
            "QEMU's plugin counted no run: the firmware ended before the measured run, or the run function did not "
            "return. Compile the model again."
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
