"""Emit `board/`: the files that build firmware of a package for a QEMU board, and linker sections.

The regions of the linker script are the platform's memories, at the addresses of the QEMU machine. Each memory has its
own section: RAM is zeroed at start, except memory that the first processor cannot reach; constants in ROM are loaded in
place, and constants in RAM are copied at start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import gcd

from codegen_c.emit.banner import Origin
from codegen_c.emit.memory import define_section, section_macro
from codegen_c.emit.selftest import ports, run_arguments, streams
from codegen_c.emit.templates import render
from codegen_c.program.interface import Interface
from codegen_c.program.makespan import MEASURED_INPUTS
from codegen_c.targets.instruction_set import Startup
from codegen_c.targets.registry import instruction_set_of, runtime_text, starts_of, startup_of, startup_text, timers_of
from tvm_ext.core.errors import BadPlatform
from tvm_ext.core.platform import Board, Memory, Platform

_MAX_SHIFT = 10  # limit of QEMU's -icount option
_NANOSECONDS = 1_000_000_000
_VECTORS_BYTES = 4096
STARTUP_FILES = ("startup.c", "semihosting.h", "semihosting_call.h", "measure.h")
MACHINE_FILES = ("program_start.h", "measure_known.h")
"""Further start-up files of a machine, which has to initialize memory and to calibrate its timer."""
LINKER_SCRIPT = "link.ld"
DMA_COUNT = ("dma_count.c", "dma_count.h")


def emit_firmware(
    interface: Interface,
    platform: Platform,
    *,
    moves: bool = False,
    compares: bool = True,
    image: bool = False,
    drives: bool = False,
) -> dict[str, str]:
    """Return the files under `board/`. The platform must have a board.

    Raises BadPlatform if the stack does not fit, or if the start-up code has no timer of that name.

    moves: True if the model copies between memories; the firmware then counts the bytes. compares: True if the
    self-test compares outputs. image: True if the command line may end with the address of an image. drives: True if
    the model calls accelerators; the firmware then prints the number of calls, if the reference drivers count them.
    Copied bytes are counted by the addresses of memories, which a process does not have.
    """
    _board(platform)
    part = firmware_part(interface, platform, moves=moves, compares=compares, image=image, drives=drives)
    generated = {"firmware.c": part}
    if interface.servers:
        functions = {name: interface.serve(name) for name in interface.servers}
        generated |= other_processors(interface.model, functions, platform)
    return board_files(platform, generated, moves=moves, others=interface.servers)


def board_files(
    platform: Platform, generated: Mapping[str, str], *, moves: bool, others: Sequence[str] = ()
) -> dict[str, str]:
    """Return the files under `board/`: the files that depend on the platform alone, and `generated`.

    others: processors beside the first on which the firmware runs. Raises BadPlatform under the same conditions as
    `emit_firmware`.
    """
    platform = platform.on_machine
    board, startup, counts = _board(platform), startup_of(platform), moves and counts_moves(platform)
    names = [*STARTUP_FILES, *(() if board.is_process else MACHINE_FILES), *startup.sources]
    names += [startup.emulator_script] if startup.emulator_script else []
    copied = {name: startup_text(name, startup) for name in names}
    copied["timer.h"] = _timer(board, startup)
    if counts:
        copied |= {name: runtime_text(name, instruction_set_of(platform.processor)) for name in DMA_COUNT}
    copied["board.h"] = _board_header(platform, board, counts)
    if not board.is_process:
        copied[LINKER_SCRIPT] = _linker_script(platform, board, others)
    files = {f"board/{name}": text for name, text in sorted((copied | {**generated}).items())}
    return files | emit_headers(platform)


def emit_headers(platform: Platform) -> dict[str, str]:
    """Return the headers that packages contain because the compiler for the processor has no C library."""
    startups = instruction_set_of(platform.processor).startups
    startup = next((one for one in startups if platform.processor.isa in one.isas), None)
    return {name: startup_text(name, startup) for name in startup.headers} if startup else {}


def other_processors(model: str, functions: Mapping[str, str], platform: Platform) -> dict[str, str]:
    """Return the files that start the processors beside the first and let each run its part. Raises BadPlatform.

    model: name of the model or bundle, whose header declares the functions. functions: the function that each processor
    calls in an endless loop, by the processor's name.
    """
    board, startup = _board(platform), startup_of(platform)
    known = starts_of(startup)
    if board.starts not in known:
        raise BadPlatform(
            f"platform {platform.name}: {model} also runs on {' and '.join(functions)}, but "
            f"{'board.starts is missing' if board.starts is None else f'board.starts = {board.starts!r}'}; the "
            f"start-up code supports {', '.join(known) or 'no method to start a processor'}."
        )
    numbers = {processor.name: number for number, processor in enumerate(platform.processors)}
    servers = [{"number": numbers[one], "name": one, "function": name} for one, name in functions.items()]
    return {
        "processors.c": startup_text("processors.c", startup),
        "processors.h": render("processors.h.j2", model=model, servers=servers),
        "start.h": startup_text(f"start_{board.starts}.h", startup),
    }


def instruction_shift(board: Board) -> int:
    """Return the smallest QEMU -icount shift at which a timer tick tells single instructions apart.

    An instruction then takes 2**shift ns, which is more than two ticks. Raises BadPlatform if the timer is too slow.
    """
    shift = next((s for s in range(_MAX_SHIFT + 1) if (1 << s) * board.timer_hz > 2 * _NANOSECONDS), None)
    if shift is None:
        raise BadPlatform(
            f"board.timer_hz = {board.timer_hz}: the timer is too slow to count instructions; more than "
            f"{2 * _NANOSECONDS >> _MAX_SHIFT} Hz are needed."
        )
    return shift


def qemu_arguments(platform: Platform, *, shift: int | None) -> list[str]:
    """Return QEMU's arguments except the kernel and the firmware's command line. The platform must have a board.

    shift: -icount shift of a clock that counts instructions; None for real time, in which processors run in parallel.
    """
    board = _board(platform)
    no_devices = ["-display", "none", "-serial", "none", "-monitor", "none", "-nic", "none"]
    clock = [] if shift is None else ["-icount", f"shift={shift},sleep=off"]
    sizes = [word for name, value in board.qemu_sizes.items() for word in ("-global", f"{name}={value}")]
    return ["-M", board.qemu_machine, *startup_of(platform).emulator_flags, *sizes, *no_devices, *clock]


def emulator_arguments(
    platform: Platform,
    program: str,
    words: Sequence[str] = (),
    *,
    shift: int | None,
    extras: Sequence[str] = (),
) -> list[str]:
    """Return the emulator's arguments that run firmware with the arguments `words`. The platform must have a board.

    program: path of the firmware. extras: further arguments of the emulator. shift: as in `qemu_arguments`; no effect
    on a process.
    """
    if _board(platform).is_process:
        return [*startup_of(platform).emulator_flags, *extras, program, *words]
    line = "".join(f",arg={word}" for word in words)
    return [
        *qemu_arguments(platform, shift=shift), "-semihosting-config", f"enable=on,target=native{line}",
        "-kernel", program, *extras,
    ]  # fmt: skip


def stack_bytes_of(platform: Platform) -> int:
    """Return the bytes of the stack of each processor. The platform must have a board."""
    return _stack_bytes(_board(platform))


def firmware_link_flags(platform: Platform, script: str) -> list[str]:
    """Return the flags that link firmware, after those of the compiler; the libraries follow the objects.

    script: path of the linker script, which processes do not have.
    """
    board, startup = _board(platform), startup_of(platform)
    own = [flag.replace("STACK_BYTES", str(_stack_bytes(board))) for flag in startup.link_flags]
    return ["-nostartfiles", "-Wl,--gc-sections", *([] if board.is_process else ["-T", script]), *own]


def firmware_libraries(platform: Platform) -> tuple[str, ...]:
    """Return the flags of the libraries that firmware is linked with."""
    return startup_of(platform).libraries


def stack_range(platform: Platform, number: int = 0) -> tuple[int, int]:
    """Return the addresses [begin, end) of a processor's stack. The platform must have a board.

    The stack of the first processor lies at the end of the data memory; the stacks of the others lie below it.
    """
    board = _board(platform)
    data = platform.on_machine.memory(board.data_memory)
    assert data.address is not None, "a checked platform with a board has addresses"
    end = data.address + data.capacity_bytes - number * _stack_bytes(board)
    return end - _stack_bytes(board), end


def _stack_bytes(board: Board) -> int:
    return -(-board.stack_bytes // 8) * 8


def _board(platform: Platform) -> Board:
    if platform.board is None:
        raise BadPlatform(f"platform {platform.name} has no [board] table; firmware needs one.")
    return platform.board


def counts_moves(platform: Platform) -> bool:
    """Return True if each memory has an address, so that the firmware can count what a DMA copies between them."""
    return all(memory.address is not None for memory in platform.memories)


def _timer(board: Board, startup: Startup) -> str:
    known = timers_of(startup)
    if board.timer is None:
        return startup_text("no_timer.h", startup)
    if board.timer not in known:
        raise BadPlatform(f"board.timer = {board.timer!r}: the start-up code has {', '.join(known)}.")
    return startup_text(f"timer_{board.timer}.h", startup)


def _board_header(platform: Platform, board: Board, moves: bool) -> str:
    common = gcd(_NANOSECONDS, board.timer_hz)
    return render(
        "board.h.j2",
        description=platform.description,
        process=board.is_process,
        stack_bytes=_stack_bytes(board),
        timer_address=board.timer_address or 0,
        timer_hz=board.timer_hz,
        tick_numerator=_NANOSECONDS // common,
        tick_denominator=board.timer_hz // common,
        memories=platform.memories if moves else (),
    )


def _linker_script(platform: Platform, board: Board, others: Sequence[str]) -> str:
    own = [memory for memory in platform.memories if memory.section]
    constants = [m for m in own if m.kind == "rom"]
    copied = [m for m in own if m.kind == "ram" and m.name == platform.weights]
    rams = [m for m in own if m.kind == "ram" and m.name != platform.weights]
    zeroed = [m for m in rams if platform.reached_by(platform.processor.name, m.name)]
    return render(
        "link.ld.j2",
        platform=platform,
        regions=_regions(platform, board, others),
        others=others,
        vectors=board.code_memory if board.vectors_address is None else "VECTORS",
        code=board.code_memory,
        data=board.data_memory,
        constants=[_part(memory) for memory in constants],
        copied=[_part(memory) for memory in copied],
        rams=[_part(memory) for memory in rams],
        zeroed=[_part(memory) for memory in zeroed],
    )


def _regions(platform: Platform, board: Board, others: Sequence[str]) -> list[dict[str, object]]:
    """Return the memory regions; the stacks of all processors are cut off the end of the data memory."""
    stack_bytes = _stack_bytes(board)
    stacks = ["STACK", *(f"STACK_{name}" for name in others)]
    data = platform.memory(board.data_memory)
    if len(stacks) * stack_bytes >= data.capacity_bytes:
        raise BadPlatform(
            f"board.stack_bytes = {board.stack_bytes}: does not fit into {data.name} of {data.capacity_bytes} B"
            f"{f' {len(stacks)} times' if others else ''}."
        )
    regions: list[dict[str, object]] = []
    if board.vectors_address is not None:
        regions.append({"name": "VECTORS", "access": "rx", "address": board.vectors_address, "bytes": _VECTORS_BYTES})
    for memory in platform.memories:
        reserved = len(stacks) * stack_bytes if memory.name == data.name else 0
        regions.append(
            {
                "name": memory.name,
                "access": ("r" if memory.kind == "rom" else "rw") + ("x" if memory.name == board.code_memory else ""),
                "address": memory.address,
                "bytes": memory.capacity_bytes - reserved,
            }
        )
    for number, name in enumerate(stacks):
        address, _ = stack_range(platform, number)
        regions.append({"name": name, "access": "rw", "address": address, "bytes": stack_bytes})
    return regions


def print_layers(interface: Interface) -> str:
    """Return a firmware function that prints the counts of the hooks around layers."""
    return render("print_layers.c.j2", model=interface.model, macro=interface.model.upper())


def profile_counter(model: str) -> str:
    """Return the header that names the board's cycle counter, for all files that are compiled with hooks enabled."""
    return render("profile_counter.h.j2", macro=model.upper())


def _part(memory: Memory) -> dict[str, object]:
    return {
        "output": f".memory_{memory.name}",
        "symbol": f"memory_{memory.name}",
        "section": memory.section,
        "memory": memory.name,
    }


def firmware_part(
    interface: Interface,
    platform: Platform,
    *,
    moves: bool,
    compares: bool = True,
    in_bundle: bool = False,
    in_round: bool = False,
    run: tuple[str, str] = ("", ""),
    image: bool = False,
    drives: bool = False,
) -> str:
    """Return the firmware source that runs one model: the whole program, or the part that a bundle's program calls.

    in_round: True if a round of the bundle runs the model. run: as in `emit_selftest`.
    """
    startup = startup_of(platform)
    types = [f"const {port.c_type} *" for port in interface.inputs] + [f"{p.c_type} *" for p in interface.outputs]
    types = {"arena": [], "caller": types, "stream": [f"const {interface.io_struct} *"]}[interface.io]
    types = [f"{interface.context_type} *", *types] if interface.holds_context else types
    memory = platform.memory(platform.activations)
    return render(
        "firmware.c.j2",
        model=interface.model,
        run=run[0] or interface.run,
        run_header=run[1],
        in_round=in_round,
        several=bool(interface.servers) and not in_bundle,
        pipeline=interface.is_pipeline,
        measured_inputs=MEASURED_INPUTS,
        put_arguments=run_arguments(interface, "input_", "output_"),
        bundle=in_bundle,
        image=image,
        io=interface.io,
        counts=moves and counts_moves(platform),
        drives=drives,
        compares=compares,
        hooks=interface.has_hooks and not in_bundle,
        macro=interface.model.upper(),
        print_layers=print_layers(interface) if interface.has_hooks else "",
        resets=interface.state_bytes > 0,
        warms_up=interface.warm_up_runs > 0,
        read_stack_pointer=startup.read_stack_pointer,
        stack_limit=startup.stack_limit,
        calibrates=not _board(platform).is_process,
        parameters=", ".join(types) or "void",
        context=interface.holds_context,
        section=define_section(interface.model, memory, zeroed=True).strip(),
        section_macro=section_macro(interface.model, memory.name),
        streams=streams(interface),
        input_bytes=sum(port.num_bytes for port in interface.inputs),
        output_bytes=sum(port.num_bytes for port in interface.outputs),
        arguments=run_arguments(interface, "input_", "output_", "&instance"),
        inputs=ports(interface, "inputs", "input_", "&instance"),
        outputs=ports(interface, "outputs", "output_", "&instance"),
    )


def emit_layers_firmware(interface: Interface, platform: Platform) -> dict[str, str]:
    """Return the files under `board/` that measure layers; inputs and outputs lie in the arena.

    Raises BadPlatform under the same conditions as `emit_firmware`.
    """
    text = render(
        "layers_firmware.c.j2",
        model=interface.model,
        macro=interface.model.upper(),
        print_layers=print_layers(interface),
        inputs=ports(interface, "inputs", ""),
        outputs=ports(interface, "outputs", ""),
    )
    return board_files(platform, {"firmware.c": text}, moves=False)


SECTIONS_FILE = "sections.ld"


def sectioned_memories(platform: Platform, used: Collection[str]) -> list[Memory]:
    """Return the memories with a section that only the platform knows and no vendor's linker script has.

    used: names of the memories that hold any bytes.
    """
    return [one for one in platform.memories if one.section and not one.linker_has_section and one.name in used]


def emit_linker_sections(platform: Platform, origin: Origin) -> dict[str, str]:
    """Return the text of `sections.ld`; no file for a build for the host, or if no used memory needs a section."""
    used = [name for name, num_bytes in origin.memories if num_bytes]
    memories = sectioned_memories(platform, used) if platform.toolchain.prefix else []
    if not memories:
        return {}
    parts = [
        {
            "name": memory.name,
            "section": memory.section,
            "region": linker_region(memory),
            "access": "r" if memory.kind == "rom" else "rw",
            "address": memory.address,
            "bytes": memory.capacity_bytes,
            "alignment": memory.alignment_bytes,
            "is_zeroed": memory.kind == "ram" and memory.name != platform.weights,
        }
        for memory in memories
    ]
    return {SECTIONS_FILE: render("sections.ld.j2", origin=origin, parts=parts)}


def linker_region(memory: Memory) -> str:
    """Return the name of a memory's region in the user's linker script."""
    return memory.linker_region or memory.name.upper()
