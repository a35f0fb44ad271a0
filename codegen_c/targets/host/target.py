"""The machine at hand: vectors of 8 numbers, plain C where there are none; it runs what it compiles itself."""

from __future__ import annotations

from codegen_c.targets.instruction_set import FloatBlocks, InstructionSet

TARGET = InstructionSet(
    simd="host",
    title="vectors of 8 numbers",
    # 16 vectors of 8 with AVX2: accumulators, one row of weights, one input element.
    floats=FloatBlocks(lanes=8, product=(2, 6), depthwise=(1, 6)),
)
