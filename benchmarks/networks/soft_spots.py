"""Small models of one operator each, and bounds by hand of the instructions that the operator takes.

A bound is a sum of terms. A term is a number of instructions for each counted thing, an element of the result, an
element of the input or a multiply-add, and the reason for which no schedule can leave them out: loads, arithmetic and
stores. Loops, addresses and calls are not counted. A load or store moves a word on the Cortex-M4, and a vector of 16
bytes on the Cortex-M55, where an instruction computes four floats or four sums of 32 bits. Code may take fewer
instructions than a bound, because an instruction that moves several words is executed once. Numbers that several
elements share stay in registers, as far as there are registers: 32 floats, or 8 vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx

from benchmarks.networks.forms import Network
from tests.support.transformer_models import encoder_block

Dtype = Literal["int8", "float32"]
BOTH: tuple[Dtype, ...] = ("float32", "int8")
SIDE, SMALL, CHANNELS = 16, 8, 16
ROWS, LENGTH = 24, 32
DEPTH = 64
TOKENS, WIDTH, HEADS = 64, 64, 8
ODD = (3, 5, 7, 13)
REGISTERS, VECTORS, LANES, BYTES = 32, 8, 4, 16
"""The Cortex-M4 has 32 float registers. The Cortex-M55 has 8 vector registers of 4 floats or 16 bytes."""
ROOT_INSTRUCTIONS = 35
"""Least instructions of an inverse square root in integers: 5 steps of Newton's method with 5 instructions each, and 10
that shift the argument."""
M4, M55 = "cortex_m4", "cortex_m55"


@dataclass(frozen=True, kw_only=True)
class Term:
    """A part of a bound: a number of instructions for each counted thing, and why they are needed."""

    instructions: float
    reason: str


Bound = tuple[Term, ...]


@dataclass(frozen=True, kw_only=True)
class Spot:
    """An operator in a model of its own.

    model: ONNX. kernels: parts of the names of the kernels that compute the operator; other steps of the model do not
    count. counted, unit: how many things are counted, and which. bounds: for each element type and platform. ram: bytes
    of the tensors, by element type; empty for no limit.
    """

    model: onnx.ModelProto
    kernels: tuple[str, ...]
    counted: int
    unit: str
    bounds: Mapping[tuple[Dtype, str], Bound]
    ram: Mapping[Dtype, int]

    @property
    def dtypes(self) -> tuple[Dtype, ...]:
        return tuple(dtype for dtype in BOTH if (dtype, M4) in self.bounds)


def value_of(bound: Bound) -> float:
    """Return the instructions of a bound for each counted thing."""
    return sum(term.instructions for term in bound)


def spots() -> dict[str, Spot]:
    """Return all spots by the names of the table."""
    return {**_products(), "attention by rows": _attention(), **_vectors(), **_pools(), **_resizes()}


def _terms(*pairs: tuple[float, str]) -> Bound:
    return tuple(Term(instructions=number, reason=reason) for number, reason in pairs)


def _bounds(**by_name: Bound) -> dict[tuple[Dtype, str], Bound]:
    """Return bounds by element type and platform. by_name: such as `float_m4`."""
    keys: dict[str, tuple[Dtype, str]] = {
        "float_m4": ("float32", M4), "float_m55": ("float32", M55), "int8_m4": ("int8", M4), "int8_m55": ("int8", M55),
    }  # fmt: skip
    return {keys[name]: bound for name, bound in by_name.items()}


def _spot(
    model: onnx.ModelProto, counted: int, kernels: tuple[str, ...], bounds: Mapping[tuple[Dtype, str], Bound],
    unit: str = "element",
) -> Spot:  # fmt: skip
    return Spot(model=model, kernels=kernels, counted=counted, unit=unit, bounds=bounds, ram={})


def _scalar_product(channels: int, depth: int) -> Bound:
    """Return the bound of float products one by one: blocks of pixels by channels that the registers hold.

    The smaller side of a block stays in registers, and the other side passes through one register.
    """
    blocks = [
        (1 / pixels + -(-channels // block) / channels, pixels, block)
        for block in range(1, channels + 1)
        for pixels in range(1, REGISTERS)
        if pixels * block + min(pixels, block) + 1 <= REGISTERS
    ]
    _, pixels, block = min(blocks)
    return _terms(
        (1, "multiply-add"), (1 / pixels, f"a weight is loaded once for {pixels} pixels"),
        (-(-channels // block) / channels, f"an element is loaded once for {block} channels"),
        (2 / depth, "the bias is copied and the sum is stored"),
    )  # fmt: skip


def _vector_product(channels: int, depth: int) -> Bound:
    """Return the bound of float products in lanes of channels: blocks of pixels by vectors that the registers hold."""
    vectors = -(-channels // LANES)
    blocks = [
        ((pixels * vectors + vectors + pixels * -(-vectors // block)) / (pixels * channels), pixels, block)
        for block in range(1, vectors + 1)
        for pixels in range(1, VECTORS)
        if pixels * block + 1 <= VECTORS
    ]
    _, pixels, block = min(blocks)
    return _terms(
        (vectors / channels, f"multiply-adds of {vectors} vectors for {channels} channels"),
        (vectors / (pixels * channels), f"a vector of weights is loaded once for {pixels} pixels"),
        (-(-vectors // block) / channels, f"an element is loaded once for {block} vectors of channels"),
        (2 * vectors / channels / depth, "the bias is copied and the sums are stored"),
    )  # fmt: skip


def _products() -> dict[str, Spot]:
    def conv(channels: int) -> Spot:
        net = Network(name=f"conv_{channels}", inputs={"x": (1, channels, 12, 12)})
        made = net.node("Conv", "x", net.weights(channels, channels, 3, 3), net.weights(channels))
        depth = 9 * channels
        return _spot(
            net.model(made), 100 * channels * depth, ("conv2d_f32",),
            _bounds(float_m4=_scalar_product(channels, depth), float_m55=_vector_product(channels, depth)),
            "multiply-add",
        )  # fmt: skip

    def dense(rows: int, depth: int, channels: int) -> Spot:
        net = Network(name=f"dense_{rows}_{depth}_{channels}", inputs={"x": (rows, depth)})
        made = net.node("Gemm", "x", net.weights(depth, channels), net.weights(channels))
        return _spot(
            net.model(made), rows * depth * channels, ("dense_f32",),
            _bounds(float_m4=_scalar_product(channels, depth), float_m55=_vector_product(channels, depth)),
            "multiply-add",
        )  # fmt: skip

    return {
        **{f"3 x 3 convolution, {channels} channels": conv(channels) for channels in ODD},
        **{f"dense of {ROWS} rows, {DEPTH} to {channels}": dense(ROWS, DEPTH, channels) for channels in ODD},
    }


_SCALAR_EXPONENTIAL = _terms(
    (5, "largest: load, compare, flags, condition, move"), (6, "load, subtract the largest, limit from below"),
    (5, "power of two and the rest"), (12, "polynomial of degree 6, constants copied"),
    (2, "square of the rest, 1 added"),
    (5, "exponent added in a core register, the least share subtracted"), (2, "store, sum"),
    (3, "scaling: load, multiply, store"),
)  # fmt: skip
_VECTOR_EXPONENTIAL = _terms(
    (3 / LANES, "largest: load, compare, select"), (4 / LANES, "load, subtract the largest, limit from below"),
    (5 / LANES, "power of two and the rest"), (7 / LANES, "polynomial of degree 6"),
    (2 / LANES, "square of the rest, 1 added"), (3 / LANES, "exponent added, the least share subtracted"),
    (2 / LANES, "store, sum"), (3 / LANES, "scaling: load, multiply, store"),
)  # fmt: skip
_PAIRED_SOFTMAX = _terms(
    (0.75, "largest: load of four, SSUB8, SEL"), (3.5, "load, exponential from a table, sum, and carry of a pair"),
    (5, "load, exponential, SMMLA, SSAT with a shift, store"),
)  # fmt: skip
_VECTOR_SOFTMAX = _terms(
    (2 / BYTES, "largest: load, VMAXV"), (4 / LANES, "load, index, exponential from a table, sum"),
    (8 / LANES, "load, index, exponential, high product, rounding shift, zero point, limit, store"),
)  # fmt: skip


def _attention() -> Spot:
    """An encoder block whose scores do not fit: queries come in rows, and each row's scores are normalized at once."""
    scores, width = HEADS * TOKENS * TOKENS, WIDTH // HEADS
    macs = 2 * scores * width
    outputs = (scores + TOKENS * WIDTH) / macs
    share = scores / macs
    bounds = {
        ("float32", M4): (*_scalar_product(TOKENS, width), *_of(share, _SCALAR_EXPONENTIAL)),
        ("float32", M55): (*_vector_product(TOKENS, width), *_of(share, _VECTOR_EXPONENTIAL)),
        ("int8", M4): (
            *_terms((0.5, "SMLAD"), (0.375, "pairs of 2 queries by 4 keys, widened ahead, are loaded"),
                    (3 * outputs, "SMMLA, SSAT with a shift, store")), *_of(share, _PAIRED_SOFTMAX)),
        ("int8", M55): (
            *_terms((1 / BYTES, "VMLADAVA of 16 bytes"), (0.5 / BYTES, "4 queries by 4 keys are loaded"),
                    (5 * outputs / LANES, "insertion of a sum, high product, rounding shift, limit, store")),
            *_of(share, _VECTOR_SOFTMAX)),
    }  # fmt: skip
    return Spot(
        model=encoder_block(TOKENS, WIDTH, HEADS), kernels=("softmax",), counted=macs, unit="multiply-add",
        bounds=bounds, ram={"float32": 64_000, "int8": 22_000},
    )  # fmt: skip


def _of(share: float, bound: Bound) -> Bound:
    """Return a bound in another unit. share: how many of the bound's own units each of these units takes."""
    return tuple(Term(instructions=share * term.instructions, reason=term.reason) for term in bound)


def _vectors() -> dict[str, Spot]:
    def softmax() -> onnx.ModelProto:
        net = Network(name="softmax", inputs={"x": (ROWS, LENGTH)})
        return net.model(net.node("Softmax", "x", axis=-1))

    def layer_norm() -> onnx.ModelProto:
        net = Network(name="layer_norm", inputs={"x": (ROWS, LENGTH)})
        return net.model(net.node("LayerNormalization", "x", net.weights(LENGTH, offset=1), net.weights(LENGTH)))

    root = (ROOT_INSTRUCTIONS / LENGTH, "inverse root, once for each vector")
    floats = ("mean: load, add", "variance: load, subtract, multiply-add",
              "result: load, subtract, multiply, load weight and bias, multiply-add, store")  # fmt: skip
    return {
        f"softmax over {LENGTH}": _spot(
            softmax(), ROWS * LENGTH, ("softmax",),
            _bounds(float_m4=_SCALAR_EXPONENTIAL, float_m55=_VECTOR_EXPONENTIAL, int8_m4=_PAIRED_SOFTMAX,
                    int8_m55=_VECTOR_SOFTMAX)),
        f"layer norm over {LENGTH}": _spot(
            layer_norm(), ROWS * LENGTH, ("normalize",),
            _bounds(
                float_m4=_terms(*zip((2, 3, 7), floats, strict=True), (6 / LENGTH, "root and divisions of a vector")),
                float_m55=_terms(*zip((2 / LANES, 3 / LANES, 7 / LANES), floats, strict=True),
                                 (12 / LENGTH, "sums of lanes, root and divisions of a vector")),
                int8_m4=_terms(
                    (0.25, "load of four"), (0.5, "SXTB16 of pairs"), (1, "SMLAD of sums and of squares"),
                    (8, "load, MLA, high product, load weight and bias, SMMLA, SSAT with a shift, store"), root),
                int8_m55=_terms(
                    (3 / BYTES, "load of 16, VADDVA, VMLADAVA"),
                    (10 / LANES, "load, VMLAS, two high products, load weight and bias, add, shift, limit, store"),
                    root),
            )),
    }  # fmt: skip


def _framed(name: str, write: Callable[[Network, str], str], side: int) -> onnx.ModelProto:
    """Return a network of a convolution and an operator on its result, with channels last."""
    net = Network(name=name, inputs={"x": (1, 3, side, side)})
    head = net.node("Conv", "x", net.weights(CHANNELS, 3, 3, 3), net.weights(CHANNELS), pads=[1, 1, 1, 1])
    return net.model(net.node("Transpose", write(net, head), perm=[0, 2, 3, 1]))


def _pools() -> dict[str, Spot]:
    def window(net: Network, x: str) -> str:
        return net.node("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])

    taken, whole = CHANNELS * (SIDE // 2) ** 2, CHANNELS * SMALL**2
    kernels = ("pool2d", "mean")
    return {
        "average pool, 2 x 2": _spot(
            _framed("average", window, SIDE), taken, kernels,
            _bounds(
                float_m4=_terms((7, "4 loads, 3 additions"), (2, "multiply, store")),
                float_m55=_terms((7 / LANES, "4 loads, 3 additions"), (2 / LANES, "multiply, store")),
                int8_m4=_terms((3, "4 times a load of four and 2 SXTAB16"), (4, "half of a pair, SMMLA, SSAT, store")),
                int8_m55=_terms(
                    (4 * 5 / BYTES, "4 times a load of 16, 2 VMOVL and 2 additions"),
                    (4 * 5 / BYTES, "4 times widening, zero point, high product, rounding shift, narrowing"),
                    (1 / BYTES, "store")),
            )),
        "global average pool, 8 x 8": _spot(
            _framed("global", lambda net, x: net.node("GlobalAveragePool", x), SMALL), whole, kernels,
            _bounds(
                float_m4=_terms((2, "load, add")), float_m55=_terms((2 / LANES, "load, add")),
                int8_m4=_terms((0.75, "load of four, 2 SXTAB16")),
                int8_m55=_terms((5 / BYTES, "load of 16, 2 VMOVL and 2 additions")),
            ), "element of the input"),
    }  # fmt: skip


def _resizes() -> dict[str, Spot]:
    doubled = np.array([1, 1, 2, 2], "f4")

    def resize(mode: str) -> onnx.ModelProto:
        return _framed(mode, lambda net, x: net.node("Resize", x, "", net.constant(doubled), mode=mode), SMALL)

    counted = CHANNELS * (2 * SMALL) ** 2
    along = ("a column serves 2 results: its 2 loads", "its product and multiply-add")
    across = (2.0, "product and multiply-add of 2 columns")
    return {
        "resize by 2, nearest": _spot(
            resize("nearest"), counted, ("gather",),
            _bounds(
                float_m4=_terms((2, "load and store of a word")),
                float_m55=_terms((2 / LANES, "load and store of 4 floats")),
                int8_m4=_terms((0.5, "load and store of a word of 4 elements")),
                int8_m55=_terms((2 / BYTES, "load and store of 16 elements")),
            )),
        "resize by 2, bilinear": _spot(
            resize("linear"), counted, ("generic", "interpolate", "permute_dims_conv", "transpose"),
            _bounds(
                float_m4=_terms(*zip((1, 1), along, strict=True), across, (1, "store")),
                float_m55=_terms(*zip((1 / LANES, 1 / LANES), along, strict=True), (2 / LANES, across[1]),
                                 (1 / LANES, "store")),
                int8_m4=_terms(*zip((1, 1), along, strict=True), across, (3, "SMMLA, SSAT with a shift, store")),
                int8_m55=_terms(*zip((1 / LANES, 1 / LANES), along, strict=True), (2 / LANES, across[1]),
                                (6 / LANES, "high product, rounding, shift, narrowing, limit, store")),
            )),
    }  # fmt: skip
