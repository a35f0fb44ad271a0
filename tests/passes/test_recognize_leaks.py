"""RecognizeLeaks: choices by sign become operators that kernels finish with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from relay_passes.dataflow import bindings, op_name
from relay_passes.simplify.recognize_leaks import RecognizeLeaks
from tests.passes.modules import module_of
from tests.support.virtual_machine import run

OP = relax.op
SHAPE = (1, 3, 4, 5)
NUMBER, CHANNELS = np.array([0.25], "f4"), np.array([0.25, -0.5, 2], "f4").reshape(3, 1, 1)
Body = Callable[[relax.BlockBuilder, relax.Expr], relax.Expr]


def const(value: np.ndarray | float) -> relax.Expr:
    return relax.const(np.asarray(value, "f4"))


def below(slope: np.ndarray, bound: float = 0, compare: str = "less") -> Body:
    def body(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        chosen = b.emit(getattr(OP, compare)(x, const(bound)))
        return OP.where(chosen, b.emit(OP.multiply(x, const(slope))), x)

    return body


def above(slope: np.ndarray) -> Body:
    def body(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return OP.where(b.emit(OP.greater(x, const(0))), x, b.emit(OP.multiply(const(slope), x)))

    return body


def module_with(body: Body) -> tvm.IRModule:
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    return module_of([x], lambda builder: body(builder, x))


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (below(NUMBER), "nn.leakyrelu"),
        (above(NUMBER), "nn.leakyrelu"),
        (below(CHANNELS), "maximum minimum multiply add"),
        (above(CHANNELS), "maximum minimum multiply add"),
        (below(CHANNELS, compare="less_equal"), "maximum minimum multiply add"),
    ],
)
def test_choices_by_sign(body: Body, names: str) -> None:
    before = module_with(body)
    after = RecognizeLeaks()(before)
    relax.analysis.well_formed(after)
    assert [(op_name(b.value) or "").removeprefix("relax.") for b in bindings(after["main"])] == names.split()
    array = np.random.default_rng(2).standard_normal(SHAPE).astype("f4")
    array.flat[:3] = np.inf, -np.inf, 0
    np.testing.assert_array_equal(run(after, array), run(before, array))


def of_another(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    chosen = b.emit(OP.less(b.emit(OP.exp(x)), const(0)))
    return OP.where(chosen, b.emit(OP.multiply(x, const(NUMBER))), x)


@pytest.mark.parametrize("body", [below(NUMBER, bound=1), below(NUMBER, compare="greater"), of_another])
def test_others_are_left_alone(body: Body) -> None:
    """Another bound, the sides exchanged, and a choice by another value."""
    before = module_with(body)
    tvm.ir.assert_structural_equal(RecognizeLeaks()(before), before, map_free_vars=True)
