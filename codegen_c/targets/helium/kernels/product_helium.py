"""An int8 product with constant weights for Helium: two rows by four output channels, 16 products at a time.

Dense layers and convolutions share it: a row is a pixel's window, as one run of bytes or as several. Every sum
stays in a general register of its own; four of them become a vector when they are done. Depths that are no
multiple of 16 are read from padded copies, where weights of zero meet the padding. The loops stand in
tvm_ext_helium_channels.h.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Parameter, Target
from codegen_c.kernels.figures import Block
from codegen_c.kernels.shared.four_bits import pack_pairs
from codegen_c.kernels.shared.layer import apart
from codegen_c.kernels.shared.sums import holds_sums
from codegen_c.operators.kinds import Array, Operator
from codegen_c.targets.helium.kernels.helium import Rescale

STEP = 16
CHANNEL_BLOCK = 4
# Steps in one run of instructions without a loop.
MOST_STEPS = {"speed": 12, "size": 2}
STEP_BLOCKS: tuple[Block, ...] = ((2,), (4,), (8,), (20,))
# Modelled instructions, by rows: of a step, of a block of four channels around its steps, of a call.
STEP_INSTRUCTIONS = {2: 14, 1: 9}
BLOCK_INSTRUCTIONS = {2: 29, 1: 17}
CALL_INSTRUCTIONS = {2: 30, 1: 4}
# Per step, what weights of 4 bits take more: two loads less, four instructions that part them.
NIBBLE_INSTRUCTIONS = 2


def step_blocks(operator: Operator, target: Target) -> tuple[Block, ...]:
    """Steps without a loop that `Product.of` may be told to write at most; none for small code."""
    return STEP_BLOCKS if target.optimize == "speed" else ()


def padded(depth: int) -> int:
    """The depth as the code steps through it."""
    return -(-depth // STEP) * STEP


def pack(weight: Array) -> Array:
    """int8[K, ...] -> int8[ceil(K / 4), ceil(depth / 16), 4, 16], zeros behind the last channel and element."""
    flat = weight.reshape(weight.shape[0], -1)
    full = np.zeros((-(-flat.shape[0] // CHANNEL_BLOCK) * CHANNEL_BLOCK, padded(flat.shape[1])), dtype=np.int8)
    full[: flat.shape[0], : flat.shape[1]] = flat
    return np.ascontiguousarray(full.reshape(-1, CHANNEL_BLOCK, full.shape[1] // STEP, STEP).transpose(0, 2, 1, 3))


def pack_nibbles(weight: Array) -> Array:
    """int8[K, ...] from -8 to 7 -> the order of `pack`, two channels in a byte: int8[ceil(K / 4), steps, 2, 16]."""
    full = pack(weight)
    return pack_pairs(full[:, :, 0::2], full[:, :, 1::2]).view(np.int8)


def nibble_sums_fit(weight: Array) -> bool:
    """True where 16 times the products of each channel and int8 fit an int32."""
    magnitude = np.abs(weight.astype(np.int64)).reshape(len(weight), -1).sum(axis=1)
    return int(magnitude.max(initial=0)) * 128 * 16 < 1 << 31


@dataclass(frozen=True, kw_only=True, eq=False)
class Product:
    """`runs` runs of `run_bytes` each (a multiple of 16 where there are several) times `channels` channels.

    in_nibbles: weights of 4 bits.
    """

    runs: int
    run_bytes: int
    channels: int
    rescale: Rescale
    most_steps: int
    in_nibbles: bool = False

    @classmethod
    def of(
        cls, *, runs: int, run_bytes: int, channels: int, rescale: Rescale, target: Target, in_nibbles: bool = False
    ) -> Product:
        most = target.block[0] if target.block else MOST_STEPS[target.optimize]
        return cls(
            runs=runs, run_bytes=run_bytes, channels=channels, rescale=rescale, most_steps=most, in_nibbles=in_nibbles
        )

    @property
    def steps(self) -> int:
        """Steps of one run."""
        return -(-self.run_bytes // STEP)

    @property
    def _group(self) -> int:
        """Steps without a loop: all, else the largest divisor of a run's above half of the most, else the most."""
        if self.runs * self.steps <= self.most_steps:
            return self.runs * self.steps
        most = min(self.steps, self.most_steps)
        return next((g for g in range(most, self.most_steps // 2, -1) if self.steps % g == 0), most)

    def constants(self, weight: Array, start: Array) -> tuple[tuple[str, Array], ...]:
        """Packed weights, and the table of starts, multipliers and shifts."""
        table = self.rescale.table(start, np.arange(CHANNEL_BLOCK))
        return (("weights", pack_nibbles(weight) if self.in_nibbles else pack(weight)), ("factors", table))

    def instructions(self, rows: int) -> int:
        """Modelled instructions of one call for one or two rows."""
        loops = 0 if self.runs * self.steps <= self.most_steps else self.runs * -(-self.steps // self.most_steps) * 8
        step = STEP_INSTRUCTIONS[rows] + (NIBBLE_INSTRUCTIONS if self.in_nibbles else 0)
        each = self.runs * self.steps * step + loops
        each += BLOCK_INSTRUCTIONS[rows] + rows * (self.rescale.instructions - 2)
        return CALL_INSTRUCTIONS[rows] + -(-self.channels // CHANNEL_BLOCK) * each

    def members(self) -> dict[str, Value]:
        """A `tvm_ext_helium_product`."""
        stored: dict[str, Value] = {"has_nibbles": True} if self.in_nibbles else {}
        stored |= {"holds_sums": True} if holds_sums(self.rescale.requantize.output) else {}
        return {
            "runs": self.runs, "steps": self.steps, "group_steps": self._group, "channels": self.channels, **stored,
            "rescale": self.rescale.members(),
        }  # fmt: skip

    def function(self, rows: int) -> str:
        """Definition of `$_two` or `$_one`, a tvm_ext_helium_two or a tvm_ext_helium_one of the layer's product."""
        tables = ["const int8_t *restrict weights", "const int32_t *restrict factors"]
        if rows == 1:
            call = "tvm_ext_helium_channels(&$_layer.product, x0, x0, 0, y0, y0, weights, factors, 1);"
            return apart("$_one", ["const int8_t *x0", "uint8_t *y0", *tables], [call])
        places = ["const int8_t *x0", "const int8_t *x1", "int32_t skip", "uint8_t *y0", "uint8_t *y1"]
        call = "tvm_ext_helium_channels(&$_layer.product, x0, x1, skip, y0, y1, weights, factors, 2);"
        return apart("$_two", [*places, *tables], [call])


PARAMETERS = (
    Parameter(name="weights", ctype="int8_t", role="constant"),
    Parameter(name="factors", ctype="int32_t", role="constant"),
)
SCRATCH = Parameter(name="scratch", ctype="uint8_t", role="scratch")
