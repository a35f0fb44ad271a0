"""Shared parts of the float convolution kernels: reference, parameters, and the loops around their pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from codegen_c.c_text.text import Compound, block, scaled, times
from codegen_c.kernels.contract import CFunction, Implementation, Parameter, Passes, StoredRows
from codegen_c.kernels.convolution.window_cost import WindowCost, best_pixels, image_instructions
from codegen_c.kernels.shared.blocking import Blocking, lanes_finished
from codegen_c.kernels.shared.finish import Finish
from codegen_c.kernels.shared.lanes import SCALAR
from codegen_c.kernels.shared.layer import NO_LAYER, LayerText
from codegen_c.kernels.shared.narrow_weights import FLOAT32, WeightType
from codegen_c.kernels.shared.product_f32 import WIDENED
from codegen_c.kernels.shared.tile import pixel_place
from codegen_c.kernels.shared.window import (
    ROW_PARAMETERS,
    over,
    slot,
    spatial,
    taps,
)
from codegen_c.operators.kinds import Conv2d, Pool2d, Window


def reference(operator: Conv2d, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, float64 sums rounded once."""
    output, groups = operator.output.shape, operator.groups
    total = np.zeros((*output[:3], groups, output[3] // groups))
    weight = operator.weight.astype(np.float64).reshape(groups, output[3] // groups, *operator.weight.shape[1:])
    for r, s, x in taps(inputs[0], operator.window, (output[1], output[2]), 0.0):
        split = x.reshape(*x.shape[:3], groups, -1).astype(np.float64)
        total += np.einsum("nhwgc,gkc->nhwgk", split, weight[:, :, r, s], optimize=True)
    element = (total.reshape(output) + operator.bias).astype(np.float32)
    return [operator.finish.run(element, inputs)]


def parameters(
    finish: Finish,
    constants: Sequence[str] = ("weights", "bias"),
    *,
    weights: WeightType = FLOAT32,
    element: str = "float",
) -> tuple[Parameter, ...]:
    """Input, residuals, output, constants, channel constants, rows. weights: their type. element: of activations."""
    types = {"weights": weights.ctype}
    return (
        Parameter(name="input", ctype=element, role="input"),
        *finish.input_parameters(element),
        Parameter(name="output", ctype=element, role="output"),
        *(Parameter(name=name, ctype=types.get(name, "float"), role="constant") for name in constants),
        *finish.constant_parameters(),
        *ROW_PARAMETERS,
    )


def product_parameters(finish: Finish, blocking: Blocking) -> tuple[Parameter, ...]:
    """The same of a product, whose rows of float16 are widened in scratch."""
    names = parameters(finish, weights=blocking.weights, element=blocking.lanes.element)
    return (*names, WIDENED) if blocking.lanes.half else names


def row_offset(operator: Conv2d | Pool2d, index: int | None, stored: StoredRows, row: str = "h") -> str:
    """C expression: first column of output row h, in pixels. index: a residual input; None: the output.

    `output_columns` is to be defined before.
    """
    batch, height = operator.output.shape[:2]
    if index is None and stored.row_pitch:
        return times(slot(row, stored.output), stored.row_pitch // (stored.pitch or operator.output.shape[3]))
    kept = stored.output if index is None else stored.input(index)
    return scaled(Compound(f"n * {height} + {row}") if batch > 1 else slot(row, kept), "output_columns")


def pixel_offsets(operator: Conv2d | Pool2d, stored: StoredRows, finish: Finish) -> list[str]:
    """Declarations of `pixel` (output) and `pixel1` … (residuals): first element of pixel (h, w) of image n."""
    channels, residuals = operator.output.shape[3], finish.residuals()
    lines = [f"const int32_t pitch = {stored.pitch or channels};"]
    if residuals or not stored.row_pitch:
        lines.insert(0, f"const int32_t output_columns = {operator.output.shape[2]};")
    lines += [f"const int32_t channels = {channels};"] if residuals else []
    names: list[tuple[str, int | None, str]] = [("pixel", None, "pitch")]
    names += [(f"pixel{i}", i, "channels") for i in residuals]
    for name, index, pitch in names:
        place = Compound(f"{row_offset(operator, index, stored)} + w")
        lines.append(f"const int32_t {name} = {scaled(place, pitch)};")
    return lines


def input_row(operator: Conv2d | Pool2d, stored: StoredRows) -> str:
    """C expression: the input row that tap r reads, of image n."""
    batch, height = operator.inputs[0].shape[:2]
    dilation = operator.window.dilation[0]
    row = Compound(f"top + r * {dilation}" if dilation > 1 else "top + r")
    return Compound(f"n * {height} + {row}") if batch > 1 else slot(row, stored.input(0))


def input_sizes(operator: Conv2d | Pool2d) -> list[str]:
    """Definitions of the names in `input_place`."""
    _, _, columns, channels = operator.inputs[0].shape
    return [f"const int32_t input_columns = {columns};", f"const int32_t input_channels = {channels};"]


def input_place(operator: Conv2d | Pool2d, stored: StoredRows, column: str) -> str:
    """C expression: first element of a column of the input row that tap r reads."""
    pixel = Compound(f"{scaled(input_row(operator, stored), 'input_columns')} + {column}")
    return scaled(pixel, "input_channels")


def place(p: int) -> str:
    """C expression of pixel p's first element in the output, after `pixel_offsets`."""
    return pixel_place("pixel", p, "pitch")


def residual_place(i: int, p: int) -> str:
    """The same in residual input i."""
    return pixel_place(f"pixel{i}", p, "channels")


def inner_columns(window: Window, input_columns: int, output_columns: int) -> tuple[int, int]:
    """Output columns [begin, end) whose whole window lies inside the input."""
    stride, left = window.strides[1], window.padding[1]
    reach = (window.kernel[1] - 1) * window.dilation[1]
    begin = min(-(-left // stride), output_columns)
    last = (input_columns - 1 - reach + left) // stride
    return begin, max(begin, min(last + 1, output_columns))


def implementation(
    kernel: str,
    operator: Conv2d,
    blocking: Blocking,
    *,
    weights: np.ndarray,
    bias: np.ndarray,
    cost: Callable[[int], WindowCost],
    inputs_a_product: Callable[[int], float],
    body: Callable[[int, str], list[str]],
    accumulation: str,
    layer: Callable[[int], LayerText] = lambda _: NO_LAYER,
) -> Implementation:
    """A convolution computed by groups of pixels, as many at a time as cost least.

    weights, bias: packed. cost(p): modelled, of p pixels. inputs_a_product(p): input elements loaded for each of
    their products. body(p, address): their text, as `by_pixels` takes it. layer(p): shapes, for groups of p pixels.
    """
    finish, output = Finish(program=operator.finish), operator.output.shape
    begin, end = inner_columns(operator.window, operator.inputs[0].shape[2], output[2])
    pixels = best_pixels(end - begin, blocking.pixels, operator.window, cost)
    groups = (end - begin) // pixels if pixels > 1 else 0
    alone = output[2] - groups * pixels
    macs = operator.output.num_elements * operator.weight[0].size
    shapes = layer(pixels)
    function = by_pixels(operator, finish, pixels, lambda p: body(p, shapes.address), blocking, layer=shapes)
    return Implementation(
        kernel=kernel,
        function=function,
        reference=lambda inputs: reference(operator, inputs),
        constants=(("weights", weights), ("bias", bias), *finish.constants()),
        macs=macs,
        instructions=image_instructions(operator, groups, begin, pixels, cost),
        passes=Passes.of_product(
            macs,
            operator.inputs[0].num_elements,
            output[0] * output[1] * output[2],
            pixels=output[2] / (groups + alone),
            channels=1 / inputs_a_product(pixels),
        ),
        accumulation=accumulation,
        spatial=spatial(operator.window, operator.inputs[0], operator.output, len(finish.residuals())),
        pitched=True,
        row_pitched=True,
    )


def by_pixels(
    operator: Conv2d | Pool2d,
    finish: Finish,
    pixels: int,
    body: Callable[[int], list[str]],
    blocking: Blocking | None = None,
    *,
    constants: Sequence[str] = ("weights", "bias"),
    layer: LayerText = NO_LAYER,
) -> CFunction:
    """A kernel that computes columns one by one at the borders and `pixels` at a time between them.

    body(p): text of p pixels from (h, w) on; p = 1 must leave out what lies outside the input, more never do.
    blocking: of the channels, None for one at a time.
    """
    output = operator.output.shape
    lanes = blocking.lanes if blocking else SCALAR
    weights = blocking.weights if blocking else FLOAT32
    names = parameters(finish, constants, weights=weights, element=lanes.element)
    begin, end = inner_columns(operator.window, operator.inputs[0].shape[2], output[2])
    groups: list[str] = []
    if pixels == 1:
        columns = over("w", 0, output[2], body(1))
    else:
        position = ", ".join([*(["int32_t n"] if output[0] > 1 else []), "int32_t h", "int32_t w"])
        shared = [p for p in names if p.role != "row"]
        head = ", ".join([*(p.declaration() for p in shared), position])
        call = ", ".join([*(p.name for p in shared), position.replace("int32_t ", "")])
        num_inside = (end - begin) // pixels * pixels
        groups = [
            f"static inline void $_{name}({head})\n{{\n{block(body(count))}\n}}\n"
            for name, count in [("pixel", 1), (f"{pixels}_pixels", pixels)]
            if count > 1 or num_inside < output[2]
        ]
        columns = ["int32_t w = 0;"]
        if begin:
            columns += [f"for (; w < {begin}; ++w) {{", block(f"$_pixel({call});"), "}"]
        columns += [f"for (; w + {pixels} <= {end}; w += {pixels}) {{", block(f"$_{pixels}_pixels({call});"), "}"]
        if begin + num_inside < output[2]:
            columns += [f"for (; w < {output[2]}; ++w) {{", block(f"$_pixel({call});"), "}"]
    lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block(columns), "}"]
    if output[0] > 1:
        lines = [f"for (int32_t n = 0; n < {output[0]}; ++n) {{", block(lines), "}"]
    finished = lanes_finished(output[3], finish, blocking) if blocking else [SCALAR]
    text = "\n".join(helper for helper in [layer.definition, finish.helper(*finished), *groups] if helper)
    includes = (*lanes.includes, *layer.includes)
    return CFunction(parameters=names, body="\n".join([*layer.statements, *lines]), helpers=text, includes=includes)
