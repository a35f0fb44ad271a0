"""Insert transfers between memories: copies and prefetches of weights as steps, with waits before their use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, Step, Transfer, Wait, reads
from codegen_c.program.tensors import Constant, Tensor, layer_object
from tvm_ext.core.names import unique
from tvm_ext.core.platform import Platform


@dataclass(frozen=True, kw_only=True)
class Move:
    """Copy of a tensor that starts before step `index`.

    within: the wait comes at most this many steps later; None: only before the first read of the target. processor:
    processor that copies if no DMA does; empty for the first processor.
    """

    source: str
    target: str
    index: int
    within: int | None
    processor: str = ""

    def renamed(self, old: str, new: str) -> Move:
        """Return the move with one tensor renamed."""
        source, target = (new if name == old else name for name in (self.source, self.target))
        return replace(self, source=source, target=target)


@dataclass(frozen=True, kw_only=True)
class Prefetch:
    """Prefetch of a step's constants to another memory. ahead: it starts this many steps before the step."""

    memory: str
    ahead: int


@dataclass(frozen=True, kw_only=True)
class _Planned:
    """A transfer that starts before step `start` and must end before step `due`."""

    transfer: Transfer
    start: int
    due: int


def with_transfers(
    program: Program,
    moves: Sequence[Move],
    prefetches: Mapping[str, Prefetch],
    platform: Platform,
    taken: set[str],
    sequences: Mapping[str, str] = MappingProxyType({}),
) -> Program:
    """Return the program with transfers as steps.

    prefetches: prefetches by step name. taken: names in use, to which new names are added. sequences: row sequence by
    step name; no transfer starts between the steps of a sequence. The constants of a sequence's steps are awaited by
    each step itself if one processor runs all steps, otherwise ahead of the sequence. Transfers that start before the
    same step are in the order in which they must end.
    """
    if not moves and not prefetches:
        return program
    first_read = _first_reads(program, moves)
    planned = [
        _Planned(
            transfer=_transfer(program, move, platform, taken), start=move.index,
            due=_due(move, first_read.get(move.target, len(program.steps))),
        )
        for move in moves
    ]  # fmt: skip
    program = with_layer_objects(program, prefetches, taken)
    by_one = len({call.processor for call in program.kernel_calls()}) == 1
    due = range(len(program.steps)) if by_one else _begins(program, sequences)
    tensors, steps = dict(program.tensors), list(program.steps)
    for index, step in enumerate(program.steps):
        if step.name in prefetches and isinstance(step, KernelCall):
            prefetch = prefetches[step.name]
            held = {name: program.constants[name].layer or name for name in step.constants}
            copies = {
                name: _copy(program.constants[name], prefetch.memory, taken) for name in dict.fromkeys(held.values())
            }
            tensors |= {copy.name: copy for copy in copies.values()}
            steps[index] = replace(step, prefetched=tuple((name, copies[held[name]].name) for name in step.constants))
            planned += [
                _Planned(
                    transfer=Transfer(
                        name=unique(f"fetch_{copy.name}", taken), source=constant, target=copy.name,
                        source_is_constant=True,
                        number=_number(platform, program.constants[constant].memory, prefetch.memory),
                    ),
                    start=max(0, index - prefetch.ahead), due=due[index],
                )
                for constant, copy in copies.items()
            ]  # fmt: skip
    return replace(program, tensors=tensors, steps=tuple(_numbered(_woven(steps, planned, taken))))


def _first_reads(program: Program, moves: Sequence[Move]) -> dict[str, int]:
    """Return the index of the first step that reads each tensor, or of the first move that starts to read it."""
    found: dict[str, int] = {}
    for index, step in enumerate(program.steps):
        for name in reads(step):
            found.setdefault(name, index)
    for move in moves:
        found[move.source] = min(move.index, found.get(move.source, move.index))
    return found


def _begins(program: Program, sequences: Mapping[str, str]) -> list[int]:
    """Return for each step the index of the first step of its sequence, or its own index."""
    found: list[int] = []
    labels = [sequences.get(step.name) for step in program.steps]
    for index, label in enumerate(labels):
        found.append(found[-1] if index and label and label == labels[index - 1] else index)
    return found


def _due(move: Move, first_read: int) -> int:
    return first_read if move.within is None else min(first_read, move.index + move.within)


def _transfer(program: Program, move: Move, platform: Platform, taken: set[str]) -> Transfer:
    memories = (program.tensors[move.source].memory, program.tensors[move.target].memory)
    name = unique(f"move_{move.target}", taken)
    number = _number(platform, *memories)
    copies = move.processor if number is None else ""
    return Transfer(name=name, source=move.source, target=move.target, number=number, processor=copies)


def _number(platform: Platform, source: str, target: str) -> int | None:
    """Return 0 as a provisional number of a DMA transfer; None if the processor copies."""
    link = platform.link_between(source, target)
    return 0 if link is not None and link.dma else None


def _copy(constant: Constant, memory: str, taken: set[str]) -> Tensor:
    name = unique(f"{constant.name}_copy", taken)
    shape, dtype = (constant.data.size,), str(constant.data.dtype)
    return Tensor(name=name, source=constant.name, shape=shape, dtype=dtype, memory=memory)


def _woven(steps: Sequence[Step], planned: Sequence[_Planned], taken: set[str]) -> list[Step]:
    """Return the steps with transfers before the steps where they start, and waits where they are due.

    A transfer whose source is the target of an unfinished transfer waits for that transfer first.
    """
    woven: list[Step] = []
    under_way: list[_Planned] = []

    def wait_for(ready: Sequence[_Planned]) -> None:
        for one in ready:
            under_way.remove(one)
        transfers = tuple(one.transfer for one in ready if one.transfer.number is not None)
        if transfers:
            woven.append(Wait(name=unique(f"wait_{transfers[-1].target}", taken), transfers=transfers))

    for index in range(len(steps) + 1):
        wait_for([one for one in under_way if one.due <= index])
        for one in sorted((p for p in planned if p.start == index), key=lambda p: p.due):
            wait_for([other for other in under_way if other.transfer.target == one.transfer.source])
            woven.append(one.transfer)
            under_way.append(one)
        wait_for([one for one in under_way if one.due <= index])
        woven += steps[index : index + 1]
    return woven


def _numbered(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with DMA transfers numbered in the order in which they start."""
    counted: dict[str, Transfer] = {}
    numbered: list[Step] = []
    for step in steps:
        if isinstance(step, Transfer) and step.number is not None:
            counted[step.name] = step = replace(step, number=len(counted))
        elif isinstance(step, Wait):
            step = replace(step, transfers=tuple(counted[transfer.name] for transfer in step.transfers))
        numbered.append(step)
    return numbered


MOST_REPEATED_BYTES = 512
"""Largest constant that is copied into the objects of several layers."""


def with_layer_objects(program: Program, prefetched: Container[str], taken: set[str]) -> Program:
    """Return the program with one object for all constants of each prefetched step, if the step has several.

    Steps with the same constants share an object. A constant that other steps read too is copied into the object up to
    MOST_REPEATED_BYTES; a larger constant stays separate. prefetched: names of prefetched steps. taken: names in use,
    to which new names are added.
    """
    sets = {step.constants for step in program.kernel_calls() if step.name in prefetched}
    readers = Counter(name for names in {step.constants for step in program.kernel_calls()} for name in {*names})
    renamed: dict[tuple[str, ...], dict[str, str]] = {}
    constants, steps = dict(program.constants), list[Step]()
    for step in program.steps:
        if isinstance(step, KernelCall) and step.name in prefetched and step.constants in sets:
            if step.constants not in renamed:
                found = [constants[name] for name in dict.fromkeys(step.constants)]
                joined = [one for one in found if readers[one.name] == 1 or one.data.nbytes <= MOST_REPEATED_BYTES]
                made = _joined(step.name, joined, taken)
                constants |= made
                old_names = (one.name for one in joined)
                renamed[step.constants] = dict(zip(old_names, (one for one in made if made[one].layer), strict=False))
            new = renamed[step.constants]
            step = replace(step, constants=tuple(new.get(name, name) for name in step.constants))
        steps.append(step)
    made = replace(program, constants=constants, steps=tuple(steps))
    read = {name for step in made.kernel_calls() for name in step.constants}
    kept = {name: one for name, one in constants.items() if name in read or one.members or name not in readers}
    return replace(made, constants=kept)


def _joined(step: str, constants: list[Constant], taken: set[str]) -> dict[str, Constant]:
    """Return the object of a step's constants and its members by name; nothing for fewer than two constants."""
    if len(constants) < 2 or not all(one.data.size for one in constants):
        return {}
    name = unique(f"{step}_constants", taken)
    roles: set[str] = set()
    members = [
        replace(one, name=unique(f"{name}_{member}", taken), layer=name, member=member)
        for one in constants
        for member in (unique(one.role, roles),)
    ]
    return {**{one.name: one for one in members}, name: layer_object(name, members)}
