"""The memory of `remembering_lower`: plain C is made once for composites that compute the same, and only for those."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from codegen_c.composites import lower_operator as lowering
from codegen_c.operators.kinds import Generic
from codegen_c.tir.plain_c import PlainC
from tests.kernels.harness import PORTABLE
from tests.kernels.tir_cases import Case
from tvm_ext.core.decisions.composites import KeptWeights, SourceNodes


def sums_from(addend: float) -> relax.Function:
    """An operator that no kernel computes, with a constant."""
    constant = relax.const(np.float32(addend))
    return Case(
        name="one", build=lambda x: op.cumsum(op.add(x, constant), axis=1), inputs=(((2, 3), "float32"),)
    ).function()


def plain_of(lower: lowering.Lower, function: relax.Function) -> PlainC:
    found = lower(function, PORTABLE)
    assert isinstance(found, lowering.Lowered) and isinstance(found.operator, Generic)
    return found.operator.plain


def test_attributes_of_a_composite_make_no_other_plain_c() -> None:
    lower, function = lowering.remembering_lower(), sums_from(1.0)
    first = plain_of(lower, function)
    assert plain_of(lower, SourceNodes(nodes=("a",)).write(function)) is first
    assert plain_of(lower, KeptWeights(is_set=True).write(function)) is first
    assert plain_of(lower, sums_from(1.0)) is first


def test_plain_c_is_the_one_of_lower_operator() -> None:
    function = sums_from(1.0)
    remembered, own = plain_of(lowering.remembering_lower(), function), plain_of(lowering.lower_operator, function)
    assert (remembered.function, remembered.work, remembered.macs) == (own.function, own.work, own.macs)


def test_another_constant_makes_another_plain_c() -> None:
    lower = lowering.remembering_lower()
    one, two = plain_of(lower, sums_from(1.0)), plain_of(lower, sums_from(2.0))
    assert one is not two and (one.function, one.constants) != (two.function, two.constants)


def test_memories_are_apart() -> None:
    function = sums_from(1.0)
    assert plain_of(lowering.remembering_lower(), function) is not plain_of(lowering.remembering_lower(), function)
