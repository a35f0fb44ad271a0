"""Firmware on devices by a command of the user's: run, verification, profile and tuning; a stand-in calls QEMU."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tvm_ext
from tests.support import stand_in_device
from tests.support.onnx_models import SMALL_MODELS, model_of, saved, weights
from tvm_ext import BuildOptions, Package
from tvm_ext.command_line.main import app
from tvm_ext.core.errors import BadOptions, MissingTool, RunFailed, TvmExtError, VerificationFailed
from tvm_ext.core.files.kept_files import FOLDER
from tvm_ext.core.processes.process import PATIENCE
from tvm_ext.execution.runner import Runner

pytestmark = pytest.mark.board
INPUTS = {name: np.linspace(-2, 2, 12, dtype=np.float32).reshape(2, 6) for name in ("left", "right")}


@pytest.fixture(autouse=True)
def path_of_this_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


def stand_in(platform: str = "cortex_m0plus", *fault: str) -> str:
    return shlex.join([sys.executable, str(Path(stand_in_device.__file__)), platform, *fault, "{elf}"])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(SMALL_MODELS["two_inputs_two_outputs"](), tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def package(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Package:
    """Verified by the runner, with hooks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        options = BuildOptions(hooks=True, name="m")
        folder = tmp_path_factory.mktemp("package") / "out"
        return tvm_ext.build(model, "cortex_m0plus", folder, options, runner=stand_in())


def test_a_package_is_verified_on_the_device(package: Package) -> None:
    verify = package.report["verify"]
    assert verify["host"]["passed"] and verify["qemu"] is None
    device = verify["runner"]
    assert device["passed"] and device["reference"] == "onnxruntime" and device["elements"] > 0
    assert device["cycles"] > 0 and device["stack_bytes"] > 0 and device["instructions"] is None
    assert device["program"] == Path(sys.executable).name and sys.executable not in json.dumps(package.report)
    assert "Verified on a device against onnxruntime" in (package.folder / "README.md").read_text()


def test_runs_are_those_of_qemu_and_cycles_come_from_the_boards_timer(package: Package) -> None:
    on_board, on_device = package.run(INPUTS, on="qemu"), package.run(INPUTS, runner=stand_in())
    for name in on_board:
        np.testing.assert_array_equal(on_board[name], on_device[name])
    result = package.run_device([INPUTS] * 3, Runner.parse(stand_in()))
    assert len(result.outputs) == 3 and result.cycles is not None
    assert result.stack_bytes == package.run_board([INPUTS]).stack_bytes


def test_profile_of_a_device(package: Package) -> None:
    profile = package.profile(INPUTS, runner=stand_in())
    names = {layer.name for layer in package.profile(INPUTS).layers} - {"run"} if _has_table() else set()
    assert not names or {layer.name for layer in profile.layers} <= names
    assert profile.counter == "ticks" and profile.cycles > 0 and all(layer.calls == 1 for layer in profile.layers)
    assert profile.total_cycles is not None and 0.5 * profile.total_cycles < profile.cycles <= profile.total_cycles
    kernels = {step["name"]: step["kernel"] for step in package.report["steps"]}
    assert all(layer.kernel == kernels[layer.name] for layer in profile.layers)
    assert "executed instructions" in profile.to_json()["not_available"]


def _has_table() -> bool:
    from tvm_ext.core.errors import BadPlatform
    from tvm_ext.profiling.core_table import core_table

    try:
        return bool(core_table(tvm_ext.Platform.load("cortex_m0plus")))
    except BadPlatform:
        return False


def test_a_counter_that_stands_still_is_an_error(model: Path, tmp_path: Path) -> None:
    """QEMU's Cortex-M4 has no DWT: its counter reads 0."""
    options = BuildOptions(hooks=True, verify=(), name="m")
    other = tvm_ext.build(model, "cortex_m4", tmp_path / "out", options)
    with pytest.raises(RunFailed, match=r"cycle counter stays at 0 on this device. QEMU has no DWT"):
        other.profile(runner=stand_in("cortex_m4"))


def test_kernels_are_measured_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "cache"))
    node = {"w": weights(8, 3, 3, 3)}
    from onnx import helper

    conv = model_of([helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], {"x": (1, 3, 8, 8)}, ["y"], node)
    data = {"x": np.random.default_rng(5).normal(size=(4, 1, 3, 8, 8)).astype(np.float32)}
    options = BuildOptions(quantize="int8", tune=True, verify=(), name="m")
    built = [
        tvm_ext.build(conv, "cortex_m0plus", tmp_path / str(n), options, calibration=data, runner=stand_in())
        for n in range(2)
    ]
    tuning, again = (one.report["tuning"] for one in built)
    assert tuning["metric"] == "measured cycles" and tuning["board"] == Path(sys.executable).name
    assert tuning["layers_measured"] == 1 and tuning["before"]["instructions"] is None
    assert 0 < tuning["after"]["estimated_cycles"] <= tuning["before"]["estimated_cycles"]
    measured = [one for layer in tuning["layers"] for one in layer["candidates"] if not one["not_measured"]]
    assert len(measured) > 1 and all(one["estimated_cycles"] > 0 for one in measured)
    assert again["figures_measured_before"] == len(measured), "figures are kept, by the command"


@pytest.mark.parametrize(
    "fault, said",
    {
        "status": r"failed \(exit 3\):\nno probe was found",
        "silent": "returned 0 and printed nothing; the firmware prints by semihosting",
        "garbage": r"the firmware's line .* is missing in the output.*\n.*Info : clock speed 1000 kHz",
        "no_files": "wrote no out.bin into the working folder of the command",
    }.items(),
)
def test_what_a_runner_comes_to(package: Package, fault: str, said: str) -> None:
    with pytest.raises(RunFailed, match=said):
        package.run(INPUTS, runner=stand_in("cortex_m0plus", fault))


def test_a_runner_without_end(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATIENCE, "0.005")
    with pytest.raises(RunFailed, match=r"did not end within 1.5 s; TVM_EXT_PATIENCE=10"):
        package.run(INPUTS, runner=stand_in("cortex_m0plus", "forever"))


def test_wrong_outputs_of_a_device_fail_the_build(model: Path, tmp_path: Path) -> None:
    with pytest.raises(VerificationFailed, match="runner: outputs differ from the host's by"):
        tvm_ext.build(model, "cortex_m0plus", tmp_path / "out", runner=stand_in("cortex_m0plus", "wrong"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text, error, said",
    [
        ("openocd -f board.cfg", BadOptions, "the firmware is missing; write {elf}"),
        ("{elf}", BadOptions, "write {elf} for its path, after the program"),
        ("", BadOptions, "write {elf}"),
        ("run 'it {elf}", BadOptions, "no closing quotation; quotes have to come in pairs"),
        ("no_such_program_here {elf}", MissingTool, "the program 'no_such_program_here' is not found"),
        (5, BadOptions, "runner is a int; give a command as text, such as 'probe-rs run {elf}'"),
    ],
)
def test_commands_that_are_no_runners(text: str, error: type[TvmExtError], said: str) -> None:
    with pytest.raises(error, match=said):
        Runner.parse(text)


def test_no_shell_reads_the_command(tmp_path: Path) -> None:
    words = Runner.parse(f"{sys.executable} -c 'import sys; print(sys.argv)' '$(touch {tmp_path}/x)' '; {{elf}}'")
    assert words.run(Path("/a b.elf"), tmp_path).endswith("'; /a b.elf']")
    assert not list(tmp_path.iterdir())


def test_choices_that_do_not_go_with_a_runner(model: Path, package: Package, tmp_path: Path) -> None:
    with pytest.raises(BadOptions, match="runner: host has no board, so there is no firmware"):
        tvm_ext.build(model, "host", tmp_path / "o", runner=stand_in())
    with pytest.raises(BadOptions, match="runner: nothing is verified and no kernel is measured"):
        tvm_ext.build(model, "cortex_m4", tmp_path / "o", BuildOptions(verify=()), runner=stand_in())
    with pytest.raises(BadOptions, match="on = 'qemu': a runner is given, too"):
        package.run(INPUTS, on="qemu", runner=stand_in())
    with pytest.raises(BadOptions, match="on = 'moon': a package runs on"):
        package.run(INPUTS, on="moon")  # type: ignore[arg-type]
    plain = tvm_ext.build(model, "cortex_m0plus", tmp_path / "o", BuildOptions(verify=()))
    with pytest.raises(RunFailed, match=r"has no hooks around its layers, which a device needs .* --hooks"):
        plain.profile(runner=stand_in())


def test_the_command_line(package: Package, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", **INPUTS)
    invoke, name, given = CliRunner().invoke, str(package.folder), str(tmp_path / "in.npz")
    out = str(tmp_path / "out.npz")
    ran = invoke(app, ["run", name, "--inputs", given, "--outputs", out, "--runner", stand_in(), "--json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["on"] == "runner"
    with np.load(out) as found:
        for key, value in package.run(INPUTS, on="qemu").items():
            np.testing.assert_array_equal(found[key], value)
    folder = tmp_path / "profile"
    told = invoke(app, ["profile", name, "-o", str(folder), "--runner", stand_in()])
    assert told.exit_code == 0, told.output
    assert "Not available on a device: executed instructions" in " ".join(told.stdout.split())
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "profile.json"]
    missing = invoke(app, ["run", name, "--inputs", given, "--outputs", out, "--runner", "openocd"])
    assert missing.exit_code == 2 and "write {elf}" in missing.output
