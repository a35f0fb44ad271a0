"""TurnProducts: products of a constant matrix with an activation on its right become dense layers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from relay_passes.dataflow import array_of, bindings, op_name
from relay_passes.simplify.turn_products import TurnProducts
from tests.passes.modules import module_of
from tests.support.virtual_machine import run

OP = relax.op
RANDOM = np.random.default_rng(8)
Body = Callable[[relax.BlockBuilder, relax.Var], relax.Expr]


def numbers(*shape: int) -> relax.Expr:
    return relax.const(RANDOM.standard_normal(shape).astype("f4"))


def module(shape: tuple[int, ...], body: Body) -> tvm.IRModule:
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    return module_of([x], lambda builder: body(builder, x))


def names(mod: tvm.IRModule) -> list[str]:
    return [(op_name(b.value) or "").removeprefix("relax.") for b in bindings(mod["main"])]


def with_bias(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    product = builder.emit(OP.matmul(numbers(5, 4), x))
    return OP.clip(builder.emit(OP.nn.relu(builder.emit(OP.add(numbers(5, 1), product)))), 0, 1)


def after_a_permutation(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return OP.matmul(numbers(5, 3), builder.emit(OP.permute_dims(x, [0, 2, 1])))


def with_a_bias_of_columns(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return OP.add(builder.emit(OP.matmul(numbers(5, 4), x)), numbers(3))


def read_twice(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    product = builder.emit(OP.matmul(numbers(5, 4), x))
    return OP.add(product, builder.emit(OP.nn.relu(product)))


TURN, RESHAPE, MATMUL = "permute_dims", "reshape", "matmul"
CASES: dict[str, tuple[tuple[int, ...], Body, list[str]]] = {
    "matrices": ((4, 3), lambda _, x: OP.matmul(numbers(5, 4), x), [TURN, MATMUL, TURN]),
    "stacks": ((2, 4, 3), lambda _, x: OP.matmul(numbers(1, 5, 4), x), [TURN, MATMUL, TURN]),
    "a vector": ((2, 4, 1), lambda _, x: OP.matmul(numbers(5, 4), x), [RESHAPE, MATMUL, RESHAPE]),
    "bias and clamps": ((1, 4, 3), with_bias, [TURN, MATMUL, "add", "nn.relu", "clip", TURN]),
    "after a permutation": ((1, 4, 3), after_a_permutation, [MATMUL, TURN]),
    "bias of columns": ((1, 4, 3), with_a_bias_of_columns, [TURN, MATMUL, TURN, "add"]),
    "two readers": ((1, 4, 3), read_twice, [TURN, MATMUL, TURN, "nn.relu", "add"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_dense_layer_computes_the_same(case: str) -> None:
    shape, body, wanted = CASES[case]
    before = module(shape, body)
    after = TurnProducts()(before)
    relax.analysis.well_formed(after)
    assert names(after) == wanted
    (product,) = [b.value for b in bindings(after["main"]) if op_name(b.value) == "relax.matmul"]
    assert array_of(product.args[0]) is None and array_of(product.args[1]).ndim == 2
    assert bindings(after["main"])[-1].var.name == bindings(before["main"])[-1].var.name
    array = RANDOM.standard_normal(shape).astype("f4")
    np.testing.assert_allclose(run(after, array), run(before, array), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "body"),
    [
        ((2, 4, 3), lambda _, x: OP.matmul(numbers(2, 5, 4), x)),
        ((4, 3), lambda _, x: OP.matmul(numbers(1, 5, 4), x)),
        ((4,), lambda _, x: OP.matmul(numbers(5, 4), x)),
        ((3, 4), lambda _, x: OP.matmul(x, numbers(4, 5))),
    ],
    ids=["different matrices", "an axis of the matrix", "one vector", "constant on the right"],
)
def test_others_are_left_alone(shape: tuple[int, ...], body: Body) -> None:
    before = module(shape, body)
    tvm.ir.assert_structural_equal(TurnProducts()(before), before, map_free_vars=True)
