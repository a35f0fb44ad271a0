"""conv2d of a QDQ chain, integers only: one output pixel by four channels at a time.

int8 or uint8[N, H, W, C], int8[K, R, S, C / groups] -> int8 or uint8[N, P, Q, K], sums in int32; 16-bit activations
have the same loops (qconv2d_i16.py). A sum starts at its bias and adds (x - zero point) * w in the order r, s, c
ascending; products outside the input are left out, as padding is a real zero. Either rounding.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.shared.high_product import by_high_products
from codegen_c.kernels.shared.layer import BLOCK_INCLUDES, image, rescale, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.requantize import (
    Products,
    Requantize,
    channel_factors,
    integer_weights,
    quantization,
    quantized_bytes,
    results_fit,
    sum_rounding,
    wide_sums,
)
from codegen_c.kernels.shared.sums import bytes_or_sums
from codegen_c.kernels.shared.window import (
    CHANNEL_BLOCK,
    ROW_PARAMETERS,
    pack_blocks,
    spatial,
    taps,
)
from codegen_c.operators.kinds import QConv2d

LAYER = "tvm_ext_qconv2d_layer"
# Modelled instructions around the products: of one run over adjacent taps, and of requantizing one sum.
RUN_INSTRUCTIONS = 8
REQUANTIZE_INSTRUCTIONS = 20


def reference(operator: QConv2d, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    output, groups, zero_point = operator.output.shape, operator.groups, quantization(operator.inputs[0]).zero_point
    weight = operator.weight.astype(np.int64).reshape(groups, output[3] // groups, *operator.weight.shape[1:])
    total = np.zeros((*output[:3], groups, output[3] // groups), dtype=np.int64)
    for r, s, x in taps(inputs[0], operator.window, (output[1], output[2]), zero_point):
        split = x.reshape(*x.shape[:3], groups, -1).astype(np.int64) - zero_point
        total += np.einsum("nhwgc,gkc->nhwgk", split, weight[:, :, r, s])
    return [requantize(operator).run(total.reshape(output) + operator.bias)]


def sums_fit(operator: QConv2d, target: Target) -> bool:
    """bias and products must add up to no more than an int32 holds, whatever the input"""
    return products(operator).fit_int32()


def rescaled_sums_fit(operator: QConv2d, target: Target) -> bool:
    """weight scales must be finite, not negative, and no sum may reach 2^30 steps of the output"""
    return results_fit(*products(operator).range(), channel_factors(operator))


def products(operator: QConv2d) -> Products:
    """Weights and starts of the sums; padding keeps the zero point out of them."""
    padded = any(operator.window.padding)
    return Products.of(source=operator.inputs[0], weight=operator.weight, bias=operator.bias, padded=padded)


def wide(operator: QConv2d) -> Products | None:
    """The sums, where they have 64 bits."""
    return wide_sums(operator.inputs[0], lambda: products(operator))


def requantize(operator: QConv2d) -> Requantize:
    return requantize_sums(operator, wide(operator))


def rescaling(operator: QConv2d) -> Requantize:
    """Requantization as plain C does it."""
    return (
        requantize(operator) if wide(operator) else by_high_products(requantize(operator), *products(operator).range())
    )


def requantize_sums(operator: QConv2d, sums: Products | None) -> Requantize:
    """Requantization of a convolution. sums: where they have 64 bits."""
    return Requantize.of(
        channel_factors(operator), output=operator.output, low=operator.low, high=operator.high,
        rounding=sum_rounding(operator), largest=sums.largest if sums else 0,
    )  # fmt: skip


def parameters(operator: QConv2d, finish: Requantize, *, is_wide: bool = False) -> tuple[Parameter, ...]:
    """Parameters of a convolution: input, output, weights, bias, factors, rows. is_wide: its sums have 64 bits."""
    return (
        Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
        Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
        Parameter(name="weights", ctype="int8_t", role="constant"),
        Parameter(name="bias", ctype="int64_t" if is_wide else "int32_t", role="constant"),
        *finish.parameters(),
        *ROW_PARAMETERS,
    )


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    width = width_of(operator)
    finish, sums = rescaling(operator), products(operator)
    num_taps = int(np.prod(operator.weight.shape[1:]))
    macs = operator.output.num_elements * num_taps
    runs = operator.output.num_elements * operator.window.kernel[0] // width
    runs *= 1 if _is_one_run(operator) else operator.window.kernel[1]
    per_activation = 2 if sums.zero_point else 1
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=parameters(operator, finish, is_wide=wide(operator) is not None),
            body=call("tvm_ext_qconv2d", LAYER, stored, finish),
            helpers=shapes(LAYER, members(operator, stored, finish)),
            includes=("tvm_ext_qconv2d.h", *BLOCK_INCLUDES),
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("weights", pack_blocks(operator.weight, width)), ("bias", sums.bias), *finish.constants()),
        macs=macs,
        instructions=macs * (per_activation + 2 * width) // width
        + runs * RUN_INSTRUCTIONS
        + operator.output.num_elements * REQUANTIZE_INSTRUCTIONS,
        passes=Passes.of_product(
            macs,
            operator.inputs[0].num_elements,
            operator.output.num_elements // operator.output.shape[3],
            pixels=1,
            channels=width,
        ),
        accumulation="bias, then r, s, c ascending",
        spatial=spatial(operator.window, operator.inputs[0], operator.output),
        exact=True,
        pitched=True,
        row_pitched=True,
    )


def width_of(operator: QConv2d) -> int:
    """Channels computed side by side: they must read the same group."""
    per_group = operator.weight.shape[0] // operator.groups
    return CHANNEL_BLOCK if operator.groups == 1 or per_group % CHANNEL_BLOCK == 0 else 1


def _is_one_run(operator: QConv2d) -> bool:
    """True where all taps of a kernel row are adjacent in the input, as they are in the weights."""
    return operator.window.dilation[1] == 1 and operator.groups == 1


def members(operator: QConv2d, stored: StoredRows, finish: Requantize) -> dict[str, Value]:
    """A `tvm_ext_qconv2d_layer`."""
    return {
        "input": image(operator.inputs[0]),
        "output": image(operator.output, stored=stored),
        "window": sliding_window(operator.window),
        "groups": operator.groups,
        "block": width_of(operator),
        "rescale": rescale(finish, wide=wide(operator) is not None),
    }


def call(function: str, ctype: str, stored: StoredRows, finish: Requantize) -> str:
    """Body that calls the loops of a convolution: a function of a portable kernel's header."""
    rings, layer = with_rings(ctype, stored)
    arguments = f"{layer}, input, output, weights, bias, multiplier, shift, row_begin, row_end"
    return "\n".join([*rings, *finish.tables(), f"{function}({arguments});"])


_WEIGHTS = (integer_weights, sums_fit, rescaled_sums_fit)
CONSTRAINTS = (quantized_bytes, *_WEIGHTS)
"""Constraints of kernels whose result is elements."""
SUMS_TOO = (bytes_or_sums, *_WEIGHTS)
"""Constraints of kernels that leave sums to others as well."""
KERNEL = Kernel(name="qconv2d_i8", operator=QConv2d, implement=implement, constraints=SUMS_TOO)
