"""The files of docs/bindings.md: Rust through rustc, bindgen and the cc crate, and a C module of MicroPython."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.support.onnx_models import NODE, model_of, saved, weights
from tvm_ext import BuildOptions

_HERE = Path(__file__).parent
_PAGE = (_HERE.parents[1] / "docs" / "bindings.md").read_text(encoding="utf-8")
_FILES = {
    path: text
    for path, text in re.findall(
        r"^```\w+\n(?:#|//|/\*) ?([\w/.]+\.(?:toml|rs|mk|c))(?: \*/)?\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL
    )
}
_CRATES = Path("/usr/share/cargo/registry")
"""Where Debian's packages of crates, such as librust-cc-dev, put their sources."""
_FLAGS = ("-std=c11", "-ffp-contract=off")


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with the files of the page and the package beside them, and the scores of ones as Python has them."""
    folder = tmp_path_factory.mktemp("bindings")
    nodes = [NODE("MatMul", ["x", "w"], ["m"]), NODE("Softmax", ["m"], ["y"])]
    model = saved(model_of(nodes, {"x": (1, 12)}, ["y"], {"w": weights(12, 4)}), folder, "model")
    options = BuildOptions(verify=(), name="kws", rename={"x": "frames", "y": "scores"})
    package = tvm_ext.build(tvm_ext.load(model), "host", folder / "kws", options)
    for path, text in _FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    for source in (folder / "kws" / "src").glob("*.c"):
        _run(["gcc", *_FLAGS, "-O2", "-Ikws", "-c", str(source), "-o", f"{source.stem}.o"], folder)
    _run(["ar", "rcs", "libkws.a", *(path.name for path in folder.glob("*.o"))], folder)
    scores = package.run({"x": np.ones((1, 12), np.float32)})["y"].reshape(-1)
    return folder, " ".join(f"{score:.5f}" for score in scores)


def test_the_page_has_the_files() -> None:
    assert set(_FILES) == {
        "Cargo.toml", "build.rs", "src/kws.rs", "src/main.rs", "modules/kws/micropython.mk", "modules/kws/module.c",
    }  # fmt: skip


@pytest.mark.skipif(shutil.which("rustc") is None, reason="no rustc")
def test_rust_by_hand(product: tuple[Path, str]) -> None:
    folder, scores = product
    _run(
        ["rustc", "--edition", "2021", "-D", "warnings", "src/main.rs", "-L.", "-lstatic=kws", "-o", "by_hand"], folder
    )
    assert _rounded(_run(["./by_hand"], folder)) == scores


@pytest.mark.skipif(not (shutil.which("rustc") and shutil.which("bindgen")), reason="no rustc or no bindgen")
def test_rust_by_bindgen(product: tuple[Path, str]) -> None:
    folder, scores = product
    (command,) = re.findall(r"^```sh\n(bindgen .*)\n```$", _PAGE, re.MULTILINE)
    shutil.copytree(folder / "src", folder / "generated" / "src")
    shutil.copytree(folder / "kws", folder / "generated" / "kws")
    _run(["bash", "-euc", command], folder / "generated")
    arguments = ["--edition", "2021", "generated/src/main.rs", "-L.", "-lstatic=kws", "-o", "by_bindgen"]
    _run(["rustc", *arguments], folder)
    assert _rounded(_run(["./by_bindgen"], folder)) == scores


@pytest.mark.skipif(shutil.which("cargo") is None or not [*_CRATES.glob("cc-*")], reason="no cargo or no crate cc")
def test_rust_by_cargo(product: tuple[Path, str]) -> None:
    folder, scores = product
    (folder / ".cargo").mkdir()
    (folder / ".cargo" / "config.toml").write_text(
        f'[source.crates-io]\nreplace-with = "here"\n[source.here]\ndirectory = "{_CRATES}"\n'
    )
    assert _rounded(_run(["cargo", "run", "--offline", "--quiet"], folder)) == scores


def test_a_module_of_micropython(product: tuple[Path, str]) -> None:
    """With stand-ins of MicroPython's functions and macros, by the flags that its ports have."""
    folder, scores = product
    (folder / "main.c").write_text(
        '#include "modules/kws/module.c"\nint main(int argc, char **argv)\n{\n    (void)argv;\n'
        "    float frames[12];\n    float scores[4];\n"
        "    for (int i = 0; i < 12; ++i) { frames[i] = 1.0f; }\n"
        "    mp_buffer_info_t in = {frames, sizeof frames - (argc > 1 ? 4u : 0u)};\n"
        "    mp_buffer_info_t out = {scores, sizeof scores};\n"
        "    module_run_obj.function(&in, &out);\n"
        '    for (int i = 0; i < 4; ++i) { printf("%.7f, ", (double)scores[i]); }\n'
        "    return kws_module.globals->count == 2u ? 0 : 3;\n}\n"
    )
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wdouble-promotion", "-Wfloat-conversion", "-Wpointer-arith"]
    stubs = str(_HERE / "stubs" / "micropython")
    _run(["gcc", "-std=gnu99", *warnings, f"-I{stubs}", "-Ikws", "main.c", "libkws.a", "-lm", "-o", "module"], folder)
    assert _rounded(_run(["./module"], folder)) == scores
    refused = subprocess.run(["./module", "short"], cwd=folder, capture_output=True, text=True, timeout=60)
    assert (refused.returncode, refused.stdout) == (1, "frames or scores of another size\n")


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _rounded(text: str) -> str:
    """Numbers of an output, as Python's are compared."""
    return " ".join(f"{float(number):.5f}" for number in re.findall(r"\d\.\d+", text))
