"""FormComposites: operators of float16, which are float32 between casts, where a kernel takes the whole."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from codegen_c.backend.byoc import CodegenBackend
from codegen_c.composites import lower_operator
from codegen_c.targets.registry import target_of
from relay_passes.composites import is_composite
from relay_passes.dataflow import bindings, op_name
from tests.passes.forming import WEIGHTS, check, form
from tests.passes.stub_backend import StubBackend
from tvm_ext.core.platform import Platform


def test_an_operator_takes_its_casts_and_what_follows_it() -> None:
    """A convolution, rounded, and the sum with another tensor behind it."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "float16"), r: R.Tensor((1, 2, 4, 4), "float16")) -> R.Tensor(
            (1, 2, 4, 4), "float16"
        ):
            with R.dataflow():
                w = R.astype(x, "float32")
                c = R.nn.conv2d(w, R.const(WEIGHTS, "float32"))
                n = R.astype(c, "float16")
                v = R.astype(n, "float32")
                s = R.astype(r, "float32")
                a = R.add(v, s)
                y = R.astype(a, "float16")
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def y(x: R.Tensor((1, 2, 4, 4), "float16"), r: R.Tensor((1, 2, 4, 4), "float16")) -> R.Tensor(
            (1, 2, 4, 4), "float16"
        ):
            R.func_attr({"Composite": "tvm_ext.nn_conv2d", "Primitive": True})
            with R.dataflow():
                w = R.astype(x, "float32")
                c = R.nn.conv2d(w, R.const(WEIGHTS, "float32"))
                n = R.astype(c, "float16")
                v = R.astype(n, "float32")
                s = R.astype(r, "float32")
                a = R.add(v, s)
                y = R.astype(a, "float16")
                R.output(y)
            return y

        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "float16"), r: R.Tensor((1, 2, 4, 4), "float16")) -> R.Tensor(
            (1, 2, 4, 4), "float16"
        ):
            cls = Expected
            with R.dataflow():
                y = cls.y(x, r)
                R.output(y)
            return y

    check(Before, Expected)


@I.ir_module
class Rounded:
    """A convolution, rounded, and a sigmoid, rounded, of float16."""

    @R.function
    def main(x: R.Tensor((1, 2, 4, 4), "float16")) -> R.Tensor((1, 2, 4, 4), "float16"):
        with R.dataflow():
            w = R.astype(x, "float32")
            c = R.nn.conv2d(w, R.const(WEIGHTS, "float32"))
            n = R.astype(c, "float16")
            v = R.astype(n, "float32")
            s = R.sigmoid(v)
            y = R.astype(s, "float16")
            R.output(y)
        return y


class _Kernels(StubBackend):
    """Kernels take composites without `without`; all others become plain C."""

    without: str = ""

    def has_kernel(self, composite: relax.Function) -> bool:
        names = [op_name(binding.value) for binding in bindings(composite)]
        return "relax.nn.conv2d" not in names or self.without not in names


def members(mod: tvm.IRModule) -> list[list[str]]:
    """Operators of each composite, in the order of their calls."""
    called = [mod[binding.value.op] for binding in bindings(mod["main"])]
    assert all(map(is_composite, called))
    return [[(op_name(b.value) or "").removeprefix("relax.") for b in bindings(function)] for function in called]


def test_the_longest_chain_that_a_kernel_takes() -> None:
    """The rest of what follows stands in a composite of its own, of float16 again."""
    kernels = type("NoSigmoid", (_Kernels,), {"without": "relax.sigmoid"})()
    assert members(form(Rounded, kernels)) == [["astype", "nn.conv2d", "astype"], ["astype", "sigmoid", "astype"]]


def test_casts_stay_apart_where_no_kernel_takes_float16() -> None:
    kernels = type("NoHalves", (_Kernels,), {"has_kernel": lambda self, composite: False})()
    found = members(form(Rounded, kernels))
    assert found == [["astype"], ["nn.conv2d"], ["astype"], ["astype"], ["sigmoid"], ["astype"]]


def test_plain_c_is_made_only_of_composites_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search asks about each chain and each layout of it; lowering every one made 200 layers take a minute."""
    asked: list[relax.Function] = []
    lower = lower_operator.lower_composite

    def counted(function: relax.Function, module: tvm.IRModule | None = None) -> object:
        asked.append(function)
        return lower(function, module)

    monkeypatch.setattr(lower_operator, "lower_composite", counted)
    backend = CodegenBackend(target=target_of(Platform.load("cortex_m4").processor))
    found = members(form(Rounded, backend))
    assert ["sigmoid"] in found and 0 < len(asked) <= len(found)


def test_a_result_that_is_read_elsewhere_ends_a_chain() -> None:
    @I.ir_module
    class Twice:
        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "float16")):
            with R.dataflow():
                w = R.astype(x, "float32")
                c = R.nn.conv2d(w, R.const(WEIGHTS, "float32"))
                n = R.astype(c, "float16")
                v = R.astype(n, "float32")
                s = R.nn.relu(v)
                y = R.astype(s, "float16")
                R.output(n, y)
            return (n, y)

    assert members(form(Twice)) == [["astype", "nn.conv2d", "astype"], ["astype", "nn.relu", "astype"]]
