"""Kernel for any operator without a kernel of its own: plain C made from its PrimFuncs."""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import Implementation, Kernel, OpenEnd, StoredRows, Target
from codegen_c.kernels.work import instructions_of
from codegen_c.operators.kinds import Generic
from codegen_c.tir.plain_c import PlainC


def implement(operator: Generic, target: Target, stored: StoredRows) -> Implementation:
    plain = operator.plain
    assert isinstance(plain, PlainC), "a Generic operator carries the C it was lowered to"
    has_vectors, is_small = target.instruction_set.floats.lanes > 1, target.optimize == "size"
    form = plain.form(has_vectors=has_vectors, is_small=is_small)
    fpu, isa = target.processor.fpu, target.processor.isa
    return Implementation(
        kernel=KERNEL.name,
        function=form.function,
        reference=operator.reference,
        constants=tuple((name, np.ascontiguousarray(array)) for name, array in plain.constants),
        scratch_bytes=plain.scratch_bytes,
        macs=plain.macs,
        instructions=instructions_of(form.work, fpu=fpu, isa=isa),
        open_end=None
        if form.least_work is None
        else OpenEnd(
            macs=plain.least_macs or 0,
            instructions=instructions_of(form.least_work, fpu=fpu, isa=isa),
            most_passes=operator.most_passes,
        ),
        accumulation="as TVM defines the operator",
        in_place=plain.in_place,
        integers_only=plain.integers_only,
        correctly_rounded=plain.correctly_rounded,
    )


KERNEL = Kernel(
    name="generic",
    title="Any operator without a kernel of its own: plain C made from its PrimFuncs",
    operator=Generic,
    implement=implement,
)
