"""Target with vectors of 128 bits of WebAssembly."""

from __future__ import annotations

from codegen_c.targets.instruction_set import FloatBlocks, InstructionSet
from codegen_c.targets.wasm.startup import WASM

TARGET = InstructionSet(
    simd="simd128",
    title="WebAssembly's vectors of 128 bits",
    # Runtimes on x86 have 16 registers of 4 floats: accumulators, one row of weights, one input element.
    floats=FloatBlocks(lanes=4, product=(2, 4), depthwise=(1, 6)),
    startups=(WASM,),
)
