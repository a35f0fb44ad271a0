"""TensorFlow Lite Micro with CMSIS-NN's kernels, compiled from its own sources for boards in QEMU.

It is built the way that makes it fastest: runtime and wrappers with -O3, CMSIS-NN with -Ofast and
KERNELS_OPTIMIZED_FOR_SPEED, as its own makefile does. Only the operators of the measured file are registered, those
whose tensors are all int8 by their int8-only registrations, which keeps kernels for other types out of flash.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import tflite

from benchmarks.measure.foreign_firmware import counted
from tvm_ext.core.errors import BuildFailed, RunFailed
from tvm_ext.core.platform import Platform

FIRMWARE = Path(__file__).parent / "tflm_firmware"
_FLAGS = ("-mthumb", "-mfloat-abi=hard", "-ffunction-sections", "-fdata-sections", "-w")
_DEFINES = ("-DNDEBUG", "-DTF_LITE_STATIC_MEMORY", "-DTF_LITE_STRIP_ERROR_STRINGS", "-DCMSIS_NN",
            "-DKERNELS_OPTIMIZED_FOR_SPEED", "-DARM_NN_ENABLE_F16=0", "-DARM_NN_ENABLE_F32=0")  # fmt: skip
_CPP_FLAGS = (
    "-O3", "-std=c++17", "-fno-rtti", "-fno-exceptions", "-fno-threadsafe-statics", "-fno-use-cxa-atexit", *_DEFINES,
)  # fmt: skip
_FOLDERS = (
    "tensorflow/lite/micro", "tensorflow/lite/micro/memory_planner", "tensorflow/lite/micro/arena_allocator",
    "tensorflow/lite/micro/tflite_bridge", "tensorflow/lite/core/c", "tensorflow/lite/core/api",
    "tensorflow/compiler/mlir/lite/core/api", "tensorflow/compiler/mlir/lite/schema", "tensorflow/lite/kernels",
    "tensorflow/lite/kernels/internal", "tensorflow/lite/kernels/internal/reference", "tensorflow/lite/schema",
)  # fmt: skip
_KERNELS = Path("tensorflow/lite/micro/kernels")
_NOT_OURS = re.compile(r"(_test|test_helpers?\w*|_test_common|mock_\w+|fake_\w+|system_setup|test_helper_\w+)\.cc$")
_OF_FLOATS = re.compile(r"(_f16|_f32|arm_nntables_flt)\.c$")
_ADDED = re.compile(r"TfLiteStatus (Add\w+)\([^{]*\)\s*\{[^}]*?BuiltinOperator_(\w+)")
_INT8_ONLY = re.compile(r"TFLMRegistration Register_(\w+)_INT8\(\);")
_DEFINED = re.compile(r"^TFLMRegistration\*? Register_(\w+)\(", re.MULTILINE)
_MAPPED = re.compile(r"^ \.(\S+)\s+0x[0-9a-f]+\s+0x([0-9a-f]+)\s+(\S+)$")
_ICOUNT_SHIFT = 6
_INVOKE = "_ZN6tflite16MicroInterpreter6InvokeEv"
_WARM_UP_RUNS = 2


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board of QEMU: compiler flags, machine, linker script, the define that names it, and its timer's tick.

    platform: name of the same board among our platforms.
    """

    platform: str
    flags: tuple[str, ...]
    machine: str
    script: str
    define: str
    nanoseconds_per_tick: float


BOARDS = {
    "cortex_m4": Board(
        platform="cortex_m4",
        flags=("-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16"), machine="mps2-an386", script="mps2.ld",
        define="-DTIMER_CMSDK", nanoseconds_per_tick=40,
    ),
    "cortex_m55": Board(
        platform="cortex_m55",
        flags=("-mcpu=cortex-m55",), machine="mps3-an547", script="mps3.ld",
        define="-DTIMER_SYSTEM_COUNTER", nanoseconds_per_tick=31.25,
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Checkouts of tflite-micro, CMSIS-NN, flatbuffers, gemmlowp and ruy, side by side in one folder."""

    folder: Path

    @property
    def tflm(self) -> Path:
        return self.folder / "tflite-micro"

    @property
    def cmsis_nn(self) -> Path:
        return self.folder / "CMSIS-NN"

    def includes(self) -> list[str]:
        """The include options of both."""
        nn = self.cmsis_nn
        third = [self.folder / "flatbuffers/include", self.folder / "gemmlowp", self.folder / "ruy"]
        return [f"-I{path}" for path in (self.tflm, *third, nn, nn / "Include")]

    def commits(self) -> dict[str, str]:
        """The commit of each of the two peers."""
        names = {"tflite_micro": self.tflm, "cmsis_nn": self.cmsis_nn}
        return {name: _done(["git", "-C", str(path), "rev-parse", "--short=8", "HEAD"]).strip()
                for name, path in names.items()}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TflmFigures:
    """Measurements of one file: instructions and cycles of one run after two others, bytes of arena and flash.

    cycles: estimated by the table of the core, without waits of memories. arena_bytes: what the interpreter used,
    without its statics. flash_bytes: model file, runtime and kernels after the linker dropped unused sections, without
    the C and C++ libraries.
    """

    instructions: int
    cycles: int
    arena_bytes: int
    flash_bytes: int


def library(sources: Sources, board: Board, folder: Path, models: Sequence[Path]) -> Path:
    """Compile the runtime and the kernels that the models use to an archive in `folder`. Raises BuildFailed.

    Objects that the folder has already are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {name for model in models for name in _operators(model.read_bytes())}

    def compiled(source: Path) -> str:
        target = folder / f"{source.parent.parent.name}_{source.parent.name}_{source.stem}.o"
        if not target.exists():
            _compile(sources, board, source, target)
        return str(target)

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        objects = list(pool.map(compiled, _sources(sources, wanted)))
    archive = folder / "libtflm.a"
    archive.unlink(missing_ok=True)
    _done(["arm-none-eabi-ar", "rcs", str(archive), *objects])
    return archive


def measured(sources: Sources, board: Board, archive: Path, model: Path, folder: Path) -> TflmFigures:
    """Build firmware of a .tflite file, run it in QEMU and read what it says. Raises BuildFailed, RunFailed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "operators.inc").write_text(_registrations(sources, model.read_bytes()), encoding="utf-8")
    data = ",".join(map(str, model.read_bytes()))
    declared = '__attribute__((aligned(16), section(".rodata.model"))) const unsigned char model_data[]'
    (folder / "model.c").write_text(f"{declared} = {{{data}}};\n", encoding="utf-8")
    objects = []
    for source in (folder / "model.c", FIRMWARE / "board.c", FIRMWARE / "main.cc"):
        target = folder / f"{source.stem}.o"
        _compile(sources, board, source, target, (board.define, f"-I{folder}"))
        objects.append(str(target))
    elf, link_map = folder / "tflm.elf", folder / "tflm.map"
    script = [
        "-nostartfiles",
        f"-L{FIRMWARE}",
        "-T",
        str(FIRMWARE / board.script),
        f"-Wl,--gc-sections,-Map={link_map}",
    ]
    _done(["arm-none-eabi-g++", *board.flags, *_FLAGS, *script, *objects, str(archive), "-lm", "-o", str(elf)])
    said = _done(
        ["qemu-system-arm", "-M", board.machine, "-display", "none", "-serial", "none", "-monitor", "none",
         "-semihosting-config", "enable=on,target=native", "-icount", f"shift={_ICOUNT_SHIFT},sleep=off",
         "-kernel", str(elf)]
    )  # fmt: skip
    found = re.search(r"ticks=(\d+) arena=(\d+)", said)
    if not found:
        raise RunFailed(f"TensorFlow Lite Micro did not run {model.name}: {said.strip()[:200]}")
    run = counted(elf, Platform.load(board.platform), _INVOKE, folder, skip=_WARM_UP_RUNS)
    return TflmFigures(
        instructions=round(int(found[1]) * board.nanoseconds_per_tick) >> _ICOUNT_SHIFT,
        cycles=round(run.cycles - run.waits),
        arena_bytes=int(found[2]),
        flash_bytes=_flash_bytes(link_map.read_text(encoding="utf-8"), folder),
    )


def _sources(sources: Sources, wanted: Iterable[str]) -> Iterator[Path]:
    """Yield the runtime, CMSIS-NN, its wrappers, and the reference kernels of `wanted` that have no wrapper."""
    for name in _FOLDERS:
        yield from (path for path in sorted((sources.tflm / name).glob("*.cc")) if not _NOT_OURS.search(path.name))
    wrappers = sorted((sources.tflm / _KERNELS / "cmsis_nn").glob("*.cc"))
    replaced = {path.name for path in wrappers}
    yield from wrappers
    for path in sorted((sources.tflm / _KERNELS).glob("*.cc")):
        if path.name in replaced or _NOT_OURS.search(path.name):
            continue
        defined = set(_DEFINED.findall(path.read_text(encoding="utf-8")))
        if not defined or defined & set(wanted):
            yield path
    yield from (path for path in sorted((sources.cmsis_nn / "Source").rglob("*.c")) if not _OF_FLOATS.search(path.name))


def _compile(sources: Sources, board: Board, source: Path, target: Path, options: Sequence[str] = ()) -> None:
    cpp = source.suffix == ".cc"
    own = _CPP_FLAGS if cpp else ("-Ofast", "-std=gnu11", *_DEFINES)
    compiler = "arm-none-eabi-g++" if cpp else "arm-none-eabi-gcc"
    _done([compiler, *board.flags, *_FLAGS, *own, *sources.includes(), *options, "-c", str(source), "-o", str(target)])


def _registrations(sources: Sources, data: bytes) -> str:
    """Return the statements that register the operators of a file."""
    header = (sources.tflm / "tensorflow/lite/micro/micro_mutable_op_resolver.h").read_text(encoding="utf-8")
    method = {operator: name for name, operator in _ADDED.findall(header)}
    narrow = {
        name
        for path in (sources.tflm / _KERNELS).glob("*.h")
        for name in _INT8_ONLY.findall(path.read_text(encoding="utf-8"))
    }
    lines = []
    for name, all_int8 in sorted(_operators(data).items()):
        if name not in method:
            raise BuildFailed(f"TensorFlow Lite Micro has no operator {name}.")
        argument = f"tflite::Register_{name}_INT8()" if all_int8 and name in narrow else ""
        lines.append(f"resolver.{method[name]}({argument});")
    return "\n".join(lines) + "\n"


def _operators(data: bytes) -> dict[str, bool]:
    """Return each builtin operator of a file, and whether its data and weights are int8 wherever it occurs."""
    name_of = {code: name for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)}
    model = tflite.Model.GetRootAsModel(data, 0)
    found: dict[str, bool] = {}
    for graph in (model.Subgraphs(i) for i in range(model.SubgraphsLength())):
        for node in (graph.Operators(i) for i in range(graph.OperatorsLength())):
            known = model.OperatorCodes(node.OpcodeIndex())
            name = name_of[max(known.BuiltinCode(), known.DeprecatedBuiltinCode())]
            values = [int(i) for i in (*_values(node.InputsAsNumpy())[:2], *_values(node.OutputsAsNumpy())) if i >= 0]
            int8 = all(graph.Tensors(i).Type() == tflite.TensorType.INT8 for i in values)
            found[name] = found.get(name, True) and int8
    return found


def _values(found: object) -> list[int]:
    """Return indices of tensors; flatbuffers gives 0 for a list that is absent."""
    return [] if isinstance(found, int) else list(found)  # pyright: ignore[reportArgumentType]


def _flash_bytes(link_map: str, folder: Path) -> int:
    """Add up the sections of a link map that lie in flash and are of no C or C++ library."""
    joined = re.sub(
        r"^( \.\S+)\n\s+", r"\1 ", link_map.partition("Linker script and memory map")[2], flags=re.MULTILINE
    )
    num_bytes = 0
    for line in joined.splitlines():
        found = _MAPPED.match(line)
        if found and found[1].split(".")[0] in ("text", "rodata", "data", "vectors", "init_array"):
            of_library = "libtflm.a" not in found[3] and not found[3].startswith(str(folder))
            num_bytes += 0 if of_library else int(found[2], 16)
    return num_bytes


def _done(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildFailed(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[:500]}")
    return done.stdout + done.stderr
