"""Jumps of a function to addresses of its own, in disassembly: unrolled loops of products are entered in their middle.

Hand-written code makes such an address from the program counter, and jumps to it from a register, or from the place on
its stack to which it pushed it. Registers are followed line by line; a place counts only where nothing else is ever
written to it, wherever in the function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

Line = tuple[str, str]
"""An instruction and its operands, as objdump writes them."""

_PUSH = re.compile(r"push|vpush|stmdb|vstmdb")
_STORE_BELOW = re.compile(r"\[sp, #-(\d+)\]!")
_SUBTRACT = re.compile(r"sp, (?:sp, )?#(\d+)")
_OWN_ADDRESS = re.compile(r"(\w+), pc, #\d+")
_ON_STACK = re.compile(r"(.*), \[sp(?:, #(\d+))?\]")
_READS = re.compile(r"cmp|cmn|tst|teq|it[te]*|b|b\w\w|cbn?z|nop|v?st\w+|v?push")
"""Instructions that write no register but the stack pointer."""


def plain(operation: str) -> str:
    """The name of an instruction, whatever its width."""
    return operation.removesuffix(".w").removesuffix(".n")


def grown_bytes(operation: str, operands: str) -> int:
    """Bytes by which an instruction moves the stack pointer down."""
    if _PUSH.fullmatch(plain(operation)) and ("push" in operation or operands.startswith("sp!")):
        return sum(size for _, size in _listed(operands))
    if operation.startswith("sub") and (amount := _SUBTRACT.fullmatch(operands)):
        return int(amount[1])
    below = _STORE_BELOW.search(operands)
    return int(below[1]) if below else 0


def inner_jumps(body: Sequence[Line]) -> set[int]:
    """Indices of the instructions that jump to an address which the function made from its own."""
    own: set[str] = set()
    depth, found = 0, set[int]()
    places: dict[int, bool] = {}  # bytes below the stack as it was at first -> holds nothing but such addresses
    jumps: dict[int, int] = {}
    for index, (operation, operands) in enumerate(body):
        name = plain(operation)
        depth += grown_bytes(operation, operands) - _shrunk_bytes(name, operands)
        for offset, register in _stored(name, operands):
            places[depth - offset] = register in own and places.get(depth - offset, True)
        if name == "mov" and operands.startswith("pc, ") and operands[4:] in own:
            found.add(index)
        elif name == "ldr" and operands.startswith("pc, ") and (place := _ON_STACK.fullmatch(operands)):
            jumps[index] = depth - int(place[2] or 0)
        else:
            _follow(own, name, operands)
    return found | {index for index, place in jumps.items() if places.get(place, False)}


def _follow(own: set[str], name: str, operands: str) -> None:
    """Registers that hold own addresses behind an instruction, from those before it."""
    target, *sources = operands.split(", ")
    if name.startswith("add") and _OWN_ADDRESS.fullmatch(operands):
        own.add(target)
    elif (name == "mla" and sources[-1] in own) or (name in ("add", "orr") and not own.isdisjoint(sources)):
        own.add(target)  # an offset to it
    elif name.startswith("mov") and len(sources) == 1 and sources[0] in own:
        own |= {target} if name in ("mov", "movs") or target in own else set()
    elif not _READS.fullmatch(name):
        own -= {*re.findall(r"\w+", operands)} if name not in ("bl", "blx") else {*own}


def _shrunk_bytes(name: str, operands: str) -> int:
    """Bytes by which an instruction moves the stack pointer up."""
    if name in ("pop", "vpop") or (name in ("ldmia", "vldmia") and operands.startswith("sp!")):
        return sum(size for _, size in _listed(operands))
    amount = _SUBTRACT.fullmatch(operands)
    return int(amount[1]) if amount and name.startswith("add") else 0


def _stored(name: str, operands: str) -> Iterator[tuple[int, str]]:
    """Places above the stack pointer that an instruction writes, and the registers from which it does."""
    place = _ON_STACK.fullmatch(operands)
    if place and name.startswith("str"):
        for i, register in enumerate(place[1].split(", ")):
            yield int(place[2] or 0) + 4 * i, register
    elif name in ("push", "stmdb", "stmia", "stm") and (name == "push" or operands.startswith(("sp,", "sp!"))):
        for i, (register, _) in enumerate(_listed(operands)):
            yield 4 * i, register


def _listed(operands: str) -> Iterator[tuple[str, int]]:
    """Registers of a list such as `{r4, r5, lr}` or `{d8-d15}`, and the bytes of each."""
    for item in operands[operands.index("{") + 1 : operands.index("}")].split(","):
        first, _, last = item.strip().partition("-")
        for number in range(int(first[1:]), int(last[1:]) + 1) if last else ():
            yield f"{first[0]}{number}", 8 if first[0] == "d" else 4
        if not last:
            yield first, 8 if re.fullmatch(r"d\d+", first) else 4
