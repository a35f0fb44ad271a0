"""Target of plain C for any processor: 32 single float registers; boards of Arm's M-profile, RISC-V and others."""

from __future__ import annotations

from codegen_c.targets.arm_m.startup import ARM_M
from codegen_c.targets.instruction_set import InstructionSet
from codegen_c.targets.riscv.startup import RISCV
from codegen_c.targets.wasm.startup import WASM
from codegen_c.targets.xtensa.startup import XTENSA
from tvm_ext.core.platform import NO_SIMD

TARGET = InstructionSet(
    simd=NO_SIMD,
    title="nothing beyond C11",
    # Medians over the layers of ResNet-8 and MobileNetV1-0.25, int8, on a Cortex-M33 without DSP and FPU.
    calibration={
        "generic": 0.9,
        "qbinary_i8": 0.96,
        "qconv2d_i8": 1.37,
        "qdense_i8": 1.65,
        "qdepthwise_i8": 1.06,
        "qpool2d_i8": 0.59,
        "qsoftmax_i8": 0.36,
    },
    startups=(ARM_M, RISCV, WASM, XTENSA),
)
