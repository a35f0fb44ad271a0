"""Boards of RISC-V in machine mode: reset and traps, semihosting, the counter of cycles; emulated by QEMU."""

from __future__ import annotations

from codegen_c.targets.instruction_set import Startup

RISCV = Startup(
    package="codegen_c.targets.riscv",
    isas=("rv32imc", "rv32imac", "rv32imafc"),
    emulator="qemu-system-riscv32",
    emulator_flags=("-bios", "none"),
    read_stack_pointer="mv %0, sp",
    bounds_stack=True,
)
