"""Functions of RISC-V firmware by address: frames and calls, from what objdump -d writes. Integers only, of 32 bits.

A frame is all that a function subtracts from `sp`, and what routines of libgcc's that save registers leave to it: they
are called by `t0`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tvm_ext.assurance.frames import Frame, left_for, target_of

_ADDED = re.compile(r"sp,sp,(-?\d+)")
_BRANCH = re.compile(r"(c\.)?(j|jal|tail|call|b\w+)")
_READS = ("sw", "sh", "sb", "c.sw", "c.swsp", "bltu", "bgeu", "blt", "bge", "beq", "bne")
_SAVES = re.compile(r"t0,[0-9a-f]+ <__riscv_save_\d+>")
_SAVED_BYTES = 64
"""Most that such a routine takes, for 13 registers of 4 bytes."""
_ENDS = ("j", "jr", "ret", "mret", "ebreak", "ecall", "c.j", "c.jr", "tail")


def riscv_frame(start: int, name: str, body: list[tuple[str, str]], following: int | None) -> Frame:
    """One function; body: names and operands of its instructions. following: address of the function behind it."""
    jumps: list[tuple[str, bool]] = []
    total, pointers, unclear = 0, False, None
    for operation, operands in body:
        total += _grown_bytes(operation, operands)
        if _sets_stack_pointer(operation, operands):
            unclear = f"sets its stack pointer: {operation} {operands}"
        if operation == "jal" and _SAVES.fullmatch(operands):
            total += _SAVED_BYTES
            continue
        if operation in ("jal", "jalr") and operands.startswith("t0,"):
            unclear = f"leaves its frame to another function: {operation} {operands}"
        if operation in ("jr", "jalr", "c.jr", "c.jalr"):
            # The linker leaves `auipc` and `jalr` where a call is far; objdump then tells the address behind #.
            pointers |= target_of(operands) is None and operands not in ("ra", "0(ra)")
        if _BRANCH.fullmatch(operation) or operation in ("jr", "jalr"):
            jumps.append((operands, operation in ("jal", "jalr", "call")))
    targets = left_for(jumps, start, following, ends=_ends(body))
    return Frame(name=name, num_bytes=total, targets=targets, calls_pointers=pointers, unclear=unclear)


def _grown_bytes(operation: str, operands: str) -> int:
    """Bytes by which an instruction moves the stack pointer down."""
    added = _ADDED.match(operands)
    return max(-int(added[1]), 0) if added and operation in ("add", "addi", "c.addi16sp", "c.addi") else 0


def _sets_stack_pointer(operation: str, operands: str) -> bool:
    """True where the stack pointer takes any value but its own with a constant added."""
    if not operands.startswith("sp,") or operation in _READS:
        return False
    return not _ADDED.match(operands) and (operation, operands) != ("mv", "sp,sp")


def _ends(body: list[tuple[str, str]]) -> bool:
    """True where the last instruction never goes on to the next; a call at the end is one that does not return."""
    last = [operation for operation, _ in body if operation not in ("nop", "unimp", "c.unimp")][-1:]
    return last[0] in (*_ENDS, "jal", "jalr") if last else False


def is_riscv(text: str) -> bool:
    """True for objdump's output of a RISC-V ELF."""
    return "riscv" in text[:400].partition("Disassembly")[0]


def own_code(bodies: Mapping[int, tuple[str, list[tuple[str, str]]]]) -> dict[int, Frame]:
    """Frames of all functions, by address."""
    ordered = sorted(address for address, (_, body) in bodies.items() if body)
    after = dict(zip(ordered, [*ordered[1:], None], strict=True))
    return {address: riscv_frame(address, *bodies[address], after[address]) for address in ordered}
