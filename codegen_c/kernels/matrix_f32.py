"""C text of a float matrix product: some pixels by some output channels at a time, channels packed side by side.

Dense layers and 1x1 convolutions share it. Weights are packed by `conv2d_f32.pack`: [K / b][C][b].
"""

from __future__ import annotations

from collections.abc import Callable

from codegen_c.text import block, plus

PIXELS, CHANNELS = 2, 4


def over_channels(num_channels: int, body: Callable[[int], list[str]]) -> list[str]:
    """`body(width)` for blocks of CHANNELS output channels from k on, then once for the tail."""
    full = num_channels // CHANNELS * CHANNELS
    lines: list[str] = []
    if full:
        lines += [f"for (int32_t k = 0; k < {full}; k += {CHANNELS}) {{", block(body(CHANNELS)), "}"]
    if num_channels > full:
        lines += ["{", block([f"const int32_t k = {full};", *body(num_channels - full)]), "}"]
    return lines


def over_pixels(index: str, num_pixels: int, body: Callable[[int], list[str]]) -> list[str]:
    """`body(count)` for pairs of pixels from `index` on, then once for a last single one."""
    lines: list[str] = []
    even = num_pixels // PIXELS * PIXELS
    if even:
        lines += [f"for (int32_t {index} = 0; {index} < {even}; {index} += {PIXELS}) {{", block(body(PIXELS)), "}"]
    if num_pixels > even:
        lines += ["{", block([f"const int32_t {index} = {even};", *body(num_pixels - even)]), "}"]
    return lines


def tile(pixels: int, width: int, depth: int, store: Callable[[str, int, int], str]) -> list[str]:
    """sums of `pixels` x `width` elements over `depth` inputs, from `x0`, `x1` … and output channel k on.

    store(sum, pixel, channel) gives the statement that stores one finished sum.
    """
    cells = [(p, j) for p in range(pixels) for j in range(width)]
    multiply = [f"const float a{p} = x{p}[c];" for p in range(pixels)]
    multiply += [f"const float f{j} = f[{j}];" for j in range(width)]
    multiply += [f"sum{p}{j} = TVM_EXT_FMA(a{p}, f{j}, sum{p}{j});" for p, j in cells]
    return [
        f"const float *restrict f = &weights[k * {depth}];",
        *(f"float sum{p}{j} = bias[{plus('k', j)}];" for p, j in cells),
        f"for (int32_t c = 0; c < {depth}; ++c) {{",
        block([*multiply, f"f += {width};"]),
        "}",
        *(store(f"sum{p}{j}", p, j) for p, j in cells),
    ]
