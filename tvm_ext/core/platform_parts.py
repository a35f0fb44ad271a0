"""Parts of a platform file: processors, memories, links, signals, the compiler and the board.

This file checks each key by itself. `platform_checks.py` checks for values that contradict each other.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from tvm_ext.core.alignment import ALIGNMENT_BYTES
from tvm_ext.core.compiler_flags import checked_flag
from tvm_ext.core.sizes import read_size

STATE_MEMORY = "state"
"""Name, in programs and plans, of the struct that holds states between runs. No memory has this name."""

LINKED_MEMORY = "linked"
"""Name of the struct that holds inputs which other models of a bundle write. No memory has this name."""

LLVM_PREFIX = "llvm-"
"""`prefix` of a toolchain whose linker and binary tools are LLVM's."""

NO_SIMD = "none"
"""`simd` of a processor on which plain C runs."""

CONFIG = ConfigDict(extra="forbid", strict=True)

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
Architecture = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,31}$")]
Positive = Annotated[int, Field(gt=0, lt=1 << 48)]
Count = Annotated[int, Field(ge=0, lt=1 << 48)]
Size = Annotated[Positive, BeforeValidator(read_size)]
Share = Annotated[Count, BeforeValidator(read_size)]
Alias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
Statement = Annotated[str, Field(min_length=1, max_length=1000)]
Rate = Annotated[float, Field(ge=1e-6, lt=1e6, strict=False)]
Cost = Annotated[float, Field(ge=0, lt=1e6, strict=False)]
Flag = Annotated[str, Field(max_length=200), AfterValidator(checked_flag)]
Flags = Annotated[tuple[Flag, ...], Field(max_length=100)]
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,62}$")]
DeviceProperty = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}\.[a-z][a-z0-9-]{0,62}$")]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,58}\.h$")]
OffloadKind = Literal["conv2d", "depthwise", "dense", "max_pool", "average_pool", "add"]
OffloadType = Literal["int8", "uint8", "float32"]
OffloadRounding = Literal["tflite", "onnx"]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class OffloadOperator:
    """An operator that an accelerator interface takes: its kind and element types, the largest result, its cost in
    cycles.

    `start` is the interface function that starts it. `most_shape` bounds the axes of the result, as stored (NHWC, or
    rows of vectors). Results of another rank are not taken. `most_kernel` bounds the rows and columns of a window, if
    there is one. `roundings` applies to integer results of accumulators: twice as in TensorFlow Lite, or once as in
    ONNX; each call says which. `types` applies to all tensors of a layer; functions for floats are separate.
    `cycles_per_mac` counts products; for a pool it counts each element that it reads, for a sum of two tensors each
    element of the result.
    """

    kind: OffloadKind
    types: Annotated[tuple[OffloadType, ...], Field(min_length=1, max_length=3)]
    start: Identifier
    most_shape: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=8)]
    most_kernel: tuple[Positive, Positive] = (1, 1)
    roundings: Annotated[tuple[OffloadRounding, ...], Field(min_length=1, max_length=2)] = ("tflite", "onnx")
    cycles_per_call: Count = 0
    cycles_per_mac: Cost = 0.0
    cycles_per_byte: Cost = 0.0

    @property
    def takes_floats(self) -> bool:
        """True where its layers compute floats instead of integers."""
        return "float32" in self.types


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Offload:
    """The user's accelerator interface: its header, the function that waits for the end, and the operators it takes."""

    header: HeaderName
    wait: Identifier
    operators: Annotated[tuple[OffloadOperator, ...], Field(min_length=1, max_length=64)]


PerSecond = Annotated[float, Field(ge=1, lt=1e18, strict=False)]
Seconds = Annotated[float, Field(ge=0, lt=1e6, strict=False)]
OperatorKind = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class OperatorRate:
    """Rates at which code that TVM generates runs operators of a kind."""

    operator: OperatorKind
    macs_per_second: PerSecond
    bytes_per_second: PerSecond


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class TvmBackend:
    """Code that TVM generates inside `tvm.compile`, for a `target` or with the BYOC back end `codegen`.

    `operators` lists the kinds that it takes, as composites are named in the module (`nn_conv2d`, quantized
    `qnn_conv2d`); an empty list means every possible kind. An operator takes as long as its multiply-accumulates or its
    bytes, whichever is longer, plus a call of TVM's virtual machine. `rates` has the rates of single kinds.
    """

    target: Annotated[str, Field(pattern=r"^[A-Za-z0-9_./-]{0,100}$")] = ""
    codegen: Annotated[str, Field(pattern=r"^([A-Za-z]\w{0,62})?$")] = ""
    macs_per_second: PerSecond = 1e9
    bytes_per_second: PerSecond = 1e9
    seconds_per_call: Seconds = 1e-6
    operators: Annotated[tuple[OperatorKind, ...], Field(max_length=256)] = ()
    rates: Annotated[tuple[OperatorRate, ...], Field(max_length=256)] = ()


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Processor:
    """A processor that runs kernels.

    `isa` is the architecture, by which a board selects its start-up code. `simd` is the target whose kernels it runs,
    `none` for plain C; targets are the folders of `codegen_c/targets/` and installed packages. `fpu` is `none`,
    `single` or `double`, for float arithmetic in hardware. `kind`: a `core` runs C; an `offload` is an accelerator with
    the interface that `offload` describes; `tvm` runs the code that TVM generates as `tvm` describes, only in
    `tvm.compile`. `flags` follow the flags of the toolchain for the C code of this processor. `watts` is its power
    while it computes, 0 where unknown. `core` is its name, such as `cortex-m85`, where flags compile for another core;
    lists name it, and estimates of cycles take its table.
    """

    name: Name
    isa: Architecture
    clock_hz: Positive
    simd: Name = NO_SIMD
    fpu: Literal["none", "single", "double"] = "none"
    kind: Literal["core", "offload", "tvm"] = "core"
    flags: Flags = ()
    watts: Cost = 0.0
    core: Architecture | None = None
    offload: Offload | None = None
    tvm: TvmBackend | None = None


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Memory:
    """A memory that a processor reaches: `ram` holds tensors, `rom` holds code and weights.

    `section` is the linker section of generated arrays on the board. None leaves the choice to the linker (`.bss` for
    ram, `.rodata` for rom), and builds for the host have none. `address` is the address on a board, None where the
    system decides. `retained` says whether the memory keeps its content while the processor sleeps deeply; states of
    models go there. `alignment_bytes` is a power of two; an arena and each of its tensors start at a multiple of it, so
    that no two tensors share a cache line, and none shares a line with data of the firmware. `reserved_bytes` of the
    capacity stay with the application, for its stack, heap, variables and code. `linker_region` is the memory's region
    in your linker script, by default its name in capitals: `sections.ld` of a package puts `section` there, except
    where `linker_has_section` says that the vendor's script already does so.
    """

    name: Name
    kind: Literal["ram", "rom"]
    capacity_bytes: Size
    reserved_bytes: Share = 0
    read_bytes_per_cycle: Rate
    write_bytes_per_cycle: Annotated[float, Field(ge=0, lt=1e6, strict=False)]
    latency_cycles: Count = 0
    section: Annotated[str, Field(pattern=r"^\.[A-Za-z_][A-Za-z0-9_.]{0,62}$")] | None = None
    linker_region: Identifier | None = None
    linker_has_section: bool = False
    address: Count | None = None
    retained: bool = False
    alignment_bytes: int = ALIGNMENT_BYTES

    @property
    def usable_bytes(self) -> int:
        """Bytes that a model may take: the capacity without the bytes reserved for the application."""
        return self.capacity_bytes - self.reserved_bytes


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Link:
    """A path for bytes between a processor and a memory, or between two memories.

    Between two memories, `dma` says whether a DMA copies by itself.
    """

    source: Name
    target: Name
    bytes_per_cycle: Rate
    latency_cycles: Count = 0
    dma: bool = False


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Signal:
    """The signal by which one core wakes another: `event` (SEV and WFE, with words in shared memory), `mailbox`,
    `interrupt`.

    The source writes 1 to `set_address`. The target reads a mailbox at `status_address`, which is nonzero after it was
    set, and writes 1 to `clear_address` to clear it. `interrupt` is the number at the target. The target sees the
    signal after `latency_cycles` of the source's clock.
    """

    source: Name
    target: Name
    kind: Literal["event", "mailbox", "interrupt"] = "event"
    set_address: Count | None = None
    status_address: Count | None = None
    clear_address: Count | None = None
    interrupt: Annotated[int, Field(ge=0, lt=480)] | None = None
    latency_cycles: Count = 0


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Toolchain:
    """Compiler of C for the platform: the prefix of its tools' names, and flags for target and speed or size.

    `compiler` is the compiler's name: `clang`, `clang-19`, or after the prefix `gcc`, `gcc-13`. By default it is
    `<prefix>gcc`, and on the host the value of `CC`. clang for another processor needs `--target=`, and the prefix of
    the GCC that links and provides the C library; with the prefix `llvm-`, LLVM's linker lld links, and no GCC is
    needed. `flags` have to pass `compiler_flags.py`.
    """

    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]*$", max_length=100)] = ""
    compiler: Annotated[str, Field(pattern=r"^((gcc|clang)(-[0-9]{1,3}(\.[0-9]{1,3}){0,2})?)?$")] = ""
    flags: Flags = ()
    speed_flags: Flags = ("-O3",)
    size_flags: Flags = ("-Os",)

    @property
    def uses_clang(self) -> bool:
        """True where its C compiler is clang."""
        return self.compiler.startswith("clang")

    @property
    def crosses_with_clang(self) -> bool:
        """True where clang compiles, and the GCC of the prefix links and provides the C library."""
        return self.uses_clang and self.prefix not in ("", LLVM_PREFIX)

    @property
    def links_with_lld(self) -> bool:
        """True where clang compiles and LLVM's linker links, without any GCC."""
        return self.prefix == LLVM_PREFIX

    def tool(self, name: str) -> str:
        """Return the name of a binary tool, such as `arm-none-eabi-nm`; LLVM's has the version of the compiler."""
        version = self.compiler.partition("-")[2] if self.links_with_lld else ""
        return f"{self.prefix}{name}{f'-{version}' if version else ''}"

    @property
    def compiler_name(self) -> str:
        """Name of the compiler, where the file states one."""
        return self.compiler if self.uses_clang else f"{self.prefix}{self.compiler or 'gcc'}"


HOST_TOOLCHAIN = Toolchain(flags=("-march=native",))
"""Compiler of C for this machine."""

QUICK_TOOLCHAIN = Toolchain(flags=HOST_TOOLCHAIN.flags, speed_flags=("-O1",))
"""The same compiler for code that runs only a few times. It compiles in half the time, and no bit depends on it."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class MachineMemory:
    """Address of a platform's memory in a QEMU machine, and its size there, where smaller than in the chip."""

    address: Count
    capacity_bytes: Size | None = None


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Board:
    """A QEMU machine, or a process of an emulator, that stands in for the real board.

    `qemu_machine` is QEMU's name of the machine. Without it, the firmware is a program that the emulator of the
    start-up code runs as a process: its memories need no addresses, and `timer` is left out if the start-up code has no
    counter that programs read. Then QEMU counts instructions itself if it can.
    `qemu_sizes` sets numbers of the machine's devices, each `device.property`, such as the bytes of memories: for a
    machine that stands in for another one of its family. `timer` names the counter that measures executed instructions,
    one of those that the start-up code has: of Arm's M-profile `cmsdk` (32 bits, counts down), `system_counter` (64
    bits, counts up) and `nrf51` (32 bits, counts up). `stack_bytes` is the stack the firmware reserves for each
    processor. `starts` names how the first processor starts the others, one of the ways that the start-up code has: of
    Arm's M-profile `sse200`. `memories`: memory -> where the machine has it, for a machine that has the chip's core and
    not its memories; firmware for QEMU is linked there. Other memories are where the platform's `address` says.
    `vectors_address`: where the machine's processor looks for its vectors, if that is not at the begin of the code
    memory.
    """

    qemu_machine: Annotated[str, Field(pattern=r"^[a-z0-9-]*$", max_length=100)] = ""
    qemu_sizes: Annotated[dict[DeviceProperty, Count], Field(max_length=16)] = field(
        default_factory=dict[str, int], hash=False
    )
    timer: Name | None = None
    timer_address: Count | None = None
    timer_hz: Positive = 1_000_000_000
    code_memory: Name
    data_memory: Name
    stack_bytes: Size = 16384
    starts: Name | None = None
    memories: Annotated[dict[Name, MachineMemory], Field(max_length=16)] = field(
        default_factory=dict[str, MachineMemory], hash=False
    )
    vectors_address: Count | None = None

    @property
    def is_process(self) -> bool:
        """True for a program that an emulator runs as a process of its own operating system."""
        return not self.qemu_machine


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class PlatformTables:
    """Everything that the file of a platform says.

    `activations` names the ram that holds tensors, `weights` the memory constants go to. The first processor runs what
    nothing else claims. `aliases` are further names by which a shipped board is found: of its chip, of the board as
    vendors write it. `sources` say which document has which figures, `assumptions` which figures no document has, and
    how they were derived.
    """

    name: Name
    description: Annotated[str, Field(max_length=1000)]
    aliases: Annotated[tuple[Alias, ...], Field(max_length=32, strict=False)] = ()
    sources: Annotated[tuple[Statement, ...], Field(max_length=32, strict=False)] = ()
    assumptions: Annotated[tuple[Statement, ...], Field(max_length=32, strict=False)] = ()
    processors: Annotated[tuple[Processor, ...], Field(min_length=1, max_length=16, strict=False)]
    memories: Annotated[tuple[Memory, ...], Field(min_length=1, max_length=16, strict=False)]
    links: Annotated[tuple[Link, ...], Field(max_length=1024, strict=False)]
    activations: Name
    weights: Name
    toolchain: Toolchain
    signals: Annotated[tuple[Signal, ...], Field(max_length=256, strict=False)] = ()
    board: Board | None = None
