"""Integer product with constant weights for Helium: four pixels by two output channels, 16 products at a time.

The instructions of a layer are generated text (four_loop.py); tvm_ext_helium_fours.h has its frame, and the same
computation in plain C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import Value, block
from codegen_c.kernels.contract import Parameter
from codegen_c.kernels.shared.layer import apart
from codegen_c.kernels.shared.requantize import wrapped
from codegen_c.operators.kinds import Array
from codegen_c.targets.helium.kernels.four_factors import NarrowFactors, RoundedFactors
from codegen_c.targets.helium.kernels.four_loop import (
    BLOCK,
    INTERLEAVED,
    MOST_POINTERS,
    PIXELS,
    Columns,
    FourLoop,
    Text,
    fastest,
)

CALL_INSTRUCTIONS = 28
"""Modelled instructions of a call around its blocks: registers saved, addresses of results and inputs."""
ONE_CALL, ONE_BLOCK, ONE_STEP = 24, 17, 9
"""Modelled instructions of a single window: of the call, of four channels, of 16 products of each."""
PACKED = Parameter(name="packed", ctype="int8_t", role="constant")
_PARAMETERS = ("const int8_t *x", "int32_t row_bytes", "uint8_t *y", "const int8_t *restrict packed")


@dataclass(frozen=True, kw_only=True, eq=False)
class FourPixels:
    """Product of windows and `channels` channels, a multiple of four.

    pitch: bytes from a pixel of the output to the next.
    """

    columns: Columns
    channels: int
    pitch: int
    factors: NarrowFactors | RoundedFactors
    zero_point: int
    is_unsigned: bool

    def constants(self, weight: Array, start: Array) -> tuple[tuple[str, Array], ...]:
        """Return blocks of four channels: weights, starts and factors of channels 0, 2, then 1, 3, and an end.

        The end holds the zero point and the number of remaining channels. weight: int8[K, runs, taps, bytes]. start:
        int64[K], taken modulo 2^32.
        """
        blocks = self.channels // BLOCK
        numbers = np.stack([np.broadcast_to(row, self.channels) for row in (wrapped(start), *self.factors.rows())])
        pairs = numbers.reshape(-1, blocks, BLOCK)[:, :, INTERLEAVED].reshape(-1, blocks, 2, 2).transpose(1, 2, 0, 3)
        halves = np.concatenate([self.columns.pack(weight), _bytes(pairs.reshape(blocks, 2, -1))], axis=2)
        ends = np.stack([np.full(blocks, self.zero_point), BLOCK * np.arange(blocks - 1, -1, -1)], axis=1)
        packed = np.concatenate([halves.reshape(blocks, -1), _bytes(ends)], axis=1)
        return (("packed", np.ascontiguousarray(packed)),)

    def members(self) -> dict[str, Value]:
        """Return a `tvm_ext_helium_fours`."""
        columns = self.columns
        return {
            "runs": columns.runs, "taps": columns.taps, "stride": columns.stride, "steps": columns.steps,
            "column_bytes": columns.column_bytes, "pitch": self.pitch, **self.factors.members(),
            **({"is_unsigned": True} if self.is_unsigned else {}),
        }  # fmt: skip

    def one_function(self) -> str:
        """Return `$_one`, a tvm_ext_helium_group of the layer for a single window of one column."""
        name, shapes = "TVM_EXT_HELIUM_ONE", f"{self.columns.steps}"
        if isinstance(self.factors, NarrowFactors):
            shapes += f", {self.factors.shift}"
        else:
            name += "_SIGNED" if self.factors.is_signed else "_TWICE"
        return apart("$_one", _PARAMETERS, ["(void)row_bytes;", f"{name}(&$_layer.fours, x, y, packed, {shapes});"])

    @property
    def one_instructions(self) -> int:
        """Instructions of a call of `$_one`."""
        return ONE_CALL + self.channels // BLOCK * (self.columns.steps * ONE_STEP + ONE_BLOCK)

    def function(self) -> str:
        """Return `$_four`, a tvm_ext_helium_group of the layer."""
        pointers = [*self._pointers(), *["x"] * MOST_POINTERS][:MOST_POINTERS]
        loop = self._loop()
        text = [f'"{line}\\n\\t"' for line in _together([*loop.ahead, "1:", *loop.block, "bne 1b"])]
        places = ", ".join(pointers)
        call = [f"TVM_EXT_HELIUM_FOUR(&$_layer.fours, x, row_bytes, y, packed, {places},", block([*text[:-1]])]
        call += [block([f"{text[-1]});"])]
        return apart("$_four", _PARAMETERS, ["\n".join(call)])

    @property
    def instructions(self) -> int:
        """Instructions of a call: the whole text, and the code around it."""
        loop = self._loop()
        return CALL_INSTRUCTIONS + len(loop.ahead) + self.channels // BLOCK * (len(loop.block) + 1)

    def _pointers(self) -> list[str]:
        columns = self.columns
        count = columns.num_pointers()
        if columns.is_pixel:
            return [f"x + {i * PIXELS // count * columns.column_bytes}" if i else "x" for i in range(count)]
        return [f"x + ({r} * row_bytes)" if r else "x" for r in range(count)]

    def _loop(self) -> Text:
        # If the zero point is a type's least element, the other type clamps the results: to it that element is zero.
        is_flipped = self.zero_point == (128 if self.is_unsigned else -128)
        shift = self.factors.shift if isinstance(self.factors, NarrowFactors) else 0
        is_signed = isinstance(self.factors, RoundedFactors) and self.factors.is_signed
        narrow = "vqmovun" if self.is_unsigned != is_flipped else "vqmovn"
        adds = self.zero_point != 0 and not is_flipped
        return fastest(
            FourLoop(
                columns=self.columns, shift=shift, is_signed=is_signed, adds=adds, is_flipped=is_flipped, narrow=narrow
            )
        )  # fmt: skip


def _together(lines: Sequence[str]) -> list[str]:
    """Return the lines with two instructions each."""
    return ["\\n\\t".join(lines[i : i + 2]) for i in range(0, len(lines), 2)]


def _bytes(numbers: Array) -> Array:
    """Convert int[..., n] to int8[..., 4n]: 32 bits each, low bytes first."""
    return np.ascontiguousarray(numbers).astype("<i4").view(np.int8)
