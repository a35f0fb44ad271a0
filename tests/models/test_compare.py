"""`tvm-ext compare`: every layer of a package beside another runtime; a broken layer is named, and no other."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tvm_ext
from codegen_c.operators.kinds import Quantization
from codegen_c.program.tensors import Tensor
from tests.support.onnx_models import saved
from tests.support.random_models import random_model
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Package
from tvm_ext.command_line.main import app
from tvm_ext.comparison.compared_values import ComparedValue
from tvm_ext.comparison.comparison import LayerComparison, PackageComparison, judged_value
from tvm_ext.core.errors import BadInput, BadPackage, RunFailed
from tvm_ext.core.options import Target

UNVERIFIED = BuildOptions(verify=())


CASES = {
    "int8 TFLite": ("kws_int8.tflite", "cortex_m4", "conv_2d_4", "TensorFlow Lite Micro"),
    "float ONNX": ("kws_fp32.onnx", "host", "conv_conv_5", "onnxruntime"),
    "int8 ONNX": ("kws_int8.onnx", "cortex_m55", "conv_conv_3_quant", "onnxruntime"),
    "residual int8": ("resnet_int8.tflite", "always_on", "conv_2d_4", "TensorFlow Lite Micro"),
    "residual float": ("resnet_fp32.onnx", "cortex_m7", "conv_conv_4", "onnxruntime"),
}


@pytest.fixture(scope="module")
def built(shared_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Package]:
    """Packages of the cases, each built once."""
    folder = tmp_path_factory.mktemp("compared")

    @cache
    def of(case: str) -> Package:
        model, platform, _, _ = CASES[case]
        return tvm_ext.build(tvm_ext.load(shared_models / model), platform, folder / case.replace(" ", "_"), UNVERIFIED)

    return of


def inputs_of(package: Package) -> dict[str, np.ndarray]:
    """Noise over the whole range of integers, and a normal distribution of floats."""
    random = np.random.default_rng(11)
    return {
        name: random.standard_normal(spec.shape).astype(spec.dtype)
        if spec.dtype.startswith("float")
        else random.integers(-128, 128, spec.shape).astype(spec.dtype)
        for name, spec in package.inputs.items()
    }


def broken(package: Package, layer: str, folder: Path) -> Package:
    """A copy of a package, in whose C the first 40 weights of a layer are others."""
    shutil.copytree(package.folder, folder)
    file = folder / f"{package.interface.model}_weights.c"
    text = file.read_text()
    begin = text.index("= {", text.index(f"{package.interface.model}_{layer}_weights[")) + 3
    number = re.compile(r"-?0x\w+|-?\d+(\.\d+)?([eE][-+]?\d+)?")
    kinds = {"f": "0.75", "x": "0x5aa5"}

    def changed(found: re.Match[str]) -> str:
        return kinds["x"] if "x" in found[0] else kinds["f"] if "." in found[0] else "99"

    file.write_text(text[:begin] + number.sub(changed, text[begin:], count=40))
    return Package.load(folder)


def check_broken_layer(package: Package, case: str, shared_models: Path, folder: Path, on: Target) -> None:
    model, _, layer, runtime = CASES[case]
    found = tvm_ext.compare(broken(package, layer, folder), inputs_of(package), reference=shared_models / model, on=on)
    first = found.first_difference
    assert not found.passed and first is not None and found.runtime == runtime
    assert [one.name for one in found.layers if one.verdict == "differs"] == [layer] == [first.name]
    assert found.summary().startswith(f"first difference: {layer}, ")
    later = [one for one in found.layers if one.step > first.step and one.error is not None]
    assert any((one.error or 0) > (one.limit or 0) for one in later), "the error goes on in the run as it comes"


@pytest.mark.parametrize("case", some_of(["float ONNX"], sweep=[case for case in CASES if case != "float ONNX"]))
def test_layers_agree_with_the_other_runtime(case: str, built: Callable[[str], Package], shared_models: Path) -> None:
    package = built(case)
    found = tvm_ext.compare(package, inputs_of(package), reference=shared_models / CASES[case][0])
    assert found.passed and found.num_compared >= 12 and not found.own_reading
    assert {one.name for one in found.layers if one.verdict == "no counterpart"} == set()


@pytest.mark.parametrize("case", some_of(["float ONNX"], sweep=[case for case in CASES if case != "float ONNX"]))
def test_a_broken_layer_is_named_and_no_other(
    case: str, built: Callable[[str], Package], shared_models: Path, tmp_path: Path
) -> None:
    check_broken_layer(built(case), case, shared_models, tmp_path / "broken", "host")


@pytest.mark.board
@pytest.mark.parametrize("case", some_of(["int8 TFLite"], sweep=["int8 ONNX", "residual int8", "residual float"]))
def test_a_broken_layer_is_named_on_the_board(
    case: str, built: Callable[[str], Package], shared_models: Path, tmp_path: Path
) -> None:
    check_broken_layer(built(case), case, shared_models, tmp_path / "broken", "qemu")


def test_the_command_shows_a_table_and_has_a_status(
    built: Callable[[str], Package], shared_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's file is looked for in the working folder where it is not named."""
    package = built("int8 TFLite")
    np.savez(tmp_path / "in.npz", allow_pickle=False, **inputs_of(package))
    monkeypatch.chdir(shared_models)
    arguments = ["compare", str(package.folder), "--inputs", str(tmp_path / "in.npz")]
    done = CliRunner().invoke(app, arguments)
    assert (
        done.exit_code == 0 and "12 of 12 values compared with TensorFlow Lite Micro: no layer differs" in done.stdout
    )
    arguments[1] = str(broken(package, "conv_2d_6", tmp_path / "broken").folder)
    done = CliRunner().invoke(app, [*arguments, "--json"])
    said = json.loads(done.stdout)
    assert (done.exit_code, said["passed"], said["first_difference"]) == (1, False, "conv_2d_6")
    assert [one["verdict"] for one in said["layers"]].count("differs") == 1


def test_streamed_values_are_compared_where_they_are_whole(tmp_path: Path) -> None:
    """Inputs and outputs that the application hands over and takes are compared, too."""
    path = saved(random_model(2), tmp_path)
    package = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "rows", replace(UNVERIFIED, io="stream"))
    found = tvm_ext.compare(package, inputs_of(package), reference=path)
    assert found.passed and {*package.inputs, *package.outputs} <= {one.value for one in found.layers}


def test_layers_without_a_counterpart_are_suspects_of_the_next_one() -> None:
    scaled = Quantization(scale=1.0, zero_point=0)
    tensor = Tensor(name="x", source="x", shape=(2,), dtype="int8", memory="ram", quantization=scaled)

    def layer(step: int, wanted: list[int] | None, absent: str = "") -> LayerComparison:
        value = ComparedValue(step=step, step_name=f"layer_{step}", nodes=(), tensor=tensor, absent=absent)
        made = None if absent else np.array([3, 4], np.int8)
        return judged_value(value, None if wanted is None else np.array(wanted, np.int8), made, made)

    layers = (layer(0, [3, 5]), layer(1, None, "is never whole"), layer(2, None), layer(3, [3, 6]), layer(4, [0, 0]))
    found = PackageComparison(model="m", on="host", runtime="other", own_reading="", layers=layers)
    assert [one.verdict for one in layers] == ["within", "no counterpart", "no counterpart", "differs", "differs"]
    assert found.suspects == ["layer_1", "layer_2", "layer_3"]
    assert "layer_3 (or layer_1, layer_2 before it, without tensors in other), x: 2 LSB from other" in found.summary()
    nothing = replace(found, layers=layers[1:3])
    assert not nothing.passed and nothing.summary() == "nothing was compared, because other has no tensor of any layer."


def test_lines_that_were_moved_by_hand_are_refused(
    built: Callable[[str], Package], shared_models: Path, tmp_path: Path
) -> None:
    package = built("float ONNX")
    shutil.copytree(package.folder, tmp_path / "moved")
    file = tmp_path / "moved" / "kws_fp32.c"
    file.write_text("/* one\n * more\n * line\n */\n" + file.read_text())
    with pytest.raises(BadPackage, match=r"are not the step that trace\.json describes\. Lines were added"):
        tvm_ext.compare(tmp_path / "moved", inputs_of(package), reference=shared_models / "kws_fp32.onnx")


@pytest.mark.parametrize(
    ("report", "says"),
    [
        ({"quantization": {"samples": 3}}, "so that no other runtime has the quantized model"),
        ({"warm_up_runs": 3}, "takes only the new frames of a window"),
        ({"processors": [{"name": "cpu0"}, {"name": "cpu1"}]}, "2 processors share a run"),
        ({"bundle": {"name": "two", "models": ["kws_fp32"]}}, "is a model of a bundle"),
    ],
)
def test_packages_whose_steps_are_not_looked_at_are_refused(
    report: dict[str, object], says: str, built: Callable[[str], Package], shared_models: Path
) -> None:
    package = built("float ONNX")
    changed = Package(folder=package.folder, report={**package.report, **report})
    with pytest.raises(RunFailed, match=says):
        tvm_ext.compare(changed, inputs_of(package), reference=shared_models / "kws_fp32.onnx")


def test_there_is_no_board_to_compare_on(built: Callable[[str], Package], shared_models: Path) -> None:
    package = built("float ONNX")
    with pytest.raises(RunFailed, match=r"has no firmware for a board\. Compare on the host"):
        tvm_ext.compare(package, inputs_of(package), reference=shared_models / "kws_fp32.onnx", on="qemu")


def test_another_model_is_no_reference(built: Callable[[str], Package], shared_models: Path, tmp_path: Path) -> None:
    package = built("float ONNX")
    with pytest.raises(BadInput, match=r"is not the file that .* was compiled from"):
        tvm_ext.compare(package, inputs_of(package), reference=shared_models / "resnet_fp32.onnx")
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        tvm_ext.compare(package, inputs_of(package), reference=tmp_path / "none.onnx")
    with pytest.raises(BadInput, match=r"kws_fp32\.onnx: the model of .* is neither in the working folder nor beside"):
        tvm_ext.compare(package, inputs_of(package))


@pytest.mark.parametrize("damage", ["trace.json", "fewer steps", "file", "outputs", "no text"])
def test_damaged_packages_are_refused(
    damage: str, built: Callable[[str], Package], shared_models: Path, tmp_path: Path
) -> None:
    package = built("float ONNX")
    folder = tmp_path / "damaged"
    shutil.copytree(package.folder, folder)
    trace = json.loads((folder / "trace.json").read_text())
    report = dict(package.report)
    says = "compile the model again"
    if damage == "trace.json":
        trace, says = {"code": 3}, "does not describe the lines of steps"
    elif damage == "fewer steps":
        trace["code"], says = [], "are from different builds"
    elif damage == "file":
        trace["code"] = [{**entry, "file": "../x.c"} for entry in trace["code"]]
        says = "has no file '../x.c'"
    elif damage == "outputs":
        report["steps"] = [{**step, "outputs": [{"c_name": "a; b"}]} for step in report["steps"]]
        says = "does not describe what steps write"
    else:
        (folder / "kws_fp32.c").write_bytes(b"\xff\xfe")
        says = "kws_fp32.c: cannot be read"
    (folder / "trace.json").write_text(json.dumps(trace))
    with pytest.raises(BadPackage, match=says):
        tvm_ext.compare(
            Package(folder=folder, report=report), inputs_of(package), reference=shared_models / "kws_fp32.onnx"
        )
