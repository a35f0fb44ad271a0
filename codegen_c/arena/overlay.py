"""Arenas of several programs in one memory: over each other where they never run at once, else side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import permutations

from tvm_ext.core.alignment import ALIGNMENT_BYTES, aligned


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """One memory of several programs. offsets: bytes from its begin to each program's arena, at aligned places."""

    memory: str
    num_bytes: int
    arenas: Mapping[str, int]
    offsets: Mapping[str, int]
    alignment_bytes: int = ALIGNMENT_BYTES

    @property
    def alone_bytes(self) -> int:
        """Bytes of the arenas side by side, as packages of their own have them."""
        return sum(aligned(num_bytes, self.alignment_bytes) for num_bytes in self.arenas.values())


def overlay_of(
    memory: str,
    arenas: Mapping[str, int],
    at_once: Collection[frozenset[str]],
    alignment_bytes: int = ALIGNMENT_BYTES,
) -> Overlay:
    """Offsets at which arenas that may be in use at once share no byte.

    arenas: program -> bytes. at_once: groups of programs of which one may begin while another has not ended.
    alignment_bytes: of which each offset is a multiple.
    The largest is placed first, each at the lowest offset that is free; without groups that is the least there is.
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
    """Arenas that share bytes and may be in use at once, or lie beyond the end; sentences, none where all is well."""
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
