"""A target as data: an instruction set, with everything that kernels, predictions and firmware need to know of it.

A target is a folder. Its `target.py` defines `TARGET = InstructionSet(...)`, modules of its `kernels/` define kernels
that only its processors run, and its `runtime/` holds headers that these kernels include, which are copied into
packages. Common code lies outside and refers to no target by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tvm_ext.core.options import CompileFor
from tvm_ext.core.time_model import IN_ROWS, CoreTimes


@dataclass(frozen=True, kw_only=True)
class FloatBlocks:
    """Registers of float kernels: floats in a vector, and vectors by pixels that are accumulated together.

    lanes: floats in a vector, 1 for none; other numbers are the types of `tvm_ext_f32x<lanes>.h` in the target's
    `runtime/`.
    product, depthwise: (vectors, pixels) of a product of pixels and output channels, and of a depthwise convolution; at
    most 6 pixels, and 4 vectors for products without lanes, 3 with lanes.
    adds_by_4: True if `tvm_ext_f32x<lanes>.h` adds runs of one pixel by 4 vectors (TVM_EXT_F32X<lanes>_ADDS_BY_4).
    part_instructions: instructions that read or write some lanes of a vector, with a given mask.
    loads_several: True if one instruction loads several single floats, as tvm_ext_tile_f32x1.h does for 4 channels.
    loop_instructions: modelled, of a loop over elements: pointer increments, comparison and branch.
    offset_bytes: largest offset of a load; a larger distance takes an additional address. 0 for no such limit.
    spills: instructions that move vectors, for each product of a depthwise convolution, if registers are scarce.
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
    """Start-up code of boards, and their emulator.

    package: its folder holds `startup.c` with the entry `reset_handler` and a section `.vectors`, `semihosting_call.h`,
    `measure_known.h`, and a `timer_<name>.h` for each timer that a platform's `board.timer` may name; for several
    processors also `processors.c`, and a `start_<name>.h` for each method that `board.starts` may name. Without its own
    `semihosting.h`, `measure.h` and `program_start.h`, those of `targets/firmware/` are used.
    isas: the `isa` of processors that the code supports. emulator: QEMU's program. emulator_flags: its further
    arguments. read_stack_pointer: assembly that copies the stack pointer to `%0`. bounds_stack: True if
    `tvm_ext.assurance.stack_bound` reads the disassembly. image_flags: compiler flags for code that runs at any
    address; empty if images are not supported.

    runs: `machine` for a machine of QEMU, which starts at a vector table and has memories at addresses; `process` for a
    program that the emulator runs as a process. A process has no linker script: `startup.c` has the entry that the
    linker expects, calls `main` on a stack of BOARD_STACK_BYTES bytes, and ends by `semihosting_exit`. It needs no
    `measure_known.h`, because its timer, if any, counts instructions. On Linux `semihosting_call.h` defines one
    function and includes `linux_calls.h` of `targets/firmware/`, which `sources` then names.
    stack_limit: symbol of the stack's lowest address; `startup.c` or the linker defines it.
    takes_plugins: True if the emulator of a process takes QEMU's plugins, which count instructions if `board.timer` is
    left out. Without both, instructions are not counted.
    link_flags: flags of the linking compiler; STACK_BYTES in them stands for the bytes of the stack. libraries: what
    the firmware is linked with. headers: headers of a C library that are copied into packages for a compiler that has
    none, the folder's own or those of `targets/firmware/`. sources: further C files of the folder in the firmware, such
    as that library's functions.
    emulator_module: a Python module that runs the program instead of `emulator`, with the program and its arguments;
    emulator is then the Python package that it needs. emulator_script: a file of the folder that `emulator_runs`, a
    program, runs the firmware with outside of Python; the package's Makefile has it.
    module_suffix: if not empty, packages are also linked as `<model><suffix>`, which other programs load: with
    module_flags, as link_flags, and with module_export for each function that the module offers, as NAME.
    """

    package: str
    isas: tuple[str, ...]
    emulator: str
    emulator_flags: tuple[str, ...] = ()
    emulator_module: str = ""
    emulator_runs: str = ""
    emulator_script: str = ""
    runs: Literal["machine", "process"] = "machine"
    stack_limit: str = "stack_limit"
    takes_plugins: bool = True
    link_flags: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ("-lm",)
    headers: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    module_suffix: str = ""
    module_flags: tuple[str, ...] = ()
    module_export: str = ""
    read_stack_pointer: str
    bounds_stack: bool = False
    image_flags: tuple[str, ...] = ()

    @property
    def emulator_title(self) -> str:
        """Name of the emulator in texts: QEMU for its programs, and of other emulators their own."""
        return "QEMU" if self.emulator.startswith("qemu-") else self.emulator

    @property
    def place(self) -> str:
        """Words for where the firmware runs: on a board of QEMU, or in another emulator."""
        return "on the board in QEMU" if self.emulator_title == "QEMU" else f"in {self.emulator_title}"

    @property
    def run_place(self) -> str:
        """Words for where `make run` runs the firmware."""
        return f"in {self.emulator_runs or self.emulator_title}"


@dataclass(frozen=True, kw_only=True)
class InstructionSet:
    """An instruction set, beside the kernels and headers in its folder.

    simd: its unique name in platform files. title: its name in refusals, "the processor must have ...".
    extends: the `simd` of a target whose kernels and headers its processors run as well; empty for none.
    floats: registers of float kernels, by default 32 single ones.
    calibration: kernel -> executed by modelled instructions, measured; 1 for kernels without an entry.
    times: of kernels on cores, by the core's name; read from the folder's `times/`, which benchmarks/kernel_times.py
    writes. Other cores are assumed to execute one instruction per cycle.
    times_for_size: the same for code that is compiled for size, read from `times_for_size/`; a core without them has
    its `times`.
    strided_loads: strides of elements by which vectors are loaded, and the instructions that load and store one:
    compilers vectorize loops over these.
    ranking: kernel -> factor of its instructions where kernels are compared, if they take more cycles than others'.
    ranks_calibrated: True if kernels are chosen by calibrated instructions, because models of common kernels are far
    off.
    runs_from_flash: True if constants lie in flash, which is scarce; the host has memory enough.
    packs_depthwise: True if depthwise convolutions have cheap kernels for weights of 4 bits.
    dual_issue: cores that start two instructions in a cycle, for which kernels have code of their own.
    startups: start-up code by `isa`; a platform with a board needs one. package: the target's folder, set by the
    registry.
    """

    simd: str
    title: str
    extends: str = ""
    floats: FloatBlocks = FloatBlocks()
    calibration: Mapping[str, float] = field(default_factory=dict[str, float], hash=False)
    times: Mapping[str, CoreTimes] = field(default_factory=dict[str, CoreTimes], hash=False)
    times_for_size: Mapping[str, CoreTimes] = field(default_factory=dict[str, CoreTimes], hash=False)
    strided_loads: Mapping[int, int] = field(default_factory=dict[int, int], hash=False)
    ranks_calibrated: bool = False
    ranking: Mapping[str, float] = field(default_factory=dict[str, float], hash=False)
    runs_from_flash: bool = True
    packs_depthwise: bool = False
    dual_issue: tuple[str, ...] = ()
    startups: tuple[Startup, ...] = ()
    package: str = ""

    def times_of(self, core: str, optimize: CompileFor) -> CoreTimes | None:
        """Return the times of kernels on a core, by what the code is compiled for; None for a core without times."""
        for_size = self.times_for_size.get(core) if optimize == "size" else None
        return for_size or self.times.get(core)

    def executed_instructions(self, kernel: str, core: str, optimize: CompileFor) -> float:
        """Return the executed instructions for each that a kernel's own model counts; 1 where none were measured."""
        times = self.times_of(core, optimize)
        found = times.kernels.get(kernel.removesuffix(IN_ROWS)) if times else None
        return found.instructions if found else 1.0
