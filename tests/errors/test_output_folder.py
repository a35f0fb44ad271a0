"""The output folder is replaced whole, or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext import BuildOptions, Package
from tvm_ext.core.errors import BadPackage, RunFailed
from tvm_ext.core.output_folder import replaced_folder

FAST = BuildOptions(verify=())


@pytest.fixture
def mod(tmp_path: Path):
    (tmp_path / "models").mkdir()
    return tvm_ext.load(saved(SMALL_MODELS["unused_input"](), tmp_path / "models"))


def test_a_file_is_not_replaced(mod, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("mine")
    with pytest.raises(BadPackage, match="is not a folder; choose another"):
        tvm_ext.build(mod, "host", out, FAST)
    assert out.read_text() == "mine"


def test_a_link_is_not_followed(mod, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "real")
    with pytest.raises(BadPackage, match="is not a folder"):
        tvm_ext.build(mod, "host", tmp_path / "out", FAST)


def test_foreign_files_are_not_replaced(mod, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    with pytest.raises(BadPackage, match="holds files that are no package"):
        tvm_ext.build(mod, "host", out, FAST)
    assert [file.name for file in out.iterdir()] == ["thesis.txt"]


def test_a_parent_that_is_a_file(mod, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadPackage, match=r"cannot be written: (Not a directory|File exists)"):
        tvm_ext.build(mod, "host", tmp_path / "file" / "out", FAST)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_parent_without_permission(mod, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(BadPackage, match="cannot be written: Permission denied"):
        tvm_ext.build(mod, "host", locked / "out", FAST)


def test_a_folder_the_system_refuses_to_make(mod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tvm_ext.package.tempfile.mkdtemp", refuse)
    with pytest.raises(BadPackage, match="out: cannot be written: Permission denied; choose another output folder"):
        tvm_ext.build(mod, "host", tmp_path / "out", FAST)
    assert not (tmp_path / "out").exists()


def test_an_empty_folder_and_missing_parents_are_fine(mod, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "a" / "b" / "c"):
        assert tvm_ext.build(mod, "host", out, FAST).folder == out
        assert [item.name for item in out.parent.iterdir() if item.name.startswith(".")] == []


def test_a_package_is_replaced_whole(mod, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tvm_ext.build(mod, "host", out, BuildOptions(verify=(), name="before"))
    (out / "note.txt").write_text("stale")
    tvm_ext.build(mod, "host", out, FAST)
    names = {file.name for file in out.iterdir()}
    assert "note.txt" not in names and not any(name.startswith("before") for name in names)


def test_an_interruption_leaves_the_old_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.json").write_text("old")
    with pytest.raises(KeyboardInterrupt), replaced_folder(out) as new:
        (new / "report.json").write_text("new")
        raise KeyboardInterrupt
    assert (out / "report.json").read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["out"]


def test_what_is_no_package_does_not_open(tmp_path: Path) -> None:
    with pytest.raises(BadPackage, match="is not a package"):
        Package.load(tmp_path)


def test_a_package_without_its_platform_or_board(mod, tmp_path: Path) -> None:
    package = tvm_ext.build(mod, "host", tmp_path / "out", FAST)
    inputs = {name: [[0]] for name in package.inputs}
    with pytest.raises(RunFailed, match="has no firmware: host has no board"):
        package.run(inputs, on="qemu")
    (package.folder / "platform.json").write_text("{")
    with pytest.raises(BadPackage, match=r"platform\.json: cannot be read"):
        _ = package.platform
