"""A QEMU machine that has a platform's core, and too little memory for a model that the chip has room for."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

from codegen_c.backend.build import Compiled
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.options import Target
from tvm_ext.execution.runner import Runner
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.subject import Subject


def without_small_machine(
    subject: Subject, targets: Sequence[str], verify: Sequence[Target] | None, runner: Runner | None
) -> tuple[Subject, tuple[str, ...]]:
    """The subject without firmware, targets without QEMU, where the machine has too little memory; a notice says so.

    verify: targets that were asked for. Raises BadOptions where firmware was.
    """
    reason = too_small(subject.compiled)
    if not reason:
        return subject, tuple(targets)
    if runner is not None or "qemu" in (verify or ()):
        asked = "verify = qemu" if runner is None else "runner"
        raise BadOptions(f"{asked}: {reason}; choose verify = host, which needs no firmware.")
    warnings.warn(f"{reason}: there is no firmware, and only the host verifies.", ModelNotice, stacklevel=3)
    compiled = subject.compiled
    bare = replace(compiled, platform=replace(compiled.platform, board=None))
    return replace(subject, compiled=bare), tuple(target for target in targets if target != "qemu")


def too_small(compiled: Compiled) -> str:
    """What the machine has too little of; empty where the model fits, or the platform has no machine."""
    platform, used = compiled.platform, dict(compiled.origin.memories)
    if platform.board is None:
        return ""
    for memory in platform.on_machine.memories:
        if used.get(memory.name, 0) > memory.usable_bytes:
            return (
                f"{compiled.interface.model}: needs {used[memory.name]} B of {memory.name}, and QEMU's "
                f"{platform.board.qemu_machine}, which stands in for {platform.name}, may give {memory.usable_bytes} B"
            )
    return ""
