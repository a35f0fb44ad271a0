"""Kernels for quantized dense layers in integer arithmetic.

Activations have 8 or 16 bits, weights 4, 8 or 9 bits. The file also defines `DenseKernel`, the frame that the kernels
of every target fill with their own C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from codegen_c.c_text.text import Value, structure
from codegen_c.kernels.contract import (
    ONCE,
    Accumulating,
    CFunction,
    Constraint,
    Implementation,
    Kernel,
    Parameter,
    Passes,
    StoredRows,
    Target,
    no_blocks,
)
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.dense.dense_rows import in_rows, num_calls, row_counts
from codegen_c.kernels.measurements import Block
from codegen_c.kernels.shared.bit_widths import (
    NineBits,
    all_channels,
    four_bit_weights,
    has_few_weights,
    nine_bit_weights,
    weighted,
    wide_kernel,
)
from codegen_c.kernels.shared.common_shift import by_high_products
from codegen_c.kernels.shared.layer import BLOCK_INCLUDES, image, rescale, shapes, with_rings
from codegen_c.kernels.shared.product_kernel import SCRATCH, activations
from codegen_c.kernels.shared.requantize import (
    Products,
    Requantize,
    channel_factors,
    integer_weights,
    quantized_bytes,
    results_fit,
    sum_rounding,
    wide_sums,
)
from codegen_c.kernels.shared.sums import bytes_or_sums
from codegen_c.kernels.shared.vector_rows import Rows
from codegen_c.kernels.shared.window import CHANNEL_BLOCK, ROW_PARAMETERS, accumulated, pack_blocks
from codegen_c.operators.kinds import Array, PackedQConv2d, PackedQDense, QDense, TensorType, Window

# The layer with activations and weights of 8 bits: shapes, limits of the accumulators, and factors.
#
# int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K]. An int32 accumulator starts at the bias minus the
# input's zero point times the sum of the weights, so that the loop adds x * w only, c ascending. Rounding "onnx" or
# "tflite". The kernel for 16-bit activations below uses the same loops.

LAYER = "tvm_ext_qdense_layer"
REQUANTIZE_INSTRUCTIONS = 20
INCLUDES = ("tvm_ext_qdense.h", *BLOCK_INCLUDES)
ACCUMULATION = "bias, then c ascending"
SUMS = Parameter(name="sums", ctype="int32_t", role="output")
PART_INSTRUCTIONS = 6
"""Instructions per accumulator in each call that adds to it: loading and storing it."""


def reference(operator: QDense, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Compute the layer in numpy, bit for bit."""
    sums = inputs[0].astype(np.int64) @ operator.weight.astype(np.int64).T + products(operator).start
    return [requantize(operator).run(sums)]


def sums_fit(operator: QDense, target: Target) -> bool:
    """the bias and all products must add up to a sum that fits int32, for every input"""
    return products(operator).fit_int32()


def rescaled_sums_fit(operator: QDense, target: Target) -> bool:
    """weight scales must be finite and not negative, and no sum may reach 2^30 steps of the output"""
    return results_fit(*products(operator).range(), channel_factors(operator))


def products(operator: QDense) -> Products:
    """Return the weights and the initial accumulators."""
    return Products.of(source=operator.inputs[0], weight=operator.weight, bias=operator.bias, padded=False)


def bounds(operator: QDense) -> tuple[Array, Array]:
    """Return the least and the largest sum of each channel."""
    return products(operator).range()


def wide(operator: QDense) -> Products | None:
    """Return the products if the accumulators need 64 bits, otherwise None."""
    return wide_sums(operator.inputs[0], lambda: products(operator))


def requantize(operator: QDense) -> Requantize:
    sums = wide(operator)
    exact = Requantize.of(
        channel_factors(operator), output=operator.output, low=operator.low, high=operator.high,
        rounding=sum_rounding(operator), largest=sums.largest if sums else 0,
    )  # fmt: skip
    return exact if exact.rounding != "litert" else exact.proved(*bounds(operator))


def rescaling(operator: QDense) -> Requantize:
    """Return the requantization of the plain C kernels: by high products unless the accumulators have 64 bits."""
    return (
        requantize(operator) if wide(operator) else by_high_products(requantize(operator), *products(operator).range())
    )


# The kernel of all targets. It computes all of a layer, one row of its result at a time, or takes a single vector in
# equal parts and keeps the accumulators between its calls. A target supplies the C of these forms.


@dataclass(frozen=True, kw_only=True)
class DenseParts:
    """C of a dense layer, of one row of its result, or of some equal parts of its input.

    parameters, constants: packed weights, initial accumulators and factors, always those of the whole layer.
    body, helpers, includes: as in `CFunction`. The function has a scratch parameter if scratch_bytes is above zero.
    instructions, passes, accumulation, grows_weights: as in `Implementation`.
    num_sums: accumulators that a layer in parts keeps between its calls, K or more; 0 for other forms.
    """

    parameters: tuple[Parameter, ...]
    constants: tuple[tuple[str, Array], ...]
    body: str
    includes: tuple[str, ...]
    instructions: int
    helpers: str = ""
    scratch_bytes: int = 0
    passes: Passes = ONCE
    accumulation: str = "exact"
    grows_weights: bool = False
    num_sums: int = 0

    def applied(self, kernel: str, operator: QDense, *more: Parameter) -> Implementation:
        """Return the kernel applied to the layer. more: parameters after all others."""
        sums = (SUMS,) if self.num_sums else ()
        scratch = (SCRATCH,) if self.scratch_bytes else ()
        return Implementation(
            kernel=kernel,
            function=CFunction(
                parameters=(
                    *activations(operator.inputs[0], operator.output), *sums, *self.parameters, *scratch, *more
                ),
                body=self.body,
                helpers=self.helpers,
                includes=self.includes,
            ),
            reference=lambda inputs: reference(operator, inputs),
            constants=self.constants,
            scratch_bytes=self.scratch_bytes,
            macs=operator.output.num_elements * operator.weight.shape[1],
            instructions=self.instructions,
            passes=self.passes,
            accumulation=self.accumulation,
            exact=True,
            grows_weights=self.grows_weights,
        )  # fmt: skip


InParts = Callable[[QDense, Target, int, StoredRows], DenseParts | None]


def no_parts(operator: QDense, target: Target, count: int, stored: StoredRows) -> None:
    """Return None: portable C adds parts of the input."""


@dataclass(frozen=True, kw_only=True)
class DenseKernel:
    """A dense layer on a target. name, title: of the kernel.

    layer: given an operator and a target, a function that returns the parts of the layer, or of one row of its result:
        a `QDense` of fewer channels or vectors, with the constants of the layer.
    in_parts: parts that add some of so many equal parts of the input to the accumulators.
    has_rows: whether `layer` computes rows of the result, too. Rows and parts that a target does not compute are
    computed in portable C.
    """

    name: str
    title: str
    layer: Callable[[QDense, Target], Callable[[QDense], DenseParts]]
    in_parts: InParts = no_parts
    has_rows: Callable[[QDense], bool] = lambda _: True

    def kernel(
        self, constraints: tuple[Constraint, ...], blocks: Callable[[QDense, Target], tuple[Block, ...]] = no_blocks
    ) -> Kernel:
        """Return the kernel for weights of 8 bits."""
        return Kernel(
            name=self.name, title=self.title, operator=QDense, implement=self._implement, constraints=constraints,
            blocks=blocks,
        )  # fmt: skip

    def whole(self, constraints: tuple[Constraint, ...]) -> Kernel:
        """Return a kernel that computes all of a layer, never rows of its result or parts of its input."""
        return Kernel(name=self.name, title=self.title, operator=QDense, implement=self._whole, constraints=constraints)

    def packed(self, constraints: tuple[Constraint, ...]) -> Kernel:
        """Return the kernel for weights of 4 bits, which computes all of a layer."""
        return Kernel(
            name=self.name, title=self.title, operator=PackedQDense, implement=self._whole, constraints=constraints
        )

    def _whole(self, operator: QDense, target: Target, stored: StoredRows) -> Implementation:
        return self.layer(operator, target)(operator).applied(self.name, operator)

    def _implement(self, operator: QDense, target: Target, stored: StoredRows) -> Implementation:
        layer = self.layer(operator, target)
        whole = layer(operator).applied(self.name, operator)
        in_portable_rows = None if self.has_rows(operator) else PORTABLE._implement(operator, target, stored).in_rows

        def row(part: QDense, rows: Rows) -> Implementation:
            made = layer(part)
            function = made.applied(self.name, part).function
            return replace(whole, function=function, scratch_bytes=made.scratch_bytes, instructions=made.instructions)

        counts = () if wide(operator) else row_counts(operator)
        by_parts = Accumulating(
            row_counts=counts, implement=lambda count, stored: self._in_parts(operator, target, count, stored)
        )
        return replace(
            whole, in_rows=in_portable_rows or in_rows(operator, row), accumulating=by_parts if counts else None
        )

    def _in_parts(self, operator: QDense, target: Target, count: int, stored: StoredRows) -> Implementation:
        """Return the kernel that takes some of `count` equal parts of the input; its last call finishes the sums."""
        parts = self.in_parts(operator, target, count, stored)
        if parts is None:
            return PORTABLE._in_parts(operator, target, count, stored)
        surplus = parts.num_sums - len(operator.weight)

        def with_sums(inputs: list[Array]) -> list[Array]:
            return _with_sums(operator, inputs, surplus)

        return replace(
            parts.applied(f"{self.name}_in_parts", operator, *ROW_PARAMETERS),
            reference=with_sums,
            spatial=accumulated(count),
            sums=TensorType(shape=(1, parts.num_sums), dtype="int32"),
        )


def _with_sums(operator: QDense, inputs: list[Array], surplus: int) -> list[Array]:
    """Return the result, and the sums it is made of: int32[1, K + surplus]."""
    sums = inputs[0].reshape(1, -1).astype(np.int64) @ operator.weight.astype(np.int64).T + products(operator).start
    return [*reference(operator, inputs), np.pad(sums.astype(np.int32), ((0, 0), (0, surplus)))]


# Portable C.


def _layer(operator: QDense, target: Target) -> Callable[[QDense], DenseParts]:
    finish, is_wide = rescaling(operator), wide(operator) is not None
    num_vectors = operator.output.num_elements // operator.output.shape[-1]
    passes = Passes.of_product(
        num_vectors * operator.weight.size, operator.inputs[0].num_elements, num_vectors,
        pixels=1, channels=CHANNEL_BLOCK,
    )  # fmt: skip

    def parts(part: QDense) -> DenseParts:
        channels, depth = part.weight.shape
        shapes = _shapes(part, part.output.num_elements // channels, depth, rescale(finish, wide=is_wide))
        call = "tvm_ext_qdense(&layer, input, output, weights, bias, multiplier, shift);"
        return DenseParts(
            parameters=_parameters(finish, is_wide=is_wide),
            constants=constants_of(operator, finish),
            body="\n".join([*structure(LAYER, "layer", shapes), *finish.tables(), call]),
            includes=INCLUDES,
            instructions=_instructions(part),
            passes=passes,
            accumulation=ACCUMULATION,
        )

    return parts


def _parameters(finish: Requantize, *, is_wide: bool = False) -> tuple[Parameter, ...]:
    return (
        Parameter(name="weights", ctype="int8_t", role="constant"),
        Parameter(name="bias", ctype="int64_t" if is_wide else "int32_t", role="constant"),
        *finish.parameters(),
    )


def constants_of(operator: QDense, finish: Requantize) -> tuple[tuple[str, np.ndarray], ...]:
    weights = pack_blocks(operator.weight[:, np.newaxis, np.newaxis, :], CHANNEL_BLOCK)
    return (("weights", weights), ("bias", products(operator).bias), *finish.constants())


def _instructions(operator: QDense) -> int:
    elements, (channels, depth) = operator.output.num_elements, operator.weight.shape
    blocks, rest = divmod(channels, CHANNEL_BLOCK)
    each = blocks * (1 + 2 * CHANNEL_BLOCK) + (3 + 2 * rest if rest else 0)
    return elements // channels * depth * each + elements * REQUANTIZE_INSTRUCTIONS


def _shapes(operator: QDense, rows: int, depth: int, finish: dict[str, Value]) -> dict[str, Value]:
    """Return the members of a `tvm_ext_qdense_layer` with `rows` vectors, or parts of a vector, of `depth` elements."""
    channels = operator.weight.shape[0]
    vectors = replace(operator.inputs[0], shape=(1, rows, 1, depth))
    results = replace(operator.output, shape=(1, operator.output.num_elements // channels, 1, channels))
    return {"input": image(vectors), "output": image(results), "rescale": finish}


def _in_parts(operator: QDense, target: Target, count: int, stored: StoredRows) -> DenseParts:
    finish, (channels, depth) = rescaling(operator), operator.weight.shape
    rings, layer = with_rings(LAYER, stored)
    arguments = f"{layer}, input, output, sums, weights, bias, multiplier, shift, row_begin, row_end"
    return DenseParts(
        parameters=_parameters(finish),
        constants=constants_of(operator, finish),
        body="\n".join([*rings, *finish.tables(), f"tvm_ext_qdense_add({arguments});"]),
        helpers=shapes(LAYER, _shapes(operator, count, depth // count, rescale(finish))),
        includes=INCLUDES,
        instructions=_instructions(operator) + num_calls(count, stored) * channels * PART_INSTRUCTIONS,
        accumulation=ACCUMULATION,
        num_sums=channels,
    )


PORTABLE = DenseKernel(
    name="qdense_i8",
    title="Quantized dense layer with activations and weights of 8 bits",
    layer=_layer,
    in_parts=_in_parts,
)


_WEIGHTS = (integer_weights, sums_fit, rescaled_sums_fit)
CONSTRAINTS = (quantized_bytes, *_WEIGHTS)
"""Constraints of kernels whose result is elements."""
SUMS_TOO = (bytes_or_sums, *_WEIGHTS)
"""Constraints of kernels that leave sums to others as well."""
QDENSE = PORTABLE.kernel(SUMS_TOO)


# Activations of 16 bits: the loops of the 8-bit kernel, which read elements of both widths.
#
# int16 or uint16[..., C], int8[K, C] -> int16 or uint16[..., K]. Accumulators and rounding are as in qconv2d.py.

QDENSE_I16 = wide_kernel(
    "qdense_i16", "Quantized dense layer with activations of 16 bits", QDENSE, *weighted(products, channel_factors)
)


# Weights of 9 bits, which result from uint8 weights minus a zero point: four output channels at a time, in plain C.
#
# int8 or uint8[..., C], weights[K, C] from -255 to 255 -> int8 or uint8[..., K], int32 accumulators. Initial
# accumulators, order of additions and rounding are as with 8 bits.


def qdense_nine_bits_implement(operator: QDense, target: Target, stored: StoredRows) -> Implementation:
    return all_channels(
        QDENSE_NINE_BITS.name, operator, bits_of(operator), stored, lambda inputs: reference(operator, inputs)
    )


def bits_of(operator: QDense, channels: Array | None = None) -> NineBits:
    """Return the weights and factors of all channels, or of the given ones."""
    return NineBits.of(operator, products(operator), requantize(operator), channels)


QDENSE_NINE_BITS = Kernel(
    name="qdense_nine_bits",
    title="Quantized dense layer with weights of 9 bits",
    operator=QDense,
    implement=qdense_nine_bits_implement,
    constraints=(quantized_bytes, nine_bit_weights, has_few_weights, sums_fit, rescaled_sums_fit),
)


# Weights of 4 bits: the loops of the convolution with 4-bit weights, on an image of one column with a 1x1 window.
#
# int8 or uint8[..., C], 4 bits[K, C] -> int8 or uint8[..., K], int32 accumulators. The results equal those of the 8-bit
# kernel on the same weights as int8, bit for bit.


def _packed_layer(operator: QDense, target: Target) -> Callable[[QDense], DenseParts]:
    plain, finish, column = _layer(operator, target)(operator), rescaling(operator), as_column(operator)
    num_vectors = operator.output.num_elements // len(operator.weight)
    weights = qconv2d.pack(operator.weight[:, np.newaxis, np.newaxis, :], CHANNEL_BLOCK)
    arguments = f"&$_layer, input, output, weights, bias, multiplier, shift, 0, {num_vectors}"
    parts = replace(
        plain,
        body="\n".join([*finish.tables(), f"tvm_ext_qconv2d({arguments});"]),
        helpers=qconv2d.LOOPS.shapes(column, StoredRows(), qconv2d.members(column, finish)),
        includes=qconv2d.LOOPS.includes,
        constants=(("weights", weights), *plain.constants[1:]),
        instructions=plain.instructions + num_vectors * operator.weight.size * qconv2d.NIBBLE_INSTRUCTIONS,
    )
    return lambda _: parts


def as_column(operator: QDense) -> PackedQConv2d:
    """Return the layer as a convolution. The vectors are the rows of an image of one column."""
    channels, depth = operator.weight.shape
    rows = operator.output.num_elements // channels
    return PackedQConv2d(
        inputs=(replace(operator.inputs[0], shape=(1, rows, 1, depth)),),
        outputs=(replace(operator.output, shape=(1, rows, 1, channels)),),
        weight=operator.weight.reshape(channels, 1, 1, depth), weight_scale=operator.weight_scale,
        bias=operator.bias, window=Window(kernel=(1, 1)), low=operator.low, high=operator.high,
        rounding=operator.rounding,
    )  # fmt: skip


QDENSE_PACKED_CONSTRAINTS = (four_bit_weights, *CONSTRAINTS)
QDENSE_PACKED = DenseKernel(
    name="qdense_packed", title="Quantized dense layer with weights of 4 bits", layer=_packed_layer
).packed(QDENSE_PACKED_CONSTRAINTS)


KERNELS = (QDENSE, QDENSE_I16, QDENSE_NINE_BITS, QDENSE_PACKED)
