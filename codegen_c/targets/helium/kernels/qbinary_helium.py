"""add, subtract and multiply of two QDQ tensors of one shape with Helium: eight elements at a time.

int8 or uint8[...], int8 or uint8[...] -> int8 or uint8[...]. Sums and differences have factors of 32 bits where some
give every pair of elements its result (narrow_sums.py). Otherwise a sum of factor * element needs more than 32 bits:
factors are cut into a high part and a low part of 16 bits, each summed by itself, the low sum's carry added to
the high one. Its rounding shift then rounds the whole, as what is left of the low sum cannot carry; whether any
two elements lead to a tie is found by trying all. Rounding "onnx".
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.elementwise import qbinary
from codegen_c.kernels.shared.high_words import DOUBLED_BITS
from codegen_c.kernels.shared.layer import image, one_image, shapes, with_rings
from codegen_c.kernels.shared.narrow_sums import narrow_sums
from codegen_c.kernels.shared.requantize import quantization
from codegen_c.kernels.shared.window import ROW_PARAMETERS
from codegen_c.operators.kinds import QBinary
from codegen_c.targets.helium.kernels.helium import LAYER_INCLUDES, Rescale

LAYER = "tvm_ext_helium_qbinary_layer"
LOW_BITS = 16
MOST_SHIFT = LOW_BITS + 31
AT_ONCE = 8
# Modelled instructions of eight elements, from sums of 32 bits and from others.
NARROW, WIDE = 20, 42
# Least and largest product of two elements less their zero points.
PRODUCTS = (np.array([-255 * 255]), np.array([255 * 255]))


def adds_where_rounded_twice(operator: QBinary, target: Target) -> bool:
    """of TensorFlow Lite's differences it takes those that factors of 32 bits give"""
    return operator.rounding == "onnx" or operator.function in ("add", "multiply") or narrow_sums(operator) is not None


def factors_in_range(operator: QBinary, target: Target) -> bool:
    """the larger ratio of input to output scale must be from 2^-16 up to 2^14, and products small where it matters"""
    if operator.function == "multiply":
        return _product(operator).fits(*PRODUCTS)
    if narrow_sums(operator) is not None:
        return True
    if operator.rounding == "tflite":
        return all(shift >= DOUBLED_BITS for _, shift in qbinary.tflite_factors(operator))
    return LOW_BITS < qbinary.common_shift(operator)[2] <= MOST_SHIFT


def _product(operator: QBinary) -> Rescale:
    return Rescale.of(qbinary.product(operator), *PRODUCTS)


def implement(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    operands = (
        *(Parameter(name=f"input{i}", ctype=C_TYPES[t.dtype], role="input") for i, t in enumerate(operator.inputs)),
        Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
    )
    rows = qbinary.rows_of(operator.output, num_inputs=2)
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(*operands, *(ROW_PARAMETERS if rows else ())),
            body=_body(stored, by_rows=rows is not None),
            helpers=_shapes(operator, stored),
            includes=("tvm_ext_helium_qbinary.h", *LAYER_INCLUDES),
        ),
        reference=lambda inputs: qbinary.reference(operator, inputs),
        macs=operator.output.num_elements if operator.function == "multiply" else 0,
        instructions=-(-operator.output.num_elements // AT_ONCE) * (NARROW if narrow_sums(operator) else WIDE),
        spatial=rows,
        in_place=(0, 1),
        exact=True,
        pitched=True,
        row_pitched=rows is not None,
    )


def _shapes(operator: QBinary, stored: StoredRows) -> str:
    """The layer's shapes as tvm_ext_helium_qbinary.h takes them."""
    first, second = (image(one_image(tensor)) for tensor in operator.inputs)
    output = image(one_image(operator.output), stored=stored)
    members: dict[str, Value] = {"first": first, "second": second, "output": output, "function": _members(operator)}
    return shapes(LAYER, members)


def _members(operator: QBinary) -> dict[str, Value]:
    """A `tvm_ext_helium_qbinary`; constants that a function does not need are left out."""
    first, second = (quantization(tensor).zero_point for tensor in operator.inputs)
    members: dict[str, Value] = {"first_zero_point": first, "second_zero_point": second}
    narrow = narrow_sums(operator)
    limits: dict[str, Value]
    if narrow is not None:
        limits = {"zero_point": 0, "low": operator.low, "high": operator.high}
        return {
            "is_narrow": True, "start": narrow.start, "first_multiplier": narrow.first,
            "second_multiplier": narrow.second, "shift": -narrow.shift, "rescale": limits,
        }  # fmt: skip
    if operator.function == "multiply":
        finish = _product(operator)
        multiplier, shift = (int(array[0]) for array in finish.factors())
        return {"is_product": True, **members, "multiplier": multiplier, "shift": shift, "rescale": finish.members()}
    zero_point = quantization(operator.output).zero_point
    limits = {"zero_point": zero_point, "low": operator.low, "high": operator.high}
    if operator.rounding == "onnx":
        *factors, total = qbinary.common_shift(operator)
        names = ("first_factor", "second_factor")
        members |= {name: f"INT64_C({factor})" for name, factor in zip(names, factors, strict=True)}
        limits |= {"has_ties": qbinary.has_ties(operator)}
        return {**members, "shift": LOW_BITS - total, "rescale": limits}
    *inputs, (mantissa, shift) = qbinary.tflite_factors(operator)
    for name, (multiplier, amount) in zip(("first", "second"), inputs, strict=True):
        members |= {f"{name}_multiplier": multiplier, f"{name}_shift": DOUBLED_BITS - amount}
    # Halves away from zero are halves up but for sums below zero, which a fused ReLU hides.
    rounds_up = shift > DOUBLED_BITS and operator.low >= zero_point
    limits = {"rounds_twice": True, "rounds_up": rounds_up, **limits}
    return {**members, "multiplier": mantissa, "shift": DOUBLED_BITS - shift, "rescale": limits}


def _body(stored: StoredRows, *, by_rows: bool) -> str:
    """The loops of tvm_ext_helium_qbinary.h, over the rows of a call or over all."""
    rings, layer = with_rings(LAYER, stored, ("first", "second"))
    rows = "row_begin, row_end" if by_rows else "0, 1"
    return "\n".join([*rings, f"tvm_ext_helium_qbinary_rows({layer}, input0, input1, output, {rows});"])


KERNEL = Kernel(
    name="qbinary_helium",
    operator=QBinary,
    implement=implement,
    constraints=(adds_where_rounded_twice, *qbinary.KERNEL.constraints, factors_in_range),
)
