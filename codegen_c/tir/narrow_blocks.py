"""Four floats at once that become small integers: one comparison says that all of them fit.

    for j in 0..4: y[i * 4 + j] = int8(x[i * 4 + j])  ->  narrow_four(x[i * 4], .., x[i * 4 + 3], &y[i * 4])
Each on its own is compared before C may convert it, which with an FPU takes as many instructions as the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, TensorLoad, Var
from tvm.sym import Analyzer

from codegen_c.tir.block_loops import BLOCK, is_block
from codegen_c.tir.ranges import clamped, reads_elements

NARROW = ("int8", "uint8", "int16", "uint16")


@dataclass(frozen=True, kw_only=True, eq=False)
class NarrowBlock:
    """Floats, of which the integers go to a place and those behind it."""

    values: tuple[Expr, ...]
    buffer: Var
    place: Expr
    dtype: str


def narrow_block(loop: tirx.For) -> NarrowBlock | None:
    """The block that a loop is; None for another loop."""
    store = loop.body
    if not is_block(loop) or not isinstance(store, tirx.BufferStore) or len(store.indices) != 1:
        return None
    cast = store.value
    if not isinstance(cast, tirx.Cast) or str(cast.ty.dtype) not in NARROW:
        return None
    if str(cast.value.ty.dtype) != "float32" or not reads_elements(cast.value) or clamped(cast) is not None:
        return None
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(cast.value, [(TensorLoad, loads.append)])
    if any(str(load.ty.dtype) == str(cast.ty.dtype) for load in loads):  # what a turn before has stored, perhaps
        return None
    places = [_at(store.indices[0], loop, turn) for turn in range(BLOCK)]
    steps = [Analyzer().simplify(place - places[0]) for place in places]
    if not all(isinstance(step, tirx.IntImm) and int(step) == turn for turn, step in enumerate(steps)):
        return None
    values = tuple(_at(cast.value, loop, turn) for turn in range(BLOCK))
    return NarrowBlock(values=values, buffer=store.buffer, place=places[0], dtype=str(cast.ty.dtype))


def _at(expr: Expr, loop: tirx.For, turn: int) -> Expr:
    """The expression in a turn of the loop."""
    counter = loop.loop_var
    place = loop.min + tirx.IntImm(str(counter.ty.dtype), turn)
    there = tvm_ffi.structural_map(expr, [(Var, lambda var: place if var.same_as(counter) else var)])
    return Analyzer().simplify(there)
