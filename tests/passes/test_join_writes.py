"""JoinWrites: writes to a range of an axis become a concat."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from relay_passes.dataflow import bindings, op_name, static_shape
from relay_passes.simplify.join_writes import JoinWrites
from tests.passes.modules import module_of
from tests.support.virtual_machine import run

OP = relax.op
SHAPE = (2, 6, 3)

Body = Callable[[relax.BlockBuilder, relax.Var, relax.Var], relax.Expr]


def module(body: Body, written: tuple[int, ...]) -> tvm.IRModule:
    x, u = (relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in (("x", SHAPE), ("u", written)))
    return module_of([x, u], lambda builder: body(builder, x, u))


def names(mod: tvm.IRModule) -> list[str]:
    return [(op_name(b.value) or "").removeprefix("relax.") for b in bindings(mod["main"])]


def grid(*ranges: range) -> np.ndarray:
    """Index tuples of a box, as exporters write an assignment to a slice."""
    return np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1).astype(np.int64)


def scatter(indices: np.ndarray, **options: str) -> Body:
    return lambda builder, x, u: OP.nn.relu(builder.emit(OP.scatter_nd(x, relax.const(indices), u, **options)))


def slice_of(begin: int, end: int, step: int = 1, axis: int = 1) -> Body:
    return lambda builder, x, u: OP.nn.relu(builder.emit(OP.slice_scatter(x, u, begin, end, step, axis=axis)))


ALL = slice(None)
CASES = {
    "scatter in the middle": (scatter(grid(range(2), range(2, 5))), (ALL, slice(2, 5)), "strided_slice strided_slice"),
    "scatter at the end": (scatter(grid(range(2), range(4, 6), range(3))), (ALL, slice(4, 6)), "strided_slice"),
    "scatter from behind": (scatter(np.array([[-1]])), slice(-1, None), "strided_slice"),
    "scatter of fewer axes": (scatter(np.array([[[0]]])), 0, "reshape strided_slice"),
    "slice": (slice_of(0, 2), (ALL, slice(0, 2)), "strided_slice"),
    "slice of the last axis": (slice_of(1, 3, axis=-1), (ALL, ALL, slice(1, 3)), "strided_slice"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_write_to_a_range_becomes_a_concat(case: str) -> None:
    body, index, wanted = CASES[case]
    x = np.arange(1, 37, dtype=np.float32).reshape(SHAPE)
    written = (1, 1, 6, 3) if "fewer" in case else x[index].shape
    after = JoinWrites()(module(body, written))
    relax.analysis.well_formed(after)
    assert names(after) == [*wanted.split(), "concat", "nn.relu"]
    u = np.arange(100, 100 + np.prod(written), dtype=np.float32).reshape(written)
    expected = x.copy()
    expected[index] = u
    np.testing.assert_array_equal(run(after, x, u), expected)


def test_writes_one_after_the_other_are_one_concat() -> None:
    """The second write replaces a part of the first, the third writes along another axis."""

    def body(builder: relax.BlockBuilder, x: relax.Var, u: relax.Var) -> relax.Expr:
        first = builder.emit(OP.scatter_nd(x, relax.const(grid(range(2), range(3))), u))
        second = builder.emit(OP.slice_scatter(first, u, 2, 5, 1, axis=1))
        other = builder.emit(OP.strided_slice(u, [1], [0], [1]))
        row = builder.emit(OP.strided_slice(builder.emit(OP.concat([u, u], 1)), [0], [0], [1]))
        third = builder.emit(OP.scatter_nd(second, relax.const(np.array([[1]])), row))
        return OP.add(third, other)

    after = JoinWrites()(module(body, (2, 3, 3)))
    relax.analysis.well_formed(after)
    joins = [b for b in bindings(after["main"]) if op_name(b.value) == "relax.concat"]
    assert len(joins) == 3 and "scatter" not in " ".join(names(after))
    shapes = [[static_shape(part) for part in join.value.args[0].fields] for join in joins]
    assert [(2, 2, 3), (2, 3, 3), (2, 1, 3)] in shapes, "what the second write replaces is not copied"
    x, u = (np.random.default_rng(0).standard_normal(shape).astype("f4") for shape in (SHAPE, (2, 3, 3)))
    expected = np.concatenate([u[:, :2], u, x[:, 5:]], axis=1)
    expected[1] = np.concatenate([u, u], axis=1)[0]
    np.testing.assert_array_equal(run(after, x, u), expected + u[:, :1])


@pytest.mark.parametrize(
    ("body", "written"),
    [
        (scatter(np.array([[1], [0]])), (2, 6, 3)),
        (scatter(grid(range(2), range(6))[:, [0, 2]]), (2, 2, 3)),
        (scatter(grid(range(1), range(2))), (1, 2, 3)),
        (scatter(grid(range(2), range(2)), reduction="add"), (2, 2, 3)),
        (scatter(grid(range(2), range(6))), SHAPE),
        (slice_of(0, 6, 2), (2, 3, 3)),
    ],
    ids=["order", "gap", "two axes", "sum", "whole", "step"],
)
def test_other_writes_are_left_alone(body: Body, written: tuple[int, ...]) -> None:
    before = module(body, written)
    tvm.ir.assert_structural_equal(JoinWrites()(before), before, map_free_vars=True)
