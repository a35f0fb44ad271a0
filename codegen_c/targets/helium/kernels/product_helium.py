"""C text of an int8 product with constant weights for Helium: two rows by four output channels, 16 products at a time.

Dense layers and convolutions share it: a row is a pixel's window, as one run of bytes or as several. Every sum
stays in a general register of its own; four of them become a vector when they are done. Depths that are no
multiple of 16 are read from padded copies, where weights of zero meet the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import C_TYPES, block
from codegen_c.kernels.contract import Parameter, Target
from codegen_c.kernels.shared.window import over
from codegen_c.operators.kinds import Array
from codegen_c.targets.helium.kernels.helium import LANES, OutputRange, Rescale

STEP = 16
CHANNEL_BLOCK = 4
# Steps in one run of instructions without a loop.
MOST_STEPS = {"speed": 12, "size": 2}
# Modelled instructions: of a step, of a block of four channels around its steps, of a call for two rows.
STEP_INSTRUCTIONS = {2: 14, 1: 9}
BLOCK_INSTRUCTIONS = {2: 31, 1: 22}
CALL_INSTRUCTIONS = 50


def padded(depth: int) -> int:
    """The depth as the code steps through it."""
    return -(-depth // STEP) * STEP


def pack(weight: Array) -> Array:
    """int8[K, ...] -> int8[ceil(K / 4), ceil(depth / 16), 4, 16], zeros behind the last channel and element."""
    flat = weight.reshape(weight.shape[0], -1)
    full = np.zeros((-(-flat.shape[0] // CHANNEL_BLOCK) * CHANNEL_BLOCK, padded(flat.shape[1])), dtype=np.int8)
    full[: flat.shape[0], : flat.shape[1]] = flat
    return np.ascontiguousarray(full.reshape(-1, CHANNEL_BLOCK, full.shape[1] // STEP, STEP).transpose(0, 2, 1, 3))


@dataclass(frozen=True, kw_only=True, eq=False)
class Product:
    """`runs` runs of `run_bytes` each (a multiple of 16 where there are several) times `channels` channels."""

    runs: int
    run_bytes: int
    channels: int
    rescale: Rescale
    limits: OutputRange
    most_steps: int

    @classmethod
    def of(
        cls, *, runs: int, run_bytes: int, channels: int, rescale: Rescale, limits: OutputRange, target: Target
    ) -> Product:
        most = MOST_STEPS[target.optimize]
        return cls(
            runs=runs, run_bytes=run_bytes, channels=channels, rescale=rescale, limits=limits, most_steps=most
        )  # fmt: skip

    @property
    def steps(self) -> int:
        """Steps of one run."""
        return -(-self.run_bytes // STEP)

    def constants(self, weight: Array, start: Array) -> tuple[tuple[str, Array], ...]:
        """Packed weights, and the table of starts, multipliers and shifts."""
        table = self.rescale.table(start, np.arange(CHANNEL_BLOCK))
        return (("weights", pack(weight)), ("factors", table))

    def instructions(self, rows: int) -> int:
        """Modelled instructions of one call for one or two rows."""
        loops = 0 if self.runs * self.steps <= self.most_steps else self.runs * -(-self.steps // self.most_steps) * 8
        each = self.runs * self.steps * STEP_INSTRUCTIONS[rows] + loops
        each += BLOCK_INSTRUCTIONS[rows] + rows * (self.rescale.instructions - 2)
        return CALL_INSTRUCTIONS + -(-self.channels // CHANNEL_BLOCK) * each

    def function(self, rows: int) -> str:
        """Definition of `$_two` or `$_one`: all channels of one or two rows.

        x0, x1: the rows; skip: bytes from the end of a run to the next one; y0, y1: where their results go.
        """
        ctype, names = C_TYPES[self.limits.output.dtype], range(rows)
        parameters = [
            *(f"const int8_t *x{p}" for p in names),
            "int32_t skip",
            *(f"{ctype} *y{p}" for p in names),
            "const int8_t *restrict weights",
            "const int32_t *restrict factors",
        ]
        first = f"tvm_ext_i32x4 sum0 = tvm_ext_i32x4_load(factors){', sum1 = sum0' if rows == 2 else ''};"
        lines = [first, *self.sums(rows), *self.finish([f"y{p}" for p in names])]
        head = f"TVM_EXT_STEP void $_{'two' if rows == 2 else 'one'}(\n" + block(",\n".join(parameters)) + ")"
        unused = [] if self._skips else ["(void)skip;"]
        blocks = over("k", 0, self.channels, lines, step=CHANNEL_BLOCK, between=[f"factors += {3 * LANES};"])
        return f"{head}\n{{\n{block([*unused, *blocks])}\n}}\n"

    def finish(self, outputs: Sequence[str]) -> list[str]:
        """Statements that turn sums of channels from k on into elements of one or two rows."""
        rows, full = len(outputs), self.channels % CHANNEL_BLOCK == 0
        count = f"{CHANNEL_BLOCK}" if full else f"{self.channels} - k"
        scaled = [self.rescale.scaled(f"sum{p}", "multiplier", "shift") for p in range(rows)]
        halves = zip(("even", "odd"), outputs, strict=False)
        return [
            f"const tvm_ext_i32x4 multiplier = tvm_ext_i32x4_load(factors + {LANES});",
            f"const tvm_ext_i32x4 shift = tvm_ext_i32x4_load(factors + {2 * LANES});",
            *(f"sum{p} = {value};" for p, value in enumerate(scaled)),
            f"const tvm_ext_i16x8 narrow = tvm_ext_i16x8_narrow(sum0, sum{rows - 1});",
            f"const tvm_ext_i16x8 results = {self.limits.pairs('narrow')};",
            *(f"tvm_ext_i16x8_store_{half}(&{output}[k], results, {count});" for half, output in halves),
        ]

    @property
    def _skips(self) -> bool:
        return self.runs > 1

    def sums(self, rows: int) -> list[str]:
        """Statements that add all products of a block: without loops, or in loops over runs and steps."""
        names = range(rows)
        if self.runs * self.steps <= self.most_steps:
            return [_dots(rows, self.runs, self.steps, [f"x{p}" for p in names], "skip" if self._skips else "0")]
        group = _group(self.steps, self.most_steps)
        whole, rest = self.steps // group, self.steps % group
        bytes_ = group * STEP
        current = [f"a{p}" for p in names]
        lines = [_dots(rows, 1, group, current, "0"), *(f"a{p} += {bytes_};" for p in names)]
        if whole > 1:
            lines = [f"for (int32_t s = 0; s < {whole}; ++s) {{", block(lines), "}"]
        if rest:
            lines += [_dots(rows, 1, rest, current, "0"), *(f"a{p} += {rest * STEP};" for p in names)]
        pointers = [f"const int8_t *a{p} = x{p};" for p in names]
        if self.runs > 1:
            lines += [f"a{p} += skip;" for p in names]
            lines = [f"for (int32_t r = 0; r < {self.runs}; ++r) {{", block(lines), "}"]
        return [*pointers, *lines]


def _dots(rows: int, runs: int, steps: int, names: list[str], skip: str) -> str:
    sums = ", ".join(f"sum{p}" for p in range(rows))
    return f"TVM_EXT_DOTS_{rows}X4({runs}, {steps}, {', '.join(names)}, {skip}, weights, {sums});"


def _group(steps: int, most: int) -> int:
    """Steps to take at once: the largest divisor of `steps` above half of `most`, else as many as allowed."""
    return next((g for g in range(min(steps, most), most // 2, -1) if steps % g == 0), min(steps, most))


PARAMETERS = (
    Parameter(name="weights", ctype="int8_t", role="constant"),
    Parameter(name="factors", ctype="int32_t", role="constant"),
)
SCRATCH = Parameter(name="scratch", ctype="uint8_t", role="scratch")
