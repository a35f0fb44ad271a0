"""Selection by measured costs: the least that the target accepts; digests of operators."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen_c.kernels.contract import Implementation, StoredRows, Target
from codegen_c.kernels.measurements import KernelMeasurements, KernelMethod
from codegen_c.kernels.registry import candidates, select
from codegen_c.operators.kinds import Operator, QConv2d, Window
from codegen_c.operators.titles import operator_digest
from tests.kernels.dsp import CORTEX_M4
from tests.kernels.test_blocks import SAME, conv2d_f32, qconv2d

LAYER = qconv2d(SAME, 8, 8)


def measured(operator: Operator, **costs: float) -> KernelMeasurements:
    digest = operator_digest(operator)
    assert digest is not None
    return KernelMeasurements(methods={digest: {(kernel, ()): cost for kernel, cost in costs.items()}})


def chosen(operator: Operator, target: Target) -> KernelMethod:
    made = select(operator, target)
    assert isinstance(made, Implementation)
    return made.kernel, made.block


def test_the_least_figure_is_chosen_whatever_is_modelled() -> None:
    modelled = chosen(LAYER, CORTEX_M4)
    assert modelled[0] != "qconv2d_i8"
    measurements = measured(LAYER, qconv2d_i8=10.0, qconv2d_dsp=11.0, qwinograd_dsp=12.0)
    tuned = replace(CORTEX_M4, measurements=measurements)
    assert chosen(LAYER, tuned) == ("qconv2d_i8", ())
    made = select(LAYER, tuned)
    assert isinstance(made, Implementation)
    assert modelled[0] in {other.kernel for other in made.alternatives}
    other = replace(LAYER, bias=LAYER.bias + 1)
    assert chosen(other, tuned) == modelled, "measurements of another operator"
    assert (
        chosen(LAYER, replace(CORTEX_M4, measurements=measurements.only(lambda _, method: method[0] == "none")))
        == modelled
    )


def test_what_nobody_measured_comes_behind() -> None:
    assert chosen(LAYER, replace(CORTEX_M4, measurements=measured(LAYER, qconv2d_i8=1e12))) == ("qconv2d_i8", ())


def test_scratch_comes_first_where_it_is_short() -> None:
    measurements = measured(LAYER, qconv2d_i8=12.0, qconv2d_dsp=10.0, qwinograd_dsp=11.0)
    target = replace(CORTEX_M4, least_scratch=True, measurements=measurements)
    assert chosen(LAYER, target) == ("qconv2d_i8", ())


def test_a_block_is_chosen_and_kept_where_rows_are_stored() -> None:
    operator = qconv2d(SAME, 4, 4, groups=4)
    digest = operator_digest(operator)
    assert digest is not None
    measurements = KernelMeasurements(methods={digest: {("qdepthwise_dsp", (4,)): 1.0, ("qdepthwise_dsp", ()): 2.0}})
    made = select(operator, replace(CORTEX_M4, measurements=measurements))
    assert isinstance(made, Implementation) and made.keeping is not None
    assert (made.kernel, made.block) == ("qdepthwise_dsp", (4,))
    own = select(operator, CORTEX_M4)
    assert isinstance(own, Implementation)
    assert made.scratch_bytes < own.scratch_bytes
    kept = made.keeping(StoredRows(at_once=9))
    assert kept.block == (4,) and kept.scratch_bytes == made.scratch_bytes


def test_candidates_are_all_kernels_that_take_it_with_all_blocks() -> None:
    operator = qconv2d(SAME, 4, 4, groups=4)
    methods = [candidate.method for candidate in candidates(operator, CORTEX_M4)]
    assert len(set(methods)) == len(methods)
    assert {"qdepthwise_dsp", "qdepthwise_i8", "qconv2d_i8"} <= {kernel for kernel, _ in methods}
    assert {block for kernel, block in methods if kernel == "qdepthwise_dsp"} > {(), (4,)}
    instructions = [candidate.made.instructions for candidate in candidates(operator, CORTEX_M4)]
    assert instructions == sorted(instructions)


def test_text_and_back() -> None:
    measurements = KernelMeasurements(methods={"d": {("a", ()): 1.5, ("a", (4, 2)): 2.0}, "e": {}})
    assert KernelMeasurements.from_text(measurements.text).methods == measurements.methods


@pytest.mark.parametrize(
    "other",
    [
        replace(LAYER, bias=LAYER.bias + 1),
        replace(LAYER, weight=LAYER.weight.reshape(8, 9, 1, 8)),
        replace(LAYER, window=Window(kernel=(3, 3))),
        replace(LAYER, rounding="tflite"),
        replace(LAYER, inputs=LAYER.outputs),
    ],
    ids=["constants", "shape of constants", "window", "rounding", "types"],
)
def test_digests_tell_operators_apart(other: QConv2d) -> None:
    assert operator_digest(other) != operator_digest(LAYER) == operator_digest(replace(LAYER, bias=LAYER.bias.copy()))


def test_an_operator_that_holds_a_function_has_no_digest() -> None:
    layer = conv2d_f32(SAME, 3, 4)
    assert operator_digest(layer) is not None
    assert operator_digest(replace(layer, bias=np.negative)) is None  # pyright: ignore[reportArgumentType]
