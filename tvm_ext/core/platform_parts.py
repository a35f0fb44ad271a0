"""Parts of a platform as its file has them: processors, memories, links, signals, the compiler, the board.

Every key is checked by itself here; `platform_checks.py` looks for values that contradict each other.
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
"""Name, in programs and plans, of the struct that holds what a model keeps between runs: no memory has it."""

LINKED_MEMORY = "linked"
"""Name, there, of the struct that holds inputs which other models of a bundle write to; no memory has it either."""

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
    """An operator that a driver takes: its kind and element types, the largest result, its cost in cycles.

    `start` is the driver's function that begins it. `most_shape` bounds the result's axes, as stored (NHWC, or rows of
    vectors); a result of other rank is not taken. `most_kernel` bounds rows and columns of a window, where it has one.
    `roundings`: of integer results of sums, twice as TensorFlow Lite does or once as ONNX does; a call says which one.
    `types`: of all tensors of a layer; floats are taken by functions of their own. `cycles_per_mac`: of products; of a
    pool for each element that it takes, of a sum of two tensors for each element of the result.
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
        """True where its layers are of floats, not of integers."""
        return "float32" in self.types


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Offload:
    """The user's driver of an accelerator: its header, the function that waits for the end, the operators it takes."""

    header: HeaderName
    wait: Identifier
    operators: Annotated[tuple[OffloadOperator, ...], Field(min_length=1, max_length=64)]


PerSecond = Annotated[float, Field(ge=1, lt=1e18, strict=False)]
Seconds = Annotated[float, Field(ge=0, lt=1e6, strict=False)]
OperatorKind = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class OperatorRate:
    """Rates at which code that TVM makes runs operators of one kind."""

    operator: OperatorKind
    macs_per_second: PerSecond
    bytes_per_second: PerSecond


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class TvmBackend:
    """Code that TVM makes, inside of `tvm.compile`: by the generator of a `target`, or of the BYOC back end `codegen`.

    `operators`: kinds that it takes, as composites are called in the module (`nn_conv2d`, quantized `qnn_conv2d`); all
    that it can where there are none. An operator takes as long as its multiply-accumulates or its bytes do, whichever
    is longer, and a call of TVM's virtual machine beside; `rates` are those of single kinds.
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
    """Something that runs kernels.

    `isa`: the architecture, by which a board finds its start-up code. `simd`: the target whose kernels it runs,
    `none` for plain C; the targets there are, are folders of `codegen_c/targets/` and installed packages.
    `fpu`: `none`, `single`, `double`; whether float arithmetic is done in hardware. `kind`: a `core` runs C; an
    `offload` is an accelerator behind the driver that `offload` describes; `tvm` is whatever runs the code that TVM
    makes as `tvm` describes, for `tvm.compile` alone. `flags` follow those of the toolchain for
    the C of this processor. `watts`: its power while it computes; 0 where it is not known. `core`: its name in lists,
    such as `cortex-m85`, where flags compile for another one.
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
    """A memory a processor reaches: `ram` holds tensors, `rom` holds code and weights.

    `section` is the linker section generated arrays go to, on the board; None leaves the choice to the linker
    (`.bss` for ram, `.rodata` for rom), and a build for the host has none. `address` is where a board has it, None
    where the system decides. `retained`: whether it keeps what it holds while the processor sleeps deeply; states of
    models go there. `alignment_bytes`: a power of two; an arena in it begins at a multiple of that, and each tensor of
    the arena, so that no two of them share a line of a cache, nor one with the firmware's own. `reserved_bytes` of the
    capacity stay with the application, for its stack, heap, variables and code: no model is given them.
    `linker_region` is the region of your linker script that has it, by default the name in capitals: `sections.ld` of a
    package puts `section` there, but where `linker_has_section` says that the vendor's script does so already.
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
        """Bytes that a model may take: the capacity without what is reserved for the application."""
        return self.capacity_bytes - self.reserved_bytes


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Link:
    """A way for bytes: between a processor and a memory, or between two memories (`dma` says by itself)."""

    source: Name
    target: Name
    bytes_per_cycle: Rate
    latency_cycles: Count = 0
    dma: bool = False


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Signal:
    """The way one core wakes another: `event` (SEV and WFE, with words in shared memory), `mailbox`, `interrupt`.

    The source writes 1 to `set_address`; the target reads a mailbox at `status_address`, not 0 once it was set, and
    writes 1 to `clear_address` to take it. `interrupt` is the number at the target. `latency_cycles` of the source's
    clock pass until the target sees it.
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
    """Compiler of C for the platform: the prefix of its tools' names, then flags for target and speed or size.

    `compiler` is the compiler's name: `clang`, `clang-19`; or behind the prefix `gcc`, `gcc-13`. Left out it is
    `<prefix>gcc`, on the host whatever `CC` says. clang for another processor than this one needs `--target=`, and the
    prefix of the GCC that links and brings the C library. `flags` are those that `compiler_flags.py` lets pass.
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
        """True where clang compiles, and the GCC of the prefix brings the C library and links."""
        return self.uses_clang and self.prefix != ""

    @property
    def compiler_name(self) -> str:
        """Name of the compiler, where one is said."""
        return self.compiler if self.uses_clang else f"{self.prefix}{self.compiler or 'gcc'}"


HOST_TOOLCHAIN = Toolchain(flags=("-march=native",))
"""Compiler of C for the machine at hand."""

QUICK_TOOLCHAIN = Toolchain(flags=HOST_TOOLCHAIN.flags, speed_flags=("-O1",))
"""The same for what runs a few times: it takes half as long to compile, and no bit depends on it."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class MachineMemory:
    """Where a QEMU machine has a memory of the platform, and how much of it, where that is less than the chip has."""

    address: Count
    capacity_bytes: Size | None = None


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Board:
    """A QEMU machine that stands in for the real board.

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

    qemu_machine: Annotated[str, Field(pattern=r"^[a-z0-9-]+$", max_length=100)]
    qemu_sizes: Annotated[dict[DeviceProperty, Count], Field(max_length=16)] = field(
        default_factory=dict[str, int], hash=False
    )
    timer: Name
    timer_address: Count
    timer_hz: Positive
    code_memory: Name
    data_memory: Name
    stack_bytes: Size = 16384
    starts: Name | None = None
    memories: Annotated[dict[Name, MachineMemory], Field(max_length=16)] = field(
        default_factory=dict[str, MachineMemory], hash=False
    )
    vectors_address: Count | None = None


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
