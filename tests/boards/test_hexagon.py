"""Programs for Hexagon in QEMU: functions that the compiler takes from libraries, floats, and assembly of products."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from codegen_c.emit.firmware import board_files
from codegen_c.targets import hexagon
from tests.boards.toy import write_texts
from tests.support.onnx_models import NODE, model_of, saved
from tvm_ext import BuildOptions, Platform
from tvm_ext.core.errors import BuildFailed
from tvm_ext.core.toolchain import compile_objects, find_program, run_tool
from tvm_ext.execution.qemu_start import INPUTS, OUTPUTS, QemuExtras, link_firmware, started

pytestmark = [pytest.mark.board, pytest.mark.process_board]

PLATFORM = Platform.load("hexagon_v66")
TARGET = Path(hexagon.__file__).parent
PAIRS = 4096
MAIN = """
#include <math.h>
#include <stdint.h>
#include "semihosting.h"

static union { uint32_t bits[2 * PAIRS]; int32_t integers[2 * PAIRS]; float floats[2 * PAIRS]; } in;
static union { int32_t integers[2 * PAIRS]; float floats[6 * PAIRS]; } out;

int main(void)
{
    const int32_t input = semihosting_open("in.bin", 6u, SEMIHOSTING_MODE_READ_BINARY);
    int32_t left = semihosting_read(input, &in, sizeof in);
    const int32_t output = semihosting_open("out.bin", 7u, SEMIHOSTING_MODE_WRITE_BINARY);
    for (int32_t i = 0; i < PAIRS; ++i) {
        const float x = in.floats[2 * i];
        out.floats[6 * i] = x / in.floats[2 * i + 1];
        out.floats[6 * i + 1] = sqrtf(x);
        out.floats[6 * i + 2] = rintf(x);
        out.floats[6 * i + 3] = floorf(x);
        out.floats[6 * i + 4] = ceilf(x);
        out.floats[6 * i + 5] = roundf(x);
    }
    left += semihosting_write(output, &out, sizeof out.floats);
    for (int32_t i = 0; i < PAIRS; ++i) {
        out.integers[2 * i] = in.integers[2 * i] / (in.integers[2 * i + 1] | 1);
        out.integers[2 * i + 1] = in.integers[2 * i] % (in.integers[2 * i + 1] | 1);
    }
    left += semihosting_write(output, &out, sizeof out.integers);
    return (int)left;
}
""".replace("PAIRS", str(PAIRS))


def run_main(folder: Path, operands: np.ndarray) -> bytes:
    """Run MAIN on the operands, and return what it writes."""
    write_texts(folder, board_files(PLATFORM, {"main.c": MAIN}, moves=False))
    sources = sorted((folder / "board").glob("*.c"))
    objects = compile_objects(sources, folder / "objects", PLATFORM.toolchain, include_dirs=[folder])
    elf = link_firmware(objects, folder / "main.elf", PLATFORM, folder / "board")
    own = folder / "own"
    own.mkdir()
    (own / INPUTS).write_bytes(operands.tobytes())
    started(elf, PLATFORM, None, own, 60, (), (), QemuExtras())
    return (own / OUTPUTS).read_bytes()


def test_divisions_and_roots_are_those_of_numpy(tmp_path: Path) -> None:
    """Random bits, a part of them denormal, infinite, not a number, or an integer or half of small size."""
    random = np.random.default_rng(4)
    operands = random.integers(0, 1 << 32, (PAIRS, 2), np.uint64).astype(np.uint32)
    operands[::7] &= np.uint32(0x80FFFFFF)
    operands[::11, 1] = np.uint32(0x7F800000)
    halves = random.integers(-900, 900, (len(operands[::5]), 2)) / 2
    operands[::5] = halves.astype(np.float32).view(np.uint32)
    found = np.frombuffer(run_main(tmp_path, operands), np.uint32)
    floats, integers = found[: 6 * PAIRS].view(np.float32).reshape(-1, 6), found[6 * PAIRS :].view(np.int32)
    x, y = operands.view(np.float32).T
    with np.errstate(all="ignore"):
        nearest = np.copysign(np.floor(np.abs(x).astype(np.float64) + 0.5), x).astype(np.float32)
        wanted = np.stack([x / y, np.sqrt(x), np.rint(x), np.floor(x), np.ceil(x), nearest], axis=1)
    np.testing.assert_array_equal(floats, wanted)
    a, b = operands.view(np.int32).T.astype(np.int64)
    quotients = np.trunc(a / (b | 1)).astype(np.int64)
    np.testing.assert_array_equal(integers.reshape(-1, 2), np.stack([quotients, a - quotients * (b | 1)], axis=1))


def test_floats_run_by_plain_c(tmp_path: Path) -> None:
    """expf is a function of the package."""
    nodes = [NODE("Softmax", ["x"], ["s"]), NODE("Tanh", ["s"], ["t"]), NODE("Div", ["t", "x"], ["y"])]
    model = saved(model_of(nodes, {"x": (4, 33)}, ["y"]), tmp_path)
    package = tvm_ext.build(model, "hexagon_v66", tmp_path / "out", BuildOptions(verify=("host", "qemu")))
    assert package.report["verify"]["qemu"]["passed"]


def test_functions_that_the_firmware_lacks_are_named(tmp_path: Path) -> None:
    nodes = [NODE("Sin", ["x"], ["s"]), NODE("Pow", ["s", "x"], ["p"]), NODE("Mod", ["p", "x"], ["y"], fmod=1)]
    model = saved(model_of(nodes, {"x": (4, 9)}, ["y"]), tmp_path)
    with pytest.raises(BuildFailed, match=r"calls fmodf, powf, sinf\. The toolchain of hexagon_v66 has no C library"):
        tvm_ext.build(model, "hexagon_v66", tmp_path / "out", BuildOptions(verify=()))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("function", "products"), [("s8", 64), ("u8", 64), ("one_s8", 40)])
def test_a_vector_instruction_makes_many_products(tmp_path: Path, function: str, products: int) -> None:
    """In the loop of a product with the most vrmpy, each of which makes 128, all vector instructions count.

    A single pixel takes a load and an alignment of weights for each vrmpy.
    """
    source = tmp_path / "product.c"
    pointer = f"void (*const product)(const tvm_ext_hvx_product_task *) = tvm_ext_hvx_product_{function};\n"
    source.write_text(f'#include "tvm_ext_hvx_product.h"\n{pointer}')
    folders = [TARGET / "runtime", TARGET.parent / "firmware", TARGET.parents[1] / "runtime"]
    (object_file,) = compile_objects([source], tmp_path / "objects", PLATFORM.toolchain, include_dirs=folders)
    dump = [find_program(PLATFORM.toolchain.tool("objdump")), "-d", "--no-show-raw-insn", "--mcpu=hexagonv66"]
    text = run_tool([*dump, "--mattr=+hvxv66,+hvx-length128b", str(object_file)], tmp_path, reads=[object_file])
    vrmpys, vectors = max(loop_counts(text))
    assert vrmpys >= 4 and 128 * vrmpys >= products * vectors


def loop_counts(text: str) -> list[tuple[int, int]]:
    """The numbers of vrmpy and of all vector instructions of each hardware loop of a disassembly."""
    found: list[tuple[int, int]] = []
    lines = [(int(match[1], 16), match[2]) for match in re.finditer(r"^\s*([0-9a-f]+):(.*)$", text, re.MULTILINE)]
    begins = [int(match[1], 16) for match in re.finditer(r"loop0\((0x[0-9a-f]+)", text)]
    for begin in begins:
        inside = [line for address, line in lines if address >= begin]
        end = next(i for i, line in enumerate(inside) if ":endloop0" in line)
        vectors = [line for line in inside[: end + 1] if re.search(r"\bv\d+\b|\bv\d+:\d+\b|vmem", line)]
        found.append((sum("vrmpy(v" in line for line in vectors), len(vectors)))
    return found
