"""`sections.ld`: output sections of memories that the linker script of the user's firmware may lack."""

from __future__ import annotations

from collections.abc import Collection

from codegen_c.emit.banner import Origin
from codegen_c.emit.templates import render
from tvm_ext.core.platform import Memory, Platform

SECTIONS_FILE = "sections.ld"


def sectioned_memories(platform: Platform, used: Collection[str]) -> list[Memory]:
    """Memories whose section is the platform's own and no vendor's linker script has. used: those with any bytes."""
    return [one for one in platform.memories if one.section and not one.linker_has_section and one.name in used]


def emit_linker_sections(platform: Platform, origin: Origin) -> dict[str, str]:
    """`sections.ld`; nothing for a build of this machine, and where no memory in use needs it."""
    used = [name for name, num_bytes in origin.memories if num_bytes]
    memories = sectioned_memories(platform, used) if platform.toolchain.prefix else []
    if not memories:
        return {}
    parts = [
        {
            "name": memory.name,
            "section": memory.section,
            "region": linker_region(memory),
            "access": "r" if memory.kind == "rom" else "rw",
            "address": memory.address,
            "bytes": memory.capacity_bytes,
            "alignment": memory.alignment_bytes,
            "is_zeroed": memory.kind == "ram" and memory.name != platform.weights,
        }
        for memory in memories
    ]
    return {SECTIONS_FILE: render("sections.ld.j2", origin=origin, parts=parts)}


def linker_region(memory: Memory) -> str:
    """Name of the region of the user's linker script that has a memory."""
    return memory.linker_region or memory.name.upper()
