"""Contradictions in a platform file, and linker sections that a memory may name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from tvm_ext.core.alignment import ALIGNMENT_BYTES, MOST_ALIGNMENT_BYTES
from tvm_ext.core.compiler_flags import folder_of
from tvm_ext.core.names import is_c_keyword
from tvm_ext.core.platform_parts import (
    LINKED_MEMORY,
    NO_SIMD,
    STATE_MEMORY,
    Board,
    Memory,
    PlatformTables,
    Processor,
    Signal,
)

_ADDRESS_SPACE_BYTES = 1 << 32
_TIMER_BYTES = 16
_REGISTER_BYTES = 4

_REGISTERS = {
    "event": (),
    "mailbox": ("set_address", "status_address", "clear_address"),
    "interrupt": ("set_address", "clear_address", "interrupt"),
}
"""Registers that a signal of each kind needs. It may have no others."""


def memories_of_machine(tables: PlatformTables, board: Board) -> tuple[Memory, ...]:
    """Return the platform's memories as the QEMU machine of its board has them."""

    def moved(memory: Memory) -> Memory:
        there = board.memories.get(memory.name)
        if there is None:
            return memory
        capacity = min(memory.capacity_bytes, there.capacity_bytes or memory.capacity_bytes)
        kept = min(memory.reserved_bytes, capacity - 1)
        return replace(memory, address=there.address, capacity_bytes=capacity, reserved_bytes=kept)

    return tuple(map(moved, tables.memories))


def contradiction(tables: PlatformTables) -> str | None:
    """Return the first contradiction, with its key, or None."""
    checks = (
        _name_problem, _processor_problem, _toolchain_problem, _link_problem, _signal_problem, _section_problem,
        _memory_problem,
    )  # fmt: skip
    problem = next((problem for check in checks if (problem := check(tables))), None)
    return problem or (_board_problem(tables, tables.board) if tables.board else None)


def _name_problem(tables: PlatformTables) -> str | None:
    """Check for names that are used twice, or that are reserved for states."""
    names = [part.name for part in (*tables.processors, *tables.memories)]
    for taken in (STATE_MEMORY, LINKED_MEMORY):
        if taken in names:
            return f"name = {taken!r} is reserved for the states of models; choose another name."
    for name, count in Counter(names).items():
        if count > 1:
            return f"name = {name!r} is used more than once; give each processor and memory its own name."
    return None


def _processor_problem(tables: PlatformTables) -> str | None:
    """Check for accelerators without an interface, or with keys that only cores have."""
    if tables.processors[0].kind != "core":
        return (
            f"processors.{tables.processors[0].name}: the first processor runs the model's own code; list a core first."
        )
    for processor in tables.processors:
        where = f"processors.{processor.name}"
        if processor.kind == "core" and processor.offload:
            return f'{where}.offload: is the driver of an accelerator; say kind = "offload", or leave it out.'
        if processor.kind == "offload":
            if not processor.offload:
                return f"{where}: an offload needs its driver; add a [processors.offload] table."
            if (processor.simd, processor.fpu, processor.flags) != (NO_SIMD, "none", ()):
                return f"{where}: simd, fpu and flags are of code, and an offload runs none; leave them out."
        if problem := _tvm_problem(processor):
            return f"{where}{problem}"
    return _driver_problem([processor for processor in tables.processors if processor.offload])


def _tvm_problem(processor: Processor) -> str | None:
    """Check TVM processors for a missing code generator, and for keys that only our C has."""
    if processor.kind != "tvm":
        return '.tvm: is code that TVM makes; say kind = "tvm", or leave it out.' if processor.tvm else None
    if processor.tvm is None or bool(processor.tvm.target) == bool(processor.tvm.codegen):
        return (
            ': needs who makes its code: target = "llvm", or codegen = "..." of a BYOC back end, in [processors.tvm].'
        )
    if processor.offload or (processor.simd, processor.fpu, processor.flags) != (NO_SIMD, "none", ()):
        return ": offload, simd, fpu and flags are of our own C, which it does not run; leave them out."
    kinds = [rate.operator for rate in processor.tvm.rates]
    twice = next((kind for index, kind in enumerate(kinds) if kind in kinds[:index]), None)
    return f".tvm.rates: {twice} has two rates; keep one of them." if twice else None


def _driver_problem(processors: Iterable[Processor]) -> str | None:
    """Check for names of interface functions that C forbids or that two functions share, and for mixed types."""
    taken: dict[str, tuple[str, str]] = {}
    for processor in processors:
        assert processor.offload
        where = f"processors.{processor.name}.offload"
        names = [("wait", processor.offload.wait, (processor.name, "wait"))]
        for index, one in enumerate(processor.offload.operators):
            if one.takes_floats and {*one.types} != {"float32"}:
                return (
                    f"{where}.operators[{index}].types: layers of floats come with other arguments than those of "
                    "integers; give float32 an entry and a start of its own."
                )
            elements = "floats" if one.takes_floats else "integers"
            names.append((f"operators[{index}].start", one.start, (processor.name, f"{one.kind} of {elements}")))
        for key, name, use in names:
            if is_c_keyword(name) or name.lower().startswith("tvm_ext"):
                return f"{where}.{key} = {name!r}: is a word of C, or of the code generated here; choose another one."
            if taken.setdefault(name, use) != use:
                return f"{where}.{key} = {name!r}: another function has that name; each takes arguments of its own."
    return None


def _toolchain_problem(tables: PlatformTables) -> str | None:
    """Check for a compiler without its target, and for project headers in code that this machine would run."""
    toolchain = tables.toolchain
    lists = [("toolchain.flags", toolchain.flags), ("toolchain.speed_flags", toolchain.speed_flags)]
    lists += [("toolchain.size_flags", toolchain.size_flags)]
    lists += [(f"processors.{processor.name}.flags", processor.flags) for processor in tables.processors]
    for key, flags in lists:
        for flag in flags:
            if not toolchain.prefix and (folder_of(flag) or flag.startswith("--target=")):
                return (
                    f"{key}: {flag}: is for another processor than this machine's; say prefix = ... of its tools. "
                    "What lies in a project's folders is not compiled into code that runs here."
                )
            if flag.startswith("--target=") and not toolchain.uses_clang:
                return f'{key}: {flag}: GCC has one target, its prefix says which; say compiler = "clang".'
    if toolchain.links_with_lld and not toolchain.uses_clang:
        return f'toolchain.prefix = {toolchain.prefix!r}: names LLVM\'s tools; say compiler = "clang" beside it.'
    if toolchain.uses_clang and toolchain.prefix and not any(one.startswith("--target=") for one in toolchain.flags):
        return (
            f"toolchain.compiler = {toolchain.compiler!r}: compiles for this machine; flags need --target=..., such as "
            "--target=arm-none-eabi."
        )
    return None


def _link_problem(tables: PlatformTables) -> str | None:
    """Check for links with unknown ends, and for memories that no processor reaches."""
    names = [part.name for part in (*tables.processors, *tables.memories)]
    for index, link in enumerate(tables.links):
        for key, end in (("source", link.source), ("target", link.target)):
            if end not in names:
                return f"links[{index}].{key} = {end!r} is neither a processor nor a memory: {', '.join(names)}."
    processors = {processor.name for processor in tables.processors}
    for memory in tables.memories:
        ends = [{link.source, link.target} for link in tables.links]
        if not any(memory.name in end and end & processors for end in ends):
            return f"memories.{memory.name}: no processor reaches it; add a [[links]] table that joins the two."
    return None


def _signal_problem(tables: PlatformTables) -> str | None:
    """Check for signals that do not join two cores, that are repeated, or that lack registers."""
    cores = [processor.name for processor in tables.processors if processor.kind == "core"]
    pairs: set[tuple[str, str]] = set()
    for index, signal in enumerate(tables.signals):
        where = f"signals[{index}]"
        for key, end in (("source", signal.source), ("target", signal.target)):
            if end not in cores:
                return f"{where}.{key} = {end!r} is no core: {', '.join(cores)}."
        if signal.source == signal.target:
            return f"{where}.target = {signal.target!r} is its source; a core needs no signal to itself."
        if (signal.source, signal.target) in pairs:
            return f"{where}: from {signal.source} to {signal.target} there is a signal already; keep one of them."
        pairs.add((signal.source, signal.target))
        if problem := _register_problem(signal):
            return f"{where}.{problem}"
    return None


def _register_problem(signal: Signal) -> str | None:
    """Check for registers that are missing, that the kind does not have, or that are not word addresses."""
    for key in ("set_address", "status_address", "clear_address", "interrupt"):
        value: int | None = getattr(signal, key)
        needed = key in _REGISTERS[signal.kind]
        if needed and value is None:
            return f"{key}: is missing; kind = {signal.kind!r} needs it."
        if not needed and value is not None:
            return f"{key} = {value}: kind = {signal.kind!r} has none; leave it out."
        is_word = key == "interrupt" or value is None or value % _REGISTER_BYTES == 0
        if value is not None and not (is_word and value + _REGISTER_BYTES <= _ADDRESS_SPACE_BYTES):
            return f"{key} = 0x{value:x}: is not the address of a word of {_REGISTER_BYTES} bytes."
    return None


def _section_problem(tables: PlatformTables) -> str | None:
    """Check for sections that tools or start-up code use, and for two memories in the same section."""
    for memory in tables.memories:
        if memory.section:
            reason = section_problem(memory.section, memory.kind, holds_weights=memory.name == tables.weights)
            if reason:
                return f"memories.{memory.name}.section = {memory.section!r}: {reason}."
    if shared := shared_sections([memory.section for memory in tables.memories if memory.section]):
        return f"memories: sections {shared[0]!r} and {shared[1]!r}: a linker script can't tell them apart."
    return None


def _memory_problem(tables: PlatformTables) -> str | None:
    """Check for undefined memories, memories of the wrong kind, and memories that cannot be written."""
    memories = {memory.name: memory for memory in tables.memories}
    uses = [("activations", tables.activations, "ram"), ("weights", tables.weights, None)]
    if tables.board:
        uses += [
            ("board.data_memory", tables.board.data_memory, "ram"),
            ("board.code_memory", tables.board.code_memory, "rom"),
        ]
    for key, name, kind in uses:
        if name not in memories:
            return f"{key} = {name!r} is not a memory: {', '.join(memories)}."
        if kind and memories[name].kind != kind:
            return f"{key} = {name!r} is a {memories[name].kind}; a {kind} is needed."
    if problem := _reach_problem(tables):
        return problem
    for memory in tables.memories:
        if memory.retained and memory.kind == "rom":
            return f"memories.{memory.name}.retained = true: a rom keeps what it holds anyway; a ram is needed."
        if memory.reserved_bytes >= memory.capacity_bytes:
            return (
                f"memories.{memory.name}.reserved_bytes = {memory.reserved_bytes}: leaves nothing of the "
                f"{memory.capacity_bytes} B for models; reserve less."
            )
        if problem := _alignment_problem(memory):
            return f"memories.{memory.name}.alignment_bytes = {memory.alignment_bytes}: {problem}"
        if memory.kind == "ram" and memory.write_bytes_per_cycle < 1e-6:
            return f"memories.{memory.name}.write_bytes_per_cycle = {memory.write_bytes_per_cycle:g}: at least 1e-6."
    return None


def _alignment_problem(memory: Memory) -> str | None:
    """Check for an alignment that is not possible, or too small for tensors."""
    least, most, value = ALIGNMENT_BYTES, MOST_ALIGNMENT_BYTES, memory.alignment_bytes
    if not least <= value <= most or value & (value - 1):
        return f"a power of two from {least}, which kernels need, to {most}; the bytes of a cache's line, such as 32."
    if memory.kind == "rom" and value != least:
        return f"is of tensors, and a rom holds none; leave it out: constants lie at multiples of {least}."
    if memory.address is not None and memory.address % value:
        return f"the memory begins at 0x{memory.address:x}, which is no multiple of it."
    return None


def _reach_problem(tables: PlatformTables) -> str | None:
    """Check for memories that the first processor needs and does not reach."""
    first = tables.processors[0].name
    ends = [(link.source, link.target) for link in tables.links]
    reached = {end for pair in ends if first in pair for end in pair}
    states = next((memory.name for memory in tables.memories if memory.retained), tables.activations)
    for key, name in (("activations", tables.activations), ("weights", tables.weights), ("retained", states)):
        if name not in reached:
            where = f"memories.{name}.retained = true" if key == "retained" else f"{key} = {name!r}"
            return (
                f"{where}: {first}, the first processor, does not reach {name}; add a [[links]] table that joins the "
                "two, or choose another memory."
            )
    return None


def _board_problem(tables: PlatformTables, board: Board) -> str | None:
    """Check for addresses beyond 32 bits, for overlaps, and for stacks that do not fit."""
    placed: list[tuple[int, int, str]] = []
    if unknown := [name for name in board.memories if name not in {memory.name for memory in tables.memories}]:
        known = ", ".join(memory.name for memory in tables.memories)
        return f"board.memories.{unknown[0]}: is not a memory of the platform: {known}."
    memories = memories_of_machine(tables, board)
    if problem := _process_problem(board) if board.is_process else _machine_problem(board):
        return problem
    for memory in memories:
        if memory.address is None and board.is_process:
            continue
        if memory.address is None:
            return f"memories.{memory.name}: a board needs the address of each memory."
        placed.append((memory.address, memory.address + memory.capacity_bytes, f"memories.{memory.name}"))
    if board.timer_address is not None:
        placed.append((board.timer_address, board.timer_address + _TIMER_BYTES, "board.timer_address"))
    placed.sort()
    for begin, end, name in placed:
        if end > _ADDRESS_SPACE_BYTES:
            return f"{name}: its bytes 0x{begin:x} to 0x{end - 1:x} lie beyond the 32 bits of an address."
    for (begin, end, one), (next_begin, _, other) in pairwise(placed):
        if next_begin < end:
            return f"{one} and {other}: both have the byte at 0x{next_begin:x}; one begins at 0x{begin:x}."
    data = next(memory for memory in memories if memory.name == board.data_memory)
    cores = sum(processor.kind == "core" for processor in tables.processors)
    if cores * board.stack_bytes >= data.capacity_bytes:
        stacks = f"{cores} of them do not" if cores > 1 else "does not"
        return f"board.stack_bytes = {board.stack_bytes}: {stacks} fit into {data.name} of {data.capacity_bytes} B."
    return None


def _machine_problem(board: Board) -> str | None:
    """Check for keys that a machine of QEMU needs."""
    missing = next((key for key in ("timer", "timer_address") if getattr(board, key) is None), None)
    return f"board.{missing}: is missing; firmware for {board.qemu_machine} measures with it." if missing else None


def _process_problem(board: Board) -> str | None:
    """Check for keys that only machines have: an emulator's process has no devices, and starts at no address."""
    for key in ("qemu_sizes", "timer_address", "starts", "memories", "vectors_address"):
        if getattr(board, key):
            return f"board.{key}: only a machine of QEMU has it; say qemu_machine = ..., or leave it out."
    return None


_RESERVED = {
    "holds code": r"text|init|fini|preinit|ctors|dtors|i?plt|glue_7|vfp11_veneer|v4_bx|jcr|tm_clone_table",
    "is where the processor or its boot loader begins": (
        r"vectors|isr_vector|intvec|interrupts|reset|boot|ivt|flash_?config|cfmconfig|uicr|option"
    ),
    "belongs to start-up code": r"stack|heap|data|sdata|ldata|tdata|tbss",
    "belongs to the loader": r"i?got|dyn|interp|hash|rela?(\.|$)|gnu|group$|llvm",
    "belongs to unwinding": r"arm\.|eh_frame|gcc_except|exception|except_",
    "is not loaded": r"note|comment|z?debug|mdebug|stab|line$|symtab|strtab|shstrtab|discard",
    "is the linker's default; leave the key out for it": r"(bss|rodata)$",
}
_ZEROED = re.compile(r"\.(bss|sbss|lbss|noinit|persistent)", re.IGNORECASE)
_CONSTANT = re.compile(r"\.(rodata|srodata|lrodata|const)", re.IGNORECASE)


def section_problem(section: str, kind: Literal["ram", "rom"], *, holds_weights: bool) -> str | None:
    """Return why the arrays of a memory cannot go to a section, or None where they can."""
    for reason, names in _RESERVED.items():
        if re.match(rf"\.({names})", section, re.IGNORECASE):
            return f"{reason}; name one of your linker script's own, such as .dtcm or .bss.dtcm, .qspi or .rodata.qspi"
    if kind == "rom" and _ZEROED.match(section):
        return "is for variables without a value; a rom holds constants: .rodata.<name>, or a name of your own"
    if kind == "ram" and _CONSTANT.match(section):
        return "is for constants; a ram holds variables: .bss.<name>, or a name of your own"
    if holds_weights and _ZEROED.match(section):
        return "is for variables without a value, and the weights go there; give it a name of your own"
    return None


def shared_sections(sections: Sequence[str]) -> tuple[str, str] | None:
    """Return two sections that linker scripts cannot separate: equal ones, or `.fast` and `.fast.inner`; or None."""
    ordered = sorted(sections)
    pairs = ((a, b) for index, a in enumerate(ordered) for b in ordered[index + 1 :])
    return next(((a, b) for a, b in pairs if a == b or b.startswith(f"{a}.")), None)


def zeroed_by_name(section: str) -> bool:
    """Return True where compilers know from the name alone that the section has no bytes in the image."""
    return section.startswith(".bss.")
