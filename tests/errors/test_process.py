"""Programs that hang, print without end, leave children behind, or cannot be started."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tvm_ext.core.errors import BadOptions, BuildFailed, MissingTool, RunFailed
from tvm_ext.core.platform import Platform, Toolchain
from tvm_ext.core.processes.process import allowed_seconds, run_program
from tvm_ext.core.toolchain import compile_objects, find_compiler


def script(folder: Path, text: str, name: str = "tool") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int) -> bool:
    end = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not is_running(pid)


def test_a_program_that_ends(tmp_path: Path) -> None:
    done = run_program([str(script(tmp_path, "echo out; echo err >&2; exit 3"))], tmp_path, seconds=60)
    assert (done.status, done.stdout, done.stderr, done.problem) == (3, "out\n", "err\n", None)
    assert done.left == "failed (exit 3)"
    killed = run_program([str(script(tmp_path, "kill -SEGV $$"))], tmp_path, seconds=60)
    assert killed.left == "failed (ended by SIGSEGV)"


def test_a_program_that_hangs_ends_with_its_children(tmp_path: Path) -> None:
    tool = script(tmp_path, "sleep 100 & echo $! > child; wait")
    done = run_program([str(tool)], tmp_path, seconds=1)
    assert done.problem is not None and "did not end within 1 s; TVM_EXT_PATIENCE=10" in done.left
    assert gone(int((tmp_path / "child").read_text()))


def test_children_that_are_left_behind_end_too(tmp_path: Path) -> None:
    done = run_program([str(script(tmp_path, "sleep 100 & echo $!"))], tmp_path, seconds=60)
    assert done.status == 0 and gone(int(done.stdout))


def test_a_pipe_that_is_left_open_keeps_nobody_waiting(tmp_path: Path) -> None:
    begin = time.monotonic()
    done = run_program([str(script(tmp_path, "setsid sleep 30 & echo $!"))], tmp_path, seconds=60)
    assert done.status == 0 and time.monotonic() - begin < 20
    os.kill(int(done.stdout), signal.SIGKILL)


def test_output_without_end(tmp_path: Path) -> None:
    done = run_program(["yes"], tmp_path, seconds=60)
    assert done.left == "printed more than 16 MiB"


def test_an_interruption_ends_the_program(tmp_path: Path) -> None:
    tool = script(tmp_path, "echo $$ > pid; exec sleep 100")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_program([str(tool)], tmp_path, seconds=60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert gone(int((tmp_path / "pid").read_text()))


def test_nothing_to_start(tmp_path: Path) -> None:
    for command in (["/nonexistent/tool"], [str(tmp_path)]):
        with pytest.raises(OSError):
            run_program(command, tmp_path, seconds=60)


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "nan", "inf", "1e9"])
def test_patience_that_is_no_factor(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_EXT_PATIENCE", text)
    with pytest.raises(BadOptions, match=r"TVM_EXT_PATIENCE = .*: give a factor for time limits"):
        allowed_seconds(1)
    monkeypatch.setenv("TVM_EXT_PATIENCE", "2.5")
    assert allowed_seconds(2) == 5


COMPILERS: list[tuple[str, type[Exception], str]] = [
    ('gcc "x', MissingTool, r"CC = 'gcc \"x': is not a command: No closing quotation"),
    ("gcc \\", MissingTool, "is not a command: No escaped character"),
    ("nope", MissingTool, "nope is not on PATH"),
    ("/tmp", MissingTool, "/tmp is not on PATH"),
    ("{folder}/text", MissingTool, "text is not on PATH"),
    ("{folder}/damaged", BuildFailed, "damaged could not be started: Exec format error"),
    ("false", BuildFailed, r"false failed \(exit 1\) in "),
    ("true", BuildFailed, r"true made no small\.o, and did not say why"),
    ("{folder}/endless", BuildFailed, "endless printed more than 16 MiB in "),
    ("{folder}/hanging", BuildFailed, "hanging did not end within .* s; TVM_EXT_PATIENCE=10 in the environment"),
    ("{folder}/crashing", BuildFailed, r"crashing failed \(ended by SIGSEGV\)"),
    ("gcc --no-such-option", BuildFailed, "gcc failed"),
]


@pytest.mark.parametrize(("compiler", "error", "message"), COMPILERS, ids=[c[0] for c in COMPILERS])
def test_compilers_that_are_none(
    compiler: str, error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("no program")
    (tmp_path / "damaged").write_bytes(b"\x7fELF" + bytes(100))
    (tmp_path / "damaged").chmod(0o755)
    script(tmp_path, "sleep 100", "hanging")
    script(tmp_path, "kill -SEGV $$", "crashing")
    script(tmp_path, "yes", "endless")
    source = tmp_path / "small.c"
    source.write_text("int small(void);\nint small(void) { return 1; }\n")
    monkeypatch.setenv("CC", compiler.format(folder=tmp_path))
    monkeypatch.setenv("TVM_EXT_PATIENCE", "0.01" if "hanging" in compiler else "1")
    with pytest.raises(error, match=message):
        compile_objects([source], tmp_path / "out", Toolchain())


def test_a_compiler_of_spaces_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "   ")
    assert Path(find_compiler(Toolchain())[0]).name in ("gcc", "clang")


EMULATORS = {
    "hangs": ("exec sleep 100", "did not end within 1.2 s; .* and printed nothing; look for an endless loop"),
    "crashes": ("kill -SEGV $$", r"failed \(ended by SIGSEGV\) and printed nothing"),
    "says nothing": ("exit 0", r"failed \(exit 0\) and printed nothing"),
    "says something else": ("echo hello", r"failed \(exit 0\):\nhello"),
    "leaves fields out": ("echo instructions=5", "did not report ticks; compile the model again"),
    "says too many digits": (f"echo instructions=5 stack={'9' * 5000}", "did not report ticks"),
    "writes no outputs": (
        "echo instructions=5 stack=1 ticks=1 empty_ticks=1 wrapped=0",
        "wrote 0 B of outputs",
    ),
    "prints without end": ("exec yes", "printed more than 16 MiB"),
}


@pytest.mark.parametrize("name", EMULATORS)
def test_emulators_that_fail(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from codegen_c.program.interface import Interface, Port
    from tvm_ext.execution.board import run_qemu

    text, message = EMULATORS[name]
    script(tmp_path, text, "qemu-system-arm")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TVM_EXT_PATIENCE", "0.04" if name == "hangs" else "1")
    port = Port(name="x", source="x", shape=(1,), dtype="float32")
    interface = Interface(model="m", io="arena", inputs=(port,), outputs=(port,))
    with pytest.raises(RunFailed, match=message):
        run_qemu(
            tmp_path / "m.elf", Platform.load("cortex_m4"), interface, [{"x": np.zeros(1, "float32")}], time_limit_s=30
        )


def test_no_emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from codegen_c.program.interface import Interface, Port
    from tvm_ext.execution.board import run_qemu

    monkeypatch.setenv("PATH", str(tmp_path))
    port = Port(name="x", source="x", shape=(1,), dtype="float32")
    interface = Interface(model="m", io="arena", inputs=(port,), outputs=(port,))
    with pytest.raises(MissingTool, match="qemu-system-arm is not on PATH"):
        run_qemu(tmp_path / "m.elf", Platform.load("cortex_m4"), interface, [{"x": np.zeros(1, "float32")}])
