"""SliceSplits: parts of a split are slices."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.simplify.slice_splits import SliceSplits
from tests.passes.modules import without_spans


def check(before: tvm.IRModule, expected: tvm.IRModule) -> None:
    after = SliceSplits()(before)
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(without_spans(after), without_spans(expected), map_free_vars=True)


def test_parts_that_are_read_become_slices() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 8), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                p = R.split(x, [2, 5], axis=-1)
                a = p[1]
                b = p[2]
                c = R.add(a, b)
                R.output(c)
            return c

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 8), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                a = R.strided_slice(x, axes=[1], begin=[2], end=[5], assume_inbound=False)
                b = R.strided_slice(x, axes=[1], begin=[5], end=[8], assume_inbound=False)
                c = R.add(a, b)
                R.output(c)
            return c

    check(Before, Expected)


def test_a_split_that_is_read_as_a_whole_stays() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 8), "float32")) -> R.Tensor((4, 4), "float32"):
            with R.dataflow():
                p = R.split(x, 2, axis=1)
                c = R.concat(p, axis=0)
                R.output(c)
            return c

    check(Before, Before)
