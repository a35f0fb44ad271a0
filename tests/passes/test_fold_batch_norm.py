"""FoldBatchNorm: normalization becomes part of the layer before it, or a scale and a shift."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from relay_passes.dataflow import bindings, op_name
from relay_passes.simplify.fold_batch_norm import FoldBatchNorm

RANDOM = np.random.default_rng(0)
Make = Callable[[relax.BlockBuilder, relax.Var], relax.Expr]


def numbers(*shape: int) -> relax.Expr:
    return relax.const(RANDOM.normal(size=shape).astype(np.float32))


def normalize(block: relax.BlockBuilder, value: relax.Expr, channels: int, *, axis: int = 1) -> relax.Var:
    variance = relax.const(RANDOM.uniform(0.5, 2, size=channels).astype(np.float32))
    statistics = (numbers(channels), numbers(channels), numbers(channels), variance)
    call = relax.op.nn.batch_norm(value, *statistics, axis=axis, epsilon=1e-3, training=False)
    return block.emit(relax.TupleGetItem(block.emit(call), 0))


def module(shape: tuple[int, ...], make: Make) -> tvm.IRModule:
    block = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with block.function("main", [x]):
        with block.dataflow():
            result = block.emit_output(make(block, x))
        block.emit_func_output(result)
    return block.finalize()


def run(mod: tvm.IRModule, x: np.ndarray) -> np.ndarray:
    executable = tvm.compile(mod, target="llvm")
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()


def operators(mod: tvm.IRModule) -> list[str | None]:
    return [op_name(binding.value) for binding in bindings(mod["main"]) if op_name(binding.value)]


def conv(block: relax.BlockBuilder, x: relax.Expr) -> relax.Var:
    return block.emit(relax.op.nn.conv2d(x, numbers(6, 4, 3, 3)))


def plain(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return normalize(block, conv(block, x), 6)


def with_bias(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return normalize(block, block.emit(relax.op.add(conv(block, x), numbers(1, 6, 1, 1))), 6)


def with_one_bias(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return normalize(block, block.emit(relax.op.add(numbers(), conv(block, x))), 6)


def channels_last(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    call = relax.op.nn.conv2d(x, numbers(6, 3, 3, 8), data_layout="NHWC", kernel_layout="OHWI")
    return normalize(block, block.emit(call), 6, axis=3)


def depthwise(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return normalize(block, block.emit(relax.op.nn.conv2d(x, numbers(4, 1, 3, 3), groups=4)), 4)


def dense(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    rows = block.emit(relax.op.reshape(x, (8, 32)))
    return normalize(block, block.emit(relax.op.matmul(rows, numbers(32, 5))), 5)


@pytest.mark.parametrize("make", [plain, with_bias, with_one_bias, channels_last, depthwise, dense])
def test_a_layer_takes_it_in(make: Make) -> None:
    before = module((1, 4, 8, 8), make)
    after = FoldBatchNorm()(before)
    layer = "relax.matmul" if make is dense else "relax.nn.conv2d"
    assert operators(after)[-2:] == [layer, "relax.add"] and "relax.nn.batch_norm" not in operators(after)
    x = RANDOM.normal(size=(1, 4, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-4, atol=1e-4)


def alone(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return normalize(block, x, 4)


def read_twice(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    layer = conv(block, x)
    return block.emit(relax.op.add(normalize(block, layer, 6), layer))


def across(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Normalized along rows, which no weight belongs to."""
    return normalize(block, conv(block, x), 6, axis=2)


@pytest.mark.parametrize("make", [alone, read_twice, across])
def test_elsewhere_it_is_a_scale_and_a_shift(make: Make) -> None:
    before = module((1, 4, 8, 8), make)
    after = FoldBatchNorm()(before)
    assert "relax.nn.batch_norm" not in operators(after) and "relax.multiply" in operators(after)
    x = RANDOM.normal(size=(1, 4, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-4, atol=1e-4)


def factors(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return block.emit(relax.op.multiply(conv(block, x), numbers(1, 6, 1, 1)))


def divisors_after_a_bias(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    biased = block.emit(relax.op.add(conv(block, x), numbers(6, 1, 1)))
    return block.emit(relax.op.divide(biased, relax.const(RANDOM.uniform(1, 2, (6, 1, 1)).astype("f4"))))


def chain(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    biased = block.emit(relax.op.add(conv(block, x), numbers(1)))
    scaled = block.emit(relax.op.multiply(numbers(1, 6, 1, 1), biased))
    lower = block.emit(relax.op.subtract(scaled, numbers(1, 6, 1, 1)))
    return normalize(block, block.emit(relax.op.add(lower, numbers(1, 6, 1, 1))), 6)


def dense_factors(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    rows = block.emit(relax.op.reshape(x, (8, 32)))
    return block.emit(relax.op.multiply(block.emit(relax.op.matmul(rows, numbers(32, 5))), numbers(5)))


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (factors, ["nn.conv2d"]), (divisors_after_a_bias, ["nn.conv2d", "add"]), (chain, ["nn.conv2d", "add"]),
        (dense_factors, ["reshape", "matmul"]),
    ],
)  # fmt: skip
def test_a_layer_takes_in_constants_per_channel(make: Make, wanted: list[str]) -> None:
    before = module((1, 4, 8, 8), make)
    after = FoldBatchNorm()(before)
    relax.analysis.well_formed(after)
    if make is chain:  # the scale and shift of a batch normalization are constants per channel, too
        after = FoldBatchNorm()(after)
    assert operators(after) == [f"relax.{name}" for name in wanted]
    assert bindings(after["main"])[-1].var.name == bindings(before["main"])[-1].var.name
    x = RANDOM.normal(size=(1, 4, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-4, atol=1e-4)


def a_number(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return block.emit(relax.op.multiply(conv(block, x), numbers(1)))


def factors_of_rows(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return block.emit(relax.op.multiply(conv(block, x), numbers(1, 1, 6, 1)))


def one_bias(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return block.emit(relax.op.add(conv(block, x), numbers(1, 6, 1, 1)))


def zeros_as_divisors(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return block.emit(relax.op.divide(conv(block, x), relax.const(np.arange(6, dtype="f4").reshape(6, 1, 1))))


def factors_of_two_readers(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    layer = conv(block, x)
    return block.emit(relax.op.add(layer, block.emit(relax.op.multiply(layer, numbers(1, 6, 1, 1)))))


def constant_minus_layer(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    biased = block.emit(relax.op.add(conv(block, x), numbers(1)))
    return block.emit(relax.op.subtract(numbers(1, 6, 1, 1), biased))


@pytest.mark.parametrize(
    "make", [a_number, factors_of_rows, one_bias, zeros_as_divisors, factors_of_two_readers, constant_minus_layer]
)
def test_other_arithmetic_is_left_alone(make: Make) -> None:
    before = module((1, 4, 8, 8), make)
    tvm.ir.assert_structural_equal(FoldBatchNorm()(before), before)


def test_a_transform_keeps_its_matrix() -> None:
    before = module((1, 4, 8, 8), factors)
    tvm.ir.assert_structural_equal(FoldBatchNorm(lambda rows: rows.shape == (6, 36))(before), before)


def test_computed_statistics_are_left_alone() -> None:
    def make(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        mean = block.emit(relax.op.mean(x, [0, 2, 3]))
        call = relax.op.nn.batch_norm(x, numbers(4), numbers(4), mean, mean, axis=1, training=False)
        return block.emit(relax.TupleGetItem(block.emit(call), 0))

    before = module((1, 4, 8, 8), make)
    tvm.ir.assert_structural_equal(FoldBatchNorm()(before), before)


def test_training_is_left_alone() -> None:
    """It normalizes by the statistics of what comes in, not by those it is given."""

    def make(block: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        call = relax.op.nn.batch_norm(x, *(numbers(4) for _ in range(4)), axis=1, training=True)
        return block.emit(relax.TupleGetItem(block.emit(call), 0))

    before = module((1, 4, 8, 8), make)
    tvm.ir.assert_structural_equal(FoldBatchNorm()(before), before)


def test_names_and_origins_stay() -> None:
    """The result keeps its name, the layer its own."""
    before = module((1, 4, 8, 8), plain)
    names = [binding.var.name for binding in bindings(before["main"])]
    after = [binding.var.name for binding in bindings(FoldBatchNorm()(before)["main"])]
    assert after[0] == names[0] and after[-1] == names[-1]
