"""Vectors of 128 bits on Armv8.1-M.

On the host the headers of `runtime/` compute the same in plain loops; boards run in QEMU.
"""

from __future__ import annotations

from codegen_c.targets.arm_m.startup import ARM_M
from codegen_c.targets.instruction_set import FloatBlocks, InstructionSet

TARGET = InstructionSet(
    simd="helium",
    title="Helium",
    # 8 vectors of 4: accumulators, one row of weights, one input element.
    # Loads step pointers, the core counts turns; with 8 vectors GCC 12 moves one for each product of a depthwise block.
    floats=FloatBlocks(lanes=4, product=(1, 5), depthwise=(1, 4), loop_instructions=1, offset_bytes=508, spills=1),
    # Medians over the layers of the MLPerf Tiny networks and MobileNetV2 0.35 on a Cortex-M55.
    calibration={
        "conv2d_f32": 0.7,
        "dense_f32": 0.71,
        "depthwise_f16": 0.71,
        "depthwise_f32": 0.74,
        "generic": 0.65,
        "permute": 0.45,
        "pointwise_f32": 0.87,
        "pool2d_f32": 0.64,
        "qbinary_helium": 0.79,
        "qconv2d_helium": 0.96,
        "qdense_helium": 0.75,
        "qdepthwise_helium": 0.96,
        "qdepthwise_taps_helium": 0.97,
        "qpointwise_helium": 0.95,
        "qpointwise_kept_helium": 1.0,
        "qpool2d_helium": 0.85,
        "qsoftmax_i8": 0.5,
    },
    strided_loads={2: 3, 4: 5},
    startups=(ARM_M,),
)
