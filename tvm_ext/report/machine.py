"""The QEMU machine of a platform in reports: its name, and its memories where they are not the platform's."""

from __future__ import annotations

from typing import Any

from tvm_ext.core.platform import Platform


def machine_of(platform: Platform) -> dict[str, Any] | None:
    """Name of the machine that firmware is for, and of one that only stands in what it has of each memory."""
    if platform.board is None:
        return None
    differs = platform.on_machine is not platform
    memories = [
        {"name": memory.name, "capacity_bytes": memory.capacity_bytes}
        for memory in (platform.on_machine.memories if differs else ())
    ]
    return {"name": platform.board.qemu_machine, "memories": memories}
