"""TensorFlow Lite Micro from its own sources, with its reference kernels, on a Cortex-M4 in QEMU.

The sources are a checkout of tflite-micro in which `third_party` holds flatbuffers, gemmlowp and ruy.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tvm_ext.core.errors import BuildFailed, RunFailed

FIRMWARE = Path(__file__).parent / "tflm_firmware"
NUM_RUNS = 3
_PROCESSOR = ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard")
_FLAGS = (*_PROCESSOR, "-O3", "-ffunction-sections", "-fdata-sections", "-w")
_CPP_FLAGS = (
    "-std=c++17", "-fno-rtti", "-fno-exceptions", "-fno-threadsafe-statics", "-fno-use-cxa-atexit",
    "-DTF_LITE_STATIC_MEMORY", "-DTF_LITE_STRIP_ERROR_STRINGS", "-DNDEBUG",
)  # fmt: skip
_FOLDERS = (
    "tensorflow/lite/micro", "tensorflow/lite/micro/memory_planner", "tensorflow/lite/micro/arena_allocator",
    "tensorflow/lite/micro/tflite_bridge", "tensorflow/lite/core/c", "tensorflow/lite/core/api",
    "tensorflow/compiler/mlir/lite/core/api", "tensorflow/compiler/mlir/lite/schema", "tensorflow/lite/kernels",
    "tensorflow/lite/kernels/internal", "tensorflow/lite/kernels/internal/reference", "tensorflow/lite/schema",
)  # fmt: skip
_KERNELS = (
    "activations", "assign_variable", "call_once", "concatenation", "conv", "decompress", "depthwise_conv",
    "fully_connected", "kernel_util", "logistic", "pad", "pooling", "quantize", "read_variable", "reduce", "reshape",
    "softmax", "split_v", "strided_slice", "var_handle",
)  # fmt: skip
_NOT_OURS = re.compile(r"(_test|test_helpers?\w*|_test_common|mock_\w+|fake_\w+|system_setup|test_helper_\w+)\.cc$")
_SHIFT = 6
_NANOSECONDS_PER_TICK = 40


@dataclass(frozen=True, kw_only=True)
class TflmFigures:
    """Executed instructions of one run after two others, and bytes of the arena that the interpreter used."""

    instructions: int
    arena_bytes: int


def library(checkout: Path, folder: Path) -> Path:
    """The runtime and the kernels that its firmware registers, as an archive in `folder`. Raises BuildFailed."""
    sources = [path for name in _FOLDERS for path in sorted((checkout / name).glob("*.cc"))]
    kernels = checkout / "tensorflow/lite/micro/kernels"
    sources += [path for name in _KERNELS for path in sorted(kernels.glob(f"{name}.cc"))]
    sources += [path for name in _KERNELS for path in sorted(kernels.glob(f"{name}_common.cc"))]
    sources = [path for path in sources if not _NOT_OURS.search(path.name)]
    folder.mkdir(parents=True, exist_ok=True)

    def compiled(numbered: tuple[int, Path]) -> Path:
        number, source = numbered
        target = folder / f"{number}_{source.stem}.o"
        _cpp(checkout, ["-c", str(source), "-o", str(target)])
        return target

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        objects = list(pool.map(compiled, enumerate(sources)))
    _done(["arm-none-eabi-ar", "rcs", str(folder / "libtflm.a"), *map(str, objects)])
    return folder / "libtflm.a"


def measured(checkout: Path, archive: Path, model: Path, folder: Path) -> TflmFigures:
    """Figures of a model. Raises BuildFailed, RunFailed."""
    data = ",".join(map(str, model.read_bytes()))
    (folder / "model.c").write_text(f"__attribute__((aligned(16))) const unsigned char model_data[] = {{{data}}};\n")
    _done(["arm-none-eabi-gcc", *_FLAGS, "-c", str(folder / "model.c"), "-o", str(folder / "model.o")])
    _done(["arm-none-eabi-gcc", *_FLAGS, "-c", str(FIRMWARE / "board.c"), "-o", str(folder / "board.o")])
    _cpp(checkout, ["-c", str(FIRMWARE / "main.cc"), "-o", str(folder / "main.o")])
    objects = [str(folder / f"{name}.o") for name in ("main", "board", "model")]
    elf = folder / "tflm.elf"
    script = ["-nostartfiles", "-T", str(FIRMWARE / "link.ld"), "-Wl,--gc-sections"]
    _done(["arm-none-eabi-g++", *_FLAGS, *script, *objects, str(archive), "-lm", "-o", str(elf)])
    said = _done(
        ["qemu-system-arm", "-M", "mps2-an386", "-display", "none", "-serial", "none", "-monitor", "none",
         "-semihosting-config", "enable=on,target=native", "-icount", f"shift={_SHIFT},sleep=off", "-kernel", str(elf)]
    )  # fmt: skip
    found = re.search(r"ticks=(\d+) arena=(\d+)", said)
    if not found:
        raise RunFailed(f"TensorFlow Lite Micro did not run {model.name}: {said.strip()[:200]}")
    return TflmFigures(instructions=int(found[1]) * _NANOSECONDS_PER_TICK >> _SHIFT, arena_bytes=int(found[2]))


def _cpp(checkout: Path, arguments: Sequence[str]) -> None:
    third = checkout / "third_party"
    includes = [f"-I{checkout}", f"-I{third}/flatbuffers/include", f"-I{third}/gemmlowp", f"-I{third}/ruy"]
    _done(["arm-none-eabi-g++", *_CPP_FLAGS, *_FLAGS, *includes, *arguments])


def _done(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildFailed(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[:500]}")
    return done.stdout + done.stderr
