"""Profiles of firmware: code whose instructions and accesses are known by hand, and packages, whose sums are known."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from codegen_c.emit.firmware import board_files, qemu_arguments
from tests.support.onnx_models import SMALL_MODELS
from tests.support.packages import Packages, sample
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.command_line.main import app
from tvm_ext.core.errors import RunFailed
from tvm_ext.core.options import Io
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_objects, find_program, link_elf
from tvm_ext.profiling.core_table import core_table
from tvm_ext.profiling.layer_names import PackageSteps, steps_of_package
from tvm_ext.profiling.profile import LayerProfile
from tvm_ext.profiling.profile_package import counted_layers, profile_plugin

UNVERIFIED = BuildOptions(verify=())
FRAME = """
#include <stdint.h>
#include <string.h>
uint32_t words[64] __attribute__((aligned(16)));
int probe_run(uint32_t *at);
__attribute__((naked, noinline)) int leaf(uint32_t *at) {{ __asm__ volatile({leaf}); }}
__attribute__((naked, noinline)) int probe_run(uint32_t *at) {{ __asm__ volatile({run}); }}
int main(void) {{ return probe_run(words) + probe_run(words); }}
"""


def probed(platform: Platform, folder: Path, run: str, leaf: str) -> dict[str, LayerProfile]:
    """Layers of the second run of hand-written code; `leaf` is a function that it may call, with `words` in r0."""
    for file, text in board_files(platform, {}, moves=False).items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text)
    quoted = {
        name: " ".join(f'"{line.strip()}\\n"' for line in code.split(";"))
        for name, code in (("run", run), ("leaf", leaf))
    }
    (folder / "probe.c").write_text(FRAME.format(**quoted))
    flags = ["-Wno-error", "-w"]
    sources = [folder / "probe.c", folder / "board" / "startup.c"]
    objects = compile_objects(sources, folder, platform.toolchain, flags=flags, include_dirs=[folder / "board"])
    elf = link_elf(objects, folder / "probe.elf", platform.toolchain, script=folder / "board" / "link.ld")
    command = [
        find_program("qemu-system-arm"), *qemu_arguments(platform, shift=None),
        "-semihosting-config", "enable=on,target=native", "-kernel", str(elf),
        *profile_plugin(elf, platform, core_table(platform), "probe_run", folder, skip=1).arguments,
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    steps = PackageSteps(functions={"leaf": ["the_leaf"]}, order=[["the_leaf"]])
    return {layer.name: layer for layer in counted_layers(elf, platform, core_table(platform), folder, steps)}


@pytest.mark.board
def test_a_loop_known_by_hand_on_a_cortex_m4(tmp_path: Path, cortex_m4: Platform) -> None:
    """Ten turns of two loads, a multiplication, a store; the caller pushes two registers and pops them."""
    layers = probed(
        cortex_m4, tmp_path,
        run="push {r4, lr}; bl leaf; movs r0, #0; pop {r4, pc}",
        leaf="movs r2, #10; 1: ldr r3, [r0]; ldr r1, [r0, #4]; mul r3, r3, r1; str r3, [r0, #8]; subs r2, r2, #1; "
        "bne 1b; bx lr",
    )  # fmt: skip
    leaf, run = layers["the_leaf"], layers["run"]
    assert leaf.instructions == {"alu": 1 + 10, "load": 20, "multiply": 10, "store": 10, "branch": 11}
    assert leaf.cycles_by_kind() == {
        "alu": 11, "load": 10 * (2 + 1), "multiply": 10, "store": 10, "branch": 11 + 2 * (9 + 1)
    }  # fmt: skip
    assert [(m.name, m.loads, m.loaded_bytes, m.stores, m.stored_bytes) for m in leaf.memories] == [
        ("sram", 20, 80, 10, 40)
    ]
    assert run.instructions == {"store_multiple": 1, "branch": 1, "alu": 1, "load_multiple": 1}
    assert run.cycles_by_kind() == {"store_multiple": 3, "branch": 1 + 2, "alu": 1, "load_multiple": 3 + 2}
    assert run.stack_bytes == 8 and leaf.stack_bytes is None


@pytest.mark.board
def test_a_hardware_loop_of_vectors_on_a_cortex_m55(tmp_path: Path) -> None:
    """Four turns over 16 bytes each: vectors come as two words of the bus; loads and products overlap."""
    platform = Platform.load("cortex_m55")
    layers = probed(
        platform, tmp_path,
        run="push {r4, lr}; bl leaf; movs r0, #0; pop {r4, pc}",
        leaf="mov r12, lr; movs r1, #64; movs r2, #0; dlstp.8 lr, r1; 1: vldrb.u8 q0, [r0], #16; "
        "vmladava.u8 r2, q0, q0; letp lr, 1b; bx r12",
    )  # fmt: skip
    leaf = layers["the_leaf"]
    assert leaf.instructions == {"alu": 3, "loop": 5, "vector_load": 4, "vector_multiply": 4, "branch": 1}
    assert leaf.cycles_by_kind() == {"alu": 3, "loop": 0, "vector_load": 4, "vector_multiply": 4, "branch": 1 + 2}
    assert [(memory.name, memory.loads, memory.loaded_bytes) for memory in leaf.memories] == [("dtcm", 4 * 2, 64)]


@pytest.mark.board
@pytest.mark.parametrize(
    "where",
    some_of(
        [
            ("cortex_m3", "arena"), ("cortex_m4", "arena"), ("cortex_m4", "stream"),
            pytest.param(("riscv32_zve32x", "arena"), marks=pytest.mark.riscv_board),
        ],
        sweep=[
            (name, "arena")
            for name in ("cortex_m0plus", "cortex_m33", "cortex_m7", "cortex_m7_psram", "cortex_m55", "always_on")
        ],
    ),
)  # fmt: skip
def test_sums_of_a_profile_are_those_of_a_run(packages: Packages, where: tuple[str, Io]) -> None:
    """All instructions, and the stack; every layer has a name of the report, or of a function."""
    platform, io = where
    package = packages.small("branches", SMALL_MODELS["branches"], platform, BuildOptions(io=io, verify=()))
    inputs = sample(package)
    profile, counted = package.profile(inputs), package.run_board([inputs])
    assert profile.num_instructions == counted.instructions
    assert profile.stack_bytes == counted.stack_bytes
    assert profile.cycles > profile.num_instructions
    computed = steps_of_package(package.folder / "trace.json").functions.values()
    assert {step for steps in computed for step in steps} <= {layer.name for layer in profile.layers}
    assert io == "stream" or sum(layer.macs or 0 for layer in profile.layers) == package.report["macs"]
    sums = [int(line.rpartition(" ")[2]) for line in profile.folded().splitlines()]
    assert sum(sums) == pytest.approx(profile.cycles, abs=len(sums))


@pytest.mark.board
def test_the_command_prints_and_writes_a_profile(packages: Packages, tmp_path: Path) -> None:
    package = packages.small("branches", SMALL_MODELS["branches"], "cortex_m4", UNVERIFIED)
    done = CliRunner().invoke(app, ["profile", str(package.folder), "-o", str(tmp_path / "p"), "--json"])
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "p" / "profile.json").read_text())
    assert written == json.loads(done.stdout)
    assert written["estimated_ms"] == pytest.approx(written["estimated_cycles"] / 25_000, rel=1e-3)
    assert sum(layer["instructions"] for layer in written["layers"]) == written["instructions"]
    page = (tmp_path / "p" / "profile.html").read_text()
    assert all(f">{layer['name']}<" in page for layer in written["layers"]) and "<script" not in page
    shown = CliRunner().invoke(app, ["profile", str(package.folder), "-o", str(tmp_path / "p")])
    assert shown.exit_code == 0 and "and not measured" in shown.output


def test_a_package_of_the_host_has_no_profile(packages: Packages) -> None:
    package = packages.small("branches", SMALL_MODELS["branches"])
    with pytest.raises(RunFailed, match=r"has no firmware: host has no board"):
        package.profile()
