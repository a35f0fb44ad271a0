"""The output folder is replaced whole, or not at all."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext import BuildOptions, Package
from tvm_ext.core.errors import BadPackage, RunFailed
from tvm_ext.core.files import staging
from tvm_ext.core.files.output_folder import check_output, in_the_way, replaced_folder

FAST = BuildOptions(verify=())


def ours(folder: Path, name: str = "out") -> Path:
    """A folder as an output leaves it."""
    with replaced_folder(folder / name) as new:
        (new / "board").mkdir()
        for file in ("Makefile", "a.c", "liba.a", "board/link.ld"):
            (new / file).write_text(file)
        (new / "report.json").write_text("{}")
    return folder / name


def everything(folder: Path) -> dict[str, bytes | None]:
    """All that is below a folder; None for what is not a regular file."""
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return {n: p.read_bytes() if p.is_file() and not p.is_symlink() else None for n, p in sorted(names.items())}


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
    with pytest.raises(BadPackage, match=r"has no manifest\.json .* holds thesis\.txt, which would be lost"):
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

    monkeypatch.setattr("tvm_ext.core.files.staging.tempfile.mkdtemp", refuse)
    with pytest.raises(BadPackage, match="out: cannot be written: Permission denied; choose another output folder"):
        tvm_ext.build(mod, "host", tmp_path / "out", FAST)
    assert not (tmp_path / "out").exists()


def test_an_empty_folder_and_missing_parents_are_fine(mod, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "a" / "b" / "c"):
        assert tvm_ext.build(mod, "host", out, FAST).folder == out
        assert [item.name for item in out.parent.iterdir() if item.name.startswith(".")] == []


def test_a_package_is_replaced_whole_after_make_ran_in_it(mod, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tvm_ext.build(mod, "host", out, BuildOptions(verify=(), name="before"))
    subprocess.run(["make", "all", "selftest"], cwd=out, check=True, capture_output=True)
    assert (out / "build" / "before.o").is_file() and in_the_way(out) == []
    tvm_ext.build(mod, "host", out, FAST)
    assert not any(file.name.startswith("before") for file in out.iterdir())
    assert not (out / "build").exists() and in_the_way(out) == []


def test_an_interruption_leaves_the_old_folder(tmp_path: Path) -> None:
    out = ours(tmp_path)
    with pytest.raises(KeyboardInterrupt), replaced_folder(out) as new:
        (new / "report.json").write_text("new")
        raise KeyboardInterrupt
    assert (out / "report.json").read_text() == "{}"
    assert [item.name for item in tmp_path.iterdir()] == ["out"]


def test_what_is_no_package_does_not_open(tmp_path: Path) -> None:
    with pytest.raises(BadPackage, match="is not a package"):
        Package.load(tmp_path)


def test_a_package_without_its_platform_or_board(mod, tmp_path: Path) -> None:
    package = tvm_ext.build(mod, "host", tmp_path / "out", FAST)
    inputs = {port["name"]: np.zeros(port["shape"], port["dtype"]) for port in package.report["inputs"]}
    with pytest.raises(RunFailed, match="has no firmware: host has no board"):
        package.run(inputs, on="qemu")
    (package.folder / "platform.json").write_text("{")
    with pytest.raises(BadPackage, match=r"platform\.json: cannot be read"):
        _ = package.platform


OBSTACLES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file": (lambda out: (out / "thesis.txt").write_text("mine"), r"thesis\.txt"),
    "a hidden file": (lambda out: (out / ".env").write_text("mine"), r"\.env"),
    "a file in a folder of ours": (lambda out: (out / "board" / "pins.h").write_text("mine"), r"board/pins\.h"),
    "a repository": (lambda out: ((out / ".git").mkdir(), (out / ".git" / "HEAD").write_text("x")), r"\.git/HEAD"),
    "an empty folder": (lambda out: (out / "empty").mkdir(), "empty/"),
    "a link": (lambda out: (out / "link").symlink_to("/etc"), r"link \(no plain file\)"),
    "a dangling link": (lambda out: (out / "link").symlink_to("nowhere"), r"link \(no plain file\)"),
    "a pipe": (lambda out: os.mkfifo(out / "pipe"), r"pipe \(no plain file\)"),
    "an edited file": (lambda out: (out / "a.c").write_text("edited"), r"a\.c \(changed\)"),
    "a link in place of a file": (
        lambda out: ((out / "a.c").unlink(), (out / "a.c").symlink_to("Makefile")),
        r"a\.c \(no plain file\)",
    ),
    "another product": (lambda out: ((out / "build").mkdir(), (out / "build" / "b.o").write_text("")), r"build/b\.o"),
    "a linked product": (
        lambda out: ((out / "build").mkdir(), (out / "build" / "a.o").symlink_to("../a.c")),
        r"build/a\.o \(no plain file\)",
    ),
    "no manifest": (lambda out: (out / "manifest.json").unlink(), r"no manifest\.json .* Makefile, a\.c, board"),
    "a manifest that is none": (lambda out: (out / "manifest.json").write_text("[" * 10**5), r"Makefile, a\.c"),
    "a manifest of another kind": (lambda out: (out / "manifest.json").write_text('{"files": ["a.c"]}'), "Makefile"),
    "a manifest that is a pipe": (
        lambda out: ((out / "manifest.json").unlink(), os.mkfifo(out / "manifest.json")),
        "Makefile",
    ),
    "a manifest that lists what is outside": (
        lambda out: (out / "manifest.json").write_text('{"files": {"../x": "", "/etc/passwd": ""}}'),
        "Makefile",
    ),
    "an old package": (
        lambda out: ((out / "manifest.json").unlink(), (out / "report.json").write_text('{"schema_version": 1}')),
        "no manifest",
    ),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_is_not_ours_stays(name: str, tmp_path: Path) -> None:
    out = ours(tmp_path)
    obstacle, message = OBSTACLES[name]
    obstacle(out)
    before = everything(tmp_path)
    with pytest.raises(BadPackage, match=message), replaced_folder(out):
        pass
    assert everything(tmp_path) == before


def test_what_comes_while_a_build_runs_stays(tmp_path: Path) -> None:
    out = ours(tmp_path)
    with pytest.raises(BadPackage, match=r"thesis\.txt"), replaced_folder(out) as new:
        (new / "a.c").write_text("new")
        (out / "thesis.txt").write_text("mine")
        before = everything(out)
    assert everything(out) == before and os.listdir(tmp_path) == ["out"]


def test_listed_files_may_be_missing_and_products_differ(tmp_path: Path) -> None:
    out = ours(tmp_path)
    (out / "a.c").unlink()
    (out / "liba.a").write_text("made anew")
    with replaced_folder(out) as new:
        (new / "b.c").write_text("")
    assert sorted(os.listdir(out)) == ["b.c", "manifest.json"]


def test_equal_outputs_have_equal_manifests(tmp_path: Path) -> None:
    one, other = ours(tmp_path, "one"), ours(tmp_path, "other")
    assert (one / "manifest.json").read_bytes() == (other / "manifest.json").read_bytes()


def test_folders_that_hold_more_than_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "home" / "work"
    inner.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(BadPackage, match="is or holds the home folder"):
        check_output(tmp_path / "home")
    monkeypatch.setenv("HOME", "/")
    monkeypatch.chdir(inner)
    for folder in (inner, tmp_path / "home", Path("../work")):
        with pytest.raises(BadPackage, match="is or holds the working folder"):
            check_output(folder)
    for folder in (Path(""), Path("."), Path(".."), Path("/"), Path("a\0b"), Path("a\nb")):
        with pytest.raises(BadPackage, match="this folder cannot be replaced"):
            check_output(folder)
    monkeypatch.setattr(os.path, "ismount", lambda path: True)
    with pytest.raises(BadPackage, match="mount point of a file system"):
        check_output(ours(tmp_path))


@pytest.mark.parametrize("place", ["a" * 300, "/proc/x", "/dev/null", "/dev/null/x", "/sys/x/y"])
def test_places_that_cannot_be_written(place: str, tmp_path: Path) -> None:
    with pytest.raises(BadPackage, match=r"cannot be written: .*; choose another|is not a folder"):
        check_output(tmp_path / place)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_a_full_or_broken_disk_leaves_the_old_folder(number: int, tmp_path: Path) -> None:
    out = ours(tmp_path)
    before = everything(tmp_path)
    with pytest.raises(BadPackage, match=f"out: cannot be written: {os.strerror(number)}"), replaced_folder(out):
        raise OSError(number, os.strerror(number))
    assert everything(tmp_path) == before


def test_files_larger_than_the_system_lets_them_be(tmp_path: Path) -> None:
    out = ours(tmp_path)
    before = everything(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        with pytest.raises(BadPackage, match="cannot be written: File too large"), replaced_folder(out) as new:
            (new / "weights.c").write_bytes(bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert everything(tmp_path) == before


def test_without_an_exchange_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = ours(tmp_path)
    monkeypatch.setattr(staging, "_exchanged", lambda one, other: False)
    with replaced_folder(out) as new:
        (new / "b.c").write_text("")
    assert sorted(os.listdir(out)) == ["b.c", "manifest.json"] and os.listdir(tmp_path) == ["out"]
    (out / "mine").write_text("")
    monkeypatch.setattr("tvm_ext.core.files.output_folder.check_output", lambda folder: None)
    with pytest.raises(BadPackage, match="mine"), replaced_folder(out):
        pass
    assert sorted(os.listdir(out)) == ["b.c", "manifest.json", "mine"] and os.listdir(tmp_path) == ["out"]


def test_builds_to_one_output_at_once_leave_one_of_them_whole(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom tvm_ext.core.files.output_folder import replaced_folder\n"
        "for turn in range(20):\n    with replaced_folder(Path(sys.argv[1])) as new:\n"
        "        for n in range(20): (new / f'{sys.argv[2]}{n}').write_text(f'{turn}')\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "out")]
    running = [subprocess.Popen([*command, who], stderr=subprocess.PIPE, text=True) for who in "abc"]
    said = [process.communicate(timeout=60)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], said
    names = set(os.listdir(tmp_path / "out")) - {"manifest.json"}
    assert len(names) == 20 and len({name[0] for name in names}) == 1
    assert in_the_way(tmp_path / "out") == [] and os.listdir(tmp_path) == ["out"]
