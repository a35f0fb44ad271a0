"""SVDF of TensorFlow Lite on integers: features of an input by a dense kernel, and their weighted sums over time.

Features: int8[B, C], int8[F, C] -> int8 or int16[B, 1, 1, F]. Products are summed in int32 by the integer dense kernel
of the target that is cheapest, and rescaled with TensorFlow Lite's two roundings.
Sums: window[B, M, 1, F] of the features of M steps, weights[F, M] of the same type -> int8[B, U], U = F / rank. A sum
that exceeds int32 wraps, as in TensorFlow Lite Micro. Weights are stored as [M, F], in the order of the window, and
the sums of four features are in registers at the same time.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, loop
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.recurrent.parts import StepPart, have_kernels
from codegen_c.kernels.recurrent.qlstm import MOST_SUM, dense_sums
from codegen_c.kernels.shared.layer import image, shapes
from codegen_c.kernels.shared.product_kernel import SCRATCH
from codegen_c.kernels.shared.requantize_tflite import multiply
from codegen_c.operators.kinds import Array, QDense, QSvdfFeatures, QSvdfSum
from tvm_ext.core.alignment import aligned

INCLUDES = ("tvm_ext_svdf.h", "tvm_ext_layer.h", "tvm_ext_requantize.h", "tvm_ext_requantize_tflite.h")
FEATURE_INSTRUCTIONS = 22
"""Modelled instructions that rescale and store a feature."""
OUTPUT_INSTRUCTIONS = 28
"""Modelled instructions that rescale and store an output."""
BLOCK = 4
"""Features whose sums are in registers at the same time, as in tvm_ext_svdf.h."""
_LEAST_SHIFT = 32


def sums_leave_room(operator: QSvdfFeatures, target: Target) -> bool:
    """sums of products must stay below 2^30, whatever the input"""
    return all(abs(bound).max() < MOST_SUM for bound in qdense.bounds(_layer(operator)))


def sums_have_a_kernel(operator: QSvdfFeatures, target: Target) -> bool:
    """an integer kernel must take its products: sums of at most 32 bits"""
    return have_kernels([_layer(operator)], target)


def is_centered(operator: QSvdfFeatures, target: Target) -> bool:
    """the zero point of the state must be 0"""
    return operator.state_zero_point == 0


def factor_is_below_half(operator: QSvdfSum, target: Target) -> bool:
    """the factor from sums over time to outputs must be below 1 / 2"""
    return operator.factor[1] >= _LEAST_SHIFT


def _layer(operator: QSvdfFeatures) -> QDense:
    return dense_sums(operator.weight, np.zeros(len(operator.weight), np.int32), operator.zero_point)


def features_reference(operator: QSvdfFeatures, inputs: list[Array]) -> list[Array]:
    """The features in numpy, bit for bit."""
    sums = (inputs[0].astype(np.int64) - operator.zero_point) @ operator.weight.astype(np.int64).T
    limits = np.iinfo(operator.output.dtype)
    features = np.clip(multiply(sums, *operator.factor), limits.min, limits.max)
    return [features.astype(operator.output.dtype).reshape(operator.output.shape)]


def implement_features(operator: QSvdfFeatures, target: Target, stored: StoredRows) -> Implementation:
    part = StepPart.of(_layer(operator), target, "feature")
    batch, channels = operator.inputs[0].shape
    filters = len(operator.weight)
    sums_bytes = aligned(4 * filters)
    row = "" if batch == 1 else " + (b * {})"
    step = [
        part.call([f"input{row.format(channels)}"], "sums", f"&scratch[{sums_bytes}]"),
        f"tvm_ext_svdf_narrow(&$_layer, sums, output{row.format(filters)});",
    ]
    members: dict[str, Value] = {"features": image(operator.output), "factor": _factor(operator.factor)}
    return Implementation(
        kernel="qsvdf_features",
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype="int8_t", role="input"),
                Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
                *part.parameters(), SCRATCH,
            ),
            body="\n".join([
                "int32_t *const sums = (int32_t *)(void *)scratch;", *(step if batch == 1 else loop("b", batch, step)),
            ]),
            helpers="\n".join([part.definition(), shapes("tvm_ext_svdf_features", members)]),
            includes=tuple(dict.fromkeys([*part.made.function.includes, *INCLUDES])),
        ),
        reference=lambda inputs: features_reference(operator, inputs),
        constants=tuple(part.constants()),
        scratch_bytes=sums_bytes + part.made.scratch_bytes,
        macs=batch * operator.weight.size,
        instructions=batch * (part.made.instructions + filters * FEATURE_INSTRUCTIONS),
        accumulation="exact",
        exact=True,
    )  # fmt: skip


def sum_reference(operator: QSvdfSum, inputs: list[Array]) -> list[Array]:
    """The sums over time in numpy, bit for bit."""
    window = inputs[0].reshape(operator.inputs[0].shape[0], -1, len(operator.weight)).astype(np.int64)
    sums = (window * operator.weight.T.astype(np.int64)).sum(1).reshape(len(window), len(operator.bias), -1).sum(2)
    wrapped = (sums + operator.bias).astype(np.int32).astype(np.int64)
    return [np.clip(multiply(wrapped, *operator.factor) + operator.zero_point, -128, 127).astype(np.int8)]


def implement_sum(operator: QSvdfSum, target: Target, stored: StoredRows) -> Implementation:
    batch, (filters, memory), units = operator.inputs[0].shape[0], operator.weight.shape, len(operator.bias)
    rank, kind = filters // units, C_TYPES[operator.weight.dtype.name]
    is_blocked = filters % BLOCK == 0 and BLOCK % rank == 0
    row = "" if batch == 1 else " + (b * {})"
    step = [
        f"tvm_ext_svdf_sum(&$_layer, input{row.format(memory * filters)}, weights, bias, output{row.format(units)});"
    ]
    members: dict[str, Value] = {
        "window": image(operator.inputs[0]), "rank": rank, "block": BLOCK if is_blocked else 1,
        "factor": _factor(operator.factor), "zero_point": operator.zero_point,
    }  # fmt: skip
    macs = batch * operator.weight.size
    return Implementation(
        kernel="qsvdf_sum",
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=kind, role="input"),
                Parameter(name="output", ctype="int8_t", role="output"),
                Parameter(name="weights", ctype=kind, role="constant"),
                Parameter(name="bias", ctype="int32_t", role="constant"),
            ),
            body="\n".join(step if batch == 1 else loop("b", batch, step)),
            helpers=shapes("tvm_ext_svdf_layer", members),
            includes=INCLUDES,
        ),
        reference=lambda inputs: sum_reference(operator, inputs),
        constants=(("weights", np.ascontiguousarray(operator.weight.T)), ("bias", operator.bias)),
        scratch_bytes=0,
        macs=macs,
        instructions=macs * (4 if is_blocked else 7) + batch * units * OUTPUT_INSTRUCTIONS,
        accumulation="exact",
        exact=True,
    )  # fmt: skip


def _factor(factor: tuple[int, int]) -> dict[str, Value]:
    return {"multiplier": factor[0], "shift": factor[1]}


FEATURES = Kernel(
    name="qsvdf_features",
    title="Features of an SVDF of TensorFlow Lite on integers, by the kernel of a dense layer",
    operator=QSvdfFeatures,
    implement=implement_features,
    constraints=(is_centered, sums_leave_room, sums_have_a_kernel),
)
SUM = Kernel(
    name="qsvdf_sum",
    title="Weighted sums over time of an SVDF of TensorFlow Lite on integers",
    operator=QSvdfSum,
    implement=implement_sum,
    constraints=(factor_is_below_half,),
)
KERNELS = (FEATURES, SUM)
