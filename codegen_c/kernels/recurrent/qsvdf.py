"""SVDF of TensorFlow Lite on integers: features of an input by a dense kernel, and their weighted sums over time.

Features: int8[B, C], int8[F, C] -> int8 or int16[B, 1, 1, F], with TensorFlow Lite's two roundings, by the integer
dense kernel of the target that is cheapest. Features of int8 are the result of that kernel where it takes the layer's
factor; others are rescaled here from its int32 sums. TensorFlow Lite Micro saturates a feature before it adds the zero
point of the state, and that addition wraps.
Sums: window[B, M, 1, F] of the features of M steps, weights[F, M] of the same type -> int8[B, U], U = F / rank. A sum
that exceeds int32 wraps, as in TensorFlow Lite Micro. Weights are stored as [M, F], in the order of the window, and
the sums of four features are in registers at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, loop
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.recurrent.parts import StepPart, have_kernels
from codegen_c.kernels.recurrent.qlstm import MOST_SUM, dense_sums
from codegen_c.kernels.shared.layer import image, shapes
from codegen_c.kernels.shared.product_kernel import SCRATCH
from codegen_c.kernels.shared.requantize_tflite import fixed_point, multiply
from codegen_c.operators.kinds import Array, QDense, QSvdfFeatures, QSvdfSum, Quantization, TensorType
from tvm_ext.core.alignment import aligned

INCLUDES = ("tvm_ext_svdf.h", "tvm_ext_layer.h", "tvm_ext_requantize.h", "tvm_ext_requantize_tflite.h")
FEATURE_INSTRUCTIONS = 22
"""Modelled instructions that rescale and store a feature."""
SHIFT_INSTRUCTIONS = 4
"""Modelled instructions that add the zero point of the state to a feature."""
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


def wide_state_is_centered(operator: QSvdfFeatures, target: Target) -> bool:
    """the zero point of a state of int16 must be 0"""
    return operator.output.dtype == "int8" or operator.state_zero_point == 0


def factor_is_below_half(operator: QSvdfSum, target: Target) -> bool:
    """the factor from sums over time to outputs must be below 1 / 2"""
    return operator.factor[1] >= _LEAST_SHIFT


def _layer(operator: QSvdfFeatures) -> QDense:
    return dense_sums(operator.weight, np.zeros(len(operator.weight), np.int32), operator.zero_point)


def _elements(operator: QSvdfFeatures, target: Target) -> QDense | None:
    """Return the dense layer whose results are the features without the zero point of the state.

    None for features of int16, a factor that is no float32 number, and a layer that no kernel takes.
    """
    mantissa, shift = operator.factor
    scale = np.float32(np.ldexp(float(mantissa), -shift))
    if operator.output.dtype != "int8" or fixed_point(float(scale)) != operator.factor:
        return None
    batch, channels = operator.inputs[0].shape
    ports = (((batch, channels), operator.zero_point), ((batch, len(operator.weight)), 0))
    source, output = (
        TensorType(shape=shape, dtype="int8", quantization=Quantization(scale=1.0, zero_point=zero_point))
        for shape, zero_point in ports
    )
    layer = QDense(
        inputs=(source,), outputs=(output,), weight=operator.weight, bias=np.zeros(len(operator.weight), np.int32),
        weight_scale=np.full(len(operator.weight), scale), low=-128, high=127, rounding="tflite",
    )  # fmt: skip
    return layer if have_kernels([layer], target) else None


def features_reference(operator: QSvdfFeatures, inputs: list[Array]) -> list[Array]:
    """The features in numpy, bit for bit."""
    sums = (inputs[0].astype(np.int64) - operator.zero_point) @ operator.weight.astype(np.int64).T
    limits = np.iinfo(operator.output.dtype)
    features = np.clip(multiply(sums, *operator.factor), limits.min, limits.max) + operator.state_zero_point
    return [features.astype(operator.output.dtype).reshape(operator.output.shape)]


@dataclass(frozen=True, kw_only=True)
class _Features:
    """Features without the zero point of the state: the kernel of a dense layer, and the C that calls it."""

    part: StepPart
    body: list[str]
    helpers: list[str]
    scratch_bytes: int
    instructions: int


def _by_elements(layer: QDense, target: Target) -> _Features:
    """Return the features as the results of a dense layer."""
    part = StepPart.of(layer, target, "feature")
    return _Features(
        part=part, body=[part.call(["input"], "output", "scratch")], helpers=[],
        scratch_bytes=part.made.scratch_bytes, instructions=part.made.instructions,
    )  # fmt: skip


def _by_sums(operator: QSvdfFeatures, target: Target) -> _Features:
    """Return the features as rescaled sums of a dense layer."""
    part = StepPart.of(_layer(operator), target, "feature")
    (batch, channels), filters = operator.inputs[0].shape, len(operator.weight)
    sums_bytes = aligned(4 * filters)
    row = "" if batch == 1 else " + (b * {})"
    step = [
        part.call([f"input{row.format(channels)}"], "sums", f"&scratch[{sums_bytes}]"),
        f"tvm_ext_svdf_narrow(&$_layer, sums, output{row.format(filters)});",
    ]
    members: dict[str, Value] = {"features": image(operator.output), "factor": _factor(operator.factor)}
    return _Features(
        part=part,
        body=["int32_t *const sums = (int32_t *)(void *)scratch;", *(step if batch == 1 else loop("b", batch, step))],
        helpers=[shapes("tvm_ext_svdf_features", members)],
        scratch_bytes=sums_bytes + part.made.scratch_bytes,
        instructions=batch * (part.made.instructions + filters * FEATURE_INSTRUCTIONS),
    )


def implement_features(operator: QSvdfFeatures, target: Target, stored: StoredRows) -> Implementation:
    layer = _elements(operator, target)
    made = _by_elements(layer, target) if layer else _by_sums(operator, target)
    count, zero_point = operator.output.num_elements, operator.state_zero_point
    shift = [f"tvm_ext_svdf_shift(output, {count}, {zero_point});"] if zero_point else []
    return Implementation(
        kernel="qsvdf_features",
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype="int8_t", role="input"),
                Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
                *made.part.parameters(), *((SCRATCH,) if made.scratch_bytes else ()),
            ),
            body="\n".join([*made.body, *shift]),
            helpers="\n".join([made.part.definition(), *made.helpers]),
            includes=tuple(dict.fromkeys([*made.part.made.function.includes, *INCLUDES])),
        ),
        reference=lambda inputs: features_reference(operator, inputs),
        constants=tuple(made.part.constants()),
        scratch_bytes=made.scratch_bytes,
        macs=operator.inputs[0].shape[0] * operator.weight.size,
        instructions=made.instructions + (count * SHIFT_INSTRUCTIONS if shift else 0),
        accumulation="exact",
        exact=True,
    )  # fmt: skip


def sum_reference(operator: QSvdfSum, inputs: list[Array]) -> list[Array]:
    """The sums over time in numpy, bit for bit."""
    window = inputs[0].reshape(operator.inputs[0].shape[0], -1, len(operator.weight)).astype(np.int64)
    sums = (window * operator.weight.T.astype(np.int64)).sum(1).reshape(len(window), len(operator.bias), -1).sum(2)
    wrapped = (sums + operator.bias).astype(np.int32).astype(np.int64)
    return [np.clip(multiply(wrapped, *operator.factor) + operator.zero_point, -128, 127).astype(np.int8)]


@dataclass(frozen=True, kw_only=True)
class SumLoops:
    """Loops in C over the features and steps of an SVDF, which a header defines.

    kernel: name. function, layer: the C function and the type of the structure with the shapes. members: of that
    structure, besides the window and `rank`. statements, tables: before the call, and its arguments after `bias`.
    instructions: modelled, of one batch. lanes: biases are padded with zeros to a multiple of them.
    """

    kernel: str
    function: str
    layer: str
    members: dict[str, Value]
    includes: tuple[str, ...]
    instructions: int
    statements: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    lanes: int = 1

    def implement(self, operator: QSvdfSum) -> Implementation:
        """Return the kernel applied to an operator. weights: [steps][features]."""
        batch, (filters, memory), units = operator.inputs[0].shape[0], operator.weight.shape, len(operator.bias)
        kind = C_TYPES[operator.weight.dtype.name]
        bias = np.pad(operator.bias, (0, -units % self.lanes))
        row = "" if batch == 1 else " + (b * {})"
        activations = f"input{row.format(memory * filters)}", f"output{row.format(units)}"
        arguments = ("&$_layer", *activations, "weights", "bias", *self.tables)
        step = [f"{self.function}({', '.join(arguments)});"]
        members: dict[str, Value] = {"window": image(operator.inputs[0]), "rank": filters // units, **self.members}
        return Implementation(
            kernel=self.kernel,
            function=CFunction(
                parameters=(
                    Parameter(name="input", ctype=kind, role="input"),
                    Parameter(name="output", ctype="int8_t", role="output"),
                    Parameter(name="weights", ctype=kind, role="constant"),
                    Parameter(name="bias", ctype="int32_t", role="constant"),
                ),
                body="\n".join([*self.statements, *(step if batch == 1 else loop("b", batch, step))]),
                helpers=shapes(self.layer, members),
                includes=self.includes,
            ),
            reference=lambda inputs: sum_reference(operator, inputs),
            constants=(("weights", np.ascontiguousarray(operator.weight.T)), ("bias", bias)),
            scratch_bytes=0,
            macs=batch * operator.weight.size,
            instructions=batch * self.instructions,
            accumulation="exact",
            exact=True,
        )


def implement_sum(operator: QSvdfSum, target: Target, stored: StoredRows) -> Implementation:
    filters, units = len(operator.weight), len(operator.bias)
    is_blocked = filters % BLOCK == 0 and BLOCK % (filters // units) == 0
    return SumLoops(
        kernel="qsvdf_sum",
        function="tvm_ext_svdf_sum",
        layer="tvm_ext_svdf_layer",
        members={
            "block": BLOCK if is_blocked else 1, "factor": _factor(operator.factor), "zero_point": operator.zero_point,
        },
        includes=INCLUDES,
        instructions=operator.weight.size * (4 if is_blocked else 7) + units * OUTPUT_INSTRUCTIONS,
    ).implement(operator)  # fmt: skip


def _factor(factor: tuple[int, int]) -> dict[str, Value]:
    return {"multiplier": factor[0], "shift": factor[1]}


FEATURES = Kernel(
    name="qsvdf_features",
    title="Features of an SVDF of TensorFlow Lite on integers, by the kernel of a dense layer",
    operator=QSvdfFeatures,
    implement=implement_features,
    constraints=(wide_state_is_centered, sums_leave_room, sums_have_a_kernel),
)
SUM = Kernel(
    name="qsvdf_sum",
    title="Weighted sums over time of an SVDF of TensorFlow Lite on integers",
    operator=QSvdfSum,
    implement=implement_sum,
    constraints=(factor_is_below_half,),
)
KERNELS = (FEATURES, SUM)
