"""Boards of Xtensa LX106: reset and exceptions, the simulator's calls, the counter of cycles; emulated by QEMU.

Debian's GCC for this core has no C library, and its libgcc lacks the functions that the ROM of the ESP8266 has.
"""

from __future__ import annotations

from codegen_c.targets.instruction_set import Startup

XTENSA = Startup(
    package="codegen_c.targets.xtensa",
    isas=("lx106",),
    emulator="qemu-system-xtensa",
    emulator_flags=("-cpu", "lx106"),
    read_stack_pointer="mov %0, a1",
    link_flags=("-nostdlib",),
    libraries=("-lgcc",),
    headers=("string.h", "math.h"),
    sources=("library.c", "soft_float.c", "tvm_ext_image_math.c"),
)
