"""A target as data: an instruction set, and what of it kernels, predictions and firmware ask for.

A target is a folder. Its `target.py` defines `TARGET = InstructionSet(...)`, modules of its `kernels/` define kernels
that only its processors run, its `runtime/` holds headers that those kernels include, copied into packages. All that is
common stays outside, and asks for no target by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tvm_ext.core.time_model import CoreTimes


@dataclass(frozen=True, kw_only=True)
class FloatBlocks:
    """Registers of float kernels: floats in a vector, and vectors by pixels that are accumulated side by side.

    lanes: floats in a vector, 1 for none; others are the types of `tvm_ext_f32x<lanes>.h` in the target's `runtime/`.
    product, depthwise: (vectors, pixels) of a product of pixels and output channels, and of a depthwise convolution; at
    most 6 pixels, and 4 vectors for products without lanes, 3 with them.
    adds_by_4: whether `tvm_ext_f32x<lanes>.h` adds runs of one pixel by 4 vectors (TVM_EXT_F32X<lanes>_ADDS_BY_4).
    part_instructions: those that read or write some lanes of a vector, their mask being there.
    loads_several: whether one instruction loads several single ones, as tvm_ext_tile_f32x1.h does for 4 channels.
    loop_instructions: modelled, of a loop over elements: steps of pointers, comparison and branch.
    offset_bytes: largest offset of a load; what lies farther apart takes an address more, 0 for no such limit.
    spills: instructions that move vectors, for each product of a depthwise convolution, where registers are short.
    """

    loads_several: bool = False
    adds_by_4: bool = False
    part_instructions: int = 2
    loop_instructions: int = 3
    offset_bytes: int = 0
    spills: int = 0
    lanes: int = 1
    product: tuple[int, int] = (4, 4)
    depthwise: tuple[int, int] = (2, 6)


@dataclass(frozen=True, kw_only=True)
class Startup:
    """Start-up code of boards, and the emulator that stands in for them.

    package: its folder holds `startup.c` with the entry `reset_handler` and a section `.vectors`, `semihosting_call.h`,
    `measure_known.h`, and a `timer_<name>.h` for each timer that a platform's `board.timer` may name; for several
    processors `processors.c`, and a `start_<name>.h` for each way that `board.starts` may name. `semihosting.h`,
    `measure.h` and `program_start.h` are those of `targets/firmware/` where it has none.
    isas: processors' `isa` that the code is for. emulator: QEMU's program. emulator_flags: its further arguments.
    read_stack_pointer: assembly that copies the stack pointer to `%0`. bounds_stack: whether
    `tvm_ext.assurance.stack_bound` reads the disassembly. image_flags: of the compiler, for code that runs wherever it
    lies; none where there are no images.
    """

    package: str
    isas: tuple[str, ...]
    emulator: str
    emulator_flags: tuple[str, ...] = ()
    read_stack_pointer: str
    bounds_stack: bool = False
    image_flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class InstructionSet:
    """All that is particular to an instruction set, beside the kernels and headers in its folder.

    simd: what a platform's processor calls it, unique. title: its name in refusals, "the processor must have ...".
    floats: registers of float kernels, by default 32 single ones.
    calibration: kernel -> executed by modelled instructions, measured; 1 for kernels without an entry.
    times: of kernels on cores, by the core's name; read from the folder's `times/`, which benchmarks/kernel_times.py
        writes. Other cores are taken to execute an instruction a cycle.
    strided_loads: strides of elements by which vectors are loaded, and instructions that load and store one: compilers
        make vectors of loops over these.
    ranks_calibrated: whether kernels are chosen by calibrated instructions: models of common kernels are far off.
    runs_from_flash: whether constants lie in flash, which is short; the machine at hand has memory enough.
    packs_depthwise: whether depthwise convolutions have kernels for weights of 4 bits that cost little.
    startups: start-up code by `isa`; a platform with a board needs one. package: the target's folder, known once found.
    """

    simd: str
    title: str
    floats: FloatBlocks = FloatBlocks()
    calibration: Mapping[str, float] = field(default_factory=dict[str, float], hash=False)
    times: Mapping[str, CoreTimes] = field(default_factory=dict[str, CoreTimes], hash=False)
    strided_loads: Mapping[int, int] = field(default_factory=dict[int, int], hash=False)
    ranks_calibrated: bool = False
    runs_from_flash: bool = True
    packs_depthwise: bool = False
    startups: tuple[Startup, ...] = ()
    package: str = ""
