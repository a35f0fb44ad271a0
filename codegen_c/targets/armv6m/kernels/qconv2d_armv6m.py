"""conv2d of a QDQ chain on Armv6-M: eight output pixels by one channel at a time, two products by one instruction.

int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32. The windows of eight pixels are
packed in scratch, two to a word, padding as zero points; all channels then read them. The zero point is taken off with
the bias. Either rounding.
"""

from __future__ import annotations

from codegen_c.c_text.text import C_TYPES
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.layer import apart, image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.requantize import Products
from codegen_c.kernels.shared.window import ROW_PARAMETERS, spatial
from codegen_c.operators.kinds import Array, QConv2d
from codegen_c.targets.armv6m.kernels.pairs_armv6m import PAIRS, SeparableRuns, byte_offset
from codegen_c.targets.armv6m.kernels.requantize_armv6m import HEADERS, PARAMETER, NarrowRequantize, for_speed

LAYER = "tvm_ext_armv6m_conv2d_layer"
INCLUDES = ("tvm_ext_armv6m_conv2d.h", "tvm_ext_armv6m_product.h", *HEADERS)
SCRATCH = Parameter(name="scratch", ctype="uint8_t", role="scratch")
PIXELS = 2 * PAIRS
WORD_INSTRUCTIONS, RUN_INSTRUCTIONS, PIXEL_INSTRUCTIONS = 9, 34, 30
"""Modelled instructions of a word of two elements, of a run of such words, and of finding a pixel."""
PIXELS_PARAMETERS = [
    "uint8_t *const output[TVM_EXT_ARMV6M_PIXELS]", "const int8_t *weights", "const int32_t *factors",
    "const uint32_t *cells",
]  # fmt: skip


def is_ungrouped(operator: QConv2d, target: Target) -> bool:
    """the convolution must have one group"""
    return operator.groups == 1


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    source, output, window = operator.inputs[0], operator.output, operator.window
    paired = SeparableRuns.of(operator.weight)
    finish = narrow(operator, paired.offset)
    num_taps = operator.weight[0].size
    num_pixels = output.num_elements // output.shape[3]
    rings, layer = with_rings(LAYER, stored)
    call = f"tvm_ext_armv6m_conv2d({layer}, $_pixels, input, output, weights, factors, scratch, row_begin, row_end);"
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(*parameters(operator), SCRATCH, *ROW_PARAMETERS),
            body="\n".join([*rings, call]),
            helpers="\n".join((windowed_shapes(LAYER, operator, stored, finish), _pixels())),
            includes=INCLUDES,
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=(("weights", paired.stream), *finish.constants()),
        scratch_bytes=4 * PAIRS * num_taps,
        macs=output.num_elements * num_taps,
        instructions=_instructions(operator, stored, finish, paired),
        passes=Passes(
            constants=max(1.0, num_pixels / PIXELS),
            input=max(1.0, num_pixels * num_taps / source.num_elements),
            scratch=num_pixels / PIXELS * (1 + output.shape[3]),
        ),
        accumulation="exact",
        spatial=spatial(window, source, output),
        # Pixels are packed before they are written.
        in_place=(0,) if window.is_pointwise and source.shape == output.shape else (),
        exact=True,
        pitched=True,
        row_pitched=True,
        grows_weights=True,
    )


def narrow(operator: QConv2d, offset: Array | int) -> NarrowRequantize:
    """Requantization of sums over elements from -128 to 127. offset: what these sums have too much, int64[K]."""
    low, high = qconv2d.products(operator).range()
    start = start_of(operator) + byte_offset(operator.inputs[0]) * taps_of(operator)
    return NarrowRequantize.of(qconv2d.requantize(operator), low=low, high=high, start=start - offset)


def start_of(operator: QConv2d) -> Array:
    """Initial sums of x * w, int64[K]: bias less zero point times weights; padding is then a zero point."""
    return Products.of(source=operator.inputs[0], weight=operator.weight, bias=operator.bias, padded=False).start


def taps_of(operator: QConv2d) -> Array:
    """Sums of weights, int64[K]."""
    return operator.weight.reshape(operator.weight.shape[0], -1).sum(axis=1, dtype="int64")


def parameters(operator: QConv2d) -> tuple[Parameter, ...]:
    """Input, output, weights, factors."""
    return (
        Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
        Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
        Parameter(name="weights", ctype="int8_t", role="constant"),
        PARAMETER,
    )


def _instructions(operator: QConv2d, stored: StoredRows, finish: NarrowRequantize, paired: SeparableRuns) -> int:
    """Modelled instructions: packed windows, then products and results; a call's last group may lack pixels."""
    batch, height, columns, channels = operator.output.shape
    at_once = stored.at_once or height
    calls = [min(at_once, height - h) for h in range(0, height, at_once)]
    groups = sum(-(-batch * rows * columns // PIXELS) for rows in calls)
    pairs = -(-batch * height * columns // 2)
    window = operator.window
    runs = window.kernel[0] * (window.kernel[1] if window.dilation[1] > 1 else 1)
    pack = 2 * PIXEL_INSTRUCTIONS + runs * RUN_INSTRUCTIONS + WORD_INSTRUCTIONS * operator.weight[0].size
    return pairs * pack + groups * (paired.instructions() + channels * (14 + PIXELS * finish.instructions))


def windowed_shapes(ctype: str, operator: QConv2d, stored: StoredRows, finish: NarrowRequantize) -> str:
    """Definition of `$_layer`: images, window and requantization, as the headers of convolutions take them."""
    return shapes(ctype, {
        "input": image(operator.inputs[0]), "output": image(operator.output, stored=stored),
        "window": sliding_window(operator.window), "requantize": finish.members(),
    })  # fmt: skip


def _pixels() -> str:
    """`$_pixels(...)`, a tvm_ext_armv6m_pixels."""
    call = "tvm_ext_armv6m_conv2d_pixels(&$_layer, output, weights, factors, cells);"
    return apart("$_pixels", PIXELS_PARAMETERS, [call], linkage="TVM_EXT_ARMV6M_SHARED")


KERNEL = Kernel(
    name="qconv2d_armv6m",
    operator=QConv2d,
    implement=implement,
    constraints=(for_speed, is_ungrouped, *qconv2d.CONSTRAINTS),
)
