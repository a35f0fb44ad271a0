"""Hooks around layers: not a byte of code while they are off, and what a counter of the test's says when on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import tvm_ext
from codegen_c.emit.firmware import board_files, qemu_arguments
from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext import BuildOptions, Package
from tvm_ext.core.errors import BuildFailed
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_objects, find_program, link_elf

COUNTER = """
#include <stdint.h>
extern uint32_t reads;
#define M_PROFILE_CYCLES() (reads += 3u)
"""
MAIN = """
#include "m.h"
#include "m_profile.h"
#include "semihosting.h"
uint32_t reads = 0xFFFFFFF0u;
int main(void)
{
    static const char *const names[] = M_PROFILE_NAMES;
    m_profile_start();
    for (int run = 0; run < 2; run++) {
        if (m_run() != 0) {
            return 1;
        }
    }
    for (uint32_t layer = 0u; layer < M_PROFILE_LAYERS; layer++) {
        semihosting_print(names[layer]);
        semihosting_print(" ");
        semihosting_print_decimal(m_profile[layer].cycles);
        semihosting_print(" ");
        semihosting_print_decimal(m_profile[layer].calls);
        semihosting_print("\\n");
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Package]:
    """One model with hooks and without; a budget leaves a sequence by rows."""
    folder = tmp_path_factory.mktemp("hooks")
    module = tvm_ext.load(saved(SMALL_MODELS["branches"](), folder))
    return {
        hooks: tvm_ext.build(
            module, "cortex_m4", folder / str(hooks), BuildOptions(verify=(), name="m", hooks=hooks, ram=3100)
        )
        for hooks in (False, True)
    }


def compiled(package: Package, folder: Path, *flags: str) -> Path:
    source = package.folder / "m.c"
    (one,) = compile_objects([source], folder, package.platform.toolchain, flags=flags, include_dirs=[package.folder])
    return one


@pytest.mark.board
def test_hooks_that_are_off_change_no_byte_of_code(builds: dict[bool, Package], tmp_path: Path) -> None:
    without, off = (compiled(builds[hooks], tmp_path / str(hooks)) for hooks in (False, True))
    assert "M_PROFILE_LAYER_BEGIN(0u);" in (builds[True].folder / "m.c").read_text()
    assert off.read_bytes() == without.read_bytes()
    assert compiled(builds[True], tmp_path / "on", "-DM_PROFILE").read_bytes() != off.read_bytes()
    assert not (builds[False].folder / "m_profile.h").exists()
    assert "PROFILE" not in (builds[False].folder / "m.c").read_text()


@pytest.mark.board
def test_layers_count_what_the_counter_says(builds: dict[bool, Package], tmp_path: Path, cortex_m4: Platform) -> None:
    """The counter goes on by 3 each time it is read, and wraps: 3 cycles for each call of a layer."""
    package = builds[True]
    counted = counts_of(package, tmp_path, cortex_m4)
    rows = re.findall(r"M_PROFILE_LAYER_BEGIN\((\d+)u\);", (package.folder / "m.c").read_text())
    assert len(counted) == len({*rows}) > 4
    assert all(cycles == 3 * calls for cycles, calls in counted.values())
    assert {calls for _, calls in counted.values()} > {2}, "some layers run row by row"
    named = {layer.name for layer in package.profile().layers}
    assert {*counted} <= named


@pytest.mark.board
def test_a_processor_without_the_counter_is_told_to_bring_one(builds: dict[bool, Package], tmp_path: Path) -> None:
    host = Platform.load("host").toolchain
    with pytest.raises(BuildFailed, match="M_PROFILE_CYCLES: define it"):
        compile_objects(
            [builds[True].folder / "m.c"], tmp_path, host, flags=["-DM_PROFILE"], include_dirs=[builds[True].folder]
        )


def counts_of(package: Package, folder: Path, platform: Platform) -> dict[str, tuple[int, int]]:
    """Cycles and calls of each layer after two runs with hooks on."""
    texts = {**board_files(platform, {}, moves=False), "counter.h": COUNTER}
    texts["main.c"] = MAIN
    for file, text in texts.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text)
    sources = [*(package.folder / f"m{part}.c" for part in ("", "_memory", "_weights"))]
    sources += [folder / "main.c", folder / "board" / "startup.c"]
    flags = ["-DM_PROFILE", "-include", str(folder / "counter.h")]
    include = [package.folder, folder / "board"]
    objects = compile_objects(sources, folder, platform.toolchain, flags=flags, include_dirs=include)
    elf = link_elf(objects, folder / "hooks.elf", platform.toolchain, script=folder / "board" / "link.ld")
    command = [
        find_program("qemu-system-arm"), *qemu_arguments(platform, shift=None),
        "-semihosting-config", "enable=on,target=native", "-kernel", str(elf),
    ]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    found = re.findall(r"^(\w+) (\d+) (\d+)$", done.stdout + done.stderr, re.MULTILINE)
    return {name: (int(cycles), int(calls)) for name, cycles, calls in found}
