"""A build in one line: options by keyword, no folder, a network of PyTorch as it is, progress that is shown."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, saved
from tests.support.peers import peer
from tvm_ext.core.errors import BadInput, BadOptions, UnknownOption
from tvm_ext.core.options import OPTIONS, BuildOptions
from tvm_ext.core.progress import told
from tvm_ext.frontends.shapes import ModelNotice

EXAMPLE = np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8)


def network() -> Any:
    torch = peer("torch")
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()


def test_a_network_is_quantized_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    net = network()
    with pytest.warns(ModelNotice, match="without calibration: ranges come from example_inputs alone"):
        package = tvm_ext.build(
            net, "cortex_m4", example_inputs=EXAMPLE, quantize="int8", ram="64KiB", verify=("host",), progress=True
        )
    assert "running on the host" in capsys.readouterr().err.splitlines()
    options = package.report["options"]
    assert (options["quantize"], options["ram"]) == ("int8", 65536)
    assert package.inputs["input"].dtype == "int8" and package.outputs.keys()
    folder = package.folder
    kept = package.save(folder.parent / "kept")
    assert (
        kept.report == package.report and (kept.folder / "Makefile").read_bytes() == (folder / "Makefile").read_bytes()
    )
    del package
    assert not folder.parent.exists(), "the temporary folder is gone with the package"


def test_an_estimate_takes_the_same() -> None:
    net = network()
    found = tvm_ext.estimate(
        net, "cortex_m4", example_inputs=EXAMPLE, quantize="int8", calibration={"input": EXAMPLE[None]}
    )
    options = BuildOptions(optimize="size", quantize="int8")
    data = {"input": EXAMPLE[None]}
    other = tvm_ext.estimate(
        net, "cortex_m4", options, example_inputs=(EXAMPLE,), calibration=data, optimize="speed"
    )  # fmt: skip
    assert found == other and found.weights_bytes < 100


def test_a_failed_build_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = saved(SMALL_MODELS["image_in_and_out"](), tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BadInput, match="verify_inputs"):
        tvm_ext.build(path, "host", verify_inputs={"nothing": EXAMPLE})
    assert sorted(tmp_path.iterdir()) == before


def test_unknown_options_are_type_errors_of_ours() -> None:
    with pytest.raises(TypeError, match=r"build\(\) has no option 'quantise'\. Did you mean 'quantize'") as raised:
        tvm_ext.build("model.onnx", "host", quantise="int8")
    assert isinstance(raised.value, UnknownOption) and isinstance(raised.value, BadOptions)
    with pytest.raises(UnknownOption, match="Did you mean 'optimize'"):
        BuildOptions(optimise="size")  # type: ignore[call-arg]


@pytest.mark.parametrize("function", [tvm_ext.build, tvm_ext.estimate], ids=lambda one: one.__name__)
def test_signatures_show_the_table(function: Any) -> None:
    parameters = inspect.signature(function).parameters
    assert [name for name in parameters if name in OPTIONS] == [*OPTIONS]
    assert {name: parameters[name].default for name in OPTIONS} == {n: one.default for n, one in OPTIONS.items()}


class _Bar:
    """Stands in for a bar of tqdm's, or a label of ipywidgets'."""

    def __init__(self, **_: object) -> None:
        self.told: list[str] = []

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set_description_str(self, text: str) -> None:
        self.told.append(text)

    value = property(lambda self: self.told, set_description_str)


@pytest.mark.parametrize("installed", [("tqdm", "ipywidgets"), ("tqdm",), ("ipywidgets",), ()], ids=str)
def test_progress_in_a_notebook(
    installed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = _Bar()
    made = SimpleNamespace(tqdm=lambda **_: bar, Label=lambda: bar, display=lambda _: None)
    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=1)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    imported: list[str] = []
    monkeypatch.setattr("tvm_ext.core.progress.find_spec", lambda name: name in installed or None)
    monkeypatch.setattr("tvm_ext.core.progress.import_module", lambda name: imported.append(name) or made)
    with told(True) as say:
        say("compiling")
    lines = capsys.readouterr().err.splitlines()
    assert (lines, bar.told) == ((["compiling"], []) if not installed else ([], ["compiling", "done"]))
    wanted = {2: ["tqdm.notebook"], 0: []}.get(
        len(installed), ["tqdm.std"] if "tqdm" in installed else ["ipywidgets", "IPython.display"]
    )
    assert imported == wanted


def test_a_bar_of_tqdm_as_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.setattr("tvm_ext.core.progress._in_notebook", lambda: True)
    with told(True) as say:
        say("compiling")
    assert "compiling [00:0" in capsys.readouterr().err


def test_progress_that_nobody_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for none in (None, False):
        with told(none) as say:
            say("compiling")
    with told([].append) as say:
        say("compiling")
    assert capsys.readouterr() == ("", "")
    wanted = "progress is of type str; a function of one text is needed, or True"
    with pytest.raises(BadOptions, match=wanted), told("loud"):  # type: ignore[arg-type]
        pass
