"""Programs of 64-bit RISC-V on Linux with vectors (the extension V), which QEMU runs as processes.

Vectors of 128 bits are the shortest that V allows; an isa that names a longer one is emulated with it.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.targets.instruction_set import Startup

_SHORTEST = Startup(
    package="codegen_c.targets.riscv_linux",
    isas=("rv64gcv",),
    emulator="qemu-riscv64",
    emulator_flags=("-cpu", "rv64,v=true,vext_spec=v1.0,vlen=128"),
    runs="process",
    read_stack_pointer="mv %0, sp",
    link_flags=("-static", "-l:crt1.o", "-l:crti.o", "-l:crtn.o"),  # the start of the C library, which links leave out
    sources=("linux_calls.h",),
)
STARTUPS = (
    _SHORTEST,
    replace(_SHORTEST, isas=("rv64gcv_zvl256b",), emulator_flags=("-cpu", "rv64,v=true,vext_spec=v1.0,vlen=256")),
)
