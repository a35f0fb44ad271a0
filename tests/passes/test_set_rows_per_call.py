"""SetRowsPerCall: rows per call of the sequences that it is told of, and of no others."""

from __future__ import annotations

import tvm
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.memory.set_rows_per_call import SetRowsPerCall
from tests.passes.modules import without_spans


def module(rows: int) -> tvm.IRModule:
    """Two sequences, and a function of none. rows: those per call of sequence_0."""

    @I.ir_module
    class Sequences:
        @R.function(private=True)
        def c1(x: R.Tensor((1, 8, 4, 2), "float32")) -> R.Tensor((1, 8, 4, 2), "float32"):
            R.func_attr({"sequence": "sequence_0", "rows_per_call": rows})
            return R.exp(x)

        @R.function(private=True)
        def c2(x: R.Tensor((1, 8, 4, 2), "float32")) -> R.Tensor((1, 8, 4, 2), "float32"):
            R.func_attr({"sequence": "sequence_0", "rows_per_call": rows, "input_rows": 8})
            return R.exp(x)

        @R.function(private=True)
        def c3(x: R.Tensor((1, 8, 4, 2), "float32")) -> R.Tensor((1, 8, 4, 2), "float32"):
            R.func_attr({"sequence": "sequence_1", "rows_per_call": 2})
            return R.exp(x)

        @R.function(private=True)
        def c4(x: R.Tensor((1, 8, 4, 2), "float32")) -> R.Tensor((1, 8, 4, 2), "float32"):
            return R.exp(x)

        @R.function
        def main(x: R.Tensor((1, 8, 4, 2), "float32")) -> R.Tensor((1, 8, 4, 2), "float32"):
            cls = Sequences
            with R.dataflow():
                a = cls.c1(x)
                b = cls.c2(a)
                c = cls.c3(b)
                y = cls.c4(c)
                R.output(y)
            return y

    return without_spans(Sequences)


def test_before_and_expected() -> None:
    tvm.ir.assert_structural_equal(SetRowsPerCall({"sequence_0": 4})(module(1)), module(4))


def test_what_nothing_is_said_of_is_left_alone() -> None:
    before = module(1)
    for rows in ({}, {"sequence_1": 2}, {"sequence_7": 4}):
        tvm.ir.assert_structural_equal(SetRowsPerCall(rows)(before), before)
