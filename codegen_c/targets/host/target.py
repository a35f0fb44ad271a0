"""Target:

the machine that compiles, with vectors of 8 numbers, or plain C without vectors; it runs what it compiles.
"""

from __future__ import annotations

from codegen_c.targets.instruction_set import FloatBlocks, InstructionSet

TARGET = InstructionSet(
    simd="host",
    title="vectors of 8 numbers",
    runs_from_flash=False,
    # 16 vectors of 8 with AVX2: accumulators, one row of weights, one input element.
    floats=FloatBlocks(lanes=8, product=(2, 6), depthwise=(1, 6), part_instructions=1),
    # Medians over the layers of the keyword network and of ResNet-8, by callgrind with AVX2.
    calibration={
        "qconv2d_host": 1.03,
        "qdense_host": 1.09,
        "qdepthwise_host": 1.01,
        "qwinograd_host": 1.08,
    },
)
