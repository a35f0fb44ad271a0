"""Upper bound of the stack of a function of firmware and its callees, from the disassembly (Arm and RISC-V).

The frame of a function is the sum of all bytes that it pushes or subtracts from its stack pointer. The bound is the
largest sum of frames along any path of the call graph, which includes libm, libgcc and libc. No bound is given if none
exists or the disassembly does not show it: recursion, a call through a pointer, a stack pointer set from a register.
The stack of interrupts is not included.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
    """Upper bound of the stack of a run, in bytes; None, with the reason, if there is no bound.

    callback_depth_bytes: bytes of a streamed model in use when it calls a function of the application, whose own stack
    is added; None if the model calls none. with_callbacks_bytes: the bound with the callbacks of the package's own
    firmware.
    """

    num_bytes: int | None
    reason: str | None = None
    callback_depth_bytes: int | None = None
    with_callbacks_bytes: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def firmware_bound(elf: Path | None, toolchain: Toolchain, run: str, callbacks: Sequence[str]) -> StackBound:
    """Return the stack bound of `run` in firmware. callbacks: names of the functions that it calls through pointers."""
    if elf is None:
        return StackBound(num_bytes=None, reason="no firmware was linked, so the stack of libm and libc is unknown")
    try:
        return stack_bound(frames_of(disassembly(elf, toolchain)), run, callbacks)
    except (MissingTool, BuildFailed) as error:
        return StackBound(num_bytes=None, reason=str(error).splitlines()[0])


def stack_bound(frames: Mapping[int, Frame], run: str, callbacks: Sequence[str] = ()) -> StackBound:
    """Return the stack bound of the function `run`. frames: all functions of an ELF by address."""
    starts = sorted(frames)
    roots = [address for address, frame in frames.items() if frame.name == run]
    if not roots:
        return StackBound(num_bytes=None, reason=f"{run} is not in the disassembly")
    known: dict[int, int] = {}

    def deepest(address: int, path: tuple[int, ...]) -> int:
        """Return the bytes of the function at an address and of its deepest call. Raises _NoBoundError."""
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
    """Parse the output of `objdump -d` for Arm or RISC-V to the functions by address."""
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
"""Two zero bytes of padding, as objdump decodes them."""


class _NoBoundError(Exception):
    """Internal: the reason why there is no bound."""


def _frame(
    start: int, name: str, body: list[tuple[str, str]], following: int | None, by_name: Mapping[str, int]
) -> Frame:
    """Return the frame of an Arm function.

    following: address of the next function, into which hand-written code may fall through. by_name: addresses of all
    functions, to resolve the linker's veneers for far calls.
    """
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
    """Return True if the stack pointer is set to anything but its own value plus or minus a constant."""
    if not operands.startswith(("sp,", "sp!")) or operation.startswith(_READ_STACK_POINTER):
        return False
    return not (operation.startswith(("add", "sub")) and _ADDS.fullmatch(operands))


def _is_indirect(operation: str, operands: str) -> bool:
    """Return True if an instruction branches to an address in a register or memory; not for returns and jump tables."""
    if operation.startswith(("blx", "bx")):
        return operands != "lr" and target_of(operands) is None
    if operation.startswith("mov") and operands.startswith("pc,"):
        return operands != "pc, lr"
    if operation.startswith(("ldr", "add")) and operands.startswith("pc,"):
        return "[sp]," not in operands and not _BY_TABLE.fullmatch(operands)
    return False


def _ends(body: list[tuple[str, str]]) -> bool:
    """Return True if control never passes the last instruction. A call at the end is taken as one without a return."""
    last = [line for line in body if not line[0].startswith("nop") and line != _ZEROS][-1:]
    for operation, operands in last:
        name = plain(operation)
        if name in ("b", "bl", "bx", "udf", "svc", "bkpt"):
            return True
        return name in ("pop", "ldmia", "ldr", "mov") and bool(re.search(r"\bpc\b", operands))
    return False


_TARGET = re.compile(r"([0-9a-f]+) <[^>]*>\s*$")


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The stack frame of a function. targets: addresses that the function calls, jumps to or falls through to.

    num_bytes: bytes of the frame itself. calls_pointers: True if the function calls through a pointer. unclear: the
    reason why the bytes are unknown, None if they are known.
    """

    name: str
    num_bytes: int
    targets: tuple[int, ...]
    calls_pointers: bool = False
    unclear: str | None = None


def target_of(operands: str) -> int | None:
    """Return the address of the symbol that objdump writes after an instruction's operands; None without a symbol."""
    found = _TARGET.search(operands)
    return int(found[1], 16) if found else None


def left_for(jumps: Iterable[tuple[str, bool]], start: int, following: int | None, *, ends: bool) -> tuple[int, ...]:
    """Return the addresses outside of a function to which control passes, and its own address if it calls itself.

    jumps: operands of the function's branches in order, and True for each call. start: the function's address.
    following: address of the next function. ends: True if the function never falls through to the next.
    """
    end = 1 << 32 if following is None else following
    reached = [(address, is_call) for operands, is_call in jumps if (address := target_of(operands)) is not None]
    left = [address for address, is_call in reached if (is_call and address == start) or not start <= address < end]
    runs_on = [] if following is None or ends else [following]
    return tuple(dict.fromkeys([*left, *runs_on]))


_ADDED = re.compile(r"sp,sp,(-?\d+)")
_RISCV_BRANCH = re.compile(r"(c\.)?(j|jal|tail|call|b\w+)")
_READS = ("sw", "sh", "sb", "c.sw", "c.swsp", "bltu", "bgeu", "blt", "bge", "beq", "bne")
_SAVES = re.compile(r"t0,[0-9a-f]+ <__riscv_save_\d+>")
_SAVED_BYTES = 64
"""Largest frame of a `__riscv_save` routine: 13 registers of 4 bytes, rounded up to 16 bytes."""
_ENDS = ("j", "jr", "ret", "mret", "ebreak", "ecall", "c.j", "c.jr", "tail")


def riscv_frame(start: int, name: str, body: list[tuple[str, str]], following: int | None) -> Frame:
    """Return the frame of a RISC-V function.

    body: names and operands of the instructions. following: address of the next function.
    """
    jumps: list[tuple[str, bool]] = []
    total, pointers, unclear = 0, False, None
    for operation, operands in body:
        total += _grown_bytes(operation, operands)
        if _riscv_sets_stack_pointer(operation, operands):
            unclear = f"sets its stack pointer: {operation} {operands}"
        if operation == "jal" and _SAVES.fullmatch(operands):
            total += _SAVED_BYTES
            continue
        if operation in ("jal", "jalr") and operands.startswith("t0,"):
            unclear = f"leaves its frame to another function: {operation} {operands}"
        if operation in ("jr", "jalr", "c.jr", "c.jalr"):
            # A far call is a pair of `auipc` and `jalr`; objdump then writes the target's address after #.
            pointers |= target_of(operands) is None and operands not in ("ra", "0(ra)")
        if _RISCV_BRANCH.fullmatch(operation) or operation in ("jr", "jalr"):
            jumps.append((operands, operation in ("jal", "jalr", "call")))
    targets = left_for(jumps, start, following, ends=_riscv_ends(body))
    return Frame(name=name, num_bytes=total, targets=targets, calls_pointers=pointers, unclear=unclear)


def _grown_bytes(operation: str, operands: str) -> int:
    """Return the bytes by which an instruction moves the stack pointer down."""
    added = _ADDED.match(operands)
    return max(-int(added[1]), 0) if added and operation in ("add", "addi", "c.addi16sp", "c.addi") else 0


def _riscv_sets_stack_pointer(operation: str, operands: str) -> bool:
    """Return True if the stack pointer is set to anything but its own value plus a constant."""
    if not operands.startswith("sp,") or operation in _READS:
        return False
    return not _ADDED.match(operands) and (operation, operands) != ("mv", "sp,sp")


def _riscv_ends(body: list[tuple[str, str]]) -> bool:
    """Return True if control never passes the last instruction. A call at the end is taken as one without a return."""
    last = [operation for operation, _ in body if operation not in ("nop", "unimp", "c.unimp")][-1:]
    return last[0] in (*_ENDS, "jal", "jalr") if last else False


def is_riscv(text: str) -> bool:
    """Return True if the text is objdump's output for a RISC-V ELF."""
    return "riscv" in text[:400].partition("Disassembly")[0]


def own_code(bodies: Mapping[int, tuple[str, list[tuple[str, str]]]]) -> dict[int, Frame]:
    """Return the frames of all RISC-V functions, by address."""
    ordered = sorted(address for address, (_, body) in bodies.items() if body)
    after = dict(zip(ordered, [*ordered[1:], None], strict=True))
    return {address: riscv_frame(address, *bodies[address], after[address]) for address in ordered}


Line = tuple[str, str]
"""An instruction and its operands, as objdump writes them."""

_PUSH = re.compile(r"push|vpush|stmdb|vstmdb")
_STORE_BELOW = re.compile(r"\[sp, #-(\d+)\]!")
_SUBTRACT = re.compile(r"sp, (?:sp, )?#(\d+)")
_OWN_ADDRESS = re.compile(r"(\w+), pc, #\d+")
_ON_STACK = re.compile(r"(.*), \[sp(?:, #(\d+))?\]")
_READS_OF_JUMPS = re.compile(r"cmp|cmn|tst|teq|it[te]*|b|b\w\w|cbn?z|nop|v?st\w+|v?push")
"""Instructions that write no general-purpose register, except the stack pointer."""


def plain(operation: str) -> str:
    """Return the name of an instruction without the suffix of its width."""
    return operation.removesuffix(".w").removesuffix(".n")


def grown_bytes(operation: str, operands: str) -> int:
    """Return the bytes by which an instruction moves the stack pointer down."""
    if _PUSH.fullmatch(plain(operation)) and ("push" in operation or operands.startswith("sp!")):
        return sum(size for _, size in _listed(operands))
    if operation.startswith("sub") and (amount := _SUBTRACT.fullmatch(operands)):
        return int(amount[1])
    below = _STORE_BELOW.search(operands)
    return int(below[1]) if below else 0


def inner_jumps(body: Sequence[Line]) -> set[int]:
    """Return the indices of the instructions that jump to an address computed from the program counter.

    The compiler enters the middle of a kernel's loop by an address that the function pushed before. A jump of this kind
    stays inside the function, unlike a call through a pointer. Registers and stack slots that hold the function's own
    addresses are followed in order through the body.
    """
    own: set[str] = set()
    depth, found = 0, set[int]()
    places: dict[int, bool] = {}  # bytes below the initial stack pointer -> True if only own addresses are stored
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
    """Update the set of registers that hold the function's own addresses by the effect of an instruction."""
    target, *sources = operands.split(", ")
    if name.startswith("add") and _OWN_ADDRESS.fullmatch(operands):
        own.add(target)
    elif (name == "mla" and sources[-1] in own) or (name in ("add", "orr") and not own.isdisjoint(sources)):
        own.add(target)  # an own address plus an offset
    elif name.startswith("mov") and len(sources) == 1 and sources[0] in own:
        own |= {target} if name in ("mov", "movs") or target in own else set()
    elif not _READS_OF_JUMPS.fullmatch(name):
        own -= {*re.findall(r"\w+", operands)} if name not in ("bl", "blx") else {*own}


def _shrunk_bytes(name: str, operands: str) -> int:
    """Return the bytes by which an instruction moves the stack pointer up."""
    if name in ("pop", "vpop") or (name in ("ldmia", "vldmia") and operands.startswith("sp!")):
        return sum(size for _, size in _listed(operands))
    amount = _SUBTRACT.fullmatch(operands)
    return int(amount[1]) if amount and name.startswith("add") else 0


def _stored(name: str, operands: str) -> Iterator[tuple[int, str]]:
    """Yield the offset above the stack pointer and the register of each word that an instruction stores."""
    place = _ON_STACK.fullmatch(operands)
    if place and name.startswith("str"):
        for i, register in enumerate(place[1].split(", ")):
            yield int(place[2] or 0) + 4 * i, register
    elif name in ("push", "stmdb", "stmia", "stm") and (name == "push" or operands.startswith(("sp,", "sp!"))):
        for i, (register, _) in enumerate(_listed(operands)):
            yield 4 * i, register


def _listed(operands: str) -> Iterator[tuple[str, int]]:
    """Yield the registers of a list such as `{r4, r5, lr}` or `{d8-d15}`, and the bytes of each."""
    for item in operands[operands.index("{") + 1 : operands.index("}")].split(","):
        first, _, last = item.strip().partition("-")
        for number in range(int(first[1:]), int(last[1:]) + 1) if last else ():
            yield f"{first[0]}{number}", 8 if first[0] == "d" else 4
        if not last:
            yield first, 8 if re.fullmatch(r"d\d+", first) else 4
