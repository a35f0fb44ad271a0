"""Target RV32 with vectors of integers (Zve32x) of 128 bits or more; floats by a library, one by one."""

from __future__ import annotations

from dataclasses import replace

from codegen_c.targets.instruction_set import InstructionSet
from codegen_c.targets.riscv.startup import RISCV

TARGET = InstructionSet(
    simd="zve32x",
    title="RISC-V's vectors of integers",
    ranks_calibrated=True,
    startups=(
        replace(
            RISCV, isas=("rv32imac_zve32x",),
            emulator_flags=(*RISCV.emulator_flags, "-cpu", "rv32,v=true,vlen=128"),
        ),
        # Without atomics, compressed code and doubles; QEMU 7.2 has vectors of integers only with those of floats.
        replace(
            RISCV, isas=("rv32imf_zve32x",),
            emulator_flags=(*RISCV.emulator_flags, "-cpu", "rv32,a=false,c=false,d=false,Zve32f=true,vlen=128"),
        ),
    ),
)  # fmt: skip
