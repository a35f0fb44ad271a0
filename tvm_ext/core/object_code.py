"""Sections of object files, and which refers to which: a graph of functions and tables, read by objdump.

Everything is compiled with a section for each function and table, so a section is one of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm_ext.core.platform import Toolchain
from tvm_ext.core.toolchain import find_program, run_tool, section_kind

Place = tuple[str, str]
"""An object file's name, and a section of it."""
_SECTION = re.compile(r"\s*\d+\s+(\S+)\s+([0-9a-f]+)\s+[0-9a-f]+\s+[0-9a-f]+\s+[0-9a-f]+\s+\S+\s+(.*)")
_SYMBOL = re.compile(r"[0-9a-f]+ (.{7}) (\S+)\t[0-9a-f]+ +(?:\.hidden )?(\S+)$")
_RELOCATION = re.compile(r"[0-9a-f]+ +\S+ +(\S+?)(?:[+-]0x[0-9a-f]+)?$")


@dataclass(frozen=True, kw_only=True)
class ObjectCode:
    """Bytes of each section that an image holds, those that each refers to, and where functions are, by name."""

    num_bytes: Mapping[Place, int]
    references: Mapping[Place, frozenset[Place]]
    functions: Mapping[str, Place]

    def reached(self, function: str) -> frozenset[Place]:
        """Sections of a function and of all that it refers to, directly or through others; none where it is unknown."""
        pending = [self.functions[function]] if function in self.functions else []
        seen: set[Place] = set()
        while pending:
            place = pending.pop()
            if place not in seen:
                seen.add(place)
                pending += self.references.get(place, ())
        return frozenset(place for place in seen if place in self.num_bytes)


def object_code(objects: Sequence[Path], toolchain: Toolchain) -> ObjectCode:
    """Read objects, whose file names differ. Raises MissingTool, BuildFailed."""
    program = find_program(f"{toolchain.prefix}objdump")
    command = [program, "-h", "-t", "-r", "-w", *(str(path.resolve()) for path in objects)]
    text = run_tool(command, objects[0].parent, reads=objects)
    num_bytes: dict[Place, int] = {}
    raw: dict[Place, list[str]] = {}
    known: dict[str, dict[str, Place]] = {}
    everywhere: dict[str, Place] = {}
    file, section = "", ""
    for line in text.splitlines():
        if head := re.fullmatch(r"(.*):     file format .*", line):
            file = Path(head[1]).name
            known[file] = {}
        elif head := re.fullmatch(r"RELOCATION RECORDS FOR \[(\S+)\]:", line):
            section = head[1]
        elif found := _SECTION.fullmatch(line):
            place = (file, found[1])
            known[file][found[1]] = place
            if section_kind(found[3]) not in (None, "bss"):
                num_bytes[place] = num_bytes.get(place, 0) + int(found[2], 16)
        elif found := _SYMBOL.fullmatch(line):
            known[file].setdefault(found[3], (file, found[2]))
            if found[2] != "*UND*" and found[1][0] in "gu!w":
                everywhere[found[3]] = (file, found[2])
        elif found := _RELOCATION.fullmatch(line):
            raw.setdefault((file, section), []).append(found[1])

    def home(place: Place, symbol: str) -> Place | None:
        own = known[place[0]].get(symbol)
        return own if own and own[1] != "*UND*" else everywhere.get(symbol)

    references = {
        place: frozenset(target for symbol in symbols if (target := home(place, symbol)))
        for place, symbols in raw.items()
    }
    functions = {symbol: place for symbols in known.values() for symbol, place in symbols.items() if place in num_bytes}
    return ObjectCode(num_bytes=num_bytes, references=references, functions=functions)
