"""Target with vectors of 128 bits of WebAssembly."""

from __future__ import annotations

from codegen_c.targets.instruction_set import InstructionSet
from codegen_c.targets.wasm.startup import WASM

TARGET = InstructionSet(
    simd="simd128",
    title="WebAssembly's vectors of 128 bits",
    startups=(WASM,),
)
