"""Bytes that a segment keeps whose rows run in series, result by result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relay_passes.solvers.split.segments import Segments, overhead_of


@dataclass(frozen=True, kw_only=True)
class KeptRows:
    """Results of a segment's operators that nothing behind it reads.

    num_bytes: of each that has a place of its own, of the rows that are kept and of those that lie among them. hosts:
    of each other one, the result among whose rows its own lie. scratch_bytes: of its kernels. shared: of an operand
    that dies in the segment, bytes of it that the last result takes. cost: modelled instructions that rows add.
    """

    num_bytes: Mapping[int, int]
    hosts: Mapping[int, int]
    scratch_bytes: int
    shared: Mapping[int, int]
    cost: int


def kept_in(segments: Segments, begin: int, end: int, rows_per_call: int, input_rows: int) -> KeptRows:
    """Rows that operators [begin, end) keep, which run in series. The rest: as `Segment` has them."""
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
