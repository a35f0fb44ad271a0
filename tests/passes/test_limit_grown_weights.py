"""LimitGrownWeights: weights grow where they stay within a share of the constants, or save more than they add."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from codegen_c.costs.predict import time_model
from relay_passes.analysis.processor_costs import ProcessorCosts
from relay_passes.regions.limit_grown_weights import LimitGrownWeights
from tests.passes.stub_backend import StubBackend
from tvm_ext.core.decisions.composites import CompositeKind, KeptWeights
from tvm_ext.core.platform import Platform
from tvm_ext.core.time_model import Footprint

M4 = Platform.load("cortex_m4")


@dataclass(frozen=True, kw_only=True)
class GrowingBackend(StubBackend):
    """Kernels of 1,000 bytes of weights that `nn_relu` and `exp` store in more, for fewer of 10,000 instructions."""

    grown: dict[str, tuple[int, int]]
    scratch_bytes: int = 0

    def footprint(self, composite: relax.Function) -> Footprint:
        kind = CompositeKind.read(composite).kind
        if kind in self.grown and not KeptWeights.read(composite).is_set:
            added_bytes, saved = self.grown[kind]
            return Footprint(
                instructions=10_000 - saved, weights_bytes=1000 + added_bytes, scratch_bytes=self.scratch_bytes
            )
        return Footprint(instructions=10_000, weights_bytes=1000)


@I.ir_module
class Before:
    @R.function(private=True)
    def relu(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        R.func_attr({"Composite": "tvm_ext.nn_relu", "Primitive": True})
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y

    @R.function(private=True)
    def exp(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        R.func_attr({"Composite": "tvm_ext.exp", "Primitive": True})
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        cls = Before
        with R.dataflow():
            a = cls.relu(x)
            b = cls.exp(a)
            R.output(b)
        return b


def kept(
    grown: dict[str, tuple[int, int]], share: float | None = 0.1, least_bytes: int = 0, scratch_bytes: int = 0,
    most_bytes: int | None = None,
) -> list[str]:  # fmt: skip
    """Composites whose weights may not grow. grown: kind -> bytes that are added, instructions that are saved."""
    costs = ProcessorCosts(
        processor=M4.processor,
        time=time_model(M4),
        runs_floats=True,
        backend=GrowingBackend(grown=grown, scratch_bytes=scratch_bytes),
    )
    after = LimitGrownWeights(costs, share, least_bytes, most_bytes)(Before)
    tvm.ir.assert_structural_equal(after["main"], Before["main"])
    return [var.name_hint for var, function in after.functions_items() if KeptWeights.read(function).is_set]


@pytest.mark.parametrize(
    ("grown", "expected"),
    [
        ({}, []),
        ({"nn_relu": (150, 10)}, []),  # within a tenth of 2,000 bytes, whatever it saves
        ({"nn_relu": (250, 10)}, ["relu"]),  # beyond it, and 0.05 % of the time for 12.5 % of the bytes
        ({"nn_relu": (250, 6000)}, []),  # 30 % of the time for as many bytes
        ({"nn_relu": (150, 10), "exp": (150, 20)}, ["relu"]),  # both do not fit: the one that saves more for a byte
        ({"nn_relu": (250, 6000), "exp": (200, 10)}, []),  # what pays takes nothing of the share
    ],
)  # fmt: skip
def test_weights_grow_within_the_share_or_where_they_pay(
    grown: dict[str, tuple[int, int]], expected: list[str]
) -> None:
    assert kept(grown) == expected


def test_without_a_share_only_what_pays_grows() -> None:
    assert kept({"nn_relu": (1, 0), "exp": (250, 6000)}, share=0.0) == ["relu"]


def test_a_limit_of_all_constants_keeps_the_layers_that_save_the_least_for_a_byte() -> None:
    """The constants are 2,000 bytes without pre-transformed weights."""
    grown = {"nn_relu": (900, 10), "exp": (800, 10)}
    assert kept(grown, share=None) == []
    assert kept(grown, share=None, most_bytes=3700) == []
    assert kept(grown, share=None, most_bytes=3699) == ["relu"]
    assert kept(grown, share=None, most_bytes=2799) == ["exp", "relu"]
    assert kept(grown, share=None, most_bytes=1000) == ["exp", "relu"], "also where nothing meets the limit"


def test_a_limit_of_all_constants_holds_beside_the_share() -> None:
    """The limit of constants also binds layers whose saved time is worth their bytes, and does not raise the share."""
    grown = {"nn_relu": (250, 6000), "exp": (150, 10)}
    assert kept(grown) == [] and kept(grown, most_bytes=2399) == ["exp"] and kept(grown, most_bytes=2249) == ["relu"]
    assert kept({"nn_relu": (250, 10)}, most_bytes=9000) == ["relu"]


def test_small_models_may_grow_by_more_than_the_share() -> None:
    grown = {"nn_relu": (900, 10), "exp": (800, 10)}
    assert kept(grown) == ["exp", "relu"]
    assert kept(grown, least_bytes=899) == ["relu"], "the one that saves more per byte comes first"
    assert kept(grown, least_bytes=1700) == []


def test_scratch_does_not_make_a_layer_the_largest_for_it() -> None:
    """Both layers have 16 bytes of tensors."""
    grown = {"nn_relu": (900, 10)}
    assert kept(grown, least_bytes=900, scratch_bytes=1) == ["relu"]
    assert kept({"nn_relu": (150, 10)}, least_bytes=900, scratch_bytes=1) == [], "within the share as before"
