"""Files of layers in pieces: `<model>.c`, and one for each other kind of code that processors run."""

from __future__ import annotations

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.emit.banner import Origin
from codegen_c.emit.lists import written_lists
from codegen_c.emit.model import model_pieces
from codegen_c.emit.pieces import Piece
from codegen_c.emit.pipeline_lists import pipelined_lists
from codegen_c.emit.processor_files import layer_files_of, steps_in
from codegen_c.emit.sharing import ALONE, Sharing
from codegen_c.program.interface import Interface
from codegen_c.program.parallel import ParallelProgram
from codegen_c.program.program import Program
from tvm_ext.core.platform import Platform


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
    """File name -> pieces. parallel: the program in lists of several processors. after_step as in `model_pieces`."""
    if parallel is None:
        pieces = model_pieces(program, plan, interface, origin, after_step=after_step, sharing=sharing)
        return {f"{interface.model}.c": pieces}
    lists = (pipelined_lists if parallel.phases else written_lists)(parallel, plan, interface, platform)
    return {
        one.file: model_pieces(
            steps_in(parallel, one), plan, interface, origin, lists=[part for n in one.lists for part in lists[n]]
        )
        for one in layer_files_of(parallel, platform, interface.model)
    }
