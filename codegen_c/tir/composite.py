"""A composite whose operators have no kernel of their own -> plain C."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import relax, tirx

from codegen_c.tir.aliasing import in_place_inputs
from codegen_c.tir.block_loops import block_loops
from codegen_c.tir.cut_loops import MOST_INSIDE, cut_loops
from codegen_c.tir.hoist_loads import hoist_loads
from codegen_c.tir.legalize import legalize_composite, operator_names
from codegen_c.tir.lower import lower_function
from codegen_c.tir.macs import macs_of_loops
from codegen_c.tir.merge import Merged, merge_stages
from codegen_c.tir.plain_c import CannotLowerError, NoPlainC, PlainC
from codegen_c.tir.print_function import print_function
from codegen_c.tir.schedule import schedule_merged
from codegen_c.tir.skip_zeros import LEAST_SKIPPED, skip_zeros
from codegen_c.tir.storage import place_buffers
from codegen_c.tir.tabulate import tabulate
from tvm_ext.core.memory_exhausted import check_memory

_ROUNDED_ONCE = frozenset({"quantize", "dequantize"})
"""Operators with one division and one rounding, or one product, which every processor computes alike."""


def lower_composite(function: relax.Function, module: tvm.IRModule | None = None) -> PlainC | NoPlainC:
    """One C function that computes what the composite `function` computes.

    function: params are tensors of static shape, weights are constants inside, the result is a tensor or a
    tuple of tensors. module: where the PrimFuncs stand that it calls already. Floats are summed in the order
    of TVM's PrimFuncs.

    A NoPlainC says why C cannot express it: shapes that depend on data, calls of TVM's runtime (sort, topk),
    element types that C11 lacks, or an operator that TVM cannot legalise.
    """
    try:
        printed = _printed(_lowered(function, module))
        return replace(printed, correctly_rounded=_ROUNDED_ONCE.issuperset(operator_names(function)))
    except CannotLowerError as error:
        return _refusal(function, f"it needs {error}")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Lowered:
    """Plain loops, and what their parameters are. whole: the same with the zeros that short sums add."""

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
    except Exception as error:  # TVM raises what it likes about a model that it cannot lower
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
