"""Mistakes that callers of Python and of the command line make: each message says what was given, and the way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from typer.testing import CliRunner

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext import BuildOptions
from tvm_ext.command_line.main import app
from tvm_ext.core.errors import TvmExtError

SAMPLES = np.zeros((4, 1, 3, 12, 10), np.float32)


class Desk:
    """A loaded model, its file, and a folder with what can be mistaken for one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, saved(SMALL_MODELS["image_in_and_out"](), folder)
        self.mod: tvm.IRModule = tvm_ext.load(self.path)
        (folder / "empty.onnx").touch()
        (folder / "empty.npz").touch()
        (folder / "folder.onnx").mkdir()
        (folder / "file").write_text("x")

    def build(self, folder: Any, *more: Any, **options: Any) -> object:
        return tvm_ext.build(self.mod, "host", folder, *more, **options)

    def calibrated(self, data: Any) -> object:
        return tvm_ext.estimate(self.mod, "cortex_m4", BuildOptions(quantize="int8"), calibration=data)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(tmp_path_factory.mktemp("desk"))


MISTAKES: dict[str, tuple[Callable[[Desk], object], str]] = {
    "missing file": (lambda d: tvm_ext.load(d.folder / "no.onnx"), r"no\.onnx: no such file"),
    "directory": (lambda d: tvm_ext.load(d.folder / "folder.onnx"), r"is a folder; give the path of a \.onnx"),
    "empty file": (lambda d: tvm_ext.load(d.folder / "empty.onnx"), r"is empty \(0 B\)"),
    "near platform": (lambda d: tvm_ext.estimate(d.mod, "cortex-m44"), "Did you mean 'cortex_m4'"),
    "short platform": (lambda d: tvm_ext.estimate(d.mod, "M4"), "Did you mean 'cortex_m4'"),
    "platform 5": (lambda d: tvm_ext.estimate(d.mod, 5), "unknown platform '5'.*Shipped: "),  # type: ignore[arg-type]
    "NaN": (lambda d: d.calibrated({"x": SAMPLES * np.nan}), "'x' contains NaN or infinity, first in sample 0"),
    "float64": (lambda d: d.calibrated({"x": SAMPLES.astype("f8")}), "input is of type float32"),
    "no samples": (lambda d: d.calibrated({"x": SAMPLES[:0]}), "'x' contains no sample"),
    "empty npz": (lambda d: d.calibrated(d.folder / "empty.npz"), r"\.npz file .* Write the file with numpy\.savez"),
    "missing npz": (lambda d: d.calibrated(d.folder / "no.npz"), "No such file"),
    "calibration array": (lambda d: d.calibrated(SAMPLES), "must be a path, a dict of arrays or an iterable of dicts"),
    "calibration 5": (lambda d: d.calibrated(5), "must be a path, a dict of arrays"),
    "output file": (lambda d: d.build(d.folder / "file"), "is not a folder; choose another output folder"),
    "foreign output": (lambda d: d.build(d.folder), "which would be lost. Choose a new or an empty folder"),
    "output 5": (lambda d: d.build(5), "folder is of type int; give a path"),
    "unknown option": (lambda d: d.build(None, quantise="int8"), r"build\(\) has no option 'quantise'. Did you mean"),
    "near argument": (lambda d: d.build(None, calibrate=5), r"build\(\) has no option 'calibrate'. Did you mean"),
    "far option": (lambda d: tvm_ext.estimate(d.mod, "host", zzz=1), r"estimate\(\) has no option 'zzz'. Options: "),
    "options unknown": (lambda _: BuildOptions(rom="1KiB"), "Did you mean 'ram'"),  # type: ignore[call-arg]
    "option value": (lambda d: d.build(None, ram="64k"), r"ram = '64k' is not a size: k does not say.*64KiB"),
    "options dict": (lambda d: d.build(d.folder / "o", {}), "options is a dict; give a BuildOptions"),
    "jobs": (lambda d: d.build(d.folder / "o", jobs="two"), "jobs is of type str; give a number of processes"),
    "progress": (lambda d: d.build(d.folder / "o", progress=5), "progress is of type int; a function of one text"),
    "verify_inputs": (lambda d: d.build(d.folder / "o", verify_inputs=5), r"of type int, but must be the path of"),
    "shape": (lambda d: tvm_ext.load(d.path, shapes={"x": 5}), r"x = 5: a shape is several numbers.*\(5,\)"),  # type: ignore[dict-item]
    "shape list": (lambda d: tvm_ext.load(d.path, shapes=[1]), "shapes is of type list; give a dict"),  # type: ignore[arg-type]
    "shape name": (lambda d: tvm_ext.load(d.path, shapes={"y": (1,)}), "the model has no input 'y'.* Inputs: x"),
    "states": (lambda d: tvm_ext.load(d.path, states=["x"]), "states is of type list; give a dict, such as"),  # type: ignore[arg-type]
    "initial": (lambda d: tvm_ext.load(d.path, initial=[1]), "initial is of type list; give a dict"),  # type: ignore[arg-type]
    "bind": (lambda d: tvm_ext.load(d.path, bind=["x"]), "bind is of type list; give a dict"),  # type: ignore[arg-type]
    "limits": (lambda d: tvm_ext.load(d.path, limits={"rank": 3}), "limits is of type dict; give a Limits"),  # type: ignore[arg-type]
    "package 5": (lambda _: tvm_ext.Package.load(5), "folder is of type int; give a path"),  # type: ignore[arg-type]
    "no package": (lambda d: tvm_ext.Package.load(d.folder / "no"), r"is not a package: report\.json: No such file"),
    "bundle 5": (lambda d: tvm_ext.bundle(5, "host", d.folder / "o"), "source is of type int; give a path"),  # type: ignore[arg-type]
    "one model": (lambda d: tvm_ext.sweep(str(d.path), ["host"]), r"models is a text, .*; give a list"),
    "one platform": (lambda d: tvm_ext.sweep([d.path], "host"), r"platforms is a text, 'host'; give a list"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake(mistake: str, desk: Desk) -> None:
    make, said = MISTAKES[mistake]
    with pytest.raises(TvmExtError, match=said):
        make(desk)
    assert not (desk.folder / "o").exists()


COMMANDS: dict[str, tuple[str, str]] = {
    "command": ("compil {model}", "No such command 'compil'. Did you mean 'compile'"),
    "option": ("compile {model} -p host -o {out} --quantise int8", "Possible options: --quantize"),
    "no platform": ("compile {model} -o {out}", "-p is missing: choose one of always_on"),
    "no output": ("compile {model} -p host", "-o is missing: give the folder"),
    "chip": ("compile {model} -p stm32h734zi -o {out}", "Did you mean 'nucleo_h743zi'?"),
    "unit": ("compile {model} -p cortex_m4 -o {out} --ram 64KB", "Write 64KiB (65536 B) or 64kB (64000 B)"),
    "word": ("compile {model} -p cortex_m4 -o {out} --quantize int4", "is not one of 'none', 'int8', 'auto'"),
    "board": ("compile {model} -p host -o {out} --verify qemu", "host has no board. Choose verify = host, or"),
    "pin": ("compile {model} -p cortex_m4 -o {out} --pin z=0", "imilar names first, it has: x, y"),
    "rename": ("compile {model} -p cortex_m4 -o {out} --rename z=w", "its inputs are x, its outputs y"),
    "memory": (
        "compile {model} -p cortex_m4 -o {out} --place-port x=dtcm",
        "no memory 'dtcm' for tensors",
    ),
    "form": ("compile {model} -p cortex_m4 -o {out} --input x=nwhc", "is not of the form NAME=nhwc,uint8"),
    "argmax": ("compile {model} -p cortex_m4 -o {out} --argmax z", "no such output; its outputs are y"),
    "rank": ("compile {model} -p cortex_m4 -o {out} --shape x=1,3", "has rank 2, the model's [1, 3, 12, 10] has 4"),
    "samples": ("compile {model} -p host -o {out} --calibration n.npz", "choose quantize = 'int8' or 'auto'"),
    "package": ("report {folder}", "is not a package"),
    "error": ("explain DoesntFit", "Did you mean DoesNotFit?"),
    "small": ("compile {model} -p cortex_m4 -o {out} --ram 100", "2264 B less. Try a larger memory"),
    "runner": ("compile {model} -p cortex_m4 -o {out} --runner probe-rs", "write {elf} for its path"),
    "no file": ("compile {folder}/n.onnx -p host -o {out}", "n.onnx: no such file"),
    "project": ("compile {folder}", "holds no tvm_ext.toml: give a model file"),
    "init": ("init {model} -p host -o {folder}", "give a new or an empty folder for the project"),
}


@pytest.mark.parametrize("mistake", COMMANDS)
def test_a_mistake_at_the_command_line(mistake: str, desk: Desk) -> None:
    words, said = COMMANDS[mistake]
    given = {"model": desk.path, "folder": desk.folder, "out": desk.folder / "o"}
    result = CliRunner().invoke(app, [word.format(**given) for word in words.split()])
    assert result.exit_code in (1, 2) and said in result.stderr, result.output
    assert "Traceback" not in result.stderr and not (desk.folder / "o").exists()
