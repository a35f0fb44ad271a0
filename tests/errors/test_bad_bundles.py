"""Bundle files that cannot be: each error says what, where, and the way out, and nothing is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import tvm_ext
import tvm_ext.bundles.bundler
import tvm_ext.bundles.verify
import tvm_ext.execution.bundle_runner
from tests.golden import models as plain
from tests.support.bundles import written
from tvm_ext.core.bundle_file import BundleFile
from tvm_ext.core.errors import (
    BadBundle,
    BadModel,
    BadPlatform,
    DoesNotFit,
    PlanRejected,
    RunFailed,
    VerificationFailed,
)
from tvm_ext.core.platform import Platform
from tvm_ext.execution.bundle_runner import run_bundle_on_board, selftest_on_board
from tvm_ext.verification.judgement import Problem

MODEL = '[[models]]\nname = "one"\nfile = "one.onnx"\n'
TEXTS = [
    ("", r"name: is missing"),
    ('name = "door"', r"models: is missing"),
    ('name = "door"\nmodels = []', r"models = \[\]: tuple should have at least 1 item"),
    (f'name = "Door"\n{MODEL}', r"name = 'Door': string should match pattern"),
    (f'name = "door"\nspeed = 1\n{MODEL}', r"speed: unknown key; allowed here: name, models, at_once"),
    (f'name = "door"\nfolder = "/"\n{MODEL}', r"folder: unknown key"),
    (f'name = "door"\n{MODEL}shape = 1\n', r"models\[0\]\.shape: unknown key; allowed here: name, file, shapes"),
    (f'name = "door"\n{MODEL}options.verify = ["host"]\n', r"options\.verify: unknown key; allowed here: optimize"),
    (f'name = "door"\n{MODEL}options.ram = "64KB"\n', r"models\[0\]\.options\.ram = '64KB': is not a size"),
    (f'name = "door"\n{MODEL}options.optimize = "both"\n', r"optimize = 'both'"),
    (f'name = "door"\n{MODEL}options.pin = {{x = 3}}\n', r"models\[0\]\.options \(one\): pin x=3: an offset is a mult"),
    (f'name = "door"\n{MODEL}{MODEL}', r"models\[1\]\.name = 'one' is another model's"),
    (f'name = "one"\n{MODEL}', r"names 'one' and 'one': what is generated for one begins as"),
    (f'name = "one_door"\n{MODEL}', r"names 'one' and 'one_door'.*Choose names none of which begins as another"),
    (f'name = "stdio"\n{MODEL}', r"stdio\.h would hide another header"),
    (f'name = "door"\nat_once = [["one", "two"]]\n{MODEL}', r"at_once\[0\]: 'two' is no model of the bundle: one\."),
    (f'name = "door"\nat_once = [["one", "one"]]\n{MODEL}', r"at_once\[0\]: names a model twice"),
    (f'name = "door"\nat_once = [["one"]]\n{MODEL}', r"at_once\[0\] = \['one'\]"),
    (f'name = "door"\nat_once = 2020-01-01\n{MODEL}', r"holds what no key of a bundle is"),
    (f'name = "door"\nx = 0x{"f" * 5000}\n{MODEL}', r"holds what no key of a bundle is: .*4300 digits"),
    ("name = ", r"is not valid TOML"),
    (".".join("a" * 40) + " = 1", r"holds a key of more than 16 parts"),
    ("x = " + "[" * 5000 + "]" * 5000, r"is not valid TOML"),
]


@pytest.mark.parametrize(("text", "said"), TEXTS, ids=range(len(TEXTS)))
def test_files_that_cannot_be(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "BUNDLE.toml"
    path.write_text(text)
    with pytest.raises(BadBundle, match=said) as found:
        BundleFile.load(path)
    assert str(path) in str(found.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadBundle, match=r"none\.toml: cannot be read: No such file"):
        BundleFile.load(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(BadBundle, match=r"is not UTF-8 text"):
        BundleFile.load(tmp_path / "bytes.toml")
    (tmp_path / "large.toml").write_text("#" * ((1 << 20) + 1))
    with pytest.raises(BadBundle, match=r"the limit is"):
        BundleFile.load(tmp_path / "large.toml")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../secret.onnx", r"models\.one\.file = '\.\./secret\.onnx': is no plain path"),
        ("a/../../secret.onnx", r"is no plain path"),
        ("/etc/../secret.onnx", r"is no plain path"),
        ("~/secret.onnx", r"is no plain path"),
        ("a\\u0000b", r"is no plain path"),
        ("link/secret.onnx", r"leads out of .*; move the file there, or give its whole path"),
        ("loop/secret.onnx", r"leads out of"),
    ],
)
def test_paths_that_lead_elsewhere(name: str, said: str, tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    (folder / "loop").symlink_to("loop")
    (folder / "BUNDLE.toml").write_text(f'name = "door"\n[[models]]\nname = "one"\nfile = "{name}"\n')
    file = BundleFile.load(folder / "BUNDLE.toml")
    with pytest.raises(BadBundle, match=said):
        tvm_ext.bundle(file, "host", tmp_path / "package")
    assert not (tmp_path / "package").exists()


def test_plain_paths_are_taken(tmp_path: Path) -> None:
    text = f'name = "door"\n[[models]]\nname = "one"\nfile = "{tmp_path}/elsewhere.onnx"\nverify_inputs = "in/x.npz"\n'
    (tmp_path / "BUNDLE.toml").write_text(text)
    file = BundleFile.load(tmp_path / "BUNDLE.toml")
    (model,) = file.models
    assert file.path_of(model, "file") == tmp_path / "elsewhere.onnx"
    assert file.path_of(model, "verify_inputs") == tmp_path / "in" / "x.npz" and file.path_of(model, "initial") is None


def test_nothing_is_left_of_what_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, {"plain": plain.float_network()}, {"one": {"file": "plain.onnx"}})
    small = Platform.load("host")
    ram = small.memory(small.activations)
    memories = tuple(replace(m, capacity_bytes=600) if m is ram else m for m in small.memories)
    many = {name: {"file": "plain.onnx"} for name in ("one", "two", "three")}
    together = written(tmp_path, {"plain": plain.float_network()}, many, at_once=[["one", "two", "three"]])
    with pytest.raises(DoesNotFit, match=r"door: its models need \d+ B of ram together.*host has \d+ B, \d+ B less"):
        tvm_ext.bundle(together, replace(small, memories=memories), tmp_path / "package", verify=())
    with monkeypatch.context() as patch:
        patch.setattr(tvm_ext.bundles.bundler, "overlay_faults", lambda *_: ["one and two meet"])
        with pytest.raises(PlanRejected, match=r"door: one and two meet\. This is a defect of tvm-ext"):
            tvm_ext.bundle(path, "host", tmp_path / "package", verify=())
    with monkeypatch.context() as patch:
        wrong = ({"host": None, "qemu": None}, [Problem(text="host: differs")])
        patch.setattr(tvm_ext.bundles.verify, "judged_runs", lambda *_: wrong)
        with pytest.raises(VerificationFailed, match=r"door: the C code does not compute the model: one: host: diff"):
            tvm_ext.bundle(path, "host", tmp_path / "package")
    absent = written(tmp_path, {}, {"one": {"file": "plain.onnx"}, "two": {"file": "absent.onnx"}})
    with pytest.raises(BadModel, match=r"two: .*absent\.onnx: no such file"):
        tvm_ext.bundle(absent, "host", tmp_path / "package", verify=())
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["BUNDLE.toml", "plain.onnx"]


@pytest.mark.parametrize("name", ["state", "linked"])
def test_no_memory_has_the_name_of_what_models_keep(name: str, tmp_path: Path) -> None:
    text = (Path(tvm_ext.__file__).parent / "platforms" / "cortex_m4.toml").read_text()
    (tmp_path / "board.toml").write_text(text.replace('"sram"', f'"{name}"'))
    with pytest.raises(BadPlatform, match=rf"name = '{name}' is reserved for the states of models"):
        Platform.load(tmp_path / "board.toml")


def test_boards_that_cannot_run_a_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host, board = Platform.load("host"), Platform.load("cortex_m4")
    with pytest.raises(RunFailed, match=r"platform host has no board; run the bundle on the host"):
        run_bundle_on_board(tmp_path / "door.elf", host, ["one"], {}, {}, time_limit_s=1)
    said = SimpleNamespace(stdout="FAIL second state\n", stderr="", problem=None, status=1, left="ended with status 1")
    monkeypatch.setattr(tvm_ext.execution.bundle_runner, "run_program", lambda *_, **__: said)
    monkeypatch.setattr(tvm_ext.execution.qemu_start, "find_program", lambda name: "/bin/true")
    complaint = selftest_on_board(tmp_path / "door.elf", board, time_limit_s=1)
    assert complaint == "its self-test ended with status 1: FAIL second state"
    said.stdout, said.status = "one instructions=1\nPASS\n", 0
    assert selftest_on_board(tmp_path / "door.elf", board, time_limit_s=1) is None
    said.stdout = "RAN; compared nothing\n"
    assert selftest_on_board(tmp_path / "door.elf", board, time_limit_s=1)
