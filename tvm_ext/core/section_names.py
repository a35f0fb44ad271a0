"""Linker sections a memory may name: a vendor's own (`.dtcm`, `.sdram`), never one that tools or start-up code use.

A platform file is untrusted: arrays of a model in `.init` or `.vectors` would be executed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

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
    """Reason why arrays of a memory can't go to a section; None where they can."""
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
    """Two sections that linker scripts can't keep apart: equal ones, or `.fast` and `.fast.inner`; None without."""
    ordered = sorted(sections)
    pairs = ((a, b) for index, a in enumerate(ordered) for b in ordered[index + 1 :])
    return next(((a, b) for a, b in pairs if a == b or b.startswith(f"{a}.")), None)


def zeroed_by_name(section: str) -> bool:
    """True where compilers know by the name alone that the section has no bytes in the image."""
    return section.startswith(".bss.")
