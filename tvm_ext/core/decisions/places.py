"""Decisions about memories: where results, weights and scratch lie, and when they are moved."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_ext.core.decisions.decision import Decision, attribute


@dataclass(frozen=True, kw_only=True)
class OperatorMemories(Decision):
    """Memories of a composite's result, weights and scratch; empty for the platform's default memory.

    weights_ahead: operators before it, behind which the copy of its weights to `weights_memory` starts.
    """

    memory: str = attribute("memory", "")
    weights_memory: str = attribute("weights_memory", "")
    weights_ahead: int = attribute("weights_ahead", 0, read=int)
    scratch_memory: str = attribute("scratch_memory", "")


@dataclass(frozen=True, kw_only=True)
class MoveTarget(Decision):
    """The memory that a call of `tvm_ext.move` copies its operand to.

    within: operators behind which it is waited for at the latest; None: only where its result is first read.
    processor: the core that copies, where no DMA does; empty for the platform's first one.
    """

    memory: str = attribute("memory", "")
    within: int | None = attribute("within", None, read=int)
    processor: str = attribute("copied_by", "")
