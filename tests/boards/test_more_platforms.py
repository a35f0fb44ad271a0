"""The boards beside the M4 and the M55: each starts, counts, and runs verified packages from the memories it names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.boards.toy import build_elf, write_loop, write_toy
from tests.support.packages import Packages
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.execution.board import run_qemu

pytestmark = pytest.mark.board

ARM = ["cortex_m0plus", "cortex_m7"]
MORE_ARM = ["always_on", "cortex_m23", "cortex_m3", "cortex_m33", "cortex_m52", "cortex_m7_psram", "cortex_m85"]
RISCV, RISCV_VECTORS, CORAL_NPU = (
    pytest.param(name, marks=pytest.mark.riscv_board) for name in ("riscv32", "riscv32_zve32x", "coral_npu")
)
RISCV_FLOATS = pytest.param("riscv32_zve32f", marks=(pytest.mark.riscv_board, pytest.mark.riscv_clang))
XTENSA = pytest.param("xtensa_lx106", marks=pytest.mark.xtensa_board)
NAMES = [*ARM, *MORE_ARM, RISCV, RISCV_VECTORS, RISCV_FLOATS, XTENSA]
VERIFIED = BuildOptions(verify=("host", "qemu"))


@pytest.fixture(params=NAMES)
def other_board(request: pytest.FixtureRequest) -> Platform:
    return Platform.load(request.param)


def test_instructions_of_a_known_loop_are_exact(other_board: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, other_board)
    executed = write_loop(toy, 12_345, other_board.processor.isa)
    elf = build_elf(tmp_path, other_board, tmp_path / "build")
    assert run_qemu(elf, other_board, toy.interface, [toy.sample]).instructions == executed


def test_every_ram_is_there_from_end_to_end(other_board: Platform, tmp_path: Path) -> None:
    """The last word of each ram that no stack lies in, and the first, written and read back."""
    assert other_board.board
    words = []
    for memory in other_board.memories:
        if memory.kind == "ram" and memory.address is not None:
            at_stack = memory.name == other_board.board.data_memory
            last = memory.address + memory.capacity_bytes - 4 - (other_board.board.stack_bytes if at_stack else 0)
            words += [last] if at_stack else [memory.address, last]
    lines = [f"    volatile uint32_t *const w{i} = (volatile uint32_t *){word:#x}u;" for i, word in enumerate(words)]
    lines += [f"    *w{i} = {i + 5}u;" for i in range(len(words))]
    total = " + ".join(f"*w{i}" for i in range(len(words)))
    toy = write_toy(tmp_path, other_board, prologue="\n".join(lines), body=f"output[i] = (float)({total});")
    elf = build_elf(tmp_path, other_board, tmp_path / "build")
    expected = float(sum(i + 5 for i in range(len(words))))
    assert run_qemu(elf, other_board, toy.interface, [toy.sample]).outputs[0]["out"].tolist() == [expected] * 8


def test_the_m7_computes_doubles_in_hardware(tmp_path: Path) -> None:
    platform = Platform.load("cortex_m7")
    assert platform.processor.fpu == "double"
    body = "output[i] = (float)((double)input[i] * 0.1 + 1e-9);"
    toy = write_toy(tmp_path, platform, body=body)
    elf = build_elf(tmp_path, platform, tmp_path / "build")
    expected = (toy.sample["in:0 */ ??/"].ravel().astype(np.float64) * 0.1 + 1e-9).astype(np.float32)
    np.testing.assert_allclose(run_qemu(elf, platform, toy.interface, [toy.sample]).outputs[0]["out"], expected)
    code = subprocess.run(["arm-none-eabi-objdump", "-d", str(elf)], capture_output=True, text=True, check=True).stdout
    assert ".f64" in code and "__aeabi_dmul" not in code


@pytest.mark.parametrize("model", some_of(["kws_int8"], sweep=["kws_fp32"]))
@pytest.mark.parametrize(
    "name", some_of([ARM[0], CORAL_NPU, XTENSA], sweep=[*ARM[1:], *MORE_ARM, RISCV, RISCV_VECTORS])
)
def test_keyword_spotting_is_verified(packages: Packages, name: str, model: str) -> None:
    """A library that computes floats takes about 137 instructions for each multiply-accumulate.

    An LX106 multiplies to 64 bits by a function, and loads bytes of flash as words.
    """
    verified = packages.shared(model, name, VERIFIED).report["verify"]["qemu"]
    by_library = model == "kws_fp32" and Platform.load(name).processor.fpu == "none"
    assert verified["passed"]
    assert (
        400_000
        < verified["instructions"]
        < (420_000_000 if by_library else 45_000_000 if name == "xtensa_lx106" else 30_000_000)
    )


def test_always_on_puts_tensors_and_weights_where_it_says(packages: Packages) -> None:
    package = packages.shared("kws_fp32", "always_on", VERIFIED)
    elf = package.folder / package.report["artifacts"]["elf"]
    symbols = subprocess.run(["arm-none-eabi-nm", str(elf)], capture_output=True, text=True, check=True).stdout
    addresses = {line.split()[-1]: int(line.split()[0], 16) for line in symbols.splitlines() if line[0] != " "}
    tables = [name for name in addresses if name.endswith("_constants")]
    assert tables
    for memory, names in ((package.platform.activations, ["kws_fp32_sram"]), (package.platform.weights, tables)):
        place = package.platform.memory(memory)
        assert place.address is not None
        for name in names:
            assert place.address <= addresses[name] < place.address + place.capacity_bytes, name
