"""FoldConstants: before and after, modules it leaves alone, and numbers that are TVM's bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.analysis.constant_value import evaluate
from relay_passes.dataflow import array_of, bindings, constant
from relay_passes.simplify.fold_constants import FoldConstants
from tests.passes.modules import module_of

WEIGHTS = np.arange(24, dtype="int8").reshape(4, 6)
SCALES = np.array([0.5, 0.25, 1, 2], "float32")
ZEROS = np.zeros(4, "int8")
INDICES = np.array([0, 1], "int64")


def check(before: tvm.IRModule, expected: tvm.IRModule) -> None:
    after = FoldConstants()(before)
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(after, expected, map_free_vars=True)


def test_chain_of_constants() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                a = R.astype(R.const(INDICES, "int64"), "float32")
                b = R.add(a, R.const(1.0, "float32"))
                dead = R.exp(x)  # noqa: F841
                y = R.multiply(x, b)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                y = R.multiply(x, R.const(np.array([1, 2], "float32"), "float32"))
                R.output(y)
            return y

    check(Before, Expected)


def test_shape_moves_go_onto_the_quantized_constant() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((6, 4), "float32")) -> R.Tensor((1, 6, 4), "float32"):
            with R.dataflow():
                w = R.dequantize(R.const(WEIGHTS, "int8"), R.const(SCALES, "float32"), R.const(ZEROS, "int8"), axis=0)
                t = R.permute_dims(w)
                r = R.reshape(t, R.shape([1, 6, 4]))
                y = R.add(r, x)
                R.output(y)
            return y

    moved = np.ascontiguousarray(WEIGHTS.T).reshape(1, 6, 4)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((6, 4), "float32")) -> R.Tensor((1, 6, 4), "float32"):
            with R.dataflow():
                r = R.dequantize(R.const(moved, "int8"), R.const(SCALES, "float32"), R.const(ZEROS, "int8"), axis=2)
                y = R.add(r, x)
                R.output(y)
            return y

    check(Before, Expected)


def test_per_tensor_moves_whatever_becomes_of_the_axis() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((24,), "float32")) -> R.Tensor((24,), "float32"):
            with R.dataflow():
                w = R.dequantize(R.const(WEIGHTS, "int8"), R.const(0.5, "float32"), R.const(3, "int8"), axis=0)
                r = R.reshape(w, R.shape([24]))
                y = R.add(r, x)
                R.output(y)
            return y

    flat = WEIGHTS.reshape(24)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((24,), "float32")) -> R.Tensor((24,), "float32"):
            with R.dataflow():
                r = R.dequantize(R.const(flat, "int8"), R.const(0.5, "float32"), R.const(3, "int8"), axis=0)
                y = R.add(r, x)
                R.output(y)
            return y

    check(Before, Expected)


def test_left_alone() -> None:
    """Nothing to fold: dequantize of constants, a per-channel axis that a reshape merges, calls of variables."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((24,), "float32")) -> R.Tuple(R.Tensor((24,), "float32"), R.Tensor((4, 6), "float32")):
            with R.dataflow():
                w = R.dequantize(R.const(WEIGHTS, "int8"), R.const(SCALES, "float32"), R.const(ZEROS, "int8"), axis=0)
                r = R.reshape(w, R.shape([24]))
                y = R.add(r, x)
                z = R.reshape(x, R.shape([4, 6]))
                R.output(y, z)
            return (y, z)

    check(Module, Module)


def test_results_may_be_constants() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32")):
            with R.dataflow():
                one = R.ones(R.shape([2]), "float32")
                y = R.add(x, one)
                R.output(one, y)
            return (one, y)

    after = FoldConstants()(Before)["main"]
    np.testing.assert_array_equal(array_of(after.body.body.fields[0]), [1, 1])
    assert [binding.var.name for binding in bindings(after)] == ["y"]


def test_names_and_spans_are_kept() -> None:
    """The moved dequantize belongs to the variable and node that asked for the moved shape."""
    weights = relax.DataflowVar("w/quantized", relax.TensorType((4, 6), "float32"))
    moved = relax.Var("conv bias", relax.TensorType((6, 4), "float32"))
    dequantize = relax.op.dequantize(constant(WEIGHTS), constant(SCALES), constant(ZEROS), axis=0)
    span = tvm.ir.Span(tvm.ir.SourceName("node/7"), 0, 0, 0, 0)
    permute = relax.op.permute_dims(weights)
    permute = relax.Call(permute.op, permute.args, permute.attrs, permute.ty_args, span)
    block = relax.DataflowBlock([relax.VarBinding(weights, dequantize), relax.VarBinding(moved, permute)])
    func = relax.Function([], relax.SeqExpr([block], moved), moved.ty).with_attr("global_symbol", "main")
    mod = tvm.IRModule({"main": relax.BlockBuilder().normalize(func)})
    (binding,) = bindings(FoldConstants()(mod)["main"])
    assert binding.var.name == "conv bias"
    assert binding.value.op.name == "relax.dequantize"
    assert binding.value.span.source_name.name == "node/7"


RANDOM = np.random.default_rng(0)
REAL = (RANDOM.normal(size=(3, 4, 5)) * 10).astype("float32")
REAL[0, 0] = [0, -0.0, 0.5, 1.5, 2.5]
OTHER = RANDOM.normal(size=(3, 4, 5)).astype("float32")
OTHER[0, 0] = [-0.0, 0, 0.5, -1.5, 2]
LONG = (RANDOM.normal(size=(7, 100, 3)) * 100).astype("float32")
WHOLE = RANDOM.integers(-100, 100, (3, 4, 5)).astype("int32")
DIVISOR = (RANDOM.integers(1, 9, (3, 4, 5)) * RANDOM.choice([-1, 1], (3, 4, 5))).astype("int32")
BYTES = RANDOM.integers(0, 256, (3, 4, 5)).astype("uint8")
FLAGS = RANDOM.integers(0, 2, (3, 4, 5)).astype("bool")
op = relax.op

UNARY = "negative abs square floor ceil trunc round isnan isfinite isinf"
BINARY = "add subtract multiply divide maximum minimum equal not_equal less less_equal greater greater_equal"
CASES: dict[str, Callable[[], relax.Expr]] = {
    **{f"{name} float": lambda f=name: getattr(op, f)(constant(REAL)) for name in UNARY.split()},
    "sqrt": lambda: op.sqrt(constant(np.abs(REAL))),
    **{f"{name} float": lambda f=name: getattr(op, f)(constant(REAL), constant(OTHER)) for name in BINARY.split()},
    **{f"{name} int": lambda f=name: getattr(op, f)(constant(WHOLE), constant(DIVISOR)) for name in BINARY.split()},
    "floor_mod": lambda: op.floor_mod(constant(WHOLE), constant(DIVISOR)),
    "mod": lambda: op.mod(constant(WHOLE), constant(DIVISOR)),
    "add wraps": lambda: op.add(constant(BYTES), constant(BYTES)),
    **{f"to {t}": lambda t=t: op.astype(constant(REAL), t) for t in ("int8", "int64", "float64", "bool")},
    **{f"bytes to {t}": lambda t=t: op.astype(constant(BYTES), t) for t in ("int8", "float32", "int64")},
    "clip": lambda: op.clip(constant(REAL), 0, 6),
    "clip int": lambda: op.clip(constant(WHOLE), -5, 6),
    "where": lambda: op.where(constant(FLAGS), constant(REAL), constant(OTHER)),
    "take": lambda: op.take(constant(REAL), constant(INDICES), 1),
    "slice back": lambda: op.strided_slice(constant(REAL), [0, 2], [0, -1], [2, -10], [1, -1]),
    "concat": lambda: op.concat([constant(REAL), constant(OTHER)], 1),
    "tile": lambda: op.tile(constant(REAL), (1, 2, 2)),
    "pad": lambda: op.nn.pad(constant(REAL), [0, 0, 1, 1, 2, 2]),
    **{
        f"{name} over {axes}": lambda f=name, axes=axes: getattr(op, f)(constant(LONG), axes)
        for name in ("sum", "mean", "min", "max", "prod")
        for axes in (None, [1], [0, 2])
    },
    "argmax": lambda: op.argmax(constant(LONG), 1),
}


@pytest.mark.parametrize("case", CASES)
def test_bits_are_those_of_tvm(case: str) -> None:
    call = relax.BlockBuilder().normalize(CASES[case]())
    found = array_of(evaluate(call))
    machine = relax.VirtualMachine(tvm.compile(module_of([], lambda _: call), "llvm"), tvm.cpu())
    expected = machine["main"]().numpy()
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "call",
    [
        op.divide(constant(WHOLE), constant(np.zeros((3, 4, 5), "int32"))),
        op.astype(constant(np.array([300.0], "float32")), "int8"),
        op.astype(constant(np.array([np.nan], "float32")), "int32"),
        op.maximum(constant(np.array([np.nan], "float32")), constant(np.array([1], "float32"))),
        op.take(constant(REAL), constant(np.array([7])), 1),
        op.broadcast_to(constant(np.array(0, "float32")), (1 << 20, 1 << 20)),
        op.exp(constant(REAL)),
    ],
    ids=["divide by zero", "out of range", "nan to int", "nan maximum", "index out of range", "too large", "exp"],
)
def test_what_numpy_cannot_know_is_not_computed(call: relax.Expr) -> None:
    assert evaluate(relax.BlockBuilder().normalize(call)) is None


def test_what_numpy_rounds_otherwise_is_computed_by_tvm() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                e = R.exp(R.const(np.array([0, 1], "float32"), "float32"))
                y = R.add(x, e)
                R.output(y)
            return y

    (binding,) = bindings(FoldConstants()(Before)["main"])
    np.testing.assert_allclose(array_of(binding.value.args[1]), [1, np.e], rtol=1e-6)
