"""Order of Helium instructions in which neighbours use different units, so that their beats overlap.

A vector instruction takes two cycles of its unit: load and store, multiplier, or arithmetic. The next instruction
starts a cycle later if it uses another unit, and two cycles later otherwise (Arm Cortex-M55 Technical Reference Manual,
101051). The order changes no result: an instruction stays after those whose registers or memory it reads or overwrites.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

_OPERAND = re.compile(r"%q?\[(\w+)\]|\b(q\d|r\d+|lr)\b")
_ADVANCED = re.compile(r"\[%\[(\w+)\]\], #|\[%q?\[(\w+)\], #-?\d+\]!")
"""Address registers that an instruction advances."""
_MEMORY, _FLAGS, _ORDER = "memory", "flags", "order"


@dataclass(frozen=True, kw_only=True)
class _Instruction:
    unit: str
    reads: frozenset[str]
    writes: frozenset[str]


def interleaved(lines: Sequence[str]) -> list[str]:
    """Return straight-line instructions in an order with few conflicts of neighbours.

    Branches and labels are not allowed. Operands are registers, or names of the operands of an assembly statement. An
    address `[%[name]@number]` is relative to a pointer that nothing changes. Vectors stay in the order of their loads
    from such addresses.
    """
    instructions = [_parsed(line) for line in lines]
    after = _successors(instructions)
    heights = _heights(instructions, after)
    # The multiplier has the most instructions in these loops: where it is free, one of its instructions comes first.
    others = [one.unit != "multiplier" for one in instructions]
    rules: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda i: (others[i], -heights[i], i), lambda i: (others[i], i), lambda i: (-heights[i], i), lambda i: (i,),
    )  # fmt: skip
    orders = [list(range(len(lines))), *(_ordered(instructions, after, rule) for rule in rules)]
    best = min(orders, key=lambda order: _cycles(instructions, order))
    return [lines[index] for index in best]


def cycles(lines: Sequence[str]) -> int:
    """Return the cycles of straight-line instructions in their order."""
    return _cycles([_parsed(line) for line in lines], range(len(lines)))


def _parsed(line: str) -> _Instruction:
    mnemonic, _, operands = line.partition(" ")
    names = [name or register for name, register in _OPERAND.findall(operands)]
    advanced = {one or other for one, other in _ADVANCED.findall(operands)}
    if mnemonic.startswith(("vstr", "str")):
        return _Instruction(unit="memory", reads=frozenset(names), writes=frozenset({*advanced, _MEMORY}))
    if mnemonic.startswith("cmp"):
        return _Instruction(unit="scalar", reads=frozenset(names), writes=frozenset({_FLAGS}))
    if mnemonic.startswith(("vldr", "ldr")):
        targets = names[: 2 if mnemonic == "ldrd" else 1]
        if "@" in operands and mnemonic.startswith("v"):
            advanced, names = {*advanced, _ORDER}, [*names, _ORDER]
        return _Instruction(
            unit="memory", reads=frozenset({*names[len(targets) :], _MEMORY}), writes=frozenset({*targets, *advanced})
        )
    # Most vector instructions of these loops read the register that they write, and it does no harm for the others.
    written = frozenset(names[:1])
    if re.match(r"v(mla|mul|q?r?dm(ul|la))", mnemonic):
        is_first = mnemonic.startswith(("vmladav.", "vqdmulh", "vqrdmulh"))
        return _Instruction(unit="multiplier", reads=frozenset(names[1:] if is_first else names), writes=written)
    return _Instruction(unit="vector" if mnemonic.startswith("v") else "scalar", reads=frozenset(names), writes=written)


def _successors(instructions: Sequence[_Instruction]) -> list[set[int]]:
    """Return for each instruction those that must stay after it."""
    after: list[set[int]] = [set() for _ in instructions]
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    for index, one in enumerate(instructions):
        for name in one.reads:
            if name in writer:
                after[writer[name]].add(index)
            readers.setdefault(name, []).append(index)
        for name in one.writes:
            for before in (*readers.get(name, ()), *([writer[name]] if name in writer else ())):
                if before != index:
                    after[before].add(index)
            writer[name] = index
            readers[name] = []
    return after


def _heights(instructions: Sequence[_Instruction], after: Sequence[set[int]]) -> list[int]:
    """Return the cycles from each instruction to the end, at least, if units were never busy."""
    heights = [1] * len(instructions)
    for index in range(len(instructions) - 1, -1, -1):
        heights[index] += max((heights[each] for each in after[index]), default=0)
    return heights


def _conflicts(before: _Instruction, one: _Instruction) -> bool:
    """Return True if an instruction has to wait after another."""
    if before.unit == one.unit:
        return one.unit != "scalar"
    return before.unit == "multiplier" and one.unit == "vector" and bool(before.writes & one.reads)


def _ordered(
    instructions: Sequence[_Instruction], after: Sequence[set[int]], rule: Callable[[int], tuple[int, ...]]
) -> list[int]:
    """Return an order in which each instruction is one without a conflict, if there is one, and the first by a rule."""
    missing = [0] * len(instructions)
    for each in after:
        for index in each:
            missing[index] += 1
    ready = [index for index, count in enumerate(missing) if count == 0]
    order: list[int] = []
    while ready:
        last = instructions[order[-1]] if order else None

        def key(index: int, last: _Instruction | None = last) -> tuple[bool, tuple[int, ...]]:
            return last is not None and _conflicts(last, instructions[index]), rule(index)

        chosen = min(ready, key=key)
        ready.remove(chosen)
        order.append(chosen)
        for index in sorted(after[chosen]):
            missing[index] -= 1
            if missing[index] == 0:
                ready.append(index)
    return order


def _cycles(instructions: Sequence[_Instruction], order: Sequence[int]) -> int:
    """Return the cycles of an order."""
    pairs = pairwise(order)
    return len(order) + sum(_conflicts(instructions[before], instructions[one]) for before, one in pairs)
