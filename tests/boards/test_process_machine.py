"""Firmware as a program that an emulator runs as a process: a made-up target without a C library, linked by LLVM."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from codegen_c.emit.firmware import board_files
from codegen_c.kernels.registry import kernels
from codegen_c.targets.registry import check_processors, instruction_sets
from tests.support.onnx_models import NODE, model_of, saved
from tests.support.process_target import write_process_target
from tvm_ext import BuildOptions, Platform
from tvm_ext.core.errors import BadOptions, BadPlatform, MissingTool, RunFailed
from tvm_ext.core.toolchain import compile_objects, find_compiler, link_command
from tvm_ext.execution import board, qemu_start
from tvm_ext.execution.qemu_start import INPUTS, OUTPUTS, QemuExtras, link_firmware, runs_board, started
from tvm_ext.tuning.measure import Bench

FLAGS = 'flags = ["--target=aarch64-none-elf"]'


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The platform's file; targets and kernels are looked for anew in the test, and anew after it."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    for known in (instruction_sets, kernels):
        known.cache_clear()
    yield write_process_target(folder)
    for known in (instruction_sets, kernels):
        known.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "process_target"]:
        del sys.modules[name]


def product(folder: Path) -> Path:
    nodes = [NODE("Relu", ["x"], ["r"]), NODE("Add", ["r", "x"], ["y"])]
    return saved(model_of(nodes, {"x": (4, 33)}, ["y"]), folder)


def built(platform: Path, folder: Path) -> tvm_ext.Package:
    return tvm_ext.build(product(folder), str(platform), folder / "out", BuildOptions(verify=("host", "qemu")))


@pytest.mark.process_board
def test_it_runs_a_plugin_counts_its_instructions_and_a_session_keeps_it_ready(
    platform: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It also runs without a plugin, and then counts nothing."""
    package = built(platform, tmp_path)
    verified = package.report["verify"]["qemu"]
    assert verified["passed"]
    assert 4 * 33 < verified["instructions"] < 4 * 33 * 12
    x = np.random.default_rng(0).standard_normal((4, 33)).astype("float32")
    (result,) = package.run_board([{"x": x}]).outputs[0].values()
    np.testing.assert_array_equal(result, np.maximum(x, 0) + x)
    with monkeypatch.context() as patch:
        patch.setattr(board, "count_plugin", lambda *_: None)
        assert package.run_board([{"x": x}]).instructions is None
    with package.session(on="qemu") as session:
        for value in (1.0, -2.0):
            (result,) = session.run({"x": np.full((4, 33), value, np.float32)}).values()
            np.testing.assert_array_equal(result, np.full((4, 33), max(value, 0) + value, np.float32))


MAIN = """
#include <stddef.h>
#include <string.h>
#include "semihosting.h"

static void say(const char *name, intptr_t result)
{
    semihosting_print(name);
    semihosting_print(result < 0 ? "=refused\\n" : "=done\\n");
}

int main(void)
{
    static char *const words[] = {"sh", NULL};
    static const char other[] = "OTHER";
    const int32_t own = semihosting_open("out.bin", 7u, SEMIHOSTING_MODE_WRITE_BINARY);
    say("write own", semihosting_write(own, "mine", 4u) == 0 ? 0 : -1);
    say("read other", semihosting_open(other, sizeof other - 1u, SEMIHOSTING_MODE_READ_BINARY));
    say("write other", semihosting_open(other, sizeof other - 1u, SEMIHOSTING_MODE_WRITE_BINARY));
    say("clone", linux_call(220, 17, 0, 0, 0));
    say("socket", linux_call(198, 2, 1, 0, 0));
    say("execve", linux_call(221, (intptr_t)"/bin/sh", (intptr_t)words, (intptr_t)&words[1], 0));
    return 1;
}
"""


@pytest.mark.process_board
def test_its_system_calls_reach_no_other_file_and_start_no_program(platform: Path, tmp_path: Path) -> None:
    loaded, other, own = Platform.load(platform), tmp_path / "other.txt", tmp_path / "own"
    other.write_text("secret")
    sources = tmp_path / "sources"
    for name, text in board_files(loaded, {"main.c": MAIN.replace("OTHER", str(other))}, moves=False).items():
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_text(text)
    objects = compile_objects(
        sorted((sources / "board").glob("*.c")), tmp_path / "objects", loaded.toolchain, include_dirs=[sources]
    )
    elf = link_firmware(objects, tmp_path / "evil.elf", loaded, sources / "board")
    own.mkdir()
    (own / INPUTS).write_bytes(b"in")
    with pytest.raises(RunFailed) as caught:
        started(elf, loaded, None, own, 60, (), (), QemuExtras())
    said = str(caught.value)
    assert "write own=done" in said and said.count("refused") == 5, said
    assert other.read_text() == "secret" and (own / OUTPUTS).read_bytes() == b"mine"


def test_it_is_not_started_without_a_filter_of_system_calls(
    platform: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qemu_start, "has_filter", lambda: False)
    monkeypatch.setattr(qemu_start, "find_program", lambda name: f"/usr/bin/{name}")
    with pytest.raises(RunFailed, match="qemu-aarch64 has no -sandbox, and this machine has no filter"):
        qemu_start.qemu_command(tmp_path / "x.elf", Platform.load(platform), tmp_path, shift=None)


def test_missing_programs_name_their_packages(platform: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = Platform.load(platform)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not runs_board(loaded)
    with pytest.raises(MissingTool, match=r"clang-19 is not on PATH; .*apt install clang-19\)"):
        find_compiler(loaded.toolchain)
    with pytest.raises(MissingTool, match=r"qemu-aarch64 is not on PATH; .*apt install qemu-user\)"):
        qemu_start.qemu_command(tmp_path / "x.elf", loaded, tmp_path, shift=None)
    (tmp_path / "clang-19").touch(mode=0o700)
    with pytest.raises(MissingTool, match=r"ld.lld-19 is not on PATH; .*apt install lld-19\)"):
        link_command(loaded.toolchain)


def test_no_profile_and_no_measured_kernels(platform: Path) -> None:
    with pytest.raises(BadOptions, match="tune: process has no board in QEMU"):
        Bench.of(Platform.load(platform), BuildOptions())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[board]", "[board]\nvectors_address = 16", "board.vectors_address: only a machine of QEMU has it"),
        ("[board]", "[board]\nqemu_sizes = {'a.b' = 1}", "board.qemu_sizes: only a machine of QEMU has it"),
        ("[board]", '[board]\nqemu_machine = "virt"', "board.timer: is missing; firmware for virt measures with it"),
        (f'compiler = "clang-19"\n{FLAGS}', "", "toolchain.prefix = 'llvm-': names LLVM's tools; say compiler ="),
        (FLAGS, "", "flags need --target="),
        ("stack_bytes = 0x4000", "stack_bytes = 0x10_0000", "does not fit into ram"),
    ],
)
def test_contradictions_of_a_process(platform: Path, old: str, new: str, message: str) -> None:
    platform.write_text(platform.read_text().replace(old, new))
    with pytest.raises(BadPlatform, match=message):
        Platform.load(platform)


def test_a_machine_is_no_process(platform: Path) -> None:
    loaded = Platform.load(platform)
    assert loaded.board is not None
    machine = replace(loaded.board, qemu_machine="virt")
    with pytest.raises(BadPlatform, match=r"\[board\]: the start-up code of a64 is for a process, without qemu_mach"):
        check_processors(replace(loaded, board=machine))
