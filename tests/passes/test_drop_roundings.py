"""DropRoundings: floats are bounded before they are rounded to 16 bits."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.simplify.drop_roundings import DropRoundings


def check(before: tvm.IRModule, expected: tvm.IRModule) -> None:
    after = DropRoundings()(before)
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(after, expected, map_free_vars=True)


def test_bounds_of_what_was_rounded_take_it_before() -> None:
    """A relu, and a clip behind it."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float16"):
            with R.dataflow():
                e = R.exp(x)
                n = R.astype(e, "float16")
                w = R.astype(n, "float32")
                r = R.nn.relu(w)
                m = R.astype(r, "float16")
                v = R.astype(m, "float32")
                c = R.clip(v, 0, 6)
                y = R.astype(c, "float16")
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float16"):
            with R.dataflow():
                e = R.exp(x)
                r = R.nn.relu(e)
                c = R.clip(r, 0, 6)
                y = R.astype(c, "float16")
                R.output(y)
            return y

    check(Before, Expected)


def rounded(bound: str, kind: str = "float16", *, also: bool = False) -> tvm.IRModule:
    """A rounded value that is bounded, or handled as `bound` says, and rounded again. also: returned itself, too."""
    x = relax.Var("x", relax.TensorType([4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            narrow = builder.emit(relax.op.astype(builder.emit(relax.op.exp(x)), "float16"))
            wide = builder.emit(relax.op.astype(narrow, "float32"))
            made = {
                "tanh": lambda: relax.op.tanh(wide),
                "minimum": lambda: relax.op.minimum(wide, relax.const(0.1, "float32")),
                "relu": lambda: relax.op.nn.relu(wide),
            }[bound]()
            result = builder.emit(relax.op.astype(builder.emit(made), kind))
            found = [builder.emit_output(value) for value in ([result, narrow] if also else [result])]
        builder.emit_func_output(relax.Tuple(found))
    return builder.get()


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("tanh",), id="an operator that is no bound"),
        pytest.param(("minimum",), id="0.1 is no float16"),
        pytest.param(("relu", "bfloat16"), id="rounded to another type behind it"),
    ],
)
def test_what_stays(arguments: tuple[str, ...]) -> None:
    module = rounded(*arguments)
    check(module, module)


def test_a_rounded_value_that_leaves_the_model_stays() -> None:
    module = rounded("relu", also=True)
    check(module, module)
