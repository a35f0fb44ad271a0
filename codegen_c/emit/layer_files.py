"""Files of the layers: `<model>.c`, and one file for each other kind of processor."""

from __future__ import annotations

from dataclasses import dataclass, replace

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.emit.banner import Origin
from codegen_c.emit.lists import pipelined_lists, written_lists
from codegen_c.emit.model import model_pieces
from codegen_c.emit.pieces import Piece
from codegen_c.emit.sharing import ALONE, Sharing
from codegen_c.program.interface import Interface
from codegen_c.program.parallel import ParallelProgram, RunStep
from codegen_c.program.program import Program
from tvm_ext.core.platform import Platform, Processor


def layer_pieces(
    program: Program,
    plan: MemoryPlan,
    interface: Interface,
    origin: Origin,
    platform: Platform,
    sharing: Sharing = ALONE,
    parallel: ParallelProgram | None = None,
    *,
    after_step: bool = False,
) -> dict[str, list[Piece]]:
    """Return the pieces of the files of layers, by file name.

    parallel: the program with per-core schedules. after_step: as in `model_pieces`.
    """
    if parallel is None:
        pieces = model_pieces(program, plan, interface, origin, after_step=after_step, sharing=sharing)
        return {f"{interface.model}.c": pieces}
    lists = (pipelined_lists if parallel.phases else written_lists)(parallel, plan, interface, platform)
    return {
        one.file: model_pieces(
            steps_in(parallel, one),
            plan,
            interface,
            origin,
            sharing=sharing,
            lists=[part for n in one.lists for part in lists[n]],
        )
        for one in layer_files_of(parallel, platform, interface.model)
    }


@dataclass(frozen=True, kw_only=True)
class LayerFile:
    """A file of layers. lists: the per-core schedules in it; processor: the processor of the first of them."""

    file: str
    lists: tuple[int, ...]
    processor: str


def layer_files_of(parallel: ParallelProgram, platform: Platform, model: str) -> tuple[LayerFile, ...]:
    """Return the files, the caller's first: `<model>.c`, then `<model>_<processor>.c` for each other kind of code."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, steps in enumerate(parallel.lists):
        groups.setdefault(code_of(platform.processor_named(steps.processor)), []).append(number)
    found: list[LayerFile] = []
    for numbers in groups.values():
        processor = parallel.lists[numbers[0]].processor
        file = f"{model}_{processor}.c" if found else f"{model}.c"
        found.append(LayerFile(file=file, lists=tuple(numbers), processor=processor))
    return tuple(found)


def steps_in(parallel: ParallelProgram, one: LayerFile) -> Program:
    """Return the program with the steps of one file only, in their order."""
    indices = {
        entry.index for number in one.lists for entry in parallel.lists[number].entries if isinstance(entry, RunStep)
    }
    steps = tuple(step for index, step in enumerate(parallel.program.steps) if index in indices)
    return replace(parallel.program, steps=steps)


def code_of(processor: Processor) -> tuple[object, ...]:
    """Return the properties of a processor that decide its code."""
    return processor.isa, processor.simd, processor.fpu, processor.flags


def compiled_as(platform: Platform, processor: str) -> str:
    """Return the first processor of a platform that runs the same code; empty if it is the platform's first."""
    code = code_of(platform.processor_named(processor))
    found = next(one for one in platform.processors if code_of(one) == code)
    return "" if found is platform.processor else found.name
