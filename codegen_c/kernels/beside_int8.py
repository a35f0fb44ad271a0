"""Layers in which some channels have weights of 9 bits: a kernel for int8 weights, and plain C for these channels.

If a network was trained for unsigned bytes, one weight in ten thousand lies further from its zero point than int8 can
represent, in few channels. Plain C computes these channels, and the best kernel for int8 weights computes all others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.c_text.text import block
from codegen_c.kernels.contract import Implementation, Parameter, StoredRows
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.shared.bit_widths import INCLUDES, NINE_BITS, NineBits, Reference
from codegen_c.kernels.shared.window import rows_of_calls
from codegen_c.operators.kinds import Array, Operator, QConv2d, QDense

SCRATCH = Parameter(name="scratch", ctype="uint8_t", role="scratch")
PUT_INSTRUCTIONS = 6
"""Modelled instructions of one element that is copied to its offset."""
ALIGNMENT = 4


def in_int8(operator: Operator) -> QConv2d | QDense | None:
    """Return the layer with zeros in the channels that need 9 bits, which a kernel for int8 weights can compute.

    Returns None for any other operator, and if more than half of the channels need 9 bits: their weights would be
    stored twice, once as zeros, for little gain.
    """
    if not isinstance(operator, QConv2d | QDense) or type(operator) not in (QConv2d, QDense):
        return None
    if operator.weight.dtype != NINE_BITS or 2 * len(channels := _channels(operator.weight)) > len(operator.weight):
        return None
    weight = operator.weight.copy()
    weight[channels] = 0
    return replace(operator, weight=weight.astype(np.int8))


def beside_int8(operator: Operator, made: Implementation, stored: StoredRows) -> Implementation:
    """Return a kernel for int8 weights with code before and after it for the channels that need 9 bits.

    operator: one that `in_int8` accepts.
    """
    assert isinstance(operator, QConv2d | QDense), "in_int8 takes no others"
    bits, reference = _bits(operator), _reference(operator)
    function = made.function
    statements, layer = bits.statements(stored, with_channels=True)
    roles = [parameter.role for parameter in function.parameters]
    _, height, columns, _ = bits.convolution.output.shape
    begin, end = ("row_begin", "row_end") if "row" in roles else ("0", str(height))
    rows = max(rows_of_calls(height, stored) or {height}) if "row" in roles else height
    first = -(-made.scratch_bytes // ALIGNMENT) * ALIGNMENT
    own = (*bits.parameters(with_channels=True), *(() if "scratch" in roles else (SCRATCH,)))
    place = max(index for index, role in enumerate(roles) if role in ("input", "output", "constant")) + 1
    scratch = next((p.name for p in function.parameters if p.role == "scratch"), SCRATCH.name)
    kept = f"uint8_t *const nine_bit_elements = &((uint8_t *){scratch})[{first}];"

    def call(verb: str, tensor: str) -> str:
        return f"tvm_ext_nine_bits_{verb}({layer}, {tensor}, nine_bit_elements, &nine_bit_tables, {begin}, {end});"

    elements = bits.macs // bits.weight[0].size
    body = [*statements, kept, call("keep", "input"), "{", block(function.body), "}", call("put", "output")]
    return replace(
        made,
        kernel=f"{made.kernel}+nine_bits",
        function=replace(
            function,
            parameters=(*function.parameters[:place], *own, *function.parameters[place:]),
            body="\n".join(body),
            helpers="\n".join([text for text in (function.helpers, bits.definition(stored)) if text]),
            includes=tuple(dict.fromkeys([*function.includes, *INCLUDES])),
        ),
        reference=reference,
        constants=(*made.constants, *bits.constants(with_channels=True)),
        scratch_bytes=first + rows * bits.convolution.output.shape[0] * columns * len(bits.channels),
        instructions=made.instructions + bits.instructions() + elements * PUT_INSTRUCTIONS,
        in_rows=None,
        accumulating=None,
        windows=None,
    )


def _channels(weight: Array) -> Array:
    """Return the indices of the output channels that have a weight out of int8's range."""
    limits = np.iinfo(np.int8)
    return np.flatnonzero(((weight < limits.min) | (weight > limits.max)).reshape(weight.shape[0], -1).any(axis=1))


def _bits(operator: QConv2d | QDense) -> NineBits:
    channels = _channels(operator.weight)
    if isinstance(operator, QConv2d):
        return qconv2d.bits_of(operator, channels)
    return qdense.bits_of(operator, channels)


def _reference(operator: QConv2d | QDense) -> Reference:
    if isinstance(operator, QConv2d):
        return lambda inputs: qconv2d.reference(operator, inputs)
    return lambda inputs: qdense.reference(operator, inputs)
