"""Functions in a process of their own: values there and back, and every way not to come back is an error."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tvm_ext.core.errors import BadInput, ChildFailed
from tvm_ext.core.processes.child import Child, ChildLimits

MODULE = "tests.support.misbehaving"
HALVES = np.array([1.5, -2.0], ml_dtypes.bfloat16)


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    limits = ChildLimits(seconds=30, memory_bytes=1 << 30, file_bytes=1 << 20)
    with Child(MODULE, limits=limits, writes=[tmp_path]) as child:
        yield child


def test_values_come_back_as_they_went(child: Child) -> None:
    value = {"": [None, True, 3, -0.5, "ü\0", b"\0\xff", {"list": [], "array": {}}], "bytes": {"inf": float("inf")}}
    assert child.call("same", value) == value
    for array in (np.zeros((0, 3), np.int8), np.array(2.5), np.arange(6, dtype=">u2").reshape(2, 3)[:, ::2], HALVES):
        back = child.call("same", array)
        assert back.dtype == array.dtype and back.shape == array.shape
        np.testing.assert_array_equal(back, array)


def test_what_is_no_value_is_refused_before_it_goes(child: Child) -> None:
    for value in (object(), np.array([object()]), {1, 2}):
        with pytest.raises(TypeError, match="cannot be sent to another process"):
            child.call("same", value)
    assert child.call("same", 1) == 1


def test_state_stays_between_calls_and_prints_do_no_harm(child: Child) -> None:
    assert [child.call("count"), child.call("print_and_count"), child.call("count")] == [1, 7, 2]


def test_a_function_may_ask_back(child: Child) -> None:
    assert child.call("total_of_asked", [1, 2, 3], ask=lambda number: 10 * number) == 60


def test_our_errors_keep_their_class_others_name_theirs(child: Child) -> None:
    with pytest.raises(BadInput, match="input 'x' is wrong"):
        child.call("raise_ours")
    with pytest.raises(ChildFailed, match=r"misbehaving\.raise_foreign raised KeyError"):
        child.call("raise_foreign")
    with pytest.raises(ChildFailed, match="raised AttributeError"):
        child.call("no_such_function")
    assert child.call("same", 1) == 1


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGKILL])
def test_a_crash_is_an_error_with_what_was_printed(child: Child, number: int) -> None:
    with pytest.raises(ChildFailed, match=rf"ended by signal {signal.Signals(number).name}(.|\n)*about to crash"):
        child.call("crash", int(number))


def test_leaving_is_an_error(child: Child) -> None:
    with pytest.raises(ChildFailed, match="left with exit status 0"):
        child.call("leave", 0)
    with pytest.raises(ChildFailed):
        child.call("same", 1)


def test_time_is_limited_and_what_it_started_ends_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    begin = time.monotonic()
    with (
        Child(MODULE, limits=ChildLimits(seconds=2), trusted=True) as child,
        pytest.raises(ChildFailed, match=r"start_and_sleep did not end within 2 s"),
    ):
        child.call("start_and_sleep", 60, str(pid_file))
    assert time.monotonic() - begin < 30
    assert _ends(int(pid_file.read_text()), seconds=10)


def _ends(pid: int, *, seconds: float) -> bool:
    """Killed processes end when they are next scheduled, on a loaded machine a while after the signal."""
    end = time.monotonic() + seconds
    while _runs(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_memory_and_files_are_limited(child: Child, tmp_path: Path) -> None:
    with pytest.raises(ChildFailed, match=r"raised .*MemoryError"):
        child.call("allocate", 2 << 30)
    child.call("write_file", str(tmp_path / "small"), 1000)
    with pytest.raises(ChildFailed, match=r"SIGXFSZ|File too large"):
        child.call("write_file", str(tmp_path / "large"), 1 << 21)


def test_a_module_that_is_not_there_is_an_error() -> None:
    with Child("tests.support.no_such_module") as child, pytest.raises(ChildFailed, match="ModuleNotFoundError"):
        child.call("same", 1)
