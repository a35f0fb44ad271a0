"""Target:

the machine that compiles, with vectors of 8 or 16 numbers, or plain C without vectors; it runs what it compiles.
"""

from __future__ import annotations

from codegen_c.targets.instruction_set import FloatBlocks, InstructionSet, Startup

PROCESS = Startup(
    package="codegen_c.targets.host",
    isas=("aarch64",),
    emulator="qemu-aarch64",
    runs="process",
    read_stack_pointer="mov %0, sp",
    link_flags=("-static", "-l:crt1.o", "-l:crti.o", "-l:crtn.o"),  # the start of the C library, which links leave out
    libraries=("-lm",),
    sources=("linux_calls.h",),
    takes_plugins=True,
)
TARGET = InstructionSet(
    simd="host",
    title="vectors of 8 numbers",
    runs_from_flash=False,
    startups=(PROCESS,),
    # 16 vectors of 8 with AVX2: accumulators, one row of weights, one input element.
    floats=FloatBlocks(lanes=8, product=(2, 6), depthwise=(1, 6), part_instructions=1),
    # The constants of Winograd's method for both forms take more memory than its fewest savings are worth.
    ranking={"qwinograd_host": 1.25},
    # Medians over the layers of the keyword network and of ResNet-8, by callgrind with AVX2.
    calibration={
        "qconv2d_host": 1.34,
        "qdense_host": 1.15,
        "qdepthwise_host": 1.33,
        "qwinograd_host": 1.10,
    },
)
