"""Rematerialize: results computed again, and their places; nothing else changes."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.dataflow import bindings
from relay_passes.memory.rematerialize import Rematerialize
from relay_passes.regions.form_composites import FormComposites
from tests.passes.modules import without_spans
from tests.passes.test_schedule_operators import MeasuringBackend


@I.ir_module
class Skip:
    """A wide value that waits for the last operator, made from two small ones."""

    @R.function
    def main(x: R.Tensor((64, 1), "float32"), w: R.Tensor((1, 64), "float32"), v: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            wide = R.matmul(x, w)
            a = R.matmul(wide, v)
            b = R.matmul(a, v)
            c = R.matmul(b, v)
            y = R.add(c, wide)
            R.output(y)
        return y


PEAK = 4 * 4 * 64 * 64


def formed() -> tvm.IRModule:
    return FormComposites(MeasuringBackend(max_operators=1))(without_spans(Skip))


def names(module: tvm.IRModule) -> list[str]:
    return [binding.var.name for binding in bindings(module["main"])]


def test_a_value_that_waits_is_computed_again() -> None:
    after = Rematerialize(MeasuringBackend(), PEAK - 1)(formed())
    assert names(after) == ["wide", "a", "b", "c", "wide.again", "y"]
    main = after["main"]
    assert int(main.attrs["rematerialized_operators"]) == 1
    if importlib.util.find_spec("ortools"):  # one repeat is the least that there can be
        assert int(main.attrs["rematerialized_at_least"]) == int(main.attrs["rematerialized_instructions"])
    assert int(main.attrs["schedule_peak_bytes"]) == 4 * (3 * 64 * 64 + 2 * 64)
    again, last = bindings(main)[-2:]
    assert list(last.value.args)[1].same_as(again.var)


@pytest.mark.parametrize("budget", [PEAK, 100])
def test_within_the_budget_or_out_of_reach_it_stays(budget: int) -> None:
    before = formed()
    tvm.ir.assert_structural_equal(Rematerialize(MeasuringBackend(), budget)(before), before)


def test_it_computes_the_same() -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=shape).astype(np.float32) for shape in ((64, 1), (1, 64), (64, 64))]

    def run(module: tvm.IRModule) -> np.ndarray:
        machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
        return machine["main"](*[tvm.runtime.tensor(array) for array in inputs]).numpy()

    np.testing.assert_array_equal(run(Rematerialize(MeasuringBackend(), PEAK - 1)(formed())), run(formed()))
