"""Planners of offsets that other distributions install beside the built-in search.

An entry point of the group `tvm_ext.planners` names a function that takes an `AllocationProblem` and returns an offset
for each of its buffers, or None. The offsets are checked here before use, and are used if they need fewer bytes than
the built-in search. Afterwards the independent validator checks the whole plan, as it checks every plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from codegen_c.arena.problem import Buffer
from codegen_c.arena.solve import Solution
from tvm_ext.core.errors import ExtensionFailed
from tvm_ext.core.extensions import PLANNERS, Extension, extensions


@dataclass(frozen=True, kw_only=True)
class AllocationProblem:
    """Buffers of one memory that need offsets.

    memory: name of the memory. names: names of the buffers. lower_bound_bytes: no offsets take fewer bytes. num_bytes:
    bytes that the best known offsets take.
    A buffer uses bytes [offset, offset + size) in steps [begin, end). Its offset is a multiple of `alignment`, and is
    `offset` if that is given. In its `gaps` it uses only some bytes. A planner may ignore gaps: its plan is then
    correct, but may need more bytes.
    """

    memory: str
    names: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    lower_bound_bytes: int
    num_bytes: int


def with_planners(problem: AllocationProblem, ours: Solution) -> tuple[Solution, str]:
    """Return the lowest solution of the built-in search and the installed planners, with the name of its planner.

    The name is empty for the built-in search. Raises ExtensionFailed for a planner that fails or returns no valid
    offsets.
    """
    best, planner = ours, ""
    for extension in extensions(PLANNERS):
        offsets = _planned(extension, problem)
        if offsets is None:
            continue
        taken = max((offset + buffer.size for offset, buffer in zip(offsets, problem.buffers, strict=True)), default=0)
        if taken < best.num_bytes:
            least = min(taken, best.lower_bound_bytes)
            best = Solution(offsets=offsets, num_bytes=taken, lower_bound_bytes=least)
            planner = extension.said
    return best, planner


def _planned(extension: Extension, problem: AllocationProblem) -> list[int] | None:
    """Call a planner and check its offsets. Return None if the planner gives none."""
    where = f"planner {extension.said}, on {len(problem.buffers)} buffers of {problem.memory}"
    try:
        given = extension.value(problem)
    except Exception as error:  # whatever the other distribution's code raises
        raise ExtensionFailed(f"{where}: {type(error).__name__}: {error}. Fix or uninstall it.") from error
    if given is None:
        return None
    try:
        offsets = [int(offset) for offset in given]
    except (TypeError, ValueError):
        raise ExtensionFailed(f"{where}: does not return one integer offset for each buffer.") from None
    if fault := offset_fault(problem, offsets):
        raise ExtensionFailed(f"{where}: {fault}. Its offsets are not used; fix or uninstall it.")
    return offsets


def offset_fault(problem: AllocationProblem, offsets: Sequence[int]) -> str:
    """Return the first reason why offsets are invalid, or an empty string. Compares the used bytes of each pair."""
    if len(offsets) != len(problem.buffers):
        return f"returns {len(offsets)} offsets, but each buffer needs one"
    for name, buffer, offset in zip(problem.names, problem.buffers, offsets, strict=True):
        if offset < 0 or offset % buffer.alignment:
            return f"{name} at {offset}: a multiple of {buffer.alignment} bytes, 0 or more, is needed"
        if buffer.offset is not None and offset != buffer.offset:
            return f"{name} at {offset}: it is pinned to {buffer.offset}"
    for i, j in combinations(range(len(offsets)), 2):
        if problem.buffers[i].overlaps(problem.buffers[j]) and (step := _met(problem, offsets, i, j)) is not None:
            one, other = (f"{problem.names[index]} at {offsets[index]}" for index in (i, j))
            return f"{one} and {other} share bytes in step {step}"
    return ""


def _met(problem: AllocationProblem, offsets: Sequence[int], i: int, j: int) -> int | None:
    """Return the first step in which two buffers use the same byte, or None."""
    for one in problem.buffers[i].extents():
        for other in problem.buffers[j].extents():
            begin = max(one.begin, other.begin)
            low = max(offsets[i] + one.low, offsets[j] + other.low)
            high = min(offsets[i] + one.high, offsets[j] + other.high)
            if begin < min(one.end, other.end) and low < high:
                return begin
    return None
