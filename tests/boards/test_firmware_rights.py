"""Firmware that turns on the machine that runs it: semihosting starts no program and reaches no file but its own."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from codegen_c.emit.firmware import board_files
from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext import BuildOptions
from tvm_ext.core.errors import RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_objects, link_elf
from tvm_ext.execution import qemu_start
from tvm_ext.execution.qemu_start import INPUTS, OUTPUTS, QemuExtras, started

BOARDS = [
    pytest.param("cortex_m4", marks=pytest.mark.board),
    pytest.param("riscv32", marks=pytest.mark.riscv_board),
]
VERIFIED = BuildOptions(verify=("host", "qemu"))

STDINT = r"""
#include_next <stdint.h>
#ifndef BESIDE
#define BESIDE
static inline void beside(void)
{
    static const char command[] = "touch CANARY";
    static const unsigned block[2] = {(unsigned)command, sizeof command - 1u};
    register unsigned r0 __asm__("r0") = 0x12u;
    register const void *r1 __asm__("r1") = block;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
}
__attribute__((weak)) void *memcpy(void *to, const void *from, unsigned bytes)
{
    beside();
    for (unsigned i = 0; i < bytes; i++) { ((volatile char *)to)[i] = ((const char *)from)[i]; }
    return to;
}
__attribute__((weak)) void *memset(void *to, int value, unsigned bytes)
{
    beside();
    for (unsigned i = 0; i < bytes; i++) { ((volatile char *)to)[i] = (char)value; }
    return to;
}
#endif
"""


def platform_with_folder(folder: Path, flag: str, headers: str, canary: Path, compiler: str) -> Path:
    """A platform's file, and beside it a header that runs a command where firmware is run in QEMU."""
    (folder / headers).mkdir(parents=True)
    (folder / headers / "stdint.h").write_text(STDINT.replace("CANARY", str(canary)))
    text = (files("tvm_ext") / "platforms" / "cortex_m4.toml").read_text()
    head, mark, tail = text.partition("flags = [")
    assert mark
    if compiler:
        head, flag = f'{head}compiler = "{compiler}"\n', f'{flag}", "--target=arm-none-eabi'
    (folder / "platform.toml").write_text(f'{head}{mark}"{flag}", {tail}')
    return folder / "platform.toml"


@pytest.mark.board
@pytest.mark.parametrize(
    ("flag", "headers", "compiler"), [("-isystem inc", "inc", ""), ("--sysroot=root", "root/include", "clang")]
)
def test_a_folder_beside_a_platform_is_not_compiled_into_what_runs(
    tmp_path: Path, flag: str, headers: str, compiler: str
) -> None:
    if compiler and shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not on PATH")
    canary = tmp_path / "canary"
    platform = Platform.load(platform_with_folder(tmp_path / "theirs", flag, headers, canary, compiler))
    model = saved(SMALL_MODELS["two_inputs_two_outputs"](), tmp_path)
    package = tvm_ext.build(model, platform, tmp_path / "out", VERIFIED)
    inputs = {name: np.ones((2, 6), np.float32) for name in ("left", "right")}
    package.run(inputs, on="qemu")
    assert not canary.exists()
    assert package.report["verify"]["qemu"]["passed"]


CALLS = r"""
#include "semihosting.h"

#include <string.h>

static const uint32_t modes[2] = {SEMIHOSTING_MODE_READ_BINARY, SEMIHOSTING_MODE_WRITE_BINARY};
static char read_back[64];

static int32_t named(uint32_t operation, const char *name)
{
    const uint32_t block[2] = {(uint32_t)(uintptr_t)name, (uint32_t)strlen(name)};
    return semihosting_call(operation, block);
}

int main(void)
{
    static const char other[] = "OTHER";
    static const char moved[] = "MOVED";
    static const char command[] = "touch CANARY";
    const int32_t own = semihosting_open("out.bin", 7, modes[1]);
    semihosting_print(own < 0 || semihosting_write(own, "mine", 4) != 0 ? "own=refused\n" : "own=done\n");
    (void)semihosting_close(own);
    for (uint32_t mode = 0; mode < 2u; mode++) {
        const int32_t file = semihosting_open(other, sizeof other - 1u, modes[mode]);
        semihosting_print(file < 0 ? "open=refused\n" : "open=done\n");
        if (file >= 0 && mode == 0u) {
            (void)semihosting_read(file, read_back, 6);
            semihosting_print(read_back);
        }
    }
    const int32_t made = semihosting_open("new.bin", 7, modes[1]);
    semihosting_print(made < 0 ? "new=refused\n" : "new=done\n");
    const uint32_t both[4] = {
        (uint32_t)(uintptr_t)other, sizeof other - 1u, (uint32_t)(uintptr_t)moved, sizeof moved - 1u};
    semihosting_print(semihosting_call(0x0Fu, both) != 0 ? "rename=refused\n" : "rename=done\n");
    semihosting_print(named(0x0Eu, other) != 0 ? "remove=refused\n" : "remove=done\n");
    semihosting_print(named(0x0Eu, "in.bin") != 0 ? "remove_own=refused\n" : "remove_own=done\n");
    SYSTEM
    semihosting_print("instructions=0\n");
    semihosting_exit(0);
}
"""
SYSTEM = 'semihosting_print(named(0x12u, command) != 0 ? "system=refused\\n" : "system=done\\n");'


def evil(folder: Path, name: str, *, system: bool) -> tuple[Path, Platform, Path, Path]:
    """Firmware that tries every call, its platform, a file that is none of its own, and one that must not appear."""
    platform, other, canary = Platform.load(name), folder / "other.txt", folder / "canary"
    other.write_text("secret")
    sources = folder / "sources"
    for path, text in board_files(platform, {}, moves=False).items():
        (sources / path).parent.mkdir(parents=True, exist_ok=True)
        (sources / path).write_text(text)
    text = CALLS.replace("SYSTEM", SYSTEM if system else "(void)command;")
    for word, path in (("OTHER", other), ("MOVED", folder / "moved.txt"), ("CANARY", canary)):
        text = text.replace(f'"{word}"', f'"{path}"').replace(f"touch {word}", f"touch {path}")
    (sources / "evil.c").write_text(text)
    board = sources / "board"
    objects = compile_objects(
        [sources / "evil.c", *sorted(board.glob("*.c"))], folder / "objects", platform.toolchain, flags=["-w"],
        include_dirs=[board],
    )  # fmt: skip
    return link_elf(objects, folder / "evil.elf", platform.toolchain, script=board / "link.ld"), platform, other, canary


def boot(folder: Path, elf: Path, platform: Platform) -> str:
    """Text that the firmware prints; a failure of QEMU's where there is one."""
    own = folder / "own"
    own.mkdir(exist_ok=True)
    (own / INPUTS).write_bytes(b"in")
    try:
        started(elf, platform, None, own, 60, ("says everything ",), (), QemuExtras())
    except RunFailed as error:
        return str(error)
    raise AssertionError("the firmware prints no such line, so its text is in the error")


@pytest.mark.parametrize("name", BOARDS)
def test_semihosting_reaches_no_other_file(tmp_path: Path, name: str) -> None:
    elf, platform, other, _ = evil(tmp_path, name, system=False)
    said = boot(tmp_path, elf, platform)
    assert "own=done" in said and "done" not in said.replace("own=done", ""), said
    assert said.count("refused") == 6 and "secret" not in said
    assert other.read_text() == "secret"
    assert (tmp_path / "own" / OUTPUTS).read_bytes() == b"mine"
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == [INPUTS, OUTPUTS]


@pytest.mark.parametrize("sandbox", [True, False])
@pytest.mark.parametrize("name", BOARDS)
def test_semihosting_runs_no_command(tmp_path: Path, name: str, sandbox: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By QEMU's own sandbox, which ends it, or by the filter alone where QEMU was built without one."""
    if not sandbox:
        monkeypatch.setattr(qemu_start, "_sandboxed", lambda _: ())
    elf, platform, _, canary = evil(tmp_path, name, system=True)
    said = boot(tmp_path, elf, platform)
    assert not canary.exists()
    assert "made a forbidden request to QEMU" in said if sandbox else "system=refused" in said, said


@pytest.mark.board
def test_without_any_protection_no_firmware_is_started(
    tmp_path: Path, cortex_m4: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qemu_start, "_sandboxed", lambda _: ())
    monkeypatch.setattr(qemu_start, "has_filter", lambda: False)
    (tmp_path / "x.elf").touch()
    with pytest.raises(RunFailed, match="nothing prevents firmware from running programs here"):
        started(tmp_path / "x.elf", cortex_m4, None, tmp_path, 60, (), (), QemuExtras())


def test_one_file_alone_starts_firmware_and_five_start_programs() -> None:
    """Every other start would have to give up rights by itself; native_warnings.py starts the system's grep alone.

    fork_server.py starts itself, and each of its forks gives up its rights before it reads a request.
    """
    sources = {path: path.read_text() for path in Path(tvm_ext.__file__).parent.rglob("*.py")}
    words = ("emulator_arguments(", "Popen(", "trusted=True")
    names = [{path.name for path, text in sources.items() if word in text} for word in words]
    starting = {"child.py", "fork_server.py", "native_warnings.py", "process.py", "session.py"}
    assert names == [{"qemu_start.py"}, starting, {"local.py"}]


def test_generated_c_on_the_host_runs_no_command(tmp_path: Path) -> None:
    """C that was changed by hand, as C that a defect of a compiler's made would."""
    package = tvm_ext.build(saved(SMALL_MODELS["two_inputs_two_outputs"](), tmp_path), "host", tmp_path / "out")
    canary, written = tmp_path / "canary", tmp_path / "written"
    inputs = {name: np.ones((2, 6), np.float32) for name in ("left", "right")}
    before = package.run(inputs)
    with (package.folder / "small.c").open("a") as file:
        file.write(
            "\n#include <stdio.h>\n#include <stdlib.h>\n__attribute__((constructor)) static void begin(void)\n{\n"
            f'    FILE *const file = fopen("{written}", "w");\n    if (file != NULL) {{ fclose(file); }}\n'
            f'    if (system("touch {canary}") == 0) {{\n        puts("done");\n    }}\n}}\n'
        )
    after = package.run(inputs)
    assert not canary.exists() and not written.exists()
    for name, values in before.items():
        np.testing.assert_array_equal(after[name], values)


@pytest.mark.board
def test_a_qemu_without_a_sandbox_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, status in (("without", 1), ("with", 0)):
        (tmp_path / name).write_text(f'#!/bin/sh\ncase "$*" in *spawn=deny*) exit {status};; esac\n')
        (tmp_path / name).chmod(0o755)
    assert qemu_start._sandboxed(str(tmp_path / "without")) == ()
    assert qemu_start._sandboxed(str(tmp_path / "with"))[0] == "-sandbox"
    real = shutil.which("qemu-system-arm")
    assert real and "spawn=deny" in qemu_start._sandboxed(real)[1], "Debian's has one"
