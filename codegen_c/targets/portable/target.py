"""Plain C for any processor: 32 single registers of floats, boards of Arm's M-profile."""

from __future__ import annotations

from codegen_c.targets.arm_m.startup import ARM_M
from codegen_c.targets.instruction_set import InstructionSet
from tvm_ext.core.platform import NO_SIMD

TARGET = InstructionSet(simd=NO_SIMD, title="nothing beyond C11", startups=(ARM_M,))
