"""Arenas of several programs in one memory: overlaid if the programs never run at once, side by side otherwise."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import permutations

from tvm_ext.core.alignment import ALIGNMENT_BYTES, aligned


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """Memory that several programs share.

    offsets: bytes from its begin to the arena of each program, multiples of `alignment_bytes`.
    """

    memory: str
    num_bytes: int
    arenas: Mapping[str, int]
    offsets: Mapping[str, int]
    alignment_bytes: int = ALIGNMENT_BYTES

    @property
    def alone_bytes(self) -> int:
        """Bytes of the arenas side by side, as separate packages would need them."""
        return sum(aligned(num_bytes, self.alignment_bytes) for num_bytes in self.arenas.values())


def overlay_of(
    memory: str,
    arenas: Mapping[str, int],
    at_once: Collection[frozenset[str]],
    alignment_bytes: int = ALIGNMENT_BYTES,
) -> Overlay:
    """Return offsets at which arenas that may be in use at once do not overlap.

    arenas: program -> bytes. at_once: groups of programs in which a program may begin before another has ended.
    alignment_bytes: each offset is a multiple of this.
    First fit, the largest arena first. Without groups all offsets are 0, which is optimal.
    """
    placed: dict[str, int] = {}
    taken = {name: aligned(num_bytes, alignment_bytes) for name, num_bytes in arenas.items()}
    for name in sorted(arenas, key=lambda one: (-arenas[one], one)):
        beside = sorted((placed[other], other) for other in placed if _meet(name, other, at_once))
        offset = 0
        for begin, other in beside:
            if offset + taken[name] <= begin:
                break
            offset = max(offset, begin + taken[other])
        placed[name] = offset
    return Overlay(
        memory=memory, num_bytes=max((placed[name] + taken[name] for name in arenas), default=0), arenas=arenas,
        offsets={name: placed[name] for name in arenas}, alignment_bytes=alignment_bytes,
    )  # fmt: skip


def overlay_faults(overlay: Overlay, at_once: Collection[frozenset[str]]) -> list[str]:
    """Return a sentence for each fault: arenas that overlap but may be in use at once, or that exceed the memory."""
    ranges = {name: (overlay.offsets[name], overlay.offsets[name] + size) for name, size in overlay.arenas.items()}
    faults = [
        f"{one} and {other} may run at once, and share bytes of {overlay.memory}"
        for one, other in permutations(ranges, 2)
        if one < other and any({one, other} <= group for group in at_once)
        if ranges[one][0] < ranges[other][1] and ranges[other][0] < ranges[one][1]
    ]
    faults += [
        f"{name} ends at byte {end} of {overlay.memory}, which has {overlay.num_bytes}"
        for name, (begin, end) in ranges.items()
        if end > overlay.num_bytes or begin % overlay.alignment_bytes
    ]
    return faults


def _meet(one: str, other: str, at_once: Collection[frozenset[str]]) -> bool:
    return any(one in group and other in group for group in at_once)
