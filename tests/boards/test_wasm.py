"""Packages as modules of WebAssembly: verified in wasmtime, run in node, and loaded without any import."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext import BuildOptions
from tvm_ext.core.errors import MissingTool
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_objects, object_code, section_sizes
from tvm_ext.execution import qemu_start

pytestmark = pytest.mark.wasm_board
VERIFIED = BuildOptions(verify=("host", "qemu"))

LOADER = """
import fs from "node:fs";
const [file, given] = process.argv.slice(2);
const module = await WebAssembly.compile(fs.readFileSync(file));
const { exports } = await WebAssembly.instantiate(module, {});
const side = (name) => Array.from({ length: exports[`tvm_ext_num_${name}s`]() }, (_, i) =>
    new Uint8Array(exports.memory.buffer, exports[`tvm_ext_${name}`](i), exports[`tvm_ext_${name}_bytes`](i)));
const inputs = fs.readFileSync(given);
let at = 0;
for (const one of side("input")) {
    one.set(inputs.subarray(at, at + one.length));
    at += one.length;
}
exports.tvm_ext_reset();
const status = exports.tvm_ext_run();
const outputs = side("output").map((one) => Array.from(one));
const missing = [exports.tvm_ext_input(99), exports.tvm_ext_output_bytes(99)];
console.log(JSON.stringify({ imports: WebAssembly.Module.imports(module).length, status, outputs, missing }));
"""


def in_node(module: Path, inputs: bytes, folder: Path) -> dict[str, object]:
    (folder / "load.mjs").write_text(LOADER)
    (folder / "inputs.bin").write_bytes(inputs)
    command = ["node", "load.mjs", str(module), "inputs.bin"]
    return json.loads(subprocess.run(command, cwd=folder, capture_output=True, check=True, text=True).stdout)


@pytest.mark.parametrize("io", ["arena", "caller"])
def test_a_module_without_imports_runs_in_node(tmp_path: Path, io: str) -> None:
    options = BuildOptions(verify=("qemu",), io=io)  # type: ignore[arg-type]
    model = saved(SMALL_MODELS["two_inputs_two_outputs"](), tmp_path)
    package = tvm_ext.build(model, "wasm", tmp_path / "out", options)
    rng = np.random.default_rng(0)
    sample = {name: rng.standard_normal((2, 6)).astype(np.float32) for name in ("left", "right")}
    inputs = b"".join(sample[port.source].tobytes() for port in package.interface.inputs)
    found = in_node(package.folder / "small.wasm", inputs, tmp_path)
    (expected,) = package.run_board([sample]).outputs
    assert (found["imports"], found["status"], found["missing"]) == (0, 0, [0, 0])
    said = [bytes(one) for one in found["outputs"]]  # type: ignore[union-attr]
    assert said == [expected[port.source].tobytes() for port in package.interface.outputs]


def test_keyword_spotting_has_the_bytes_of_its_runtime(tmp_path: Path, shared_models: Path) -> None:
    package = tvm_ext.build(shared_models / "kws_int8.tflite", "wasm", tmp_path / "out", VERIFIED)
    verified = package.report["verify"]
    assert verified["host"]["passed"] and verified["qemu"]["passed"]
    assert verified["qemu"]["max_abs_error"] == 0
    assert 1_000_000 < verified["qemu"]["instructions"] < 20_000_000


SOURCE = """
extern int counts[100], start[3];
extern const int table[25];
int sum(void);
int counts[100];
int start[3] = {1, 2, 3};
const int table[25] = {1};
int sum(void) { return counts[start[0]] + table[start[1]]; }
"""


def test_zeroed_variables_are_no_flash(tmp_path: Path) -> None:
    """An object stores them as zeros, and a module does not."""
    toolchain = Platform.load("wasm").toolchain
    (tmp_path / "sum.c").write_text(SOURCE)
    objects = compile_objects([tmp_path / "sum.c"], tmp_path / "o", toolchain)
    size = section_sizes(objects, toolchain)["sum.o"]
    assert size.bss == 400 and 112 <= size.data < 160 and size.text > 0
    stored = object_code(objects, toolchain).num_bytes
    assert (stored["sum.o", ".data.start"], stored["sum.o", ".rodata.table"]) == (12, 100)
    code = stored["sum.o", ".text.sum"] + stored["sum.o", "CODE"]
    assert code == size.text and sum(stored.values()) == size.text + size.data


def test_its_makefile_builds_and_runs_it(tmp_path: Path) -> None:
    model = saved(SMALL_MODELS["two_inputs_two_outputs"](), tmp_path)
    package = tvm_ext.build(model, "wasm", tmp_path / "out", BuildOptions(verify=("qemu",)))
    assert (package.folder / "small.wasm").read_bytes()[:4] == b"\0asm"
    for name in ("small.wasm", "small.elf", "libsmall.a"):
        (package.folder / name).unlink()
    done = subprocess.run(["make", "-C", str(package.folder), "all", "run"], capture_output=True, text=True)
    assert done.returncode == 0 and "PASS" in done.stdout, done.stdout + done.stderr
    assert in_node(package.folder / "small.wasm", bytes(96), tmp_path)["status"] == 0


def test_texts_name_the_emulator_that_ran_it(tmp_path: Path) -> None:
    model = saved(SMALL_MODELS["two_inputs_two_outputs"](), tmp_path)
    told: list[str] = []
    package = tvm_ext.build(model, "wasm", tmp_path / "out", BuildOptions(verify=("qemu",)), progress=told.append)
    readme, makefile = ((package.folder / name).read_text() for name in ("README.md", "Makefile"))
    assert "Verified in wasmtime against onnxruntime" in readme and "`make run` runs it in node." in readme
    assert "instructions in wasmtime. Instructions are not cycles." in readme
    assert "small.elf, for wasmtime\n" in makefile and "the self-test in node\n" in makefile
    page = (package.folder / "report.html").read_text()
    for name, text in (("README.md", readme), ("Makefile", makefile), ("report.html", page), ("stages", str(told))):
        assert "QEMU" not in text, name
    assert "Verified in wasmtime" in page and "running in wasmtime" in told


def test_a_missing_runtime_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu_start, "find_spec", lambda name: None)
    platform = Platform.load("wasm")
    assert not qemu_start.runs_board(platform)
    with pytest.raises(MissingTool, match=r"wasmtime is not installed, .*pip install wasmtime"):
        qemu_start.qemu_command(tmp_path / "x.elf", platform, tmp_path, shift=None)


def test_a_session_keeps_it_ready(tmp_path: Path) -> None:
    model = saved(SMALL_MODELS["two_inputs_two_outputs"](), tmp_path)
    package = tvm_ext.build(model, "wasm", tmp_path / "out", BuildOptions(verify=("qemu",)))
    sample = {name: np.ones((2, 6), np.float32) for name in ("left", "right")}
    (expected,) = package.run_board([sample]).outputs
    with package.session(on="qemu") as session:
        for _ in range(2):
            for name, values in session.run(sample).items():
                np.testing.assert_array_equal(values, expected[name])
