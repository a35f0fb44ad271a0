"""Compile a fused operator without a kernel to plain C, and find the inputs that its output may overwrite."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import TensorLoad, Var

from codegen_c.tir.end_loops import has_open_loops, shortest
from codegen_c.tir.hoist_loads import hoist_loads
from codegen_c.tir.legalize import legalize_composite, operator_names
from codegen_c.tir.lower import lower_function, macs_of_loops
from codegen_c.tir.merge import Merged, merge_stages
from codegen_c.tir.plain_c import CannotLowerError, NoPlainC, PlainC
from codegen_c.tir.schedule import schedule_merged
from codegen_c.tir.shape_loops import MOST_INSIDE, block_loops, cut_loops
from codegen_c.tir.skip_zeros import LEAST_SKIPPED, skip_zeros
from codegen_c.tir.statements import print_function
from codegen_c.tir.storage import place_buffers
from codegen_c.tir.tabulate import tabulate
from tvm_ext.core.memory_exhausted import check_memory

_ROUNDED_ONCE = frozenset({"quantize", "dequantize"})
"""Operators with one division and one rounding, or one product, whose results are the same on every processor."""


def lower_composite(function: relax.Function, module: tvm.IRModule | None = None) -> PlainC | NoPlainC:
    """Return one C function that computes a fused operator, or the reason why C cannot express it.

    function: its parameters are tensors of static shape, its weights are constants inside it, and its result is a
    tensor or a tuple of tensors. module: contains the PrimFuncs that the function already calls. Floats are summed in
    the order of TVM's PrimFuncs.

    The result is a NoPlainC for shapes that depend on data, calls of TVM's runtime (sort, topk), element types that C11
    lacks, and operators that TVM cannot legalise.
    """
    try:
        printed = _printed(_lowered(function, module))
        return replace(printed, correctly_rounded=_ROUNDED_ONCE.issuperset(operator_names(function)))
    except CannotLowerError as error:
        return _refusal(function, f"it needs {error}")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Lowered:
    """Plain loops and the description of their parameters.

    whole: the same loops before zeros were skipped in short sums.
    """

    loops: tirx.PrimFunc
    whole: tirx.PrimFunc
    merged: Merged


def _lowered(function: relax.Function, module: tvm.IRModule | None) -> _Lowered:
    try:
        merged = merge_stages(legalize_composite(function, module))
        lowered, num_constants = lower_function(schedule_merged(merged.function)), len(merged.constants)
        made, other = (
            tabulate(skip_zeros(lowered, merged.constants, least_summands=least), num_constants)
            for least in (0, LEAST_SKIPPED)
        )
        is_same = len(made.tables) == len(other.tables) and all(map(np.array_equal, made.tables, other.tables))
        tabled = replace(merged, constants=(*merged.constants, *made.tables))
        return _Lowered(loops=made.function, whole=other.function if is_same else made.function, merged=tabled)
    except CannotLowerError:
        raise
    except Exception as error:  # TVM raises exceptions of many types for a model that it cannot lower
        check_memory(error)
        raise CannotLowerError("loops, which TVM does not make of it") from error


def _printed(lowered: _Lowered) -> PlainC:
    merged, loops = lowered.merged, lowered.loops
    hoisted, whole = (hoist_loads(form, merged.num_inputs) for form in (loops, lowered.whole))
    every, some, none = (
        print_function(shaped, merged, places)
        for shaped, places in (
            (block_loops(hoisted.function), hoisted.places),
            (block_loops(cut_loops(whole.function, most_inside=MOST_INSIDE), keep_vectors=True), whole.places),
            (hoisted.function, hoisted.places),
        )
    )
    return PlainC(
        function=every.form.function,
        work=every.form.work,
        least_macs=macs_of_loops(shortest(loops.body)) if has_open_loops(loops.body) else None,
        least_work=every.form.least_work,
        for_vectors=some.form if some.form.function != every.form.function else None,
        small=none.form if none.form.function != every.form.function else None,
        constants=tuple((f"constant{index}", data) for index, data in enumerate(merged.constants)),
        scratch_bytes=every.scratch_bytes,
        macs=macs_of_loops(loops.body),
        in_place=in_place_inputs(loops, merged.num_inputs, merged.num_outputs, place_buffers(loops.body).aliases),
        integers_only=not any(dtype.startswith("float") for dtype in every.dtypes),
    )


def _refusal(function: relax.Function, reason: str) -> NoPlainC:
    names = operator_names(function)
    return NoPlainC(operators=names, reason=f"{', '.join(names) or 'the function'}: {reason}")


def in_place_inputs(
    lowered: tirx.PrimFunc, num_inputs: int, num_outputs: int, aliases: dict[Var, Var]
) -> tuple[int, ...]:
    """Return the indices of inputs of which each element is read only where the same element of the output is stored.

    Only a single loop nest that stores its only output once has such inputs; the result is empty for all others.
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
    """Return True if the loops have as many iterations as elements:

    since all elements are written, none is written twice.
    """
    extents: list[tirx.Expr] = []
    tvm_ffi.structural_walk(body, [(tirx.For, lambda loop: extents.append(loop.extent))])
    return math.prod(int(extent) for extent in extents) == num_elements


def _extent(buffer: Var) -> tuple[tuple[int, ...], int]:
    return tuple(int(extent) for extent in buffer.ty.shape), np.dtype(str(buffer.ty.dtype)).itemsize
