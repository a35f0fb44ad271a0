"""Target Hexagon with HVX, vectors of 128 bytes, from v65 on; floats by plain C, one by one."""

from __future__ import annotations

from codegen_c.targets.instruction_set import InstructionSet, Startup

PROCESS = Startup(
    package="codegen_c.targets.hexagon",
    isas=("hexagonv65", "hexagonv66", "hexagonv67"),
    emulator="qemu-hexagon",
    runs="process",
    read_stack_pointer="%0 = r29",
    link_flags=("-nostdlib", "-static", "-Wl,-e,reset_handler"),
    libraries=(),
    headers=("math.h", "string.h"),
    sources=("library.c", "linux_calls.h", "tvm_ext_image_math.c"),
)
TARGET = InstructionSet(
    simd="hvx",
    title="HVX, vectors of 128 bytes",
    runs_from_flash=False,
    startups=(PROCESS,),
)
