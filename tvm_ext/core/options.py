"""BuildOptions, the frozen value behind `build()`, `relax_pipeline()` and the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from tvm_ext.core.errors import BadOptions
from tvm_ext.core.names import SEARCHED_MEMORY
from tvm_ext.core.objectives import Grouping, Objective
from tvm_ext.core.option_checks import (
    check_bytes,
    check_decibels,
    check_forms,
    check_inputs,
    check_keywords,
    check_labels,
    check_name,
    check_new_frames,
    check_placed,
    check_renames,
    check_targets,
    quantization_problem,
)
from tvm_ext.core.option_table import (
    AXES,
    FORMS,
    FRAMES,
    LABELS,
    NUMBER,
    OFFSETS,
    PLACES,
    PROCESSORS,
    RENAMES,
    SIZE,
    SIZES,
    TARGETS,
    TENSORS,
    TEXT,
    Option,
    entries_of,
)
from tvm_ext.core.option_values import shown, with_sizes

if TYPE_CHECKING:
    from tvm_ext.core.platform import Platform, Processor

VARIABLES_BYTES = 4096
"""Bytes that stay free, besides the stack, in the memory with the variables of a board's firmware."""

Optimize = Literal["balanced", "speed", "size"]
CompileFor = Literal["speed", "size"]
"""What compilers and kernels are optimized for."""
Io = Literal["arena", "caller", "stream"]
Context = Literal["static", "caller"]
Target = Literal["host", "qemu"]
Quantize = Literal["none", "int8", "auto"]
Weights = Literal["int8", "mixed", "int4"]
Activations = Literal["int8", "mixed", "int16"]
IoType = Literal["int8", "float32"]
Memories = Literal["all", "default"]
Rounding = Literal["model", "tflm", "litert", "once"]
"""How integers of a quantized model are rounded; `model` is what its format means."""


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """Choices of a build.

    optimize: chooses compiler flags and kernels. `balanced` is for speed, and lets weights that are stored in more
        bytes for speed add a tenth of the model's constants; `speed` lets all of them grow, `size` none. With
        `balanced` and no `ram`, layers also run row by row where that saves at least a quarter of the memory for
        almost no time.
    io: `arena` keeps inputs and outputs in the planned arena, `caller` takes pointers at each run, `stream` takes
        inputs, and hands outputs out, row by row through functions of the application.
    reread: with io = 'stream', rows of an input may be asked for more than once, some of their columns at a time, as of
        an image in flash or in a frame buffer; done where rows that come once need more memory than there is.
    context: `static` gives the model its arenas and states as variables of its own; `caller` takes them in one block by
        pointer, at each call, so that the model runs for several streams, threads or tasks at once.
    relocatable_image: beside the library, the model as an image that a main program finds in memory, checks, and calls
        without being linked with it; for boards, with context = 'caller'.
    verify: where the package is run and compared; None means the host, and QEMU where the platform
        has a board and QEMU is installed. An empty tuple verifies nothing, and the package says so.
    name: C prefix of everything generated; None derives it from the model file's name.
    rename: input or output, by the model's own name -> its name in the C: of its accessor, macros and arguments.
    input: input -> the form in which firmware hands it over: `nhwc`, an image with its channels last where the model
        has them first; `uint8`, pixels of 0 to 255, of which `mean=127.5,std=127.5` makes (value - mean) / std. Without
        these, pixels stand for themselves, or for the integers of a quantized input, which begin with 0 then.
    argmax: outputs that become the index of their largest element, int32.
    labels: names of the classes, for a table in the header; as many as the output has, or the one of argmax had.
    quantize: `int8` turns a float model into an int8 one by calibration data, which the build is given beside; `auto`
        does so only where the float model cannot be made to fit.
    io_type: of a model quantized here, whether its float inputs and outputs become `int8`, or int16 where what reads
        or gives them is, with scale and zero point in the report, or stay `float32`.
    activations: of a model quantized here: `int8`; `int16` for all operators that have kernels of 16 bits, beside
        weights of 8; `mixed` for as few as bring every output to min_snr_db, none where int8 does.
    weights: of quantized layers: `int8`; `mixed` stores in 4 bits what 4 bits hold, and of a model quantized here as
        many layers as leave every output at min_snr_db; `int4` all layers that have kernels for it.
    flash: bytes that all constants may take: weights, biases, factors, tables, `weights_bytes` of the report; code is
        not counted, `flash` of the report has both. Of a model quantized here, layers get weights of 4 bits, those that
        cost the least accuracy first, until it is kept.
    ram: bytes that tensors may take: a number for the platform's default memory, or {memory: bytes}; None leaves
        it at what the memory holds. A model that needs more is split, or computes results again, to fit. Here and as
        `flash`, bytes may be written as a text, "64KiB"; it becomes the number.
    pin: tensor -> offset in bytes, a multiple of 16, that it has in its memory's arena, under the model's own name.
    place_port: input or output -> memory of the platform that it lies in, under the model's own name; others lie in the
        default memory. `auto` takes the memory in which the run is predicted to take the least time.
    rounding: how results of a quantized .tflite file are rounded: `tflm` gives the bytes of TensorFlow Lite Micro,
        `litert` those of LiteRT's default interpreter, `once` rounds every result once, which is fastest. `model` is
        `tflm` for .tflite files and `once` for others. `load` takes the same argument.
    keep: tensors over whose bytes nothing else is ever put: names, patterns with `*`, `?` or `[...]`, or `all`. An
        input may be filled, an output read while the model runs; values inside stay readable after a run, where the
        header says.
    memories: `all` lets tensors, scratch and weights live where they cost least time, and moves them meanwhile, where
        the processor reaches more than one memory for tensors; `default` keeps everything in the platform's default.
    least_scratch: take the kernels that need the least scratch, however slow; tried by itself where nothing else fits.
    least_flash: take no kernels whose weights are stored in more bytes than the model's for speed; tried by itself
        where constants take more than `flash`, or than their memory holds.
    new_frames: input -> new frames that a run brings, of a window over time that the model takes whole: the C keeps
        what it needs of earlier frames, and answers as the whole window would. time_axis: input -> axis of time, where
        more than one may be.
    placement_objective: where a platform has several processors, operators are placed on them for the least `makespan`,
        `energy` of a run, or time between successive inputs of a pipeline (`throughput`).
    placement_granularity: operators that stay on one processor together: all that the same processors can run
        (`support`), whole branches (`branches`), what fits the fastest memory (`volume`), or `none`.
    processors: those that may be used; None for all. The first one of the platform always is.
    hooks: put hooks around each layer's call, which `<model>_profile.h` makes nothing of until `<MODEL>_PROFILE` is
        defined: then they count the cycles of each layer on the device.
    tune: choose the kernels of each layer by figures measured on the platform's board, instead of by modelled ones.
    min_snr_db: of a model quantized here, the ratio of signal to noise every output has to reach on the
        calibration data; operators that lose too much stay float until it does.
    """

    optimize: Annotated[
        Optimize,
        Option(group="Speed", help="Speed, size, or speed with at most a tenth more bytes of constants."),
    ] = "balanced"
    io: Annotated[
        Io, Option(group="Output", help="Inputs and outputs in the arena, in the caller's memory, or row by row.")
    ] = "arena"
    reread: Annotated[
        bool, Option(group="Output", help="With --io stream: read rows of inputs repeatedly if the model then fits.")
    ] = False
    context: Annotated[
        Context,
        Option(group="Output", help="Keep arenas and states in static variables, or in a block of the caller."),
    ] = "static"
    relocatable_image: Annotated[
        bool,
        Option(
            formerly="image",
            group="Output",
            in_files=False,
            help="Also build an image that a main program can load anywhere in memory; needs --context caller.",
        ),
    ] = False
    verify: Annotated[
        tuple[Target, ...] | None,
        Option(
            group="Verification",
            kind=TARGETS,
            metavar="host,qemu|host|none",
            in_files=False,
            help="Where to run and verify. Default: host, and qemu if the platform has a board and QEMU is installed.",
        ),
    ] = None
    name: Annotated[
        str | None,
        Option(
            group="Output",
            kind=TEXT,
            in_files=False,
            help="Prefix of the generated C names. Default: the name of the model file.",
        ),
    ] = None
    rename: Annotated[
        Mapping[str, str] | None,
        Option(
            group="Output",
            kind=RENAMES,
            metavar="OLD=NEW",
            help="Name of an input or output in the C. May be repeated.",
        ),
    ] = None
    input: Annotated[
        Mapping[str, str] | None,
        Option(
            group="Output",
            kind=FORMS,
            metavar="NAME=nhwc,uint8",
            help="Take an image with channels last, or pixels of 8 bits with mean=127.5,std=127.5. May be repeated.",
        ),
    ] = None
    argmax: Annotated[
        tuple[str, ...],
        Option(
            group="Output",
            kind=TENSORS,
            metavar="OUTPUT",
            help="Give the index of the largest element of an output. May be repeated.",
        ),
    ] = ()
    labels: Annotated[
        tuple[str, ...],
        Option(group="Output", kind=LABELS, metavar="FILE.txt", help="Names of classes, a line each, for the header."),
    ] = ()
    quantize: Annotated[
        Quantize,
        Option(
            group="Quantization",
            help="Quantize a float model to int8; auto: only if float does not fit. Needs --calibration.",
        ),
    ] = "none"
    io_type: Annotated[
        IoType,
        Option(
            group="Quantization",
            help="With --quantize: type of inputs and outputs that are float in the model.",
        ),
    ] = "int8"
    min_snr_db: Annotated[
        float,
        Option(
            group="Quantization",
            kind=NUMBER,
            flag="--min-snr",
            metavar="DB",
            help="With --quantize: keep operators in float until the outputs reach this signal-to-noise ratio.",
        ),
    ] = 10.0
    activations: Annotated[
        Activations,
        Option(
            group="Quantization",
            help="With --quantize: 16-bit activations where 8 bits miss --min-snr, or wherever kernels support them.",
        ),
    ] = "int8"
    rounding: Annotated[
        Rounding,
        Option(
            group="Quantization",
            help="Bytes of a quantized .tflite file: TensorFlow Lite Micro's, LiteRT's, or one rounding, the fastest.",
        ),
    ] = "model"
    weights: Annotated[
        Weights,
        Option(
            group="Quantization",
            help="Of quantized layers: mixed, int4: 4 bits, where they do or all; with --quantize made so.",
        ),
    ] = "int8"
    flash: Annotated[
        int | str | None,
        Option(
            group="Memory",
            kind=SIZE,
            metavar="32KiB",
            help="Bytes that weights and tables may take, without code; with --quantize made so.",
        ),
    ] = None
    ram: Annotated[
        int | str | Mapping[str, int | str] | None,
        Option(
            group="Memory",
            kind=SIZES,
            metavar="64KiB",
            help="Limit for tensors in the default memory, or in another: dtcm=16KiB. May be repeated.",
        ),
    ] = None
    least_scratch: Annotated[bool, Option(group="Memory")] = False
    least_flash: Annotated[bool, Option(group="Memory")] = False
    memories: Annotated[
        Memories,
        Option(group="Memory", help="Memories for tensors: all, with copies between them, or only the default memory."),
    ] = "all"
    pin: Annotated[
        Mapping[str, int] | None,
        Option(
            group="Memory",
            kind=OFFSETS,
            metavar="NAME=OFFSET",
            help="Place a tensor at this offset in its arena. May be repeated.",
        ),
    ] = None
    place_port: Annotated[
        Mapping[str, str] | None,
        Option(
            group="Memory",
            kind=PLACES,
            metavar="PORT=MEMORY",
            help="Memory of an input or output, such as input=dtcm; auto for the fastest. May be repeated.",
        ),
    ] = None
    keep: Annotated[
        tuple[str, ...],
        Option(
            group="Memory",
            kind=TENSORS,
            metavar="all|NAME|GLOB",
            help="Keep a tensor readable after a run. May be repeated.",
        ),
    ] = ()
    new_frames: Annotated[
        Mapping[str, int] | None,
        Option(
            formerly="hop",
            group="Model",
            kind=FRAMES,
            metavar="INPUT=FRAMES[@AXIS]",
            help="Pass only this number of new frames in each run; the result is that of the whole window over time.",
        ),
    ] = None
    time_axis: Annotated[Mapping[str, int] | None, Option(formerly="hop_axis", group="Model", kind=AXES)] = None
    placement_objective: Annotated[
        Objective,
        Option(
            formerly="objective",
            group="Processors",
            in_files=False,
            help="With several processors: the goal of placing operators on them.",
        ),
    ] = "makespan"
    placement_granularity: Annotated[
        Grouping,
        Option(
            formerly="group",
            group="Processors",
            in_files=False,
            help="With several processors: groups of operators that stay on the same processor.",
        ),
    ] = "none"
    processors: Annotated[
        tuple[str, ...] | None,
        Option(
            group="Processors",
            kind=PROCESSORS,
            metavar="NAME,NAME",
            in_files=False,
            help="Processors that may be used. Default: all.",
        ),
    ] = None
    hooks: Annotated[
        bool,
        Option(
            group="Output",
            help="Hooks around layers for cycles on the device; off unless <MODEL>_PROFILE is defined.",
        ),
    ] = False
    tune: Annotated[
        bool,
        Option(
            group="Speed",
            in_files=False,
            help="Choose the kernel of each layer by measurements on the platform's board in QEMU.",
        ),
    ] = False

    def __new__(cls, *_: object, **choices: object) -> Self:
        """Refuse unknown keywords ahead of `__init__`, whose TypeError would not suggest an option."""
        check_keywords(choices, entries_of(cls), cls.__name__)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        entries = entries_of(type(self)).values()
        for entry in entries:
            if entry.kind in (SIZE, SIZES):
                object.__setattr__(self, entry.name, with_sizes(entry.name, getattr(self, entry.name)))
        for entry in entries:
            value = getattr(self, entry.name)
            if entry.words and value not in entry.words:
                raise BadOptions(f"{entry.name} = {value!r}: allowed are {', '.join(entry.words)}.")
        for entry in entries:
            value = getattr(self, entry.name)
            if not ((value is None and entry.is_optional) or entry.kind.is_good(value)):
                raise BadOptions(f"{entry.name} = {shown(value)}: give {entry.kind.wanted}.")
        check_bytes(self.ram_bytes, self.flash_bytes, self.pin)
        check_forms(
            io=self.io,
            reread=self.reread,
            is_pinned=bool(self.pin),
            context=self.context,
            relocatable_image=self.relocatable_image,
        )
        check_placed(self.place_port, io=self.io, context=self.context)
        check_new_frames(self.new_frames, self.time_axis)
        problem = quantization_problem(
            quantize=self.quantize, io_type=self.io_type, activations=self.activations, weights=self.weights
        )
        if problem:
            raise BadOptions(problem)
        check_decibels(self.min_snr_db)
        check_targets(self.verify)
        check_name(self.name)
        check_renames(self.rename)
        check_inputs(self.input)
        check_labels(self.labels, image=self.relocatable_image)

    @property
    def ram_bytes(self) -> int | Mapping[str, int] | None:
        """`ram` in bytes."""
        return cast("int | Mapping[str, int] | None", self.ram)

    @property
    def flash_bytes(self) -> int | None:
        """`flash` in bytes."""
        return cast("int | None", self.flash)

    def to_json(self) -> str:
        """Return all choices as a JSON text. Equal options give equal text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`. Raises BadOptions."""
        try:
            values = cast("dict[str, Any]", json.loads(text))
            for key, value in values.items():
                values[key] = tuple(cast("list[Any]", value)) if isinstance(value, list) else value
            return cls(**values)
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise BadOptions(f"options {text[:80]!r} are not in the form of BuildOptions.to_json.") from None

    def limit_bytes(self, platform: Platform) -> int:
        """Return the bytes that tensors may take in the platform's default memory.

        Raises BadOptions for an unknown memory, and where an instance would be spread over several memories.
        """
        memory = platform.memory(platform.activations)
        ram = self.ram_bytes
        asked = ram if isinstance(ram, Mapping) else {memory.name: ram} if ram else {}
        known = [other.name for other in platform.memories if other.kind == "ram"]
        unknown = [name for name in asked if name not in known]
        if unknown:
            raise BadOptions(
                f"ram: {platform.name} has no memory {unknown[0]!r} for tensors; it has {', '.join(known)}."
            )
        reached = [name for name in known if platform.reached_by(platform.processor.name, name)]
        if self.context == "caller" and self.memories == "all" and len(reached) > 1:
            raise BadOptions(
                f"context = 'caller': an instance is one block of memory, and memories = 'all' spreads tensors over "
                f"{', '.join(reached)} of {platform.name}. Choose memories = 'default', or context = 'static'."
            )
        self._check_places(platform)
        most = max(other.usable_bytes for other in platform.memories if other.kind == "ram")
        for name, offset in (self.pin or {}).items():
            if offset >= most:
                raise BadOptions(f"pin {name}={offset}: {platform.name} has no memory for tensors above {most} B.")
        return min(memory.usable_bytes, asked.get(memory.name, memory.usable_bytes))

    def _check_places(self, platform: Platform) -> None:
        """Raise BadOptions for ports in a memory that does not exist, holds no tensors, or is not reached by a core."""
        known = [other.name for other in platform.memories if other.kind == "ram"]
        for name, memory in (self.place_port or {}).items():
            if memory == SEARCHED_MEMORY:
                continue
            if memory not in known:
                raise BadOptions(
                    f"place_port {name}={memory}: {platform.name} has no memory {memory!r} for tensors; it has "
                    f"{', '.join(known)}."
                )
            far = [core.name for core in self.cores_of(platform) if not platform.reached_by(core.name, memory)]
            if far:
                raise BadOptions(
                    f"place_port {name}={memory}: {far[0]} of {platform.name} does not reach {memory}; choose another "
                    "memory, or leave that processor out of processors."
                )

    def processors_of(self, platform: Platform) -> tuple[Processor, ...]:
        """Return the processors that may be used, the platform's first processor ahead of others.

        Raises BadOptions for an unknown processor, and where the objective needs a power that the platform does not
        state.
        """
        known = [processor.name for processor in platform.processors]
        for name in self.processors or ():
            if name not in known:
                raise BadOptions(f"processors: {platform.name} has no processor {name!r}; it has {', '.join(known)}.")
        asked = {platform.processor.name, *(known if self.processors is None else self.processors)}
        used = tuple(processor for processor in platform.processors if processor.name in asked)
        silent = [processor.name for processor in used if not processor.watts]
        if self.placement_objective == "energy" and len(used) > 1 and silent:
            raise BadOptions(
                f"placement_objective = 'energy': {platform.name} lacks the power of {', '.join(silent)}; give "
                "each processor its watts."
            )
        return used

    @property
    def compile_for(self) -> CompileFor:
        """What compilers and kernels are optimized for. `balanced` is speed with a limit on pre-transformed weights."""
        return "size" if self.optimize == "size" else "speed"

    def cores_of(self, platform: Platform) -> tuple[Processor, ...]:
        """Return the cores that may be used at once: they reach tensors, states and weights, and can wake each other.

        The platform's first core is among them. Raises BadOptions like `processors_of`.
        """
        found: list[Processor] = []
        needed = (platform.activations, platform.states, platform.weights)
        for core in self.processors_of(platform):
            reaches = all(platform.reached_by(core.name, memory) for memory in needed)
            pairs = [pair for other in found for pair in ((core.name, other.name), (other.name, core.name))]
            wakes = all(platform.signal_between(*pair) for pair in pairs)
            if not found or (core.kind == "core" and reaches and wakes):
                found.append(core)
        return tuple(found)

    def offloads_of(self, platform: Platform) -> tuple[Processor, ...]:
        """Return the accelerators that may be used: they reach tensors, states and weights, or a RAM that a core or DMA
        reaches.

        A pipeline has none, because its stages are cores. Raises BadOptions.
        """

        def is_reached(one: Processor) -> bool:
            near, needed = platform.near_memory(one), (platform.weights, platform.states)
            return bool(near) or (near == "" and all(platform.reached_by(one.name, memory) for memory in needed))

        found = tuple(one for one in self.processors_of(platform) if one.kind == "offload" and is_reached(one))
        if found and self.placement_objective == "throughput":
            raise BadOptions(
                f"placement_objective = 'throughput': {found[0].name} is an accelerator, and no stage of a pipeline; "
                "choose placement_objective = 'makespan' or 'energy', or name the cores by processors."
            )
        return found

    def tvm_processors_of(self, platform: Platform) -> tuple[Processor, ...]:
        """Return the processors of TVM that may be used inside `tvm.compile`.

        Raises BadOptions like `processors_of`.
        """
        return tuple(processor for processor in self.processors_of(platform) if processor.kind == "tvm")

    def limits_bytes(self, platform: Platform) -> dict[str, int]:
        """Return the bytes that tensors may take in each memory that a core in use reaches, the default memory first.

        Bytes that the platform reserves for the application are excluded, and where a board has the stacks of its
        processors in a memory, at least these. Raises BadOptions for an unknown memory.
        """
        asked: Mapping[str, int] = self.ram_bytes if isinstance(self.ram_bytes, Mapping) else {}
        limits = {platform.activations: self.limit_bytes(platform)}
        cores = self.cores_of(platform)
        are_far = any(map(platform.near_memory, self.offloads_of(platform)))  # moves serve accelerators alone
        for memory in platform.memories:
            if are_far and memory.name != platform.activations:
                continue
            if memory.kind != "ram" or not any(platform.reached_by(core.name, memory.name) for core in cores):
                continue
            holds = platform.board is not None and memory.name == platform.board.data_memory
            stacks = len(cores) * platform.board.stack_bytes + VARIABLES_BYTES if platform.board and holds else 0
            most = max(0, memory.capacity_bytes - max(stacks, memory.reserved_bytes))
            limits[memory.name] = min(most, asked.get(memory.name, most), limits.get(memory.name, most))
        return limits


OPTIONS = entries_of(BuildOptions)
"""The table of options, by name, in the order of the fields."""
