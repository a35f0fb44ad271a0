"""Staging folders: what a killed process left is cleared, what a living one holds is not, nor anything else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tvm_ext.core.files.staging import LOCK, OLD, PREFIX, remove_stale, staged

HOLDER = (
    "import sys, time\nfrom pathlib import Path\nfrom tvm_ext.core.files.staging import staged\n"
    "with staged(Path(sys.argv[1]), 'out') as folder:\n"
    "    (folder / 'new').mkdir()\n    (folder / 'new' / 'half').write_text('')\n"
    "    print('ready', flush=True)\n    time.sleep(60)\n"
)


def holder(parent: Path) -> subprocess.Popen[str]:
    """A process that works in a staging folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(parent)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_process_left_goes_with_the_next_one(number: signal.Signals, tmp_path: Path) -> None:
    with holder(tmp_path) as living, holder(tmp_path) as killed:
        killed.send_signal(number)
        killed.wait()
        assert len(os.listdir(tmp_path)) == 2
        with staged(tmp_path) as own:
            assert own.is_dir() and len(os.listdir(tmp_path)) == 2  # ours, and the living one's
        (left,) = tmp_path.iterdir()
        assert (left / "new" / "half").exists()
        living.kill()
    remove_stale(tmp_path)
    assert os.listdir(tmp_path) == []


def test_what_was_set_aside_comes_back(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        (folder,) = tmp_path.iterdir()
        (folder / OLD).mkdir()
        (folder / OLD / "a.c").write_text("old")
        process.kill()
    remove_stale(tmp_path)
    assert (tmp_path / "out" / "a.c").read_text() == "old" and os.listdir(tmp_path) == ["out"]


def test_what_only_looks_like_one_stays(tmp_path: Path) -> None:
    folders = {"mine": {"x": ""}, "locked": {LOCK: "another's", "x": ""}, "empty": {LOCK: "", "x": ""}}
    for name, files in folders.items():
        (tmp_path / (PREFIX + name)).mkdir()
        for file, text in files.items():
            (tmp_path / (PREFIX + name) / file).write_text(text)
    (tmp_path / f"{PREFIX}file").write_text("")
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / f"{PREFIX}mine")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    remove_stale(tmp_path)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_what_was_ended_between_its_first_steps_goes(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}a").mkdir()
    (tmp_path / f"{PREFIX}b").mkdir()
    (tmp_path / f"{PREFIX}b" / LOCK).write_text("")
    remove_stale(tmp_path)
    assert os.listdir(tmp_path) == []
    remove_stale(tmp_path / "absent")


def test_a_folder_that_vanishes_while_it_is_made_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def lose(path: object, *arguments: int, _open=os.open) -> int:
        made.extend([path] if Path(str(path)).name == LOCK else [])
        if made == [path]:
            Path(str(path)).parent.rmdir()
        return _open(path, *arguments)

    monkeypatch.setattr("tvm_ext.core.files.staging.os.open", lose)
    with staged(tmp_path) as folder:
        assert folder.is_dir() and len(made) == 2
    assert os.listdir(tmp_path) == []
