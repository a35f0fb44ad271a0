"""Packages of models that two cores share: built, verified and counted on the board, and opened again."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import onnx
import pytest

import tvm_ext
from codegen_c.program.parallel import ParallelProgram
from tests.golden import models
from tests.support.placed import place_by_hand
from tvm_ext import BuildOptions, Package, Platform
from tvm_ext.building import build as alone
from tvm_ext.building.subject import make_subject
from tvm_ext.core.errors import BadPackage, DoesNotFit, MissingTool
from tvm_ext.core.toolchain import disassembly
from tvm_ext.execution import board
from tvm_ext.execution import qemu_start as qemu_plugin
from tvm_ext.execution.qemu_start import QemuExtras
from tvm_ext.frontends.shapes import ModelNotice

pytestmark = pytest.mark.board
DSP_OR_FPU = re.compile(r"\t(v(?!scclrm)\w+\.f32|smla\w*|smmla\w*|sxtb16|pkhbt|qadd16)\b")


def built(folder: Path, platform: str, **options: object) -> Package:
    onnx.save(models.integer_network(), folder / "net.onnx")
    chosen = BuildOptions(verify=("host", "qemu"), **options)  # type: ignore[arg-type]
    return tvm_ext.build(tvm_ext.load(folder / "net.onnx"), platform, folder / "package", chosen)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """A network on dual_m33 with every other operator on cpu1."""
    with pytest.MonkeyPatch.context() as patched:
        place_by_hand(patched, lambda index, _: "cpu1" if index % 2 else "")
        return built(tmp_path_factory.mktemp("shared"), "dual_m33", processors=("cpu0",))


def test_the_report_tells_of_each_processor(package: Package) -> None:
    report = package.report
    assert all(report["verify"][target]["passed"] for target in ("host", "qemu"))
    first, second = report["processors"]
    assert (first["name"], second["name"]) == ("cpu0", "cpu1")
    assert [step["name"] for step in report["steps"]] == [
        name for pair in zip(first["steps"], second["steps"], strict=True) for name in pair
    ]
    assert report["signals"] == 6
    assert 0 < second["instructions"] < first["instructions"] < report["makespan_instructions"]
    assert report["makespan_instructions"] == report["verify"]["qemu"]["instructions"]
    assert report["single_processor_instructions"] > 0
    assert report["stack_bound_of"]["cpu1"]["num_bytes"] > 0


def test_it_is_opened_again_and_runs_on_both(package: Package) -> None:
    again = Package.load(package.folder)
    assert again.interface == package.interface and again.interface.servers == ("cpu1",)
    sample = {"x": np.linspace(-2, 2, 75, dtype=np.float32).reshape(1, 3, 5, 5)}
    host = again.run(sample)["y"]
    ran = again.run_board([sample])
    np.testing.assert_array_equal(ran.outputs[0]["y"], host)
    assert ran.instructions is None and ran.shared is None  # only a build knows the lists
    with again.session() as session:
        for _ in range(5):
            np.testing.assert_array_equal(session.run(sample)["y"], host)


def test_an_emulator_that_does_not_take_the_plugin_counts_nothing_and_says_so(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = QemuExtras(arguments=("-plugin", "file=not_there.so"))
    monkeypatch.setattr(board, "count_plugin", lambda *_: absent)
    sample = {"x": np.zeros((1, 3, 5, 5), np.float32)}
    with pytest.warns(ModelNotice, match="not counted, because QEMU failed with the plugin"):
        ran = board.run_qemu(
            package.folder / "net.elf", Platform.load("dual_m33"), package.interface, [sample], time_limit_s=30,
            parallel=cast("ParallelProgram", object()),
        )  # fmt: skip
    assert ran.instructions is None and ran.shared is None
    np.testing.assert_array_equal(ran.outputs[0]["y"], package.run(sample)["y"])


@pytest.mark.parametrize("names", [["cpu0"], ["cpu0", "cpu2"], ["cpu0", "cpu1", "cpu1"]])
def test_a_report_of_other_processors_is_refused(package: Package, names: list[str], tmp_path: Path) -> None:
    """Without the right ones, a run would wait for ever."""
    shutil.copytree(package.folder, tmp_path / "copy")
    report = json.loads((tmp_path / "copy" / "report.json").read_text(encoding="utf-8"))
    report["processors"] = [{"name": name} for name in names]
    (tmp_path / "copy" / "report.json").write_text(json.dumps(report), encoding="utf-8")
    with pytest.raises(BadPackage, match=r"differs from report\.json, which has the serving processors"):
        Package.load(tmp_path / "copy")


def test_a_core_without_dsp_and_fpu_gets_none_of_their_code(package: Package, tmp_path: Path) -> None:
    shutil.copytree(package.folder, tmp_path / "copy")
    subprocess.run(["make", "-s"], cwd=tmp_path / "copy", check=True, timeout=120)
    toolchain = package.platform.toolchain
    texts = {path.stem: disassembly(path, toolchain) for path in (tmp_path / "copy" / "build").glob("*.o")}
    assert DSP_OR_FPU.search(texts.pop("integer_network_cpu1" if "integer_network_cpu1" in texts else "net_cpu1"))
    assert {name for name, text in texts.items() if DSP_OR_FPU.search(text)} == set()


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
def test_no_flags_of_one_core_reach_the_files_of_another(package: Package, tmp_path: Path) -> None:
    """In CMake, where the first core's flags belong to the library and to what links it."""
    shutil.copytree(package.folder, tmp_path / "copy")
    lists = tmp_path / "copy" / "CMakeLists.txt"
    own = " ".join(package.platform.toolchain.flags)
    lists.write_text(lists.read_text().replace(f"set(TARGET {own})", f"set(TARGET {own} -DFIRST_CORE)"))
    for command in (["-S", ".", "-B", "built", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"], ["--build", "built"]):
        subprocess.run(["cmake", *command], cwd=tmp_path / "copy", check=True, timeout=120, capture_output=True)
    commands = json.loads((tmp_path / "copy" / "built" / "compile_commands.json").read_text())
    first = {Path(entry["file"]).name: "-DFIRST_CORE" in entry["command"] for entry in commands}
    assert [name for name, has_it in first.items() if not has_it] == ["net_cpu1.c"] and len(first) > 5
    (other,) = (entry["command"] for entry in commands if entry["file"].endswith("net_cpu1.c"))
    assert "-mfpu=fpv5-sp-d16" in other
    listed = subprocess.run(
        ["arm-none-eabi-ar", "t", "built/libnet.a"], cwd=tmp_path / "copy", check=True, capture_output=True, text=True
    )
    assert "net_cpu1.c.obj" in listed.stdout


def test_make_runs_it_on_the_board_and_on_the_host(package: Package, tmp_path: Path) -> None:
    shutil.copytree(package.folder, tmp_path / "copy")
    for target, said in (("run", "PASS"), ("selftest", "PASS 1 vectors, 96 drawn")):
        done = subprocess.run(
            ["make", "-s", target], cwd=tmp_path / "copy", check=True, capture_output=True, text=True, timeout=120
        )
        assert (done.stdout + done.stderr).rstrip().endswith(said)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
def test_cmake_runs_it_on_the_board(package: Package, tmp_path: Path) -> None:
    shutil.copytree(package.folder, tmp_path / "copy")
    for command in (["cmake", "-S", ".", "-B", "made"], ["cmake", "--build", "made", "--target", "run"]):
        done = subprocess.run(command, cwd=tmp_path / "copy", check=True, capture_output=True, text=True, timeout=120)
    assert "PASS" in done.stdout + done.stderr


def test_the_readme_says_how_the_other_core_serves(package: Package) -> None:
    text = (package.folder / "README.md").read_text(encoding="utf-8")
    makespan = package.report["makespan_instructions"]
    assert "net_serve_cpu1();" in text and f"the time of {makespan} instructions" in text
    assert "`net_cpu1.c` runs on another processor" in text and "-mfloat-abi=softfp" in text


def test_without_a_c_compiler_of_the_host_nothing_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> list[Path]:
        raise MissingTool("gcc is not on PATH")

    monkeypatch.setattr(qemu_plugin, "compile_objects", missing)
    place_by_hand(monkeypatch, lambda index, _: "cpu1" if index % 2 else "")
    report = built(tmp_path, "dual_m33_equal", processors=("cpu0",), io="caller").report
    assert report["verify"]["qemu"]["passed"] and report["makespan_instructions"] is None
    assert [one["instructions"] for one in report["processors"]] == [None, None]
    assert report["single_processor_instructions"] is None


def test_what_does_not_fit_one_processor_is_compared_with_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*_: object) -> None:
        raise DoesNotFit("sram is too small")

    monkeypatch.setattr(alone, "compiled_alone", too_large)
    compiled = SimpleNamespace(platform=Platform.load("dual_m33"), placement=None)
    assert alone.instructions_alone(SimpleNamespace(compiled=compiled), BuildOptions()) is None  # type: ignore[arg-type]


def test_floats_leave_a_core_without_an_fpu_no_work(tmp_path: Path) -> None:
    onnx.save(models.float_network(), tmp_path / "net.onnx")
    package = tvm_ext.build(
        tvm_ext.load(tmp_path / "net.onnx"), "dual_m33", tmp_path / "package", BuildOptions(verify=("qemu",))
    )
    first, second = package.report["processors"]
    assert first["steps"] == [] and len(second["steps"]) == len(package.report["steps"])
    assert package.report["verify"]["qemu"]["passed"]


def test_the_plugin_counts_as_the_emulators_clock_does(tmp_path: Path) -> None:
    """The same code on either of two equal cores; of the one that the other calls, two signals are counted, too."""
    onnx.save(models.integer_network(), tmp_path / "net.onnx")
    platform, options = Platform.load("dual_m33_equal"), BuildOptions(processors=("cpu0",))
    subject = make_subject(
        tvm_ext.load(tmp_path / "net.onnx"), platform, options, calibration=None, verify_inputs=None, verifies=True,
        progress=None,
    )  # fmt: skip
    counted: dict[str, int] = {}
    for name in ("cpu0", "cpu1"):
        compiled = replace(subject.compiled, placement={"single_processor": {"name": name}})
        found = alone.instructions_alone(replace(subject, compiled=compiled), options)
        assert found is not None
        counted[name] = found
    assert 0 < counted["cpu1"] - counted["cpu0"] < 60
