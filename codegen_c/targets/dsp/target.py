"""Target with pairs of 16-bit numbers in a register: Armv7E-M and Armv8-M with the DSP extension; floats one by one."""

from __future__ import annotations

from codegen_c.targets.arm_m.startup import ARM_M
from codegen_c.targets.instruction_set import FloatBlocks, InstructionSet

TARGET = InstructionSet(
    simd="dsp",
    title="the DSP extension",
    floats=FloatBlocks(loads_several=True, offset_bytes=1020),
    # Medians over the steps of benchmarks/modelled.py on a Cortex-M4, of those that are farther off than a twentieth;
    # of generic steps those of benchmarks/generic_costs.py.
    calibration={"concat": 1.06, "depthwise_f32": 0.91, "generic": 0.95, "qsoftmax_i8": 0.85, "qunary_i8": 0.94},
    # An instruction of dense layers takes 1.47 cycles on a Cortex-M4, because many load several words; of convolutions,
    # 1.14.
    ranking={"qdense_dsp": 1.29},
    packs_depthwise=True,
    dual_issue=("cortex-m7",),
    startups=(ARM_M,),
)
