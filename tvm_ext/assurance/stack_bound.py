"""Upper bound of the stack below a function of firmware, from the disassembly of the linked ELF.

The frame of a function is the sum of all that it pushes and subtracts from its stack pointer; the bound is the most
that frames add up to along any path of calls. Everything linked is there, functions of libm, libgcc and libc too.
No bound is stated where one may not exist or cannot be seen: recursion, a call through a pointer, a stack pointer that
is set from a register. Interrupts come on top.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tvm_ext.assurance.frames import Frame, left_for, target_of
from tvm_ext.assurance.inner_jumps import grown_bytes, inner_jumps, plain
from tvm_ext.assurance.riscv_frames import is_riscv, own_code
from tvm_ext.core.errors import BuildFailed, MissingTool
from tvm_ext.core.platform import Toolchain
from tvm_ext.core.toolchain import disassembly

_CONDITIONS = "eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le"
_BRANCH = re.compile(rf"(b|bl|blx|b({_CONDITIONS})|cbn?z|le|letp|wls|wlstp)(\.[nw])?")
_BY_TABLE = re.compile(r"pc, \[pc, \w+(, lsl #2)?\]")
_READ_STACK_POINTER = ("cmp", "tst", "str", "stm", "ldm", "vstm", "vldm")
_ADDS = re.compile(r"sp, (?:sp, )?#\d+")


@dataclass(frozen=True, kw_only=True)
class StackBound:
    """Most bytes of stack that one run takes; None with the reason where no bound can be stated.

    callback_depth_bytes: of a streamed model, how many of them are in use where a function of the application's is
    called, which takes its own beyond; None where there are no such functions. with_callbacks_bytes: the bound with the
    functions that the package's firmware hands over.
    """

    num_bytes: int | None
    reason: str | None = None
    callback_depth_bytes: int | None = None
    with_callbacks_bytes: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def firmware_bound(elf: Path | None, toolchain: Toolchain, run: str, callbacks: Sequence[str]) -> StackBound:
    """The bound of `run` in firmware. callbacks: names of the functions it calls through pointers, as firmware has."""
    if elf is None:
        return StackBound(num_bytes=None, reason="no firmware is linked here: libm and libc are not part of a package")
    try:
        return stack_bound(frames_of(disassembly(elf, toolchain)), run, callbacks)
    except (MissingTool, BuildFailed) as error:
        return StackBound(num_bytes=None, reason=str(error).splitlines()[0])


def stack_bound(frames: Mapping[int, Frame], run: str, callbacks: Sequence[str] = ()) -> StackBound:
    """The bound of the function `run` among all functions of an ELF, by address."""
    starts = sorted(frames)
    roots = [address for address, frame in frames.items() if frame.name == run]
    if not roots:
        return StackBound(num_bytes=None, reason=f"{run} is not in the disassembly")
    known: dict[int, int] = {}

    def deepest(address: int, path: tuple[int, ...]) -> int:
        """Bytes of the function at an address and all it calls. Raises _NoBoundError."""
        start = starts[max(bisect_right(starts, address) - 1, 0)]
        frame = frames[start]
        if start in path:
            cycle = [frames[inner].name for inner in (*path[path.index(start) :], start)]
            raise _NoBoundError(f"recursion: {' -> '.join(cycle)}")
        if frame.unclear:
            raise _NoBoundError(f"{frame.name}: {frame.unclear}")
        if frame.calls_pointers and not (callbacks and path == ()):
            raise _NoBoundError(f"{frame.name} calls through a pointer")
        if start not in known:
            below = max((deepest(target, (*path, start)) for target in frame.targets), default=0)
            known[start] = frame.num_bytes + below
        return known[start]

    try:
        own = deepest(roots[0], ())
        if not callbacks:
            return StackBound(num_bytes=own)
        handed = [address for address, frame in frames.items() if frame.name in callbacks]
        depth = frames[roots[0]].num_bytes
        below = max((deepest(address, (roots[0],)) for address in handed), default=0)
    except _NoBoundError as error:
        return StackBound(num_bytes=None, reason=str(error))
    return StackBound(num_bytes=own, callback_depth_bytes=depth, with_callbacks_bytes=max(own, depth + below))


def frames_of(text: str) -> dict[int, Frame]:
    """Functions by address from the output of objdump -d for Arm or RISC-V."""
    bodies: dict[int, tuple[str, list[tuple[str, str]]]] = {}
    body: list[tuple[str, str]] = []
    for line in text.splitlines():
        if head := re.fullmatch(r"([0-9a-f]+) <(.*)>:", line):
            body = []
            bodies[int(head[1], 16)] = (head[2], body)
        elif match := re.match(r"\s*[0-9a-f]+:\t([^\s.]\S*)(?:\t(.*))?$", line):  # .word is data
            body.append((match[1], match[2] or ""))
    if is_riscv(text):
        return own_code(bodies)
    bodies = {
        address: (name, [(operation, re.split(r"\s*[@;]", operands)[0]) for operation, operands in body])
        for address, (name, body) in bodies.items()
    }
    ordered = sorted(address for address, (_, body) in bodies.items() if body)
    after = dict(zip(ordered, [*ordered[1:], None], strict=True))
    by_name = {name: address for address, (name, _) in bodies.items()}
    return {address: _frame(address, *bodies[address], after[address], by_name) for address in ordered}


_ZEROS = ("movs", "r0, r0")
"""Two bytes of padding, as an instruction."""


class _NoBoundError(Exception):
    """Internal: a reason why no bound is stated."""


def _frame(
    start: int, name: str, body: list[tuple[str, str]], following: int | None, by_name: Mapping[str, int]
) -> Frame:
    """following: address of the function behind it, which hand-written code may run into."""
    veneer = re.fullmatch(r"__(\w+)_veneer", name)
    if veneer and veneer[1] in by_name:
        return Frame(name=name, num_bytes=0, targets=(by_name[veneer[1]],))
    jumps: list[tuple[str, bool]] = []
    total, pointers, unclear, inside = 0, False, None, inner_jumps(body)
    for index, (operation, operands) in enumerate(body):
        total += grown_bytes(operation, operands)
        pointers |= _is_indirect(operation, operands) and index not in inside
        if _sets_stack_pointer(operation, operands):
            unclear = f"sets its stack pointer: {operation} {operands}"
        if _BRANCH.fullmatch(operation):
            jumps.append((operands, operation.startswith("bl") and operation not in ("bls.n", "bls.w")))
    targets = left_for(jumps, start, following, ends=_ends(body))
    return Frame(name=name, num_bytes=total, targets=targets, calls_pointers=pointers, unclear=unclear)


def _sets_stack_pointer(operation: str, operands: str) -> bool:
    """True where the stack pointer takes any value but its own with a constant added or subtracted."""
    if not operands.startswith(("sp,", "sp!")) or operation.startswith(_READ_STACK_POINTER):
        return False
    return not (operation.startswith(("add", "sub")) and _ADDS.fullmatch(operands))


def _is_indirect(operation: str, operands: str) -> bool:
    """True where an instruction branches to an address in a register or memory, other than a return or a jump table."""
    if operation.startswith(("blx", "bx")):
        return operands != "lr" and target_of(operands) is None
    if operation.startswith("mov") and operands.startswith("pc,"):
        return operands != "pc, lr"
    if operation.startswith(("ldr", "add")) and operands.startswith("pc,"):
        return "[sp]," not in operands and not _BY_TABLE.fullmatch(operands)
    return False


def _ends(body: list[tuple[str, str]]) -> bool:
    """True where the last instruction never goes on to the next; a call at the end is one that does not return."""
    last = [line for line in body if not line[0].startswith("nop") and line != _ZEROS][-1:]
    for operation, operands in last:
        name = plain(operation)
        if name in ("b", "bl", "bx", "udf", "svc", "bkpt"):
            return True
        return name in ("pop", "ldmia", "ldr", "mov") and bool(re.search(r"\bpc\b", operands))
    return False
