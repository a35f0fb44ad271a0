"""The bytes that a segment keeps, result by result, when its rows run in series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relay_passes.solvers.split.segments import Segments, overhead_of


@dataclass(frozen=True, kw_only=True)
class KeptRows:
    """The results of a segment's operators that nothing after the segment reads.

    num_bytes: for each result with an offset of its own, the bytes of its kept rows and of the rows that lie among
    them.
    hosts: for each other result, the result among whose rows its own rows lie.
    scratch_bytes: of its kernels.
    shared: for an operand that dies in the segment, the bytes of it that the last result takes.
    cost: modelled instructions that running by rows adds.
    """

    num_bytes: Mapping[int, int]
    hosts: Mapping[int, int]
    scratch_bytes: int
    shared: Mapping[int, int]
    cost: int


def kept_in(segments: Segments, begin: int, end: int, rows_per_call: int, input_rows: int) -> KeptRows:
    """Return the rows that operators [begin, end) keep when they run in series.

    The arguments are those of `Segment`.
    """
    graph = segments.graph
    last, accumulation = next(way for way in segments.last_ways(end - 1) if bool(way[1]) == bool(input_rows))
    replay = segments.replay(begin, last, end, rows_per_call, accumulation)
    operators, rings = replay.sequence.operators, replay.rings
    values = [graph.nodes[index].writes[0] for index in range(begin, end)]
    num_bytes, hosts = dict[int, int](), dict[int, int]()
    for place, (value, rows, guests) in enumerate(zip(values, rings.rows(), rings.lying(), strict=True)):
        hosts |= {values[guest]: hosts.get(value, value) for guest in guests}
        if value not in hosts and not segments.outlives(begin + place, end):
            size = graph.sizes[value]
            num_bytes[value] = min(size, size // operators[place].num_rows * max(rows, 1))
    calls = [
        segments.calls(begin + place, operator.rows_per_call, input_rows if begin + place == end - 1 else 0)
        for place, operator in enumerate(operators)
    ]
    return KeptRows(
        num_bytes=num_bytes, hosts=hosts,
        scratch_bytes=max(call.scratch_bytes for call in calls) + (accumulation.sums_bytes if accumulation else 0),
        shared={
            value: shared
            for value, (first, behind), shared in segments.sharing(replay, graph.sizes[values[-1]])
            if shared and first <= begin < behind
        },
        cost=overhead_of(sum(replay.num_calls), end - begin) + sum(call.added_instructions for call in calls),
    )  # fmt: skip
