"""Read the sections of object files from what objdump prints, GNU's or LLVM's.

GNU's objdump prints the flags of a section. LLVM's prints one of four kinds, so constants are told by the names of
their sections. An object of WebAssembly has one section for all functions and one for all data, whose segments
llvm-readobj lists: `Parts` tells which function or variable a byte of these sections belongs to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

FILE_HEADING = re.compile(r"(.*):\s+file format .*")
_GNU = re.compile(r"\s*\d+\s+(\S+)\s+([0-9a-f]+)\s+([0-9a-f]+)\s+([0-9a-f]+)\s+[0-9a-f]+\s+\S+\s+(.*)")
_LLVM = re.compile(r"\s*\d+ (\S+)\s+([0-9a-f]{8,16}) ([0-9a-f]{8,16})(?: ([0-9a-f]{8,16}))?\s*(TEXT|DATA|BSS|DEBUG)?.*")
_SEGMENT = re.compile(r"File: (.*)|\s+Name: (\S+)\n\s+Size: (\d+)\n\s+Offset: (\d+)\n")
_CONSTANT = re.compile(r"\.s?rodata\b|.*\.rodata\b")


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section: its bytes, the addresses where it runs and where it is loaded, and the size that it counts toward.

    kind: `text`, `rodata`, `data` or `bss`; None for a section outside of the target's memory.
    """

    name: str
    num_bytes: int
    address: int
    load_address: int
    kind: str | None


def parsed_section(line: str) -> Section | None:
    """Return the section that a line describes, or None for another line."""
    if found := _GNU.fullmatch(line):
        name, size, address, load, flags = found.groups()
        kind = section_kind(flags)
    elif found := _LLVM.fullmatch(line):
        name, size, address, load, said = found.groups()
        kind = _kind_of_llvm(name, said)
    else:
        return None
    return Section(
        name=name, num_bytes=int(size, 16), address=int(address, 16), load_address=int(load or address, 16), kind=kind
    )


def section_kind(section_flags: str) -> str | None:
    """Return the size that a section with GNU's flags counts toward."""
    flags = set(re.split(r",\s*", section_flags.strip()))
    if "ALLOC" not in flags:
        return None
    if "CODE" in flags:
        return "text"
    if "CONTENTS" not in flags:
        return "bss"
    return "rodata" if "READONLY" in flags else "data"


def has_segments(heading: str) -> bool:
    """Return True for the heading of an object whose data section also stores variables that are zero at start."""
    return heading.endswith("file format wasm")


@dataclass(frozen=True, kw_only=True)
class DataSegment:
    """A segment of an object's data section, which holds one variable: its address and its place in the section."""

    name: str
    num_bytes: int
    address: int
    place: int

    @property
    def is_zero(self) -> bool:
        """True for zeros, which the linker leaves out of a module."""
        return self.name.startswith(".bss")


def segments_of(listing: str) -> dict[str, list[DataSegment]]:
    """Return the segments of each object by the name of its file, from llvm-readobj's listing."""
    found: dict[str, list[DataSegment]] = {}
    name, place = "", 0
    for part in _SEGMENT.finditer(listing):
        if part[1]:
            name, place = part[1].rpartition("/")[2], 0
            continue
        num_bytes, address = int(part[3]), int(part[4])
        # The header of a segment: kind, the constant expression of its address, and its size.
        place += 3 + _leb_bytes(2 * address) + _leb_bytes(num_bytes)
        others = found.setdefault(name, [])
        others.append(DataSegment(name=part[2], num_bytes=num_bytes, address=address, place=place))
        place += num_bytes
    return {name: _after_count(segments) for name, segments in found.items()}


def _after_count(segments: list[DataSegment]) -> list[DataSegment]:
    """Return segments whose number precedes the first one in the section."""
    return [replace(one, place=one.place + _leb_bytes(len(segments))) for one in segments]


def _leb_bytes(value: int) -> int:
    """Return the bytes of an unsigned number in LEB128; a signed one has as many as twice its value."""
    return max(1, -(-value.bit_length() // 7))


def _kind_of_llvm(name: str, said: str | None) -> str | None:
    if said == "DATA":
        return "rodata" if _CONSTANT.match(name) else "data"
    return {"TEXT": "text", "BSS": "bss"}.get(said or "")
