"""Kernel for quantized add and subtract of one shape with HVX: 128 elements at a time.

int8 or uint8[...], int8 or uint8[...] -> int8 or uint8[...]. Sums have factors of 32 bits that give every pair of
elements its result (narrow_sums.py), or the three factors of TensorFlow Lite, each with its roundings. Either rounding.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.elementwise import qbinary
from codegen_c.kernels.shared.common_shift import DOUBLED_BITS
from codegen_c.kernels.shared.layer import image, one_image, shapes, with_rings
from codegen_c.kernels.shared.narrow_sums import narrow_sums
from codegen_c.operators.kinds import QBinary
from codegen_c.targets.hexagon.kernels.products import HEADERS, MOST_SHIFT, VECTOR_BYTES, half_of

LAYER = "tvm_ext_hvx_qbinary_layer"
CALL_INSTRUCTIONS, NARROW_INSTRUCTIONS, THRICE_INSTRUCTIONS = 20, 26, 58
"""Modelled packets of a call, and of 128 elements in either form."""


def has_a_form(operator: QBinary, target: Target) -> bool:
    """the operator must be a sum or difference for which factors of 32 bits give each pair of elements its result, or
    that has TensorFlow Lite's three factors, none above 1"""
    if operator.function == "multiply":
        return False
    return narrow_sums(operator) is not None or _has_three_factors(operator)


def _has_three_factors(operator: QBinary) -> bool:
    """Return True if TensorFlow Lite's sum has right shifts of words only."""
    if operator.rounding != "tflite":
        return False
    return all(0 <= shift - DOUBLED_BITS <= MOST_SHIFT for _, shift in qbinary.tflite_factors(operator))


def implement(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    portable, output = qbinary.implement(operator, target, stored), operator.output
    first, second = (image(one_image(tensor)) for tensor in operator.inputs)
    rings, layer = with_rings(LAYER, stored, ("first", "second"))
    rows = "row_begin, row_end" if portable.spatial else "0, 1"
    helpers = shapes(LAYER, {
        "first": first, "second": second, "output": image(one_image(output), stored=stored), **_sum(operator),
        "low": operator.low, "high": operator.high,
    })  # fmt: skip
    _, height, columns, channels = one_image(output).shape
    vectors = -(-columns * channels // VECTOR_BYTES)
    vector = THRICE_INSTRUCTIONS if narrow_sums(operator) is None else NARROW_INSTRUCTIONS
    return replace(
        portable,
        kernel=KERNEL.name,
        function=replace(
            portable.function,
            body="\n".join([*rings, f"tvm_ext_hvx_qbinary_rows({layer}, input0, input1, output, {rows});"]),
            helpers=helpers,
            includes=("tvm_ext_hvx_qbinary.h", *HEADERS),
        ),
        instructions=CALL_INSTRUCTIONS + height * vectors * vector,
    )


def _sum(operator: QBinary) -> dict[str, Value]:
    """Return the members of the layer's structure that describe the sum."""
    narrow = narrow_sums(operator)
    if narrow is not None:
        return {
            "start": narrow.start + (1 << (narrow.shift - 1)), "first_weight": narrow.first,
            "second_weight": narrow.second, "shift": narrow.shift,
        }  # fmt: skip
    members: dict[str, Value] = {"is_difference": True} if operator.function == "subtract" else {}
    members |= {"rounds_thrice": True, "bits": qbinary.tflite_shift(operator)}
    names = ("first_factor", "second_factor", "output_factor")
    for name, (multiplier, shift) in zip(names, qbinary.tflite_factors(operator), strict=True):
        right = shift - DOUBLED_BITS
        members[name] = {"multiplier": multiplier, "half": half_of(right), "shift": -right}
    return members


KERNEL = Kernel(
    name="qbinary_hvx",
    title="Quantized add and subtract of tensors of one shape, 128 elements at a time",
    operator=QBinary,
    implement=implement,
    constraints=(*qbinary.QBINARY.constraints, has_a_form),
)
