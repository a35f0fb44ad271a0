"""Boards of Arm's M-profile: vector table and reset, semihosting, timers, counted instructions; emulated by QEMU."""

from __future__ import annotations

from codegen_c.targets.instruction_set import Startup

ARM_M = Startup(
    package="codegen_c.targets.arm_m",
    isas=("armv6-m", "armv7-m", "armv7e-m", "armv8-m.base", "armv8-m.main", "armv8.1-m.main"),
    emulator="qemu-system-arm",
    read_stack_pointer="mov %0, sp",
    bounds_stack=True,
    image_flags=("-fpie",),
)
