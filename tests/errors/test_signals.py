"""The command line ends as a signal asks, at any moment: nothing half-written, nothing left running or lying about."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext.core.files.output_folder import in_the_way, replaced_folder
from tvm_ext.core.files.staging import PREFIX

MARK = "TVM_EXT_TEST_OF_SIGNALS"
# A build in small: files, a compiler that has a child, a program with a session of its own, threads that wait.
WORK = """
import subprocess, sys, threading, time
from pathlib import Path
from tvm_ext.core.files.output_folder import replaced_folder
from tvm_ext.core.processes.process import run_program
from tvm_ext.core.processes.supervise import supervised

def work():
    for turn in range(10000):
        with replaced_folder(Path(sys.argv[1])) as new:
            for number in range(30):
                (new / f"{number}.c").write_text(f"{turn}")
            beside = Path(sys.argv[1]).parent  # a folder that stays when this turn is over
            threading.Thread(target=run_program, args=(["sh", "-c", "sleep 9 & wait"], beside),
                             kwargs={"seconds": 60}, daemon=True).start()
            subprocess.Popen(["sleep", "9"], start_new_session=True)
            run_program(["sh", "-c", "echo x > x.o; sleep 0.02"], new, seconds=60)

supervised(work)
"""


def start(folder: Path, *command: str, ignored: tuple[signal.Signals, ...] = ()) -> subprocess.Popen[str]:
    """A process that is interrupted as one in the foreground, with temporary files in `folder/tmp`."""
    (folder / "tmp").mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), MARK: str(folder)}
    # A signal that is ignored here, as SIGHUP is under nohup, would be ignored there.
    asked: dict[signal.Signals, Any] = {
        signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL, signal.SIGTERM: signal.SIG_DFL,
    }  # fmt: skip
    asked |= dict.fromkeys(ignored, signal.SIG_IGN)
    before = {number: signal.signal(number, handler) for number, handler in asked.items()}
    try:
        return subprocess.Popen(
            [sys.executable, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_until_watched(folder: Path) -> None:
    """Until the process has the folder for its temporary files; Python's own start is not its doing."""
    end = time.monotonic() + 60
    while not os.listdir(folder / "tmp"):
        assert time.monotonic() < end, "does not start"
        time.sleep(0.005)


def running(folder: Path) -> list[int]:
    """Processes that began in `start`, and their children."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"{MARK}={folder}".encode() in environment.split(b"\0"):
                found.append(int(entry.name))
    return found


def lying_about(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(PREFIX)] + os.listdir(folder / "tmp")


def package(folder: Path) -> Path:
    with replaced_folder(folder / "out") as new:
        for number in range(30):
            (new / f"{number}.c").write_text("before")
    return folder / "out"


def assert_whole(out: Path) -> None:
    assert in_the_way(out) == []
    assert len({(out / f"{number}.c").read_text() for number in range(30)}) == 1


@pytest.mark.parametrize(
    ("number", "status", "line"),
    [
        (signal.SIGINT, 130, "tvm-ext: interrupted.\n"),
        (signal.SIGTERM, 143, "tvm-ext: ended by SIGTERM.\n"),
        (signal.SIGHUP, 129, "tvm-ext: ended by SIGHUP.\n"),
    ],
)
def test_signals_that_ask_for_the_end(number: signal.Signals, status: int, line: str, tmp_path: Path) -> None:
    out = package(tmp_path)
    for moment in range(12 if number == signal.SIGINT else 4):
        process = start(tmp_path, "-c", WORK, str(out))
        wait_until_watched(tmp_path)
        time.sleep(0.037 * moment)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=30)
        assert (process.returncode, stdout, stderr) == (status, "", line)
        assert running(tmp_path) == [] and lying_about(tmp_path) == []
        assert_whole(out)


BETWEEN = """
import os, sys, time
from pathlib import Path
import tvm_ext.core.files.staging as staging
from tvm_ext.core.files.output_folder import replaced_folder
from tvm_ext.core.processes.supervise import supervised

def there(*arguments, **named):
    Path(sys.argv[2]).write_text("")
    time.sleep(60)

def work():
    if sys.argv[3] == "lock":
        staging.lock = there
    else:
        open_ = os.open
        staging.os.open = lambda path, *more: there() if Path(path).name == "lock" else open_(path, *more)
    if sys.argv[3] == "removal":
        staging.os.open, Path.rmdir = open_, there
    with replaced_folder(Path(sys.argv[1])) as new:
        (new / "a.c").write_text("after")

supervised(work)
"""


@pytest.mark.parametrize("step", ["folder", "lock", "removal"])
def test_between_two_steps_of_a_staging_folder(step: str, tmp_path: Path) -> None:
    """Made but not locked, the lock made but not held, the lock gone but not the folder."""
    out, here = package(tmp_path), tmp_path / "here"
    process = start(tmp_path, "-c", BETWEEN, str(out), str(here), step)
    end = time.monotonic() + 60
    while not here.exists():
        assert time.monotonic() < end and process.poll() is None, "does not come to that step"
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130 and lying_about(tmp_path) == []
    assert in_the_way(out) == []


def test_what_no_process_sees_coming(tmp_path: Path) -> None:
    """Killed at once, it leaves its folders; the next one here takes them away."""
    out = package(tmp_path)
    for moment in range(4):
        process = start(tmp_path, "-c", WORK, str(out))
        wait_until_watched(tmp_path)
        time.sleep(0.1 + 0.037 * moment)
        process.kill()
        process.wait()
        process.communicate()
        assert_whole(out)
    end = time.monotonic() + 20
    while running(tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    process = start(tmp_path, "-c", "from tvm_ext.core.processes.supervise import supervised\nsupervised(lambda: None)")
    assert process.wait(30) == 0 and os.listdir(tmp_path / "tmp") == []
    with replaced_folder(out) as new:
        (new / "a.c").write_text("")
    assert lying_about(tmp_path) == [] and in_the_way(out) == []


def test_a_command_is_interrupted_while_it_imports(tmp_path: Path) -> None:
    model = saved(SMALL_MODELS["unused_input"](), tmp_path)
    process = start(tmp_path, "-m", "tvm_ext", "compile", str(model), "-p", "host", "-o", str(tmp_path / "out"))
    wait_until_watched(tmp_path)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout, stderr) == (130, "", "tvm-ext: interrupted.\n")
    assert running(tmp_path) == [] and lying_about(tmp_path) == [] and not (tmp_path / "out").exists()


ENDS = [
    ("raise SystemExit(7)", 7, "", ""),
    ("raise SystemExit", 0, "", ""),
    ("print('done')", 0, "done\n", ""),
    ("1 / 0", 1, "", "ZeroDivisionError"),
    ("os.kill(os.getpid(), 11)", 1, "", "InternalError: ended by SIGSEGV (a defect of tvm-ext"),
    (
        "os.kill(os.getpid(), 9)",
        1,
        "",
        "OutOfMemory: ended by SIGKILL (the system ends programs with this signal if its memory",
    ),
    ("raise MemoryError('x')", 1, "", "OutOfMemory: the machine's memory is exhausted (x)"),
    ("limit(); os.abort()", 1, "", "OutOfMemory: ended by SIGABRT (memory ran out under this process's limit"),
]


@pytest.mark.parametrize(("work", "status", "out", "said"), ENDS, ids=[end[0] for end in ENDS])
def test_ends_of_the_work(work: str, status: int, out: str, said: str, tmp_path: Path) -> None:
    code = (
        "import os, resource\nfrom tvm_ext.core.processes.supervise import supervised\n"
        f"if 'limit()' in {work!r}: resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))\n"
        f"def limit(): pass\ndef work():\n    {work}\nsupervised(work)"
    )
    process = start(tmp_path, "-c", code)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (status, out) and said in stderr and os.listdir(tmp_path / "tmp") == []
    process = start(tmp_path, "-c", code, "--json")
    stdout, _ = process.communicate(timeout=30)
    if "os.kill" in work:
        kind = json.loads(stdout)["error"]["kind"]
        assert f"{kind}: " in said


def test_a_signal_that_is_ignored_from_the_start_stays_so(tmp_path: Path) -> None:
    code = "import time\nfrom tvm_ext.core.processes.supervise import supervised\nsupervised(lambda: time.sleep(1))"
    process = start(tmp_path, "-c", code, ignored=(signal.SIGHUP,))  # as nohup does
    wait_until_watched(tmp_path)
    process.send_signal(signal.SIGHUP)
    assert process.wait(30) == 0
    process.communicate()


def test_no_folder_for_temporary_files(tmp_path: Path) -> None:
    code = (
        "import tempfile\nfrom tvm_ext.core.processes import supervise\n"
        "tempfile.gettempdir = lambda: '/proc'\nsupervise.supervised(print)"
    )
    process = start(tmp_path, "-c", code)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (1, "")
    assert stderr.startswith("tvm-ext: no folder for temporary files is usable: ") and stderr.endswith(
        "to a writable folder.\n"
    )
