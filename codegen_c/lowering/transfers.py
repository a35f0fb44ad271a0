"""Transfers between memories: copies and prefetched weights as steps, with waits before their use."""

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

    within: by how many steps later it is waited for at the latest; None: only where its target is first read.
    processor: that copies, where no DMA does; empty for the first one.
    """

    source: str
    target: str
    index: int
    within: int | None
    processor: str = ""

    def renamed(self, old: str, new: str) -> Move:
        source, target = (new if name == old else name for name in (self.source, self.target))
        return replace(self, source=source, target=target)


@dataclass(frozen=True, kw_only=True)
class Fetch:
    """Copy of a step's constants to another memory. ahead: before which earlier step it starts, counted back."""

    memory: str
    ahead: int


@dataclass(frozen=True, kw_only=True)
class _Planned:
    """A transfer that starts before step `start` and has to be done before step `due`."""

    transfer: Transfer
    start: int
    due: int


def with_transfers(
    program: Program,
    moves: Sequence[Move],
    fetches: Mapping[str, Fetch],
    platform: Platform,
    taken: set[str],
    sequences: Mapping[str, str] = MappingProxyType({}),
) -> Program:
    """The program with what it moves as steps. fetches: by step name. taken: names, to which new ones are added.
    sequences: by step name, of steps that run in series, between which nothing is moved.

    Transfers that start at one place stand in the order in which they have to be done.
    """
    if not moves and not fetches:
        return program
    first_read = _first_reads(program, moves)
    planned = [
        _Planned(
            transfer=_transfer(program, move, platform, taken), start=move.index,
            due=_due(move, first_read.get(move.target, len(program.steps))),
        )
        for move in moves
    ]  # fmt: skip
    program = with_layer_objects(program, fetches, taken)
    begins = _begins(program, sequences)
    tensors, steps = dict(program.tensors), list(program.steps)
    for index, step in enumerate(program.steps):
        if step.name in fetches and isinstance(step, KernelCall):
            fetch = fetches[step.name]
            held = {name: program.constants[name].layer or name for name in step.constants}
            copies = {
                name: _copy(program.constants[name], fetch.memory, taken) for name in dict.fromkeys(held.values())
            }
            tensors |= {copy.name: copy for copy in copies.values()}
            steps[index] = replace(step, fetched=tuple((name, copies[held[name]].name) for name in step.constants))
            planned += [
                _Planned(
                    transfer=Transfer(
                        name=unique(f"fetch_{copy.name}", taken), source=constant, target=copy.name,
                        source_is_constant=True,
                        number=_number(platform, program.constants[constant].memory, fetch.memory),
                    ),
                    start=max(0, index - fetch.ahead), due=begins[index],
                )
                for constant, copy in copies.items()
            ]  # fmt: skip
    return replace(program, tensors=tensors, steps=tuple(_numbered(_woven(steps, planned, taken))))


def _first_reads(program: Program, moves: Sequence[Move]) -> dict[str, int]:
    """Index of the first step, or of the start of the first move, that reads a tensor."""
    found: dict[str, int] = {}
    for index, step in enumerate(program.steps):
        for name in reads(step):
            found.setdefault(name, index)
    for move in moves:
        found[move.source] = min(move.index, found.get(move.source, move.index))
    return found


def _begins(program: Program, sequences: Mapping[str, str]) -> list[int]:
    """The first step of each step's sequence, or itself."""
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
    """Number of a transfer by a DMA, to be counted later; None where the processor copies."""
    link = platform.link_between(source, target)
    return 0 if link is not None and link.dma else None


def _copy(constant: Constant, memory: str, taken: set[str]) -> Tensor:
    name = unique(f"{constant.name}_copy", taken)
    shape, dtype = (constant.data.size,), str(constant.data.dtype)
    return Tensor(name=name, source=constant.name, shape=shape, dtype=dtype, memory=memory)


def _woven(steps: Sequence[Step], planned: Sequence[_Planned], taken: set[str]) -> list[Step]:
    """Steps, each after waits that are due, then transfers that start there; a source still on its way comes first."""
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
    """Transfers of a DMA counted in the order in which they start."""
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
"""Bytes of a constant, at most, that layers of different constants each get a copy of in their objects."""


def with_layer_objects(program: Program, fetched: Container[str], taken: set[str]) -> Program:
    """The program with one object for the constants of each step that is in `fetched`, where it has several.

    Steps with the same constants have one object. A constant that other steps read, too, is repeated up to
    MOST_REPEATED_BYTES, and stays what it is above. taken: names, to which new ones are added.
    """
    sets = {step.constants for step in program.kernel_calls() if step.name in fetched}
    readers = Counter(name for names in {step.constants for step in program.kernel_calls()} for name in {*names})
    renamed: dict[tuple[str, ...], dict[str, str]] = {}
    constants, steps = dict(program.constants), list[Step]()
    for step in program.steps:
        if isinstance(step, KernelCall) and step.name in fetched and step.constants in sets:
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
    """The object of a step's constants, and each of them as a part of it; nothing for fewer than two."""
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
