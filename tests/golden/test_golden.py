"""Generated files of small models, kept under expected/: a change of what comes out shows as a change of text.

`pytest --update-golden` rewrites them; read the difference before committing it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import onnx
import pytest

from codegen_c.backend.build import Compiled
from tests.golden import models
from tests.support.placed import place_by_hand
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.frontends.load import load
from tvm_ext.report.report import make_report

EXPECTED = Path(__file__).parent / "expected"
Maker = Callable[[], onnx.ModelProto]
CASES: dict[str, tuple[Maker, str, BuildOptions]] = {
    "float_network": (models.float_network, "cortex_m4", BuildOptions()),
    "integer_network": (models.integer_network, "cortex_m4", BuildOptions(optimize="size")),
    "streamed_network": (models.float_network, "cortex_m4", BuildOptions(io="stream")),
    "branching_network": (models.branching_network, "host", BuildOptions(io="caller")),
    "shared_network": (models.integer_network, "dual_m33", BuildOptions(processors=("cpu0",))),
}
ON_CPU1 = ("conv", "sum_dequantize")
"""Operators of the shared network that do not run on the first processor."""


def texts(name: str, folder: Path) -> dict[str, str]:
    """The kept files of one case: C, headers, memory, report; without what changes with each release."""
    make, platform, options = CASES[name]
    path = folder / f"{name}.onnx"
    onnx.save(make(), path)
    mod = load(path)
    compiled: Compiled = compile_module(mod, Platform.load(platform), options)
    report = make_report(
        compiled, options, ModelOrigin.read(mod), code_bytes=None, stack_bytes=None,
        artifacts={"library": None, "elf": None},
        verify={"host": None, "qemu": None},
    )  # fmt: skip
    sources = {file: text for file, text in compiled.sources().items() if not file.startswith("tvm_ext_")}
    every = sources | {"report.json": json.dumps(report, indent=2) + "\n"}
    volatile = {ModelOrigin.read(mod).sha256: "SHA256", f"tvm_ext {version('tvm-ext')}": "tvm_ext VERSION"}
    for text, stand_in in volatile.items():
        every = {file: kept.replace(text, stand_in) for file, kept in every.items()}
    return every


@pytest.mark.parametrize("name", CASES)
def test_generated_files(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "shared_network":
        place_by_hand(monkeypatch, lambda _, operator: "cpu1" if operator in ON_CPU1 else "")
    found, folder = texts(name, tmp_path), EXPECTED / name
    if request.config.getoption("--update-golden"):
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        for file, text in found.items():
            (folder / file).write_text(text, encoding="utf-8")
    expected = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())}
    assert sorted(found) == sorted(expected)
    for file in sorted(found):
        assert found[file] == expected[file], f"{name}/{file} has changed; --update-golden accepts it"


def test_the_same_model_gives_the_same_bytes_wherever_it_lies(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "another" / "place"]
    for folder in folders:
        folder.mkdir(parents=True)
    first, second = (texts("float_network", folder) for folder in folders)
    assert first == second
    assert not any(str(tmp_path) in text for text in first.values())
