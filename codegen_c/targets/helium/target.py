"""Target with vectors of 128 bits: Armv8.1-M."""

from __future__ import annotations

from codegen_c.targets.arm_m.startup import ARM_M
from codegen_c.targets.instruction_set import FloatBlocks, InstructionSet

TARGET = InstructionSet(
    simd="helium",
    title="Helium",
    # 8 vectors of 4: accumulators, one row of weights, one input element.
    # Loads step pointers, the core counts turns; with 8 vectors GCC 12 moves one for each product of a depthwise block.
    floats=FloatBlocks(
        lanes=4, product=(1, 5), depthwise=(1, 4), adds_by_4=True, loop_instructions=1, offset_bytes=508, spills=1
    ),
    # Medians over the steps of benchmarks/modelled.py on a Cortex-M55, of those that are farther off than a twentieth.
    calibration={
        "depthwise_f32": 1.08,
        "permute": 0.92,
        "qbinary_helium": 0.96,
        "qbroadcast_i8": 0.91,
        "qpool2d_i8": 1.13,
        "qsoftmax_i8": 0.86,
    },
    strided_loads={2: 3, 4: 5},
    startups=(ARM_M,),
)
