"""Inputs that a lowered function may overwrite with its output, element for element."""

from __future__ import annotations

import math

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, Var


def in_place_inputs(
    lowered: tirx.PrimFunc, num_inputs: int, num_outputs: int, aliases: dict[Var, Var]
) -> tuple[int, ...]:
    """Indices of inputs of which every element is read only where the output's same element is stored.

    Only for one loop nest that stores its one output once; anything else gives none.
    """
    loads: list[TensorLoad] = []
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(lowered.body, [(TensorLoad, loads.append), (tirx.BufferStore, stores.append)])
    if num_outputs != 1 or len(stores) != 1:
        return ()
    output, place = lowered.params[num_inputs], stores[0].indices
    if not aliases.get(stores[0].buffer, stores[0].buffer).same_as(output) or not _stores_once(
        lowered.body, math.prod(_extent(output)[0])
    ):
        return ()
    return tuple(
        index
        for index, parameter in enumerate(lowered.params[:num_inputs])
        if _extent(parameter) == _extent(output)
        and all(
            tvm_ffi.structural_equal(load.indices, place)
            for load in loads
            if aliases.get(load.source, load.source).same_as(parameter)
        )
    )


def _stores_once(body: tirx.Stmt, num_elements: int) -> bool:
    """True where iterations are as many as elements: since all of them are written, none is written twice."""
    extents: list[tirx.Expr] = []
    tvm_ffi.structural_walk(body, [(tirx.For, lambda loop: extents.append(loop.extent))])
    return math.prod(int(extent) for extent in extents) == num_elements


def _extent(buffer: Var) -> tuple[tuple[int, ...], int]:
    return tuple(int(extent) for extent in buffer.ty.shape), np.dtype(str(buffer.ty.dtype)).itemsize
