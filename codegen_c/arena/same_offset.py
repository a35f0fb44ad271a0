"""Buffers that must have the same offset, as one buffer each: a packing problem with fewer buffers.

A kernel that returns to rows may replace its input only where output and input begin at the same offset
(`arena/overlap.py`). Distances of pairs only say how far one buffer begins above another at least, so no distance says
"at the same offset". One buffer in place of the two does:

    output       +-------+
    input    +-------+           ->    both   +-----------+
             time ->                          time ->

It uses the bytes that any of its members uses at a time. A third buffer may still share bytes with it as it may with
the member that it meets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from codegen_c.arena.problem import Buffer, Choice, Gap, clearance


@dataclass(frozen=True, kw_only=True)
class JoinedProblem:
    """A packing problem in which some buffers stand for several.

    members: for each buffer, the indices of the original buffers for which it stands.
    buffers, choices: as the solver takes them.
    """

    members: Sequence[tuple[int, ...]]
    buffers: list[Buffer]
    choices: list[Choice]

    def offsets(self, found: Sequence[int]) -> list[int]:
        """Return the offset of each original buffer, from the offsets of this problem's buffers."""
        by_member = {index: at for inside, at in zip(self.members, found, strict=True) for index in inside}
        return [by_member[index] for index in range(len(by_member))]


def with_same_offsets(
    buffers: Sequence[Buffer], choices: Sequence[Choice], pairs: Collection[tuple[int, int]]
) -> JoinedProblem:
    """Return the problem in which the two buffers of each pair have the same offset.

    Left as they are: pairs with a buffer whose offset is given, and pairs that would bring other buffers that are in
    use at once to one offset.
    """
    members = _joined(buffers, sorted(pairs))
    number = {index: position for position, inside in enumerate(members) for index in inside}
    return JoinedProblem(
        members=members,
        buffers=[one_buffer([buffers[index] for index in inside]) for inside in members],
        choices=[
            tuple(
                {
                    (number[a], number[b]): least
                    for (a, b), least in alternative.items()
                    if number[a] != number[b] and _meet_alone(buffers, members, number, (a, b))
                }
                for alternative in choice
            )
            for choice in choices
        ],
    )


def one_buffer(members: Sequence[Buffer]) -> Buffer:
    """Return the buffer that uses the bytes of all of some buffers at the same offset."""
    if len(members) == 1:
        return members[0]
    pieces = [piece for member in members for piece in member.extents()]
    begin, end = min(member.begin for member in members), max(member.end for member in members)
    size, gaps = max(member.size for member in members), list[Gap]()
    for time, following in pairwise(sorted({begin, end, *(p.begin for p in pieces), *(p.end for p in pieces)})):
        used = [piece for piece in pieces if piece.begin <= time < piece.end]
        low, high = min((piece.low for piece in used), default=0), max((piece.high for piece in used), default=0)
        if (low, high) != (0, size):
            gaps.append(Gap(begin=time, end=following, low=low, high=high))
    alignment = max(member.alignment for member in members)
    return Buffer(begin=begin, end=end, size=size, alignment=alignment, gaps=tuple(gaps))


def _joined(buffers: Sequence[Buffer], pairs: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Return the indices of the buffers with the same offset, in the order of the first of them."""
    group = {index: (index,) for index in range(len(buffers))}
    for a, b in pairs:
        is_free = buffers[a].offset is None and buffers[b].offset is None
        if group[a] != group[b] and is_free and _meet_alone(buffers, group, {a: a, b: b}, (a, b)):
            group |= dict.fromkeys(both := tuple(sorted(group[a] + group[b])), both)
    return list(dict.fromkeys(group.values()))


def _meet_alone(
    buffers: Sequence[Buffer],
    members: Sequence[tuple[int, ...]] | Mapping[int, tuple[int, ...]],
    number: Mapping[int, int],
    pair: tuple[int, int],
) -> bool:
    """Return True if no other members of the groups of two buffers are in use at once.

    A distance between the two then says all about the distance between their groups.
    """
    return all(
        (a, b) == pair or clearance(buffers[a], buffers[b]) is None
        for a in members[number[pair[0]]]
        for b in members[number[pair[1]]]
    )
