"""Pools over a whole image that take its rows as they come: a few rows per call, sums kept between the calls.

int8, uint8 or float32[1, H, W, C] -> [1, 1, 1, C]. Each channel adds its elements in the order of rows, then columns,
as the pool over the whole image does: not a bit of the result depends on how many rows come at a time. Sums of
integers are an int32[C] of their own; floats are summed in the output itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codegen_c.c_text.text import C_TYPES, block, plus, times
from codegen_c.kernels.contract import CFunction, Parameter, StoredRows
from codegen_c.kernels.shared.window import CHANNEL_BLOCK, ROW_PARAMETERS, slot
from codegen_c.operators.kinds import Pool2d, QPool2d

BLOCK_INSTRUCTIONS = 24
"""Instructions per block of channels in one call: loading and storing its sums, and the loops."""


def is_global(operator: QPool2d | Pool2d) -> bool:
    """True where the window is the whole of one image."""
    batch, height, columns, _ = operator.inputs[0].shape
    window = operator.window
    whole = window.kernel == (height, columns) and window.dilation == (1, 1) and not any(window.padding)
    return whole and batch == 1 and operator.output.shape[1:3] == (1, 1) and len(operator.inputs) == 1


@dataclass(frozen=True, kw_only=True)
class RowSums:
    """Text of such a kernel. sums: the array that holds them; start: what each begins with.

    add(sum, element), finish(sum, channel): C statement and expression.
    """

    ctype: str
    sums: str
    start: str
    add: Callable[[str, str], str]
    finish: Callable[[str, str], str]

    def body(self, shape: Sequence[int], stored: StoredRows, source: str) -> str:
        """shape: of the input; source: C type of its elements."""
        channels = shape[3]
        full = channels // CHANNEL_BLOCK * CHANNEL_BLOCK
        lines: list[str] = []
        if full:
            tile = block(self._tile(shape, stored, source, CHANNEL_BLOCK))
            lines += [f"for (int32_t k = 0; k < {full}; k += {CHANNEL_BLOCK}) {{", tile, "}"]
        if channels > full:
            tile = self._tile(shape, stored, source, channels - full)
            lines += ["{", block([f"const int32_t k = {full};", *tile]), "}"]
        return "\n".join(lines)

    def _tile(self, shape: Sequence[int], stored: StoredRows, source: str, width: int) -> list[str]:
        """`width` channels from k on."""
        _, height, columns, channels = shape
        names = [f"sum{j}" for j in range(width)]
        added = [self.add(name, f"x[{j}]") for j, name in enumerate(names)]
        row = times(slot("h", stored.input(0)), columns * channels)
        place = [plus("k", j) for j in range(width)]
        return [
            *(
                f"{self.ctype} {name} = row_begin > 0 ? {self.sums}[{k}] : {self.start};"
                for name, k in zip(names, place, strict=True)
            ),
            "for (int32_t h = row_begin; h < row_end; ++h) {",
            block(
                [
                    f"const {source} *x = &input[{row} + k];",
                    f"for (int32_t w = 0; w < {columns}; ++w) {{",
                    block([*added, f"x += {channels};"]),
                    "}",
                ]
            ),
            "}",
            *(f"{self.sums}[{k}] = {name};" for name, k in zip(names, place, strict=True)),
            f"if (row_end == {height}) {{",
            block([f"output[{k}] = {self.finish(name, k)};" for name, k in zip(names, place, strict=True)]),
            "}",
        ]


def function(
    sums: RowSums,
    operator: QPool2d | Pool2d,
    stored: StoredRows,
    constants: Sequence[Parameter],
    *,
    helpers: str,
    includes: tuple[str, ...],
) -> CFunction:
    """The kernel; where sums are not kept in the output, they are its second one."""
    source, output = (C_TYPES[kind.dtype] for kind in (operator.inputs[0], operator.output))
    own = [Parameter(name=sums.sums, ctype=sums.ctype, role="output")] if sums.sums != "output" else []
    return CFunction(
        parameters=(
            Parameter(name="input", ctype=source, role="input"),
            Parameter(name="output", ctype=output, role="output"),
            *own,
            *constants,
            *ROW_PARAMETERS,
        ),
        body=sums.body(operator.inputs[0].shape, stored, source),
        helpers=helpers,
        includes=includes,
    )


def instructions(operator: QPool2d | Pool2d, whole: int) -> int:
    """Modelled instructions with one row per call; whole: of the pool that runs at once."""
    _, height, _, channels = operator.inputs[0].shape
    return whole + height * -(-channels // CHANNEL_BLOCK) * BLOCK_INSTRUCTIONS
