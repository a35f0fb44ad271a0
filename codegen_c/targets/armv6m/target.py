"""Target Armv6-M, Cortex-M0 and M0+: eight low registers, 32-bit products; floats by a library, one by one."""

from __future__ import annotations

from codegen_c.targets.arm_m.startup import ARM_M
from codegen_c.targets.instruction_set import InstructionSet

TARGET = InstructionSet(
    simd="armv6m",
    title="Armv6-M's instruction set",
    # Medians over the layers of DS-CNN and ResNet-8, int8, on a Cortex-M0+: common kernels have products of 64 bits.
    calibration={
        "qbinary_i8": 5.66,
        "qbroadcast_i8": 3.75,
        "qconv2d_armv6m": 0.92,
        "qconv2d_i8": 2.8,
        "qconv2d_pairs_i8": 3.47,
        "qdense_armv6m": 0.96,
        "qdense_i8": 2.8,
        "qdepthwise_armv6m": 0.91,
        "qdepthwise_i8": 3.4,
        "qpool2d_i8": 2.2,
        "qsoftmax_i8": 3.7,
    },
    ranks_calibrated=True,
    startups=(ARM_M,),
)
