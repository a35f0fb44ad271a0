"""Target RISC-V with vectors of floats and integers (Zve32f, or V of 64-bit processors) of 128 bits or more.

Kernels for integers are those of the target with vectors of integers alone. Kernels for floats are the common ones, for
vectors of 8 floats; the compiler must know the extension.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.targets.instruction_set import FloatBlocks, InstructionSet
from codegen_c.targets.riscv.startup import RISCV
from codegen_c.targets.riscv_linux.startup import STARTUPS

TARGET = InstructionSet(
    simd="zve32f",
    title="RISC-V's vectors of floats",
    extends="zve32x",
    ranks_calibrated=True,
    # 16 groups of two registers: accumulators, one row of weights, and one for masks; the input element is scalar.
    floats=FloatBlocks(lanes=8, product=(2, 6), depthwise=(1, 6)),
    startups=(
        replace(
            RISCV, isas=("rv32imafc_zve32f",),
            emulator_flags=(*RISCV.emulator_flags, "-cpu", "rv32,v=true,vlen=128"),
        ),
        *STARTUPS,
    ),
)  # fmt: skip
