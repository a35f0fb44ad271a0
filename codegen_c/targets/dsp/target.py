"""Pairs of 16-bit numbers in a register, on Armv7E-M and on Armv8-M with the DSP extension; floats one by one.

On the host the headers of `runtime/` compute the same in plain C; boards run in QEMU.
"""

from __future__ import annotations

from codegen_c.targets.arm_m.startup import ARM_M
from codegen_c.targets.instruction_set import FloatBlocks, InstructionSet

TARGET = InstructionSet(
    simd="dsp",
    title="the DSP extension",
    floats=FloatBlocks(loads_several=True, offset_bytes=1020),
    # Medians over the layers of the MLPerf Tiny networks on a Cortex-M7.
    calibration={
        "conv2d_f32": 0.94,
        "dense_f32": 0.83,
        "generic": 0.9,
        "pool2d_f32": 0.64,
        "qbinary_dsp": 1.0,
        "qconv2d_dsp": 1.04,
        "qdense_dsp": 0.93,
        "qdepthwise_dsp": 0.98,
        "qpool2d_i8": 0.63,
        "qsoftmax_i8": 0.44,
    },
    packs_depthwise=True,
    startups=(ARM_M,),
)
