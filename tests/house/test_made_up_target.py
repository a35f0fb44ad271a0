"""A target that somebody else adds: a package and a platform file, no line of ours."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from codegen_c.emit.build_files import emit_build_files
from codegen_c.emit.firmware import emit_firmware
from codegen_c.kernels.registry import kernels
from codegen_c.targets.registry import instruction_sets
from tests.errors.test_platform_errors import platform_file
from tests.support.onnx_models import NODE, model_of, saved
from tests.support.toy_target import write_toy_target
from tvm_ext import BuildOptions, Platform
from tvm_ext.assurance.assurance import measured_assurance
from tvm_ext.compilation.pipeline import compile_module


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of sys.path; targets and kernels are looked for anew in the test, and anew behind it."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    forget()
    yield folder
    forget()
    for name in [name for name in sys.modules if name.partition(".")[0] in ("toy_target", "second_target")]:
        del sys.modules[name]


def forget() -> None:
    instruction_sets.cache_clear()
    kernels.cache_clear()


def softmax(folder: Path) -> Path:
    nodes = [NODE("Relu", ["x"], ["r"]), NODE("Softmax", ["r"], ["y"])]
    return saved(model_of(nodes, {"x": (2, 7)}, ["y"]), folder)


def test_it_compiles_verifies_and_runs(site: Path, tmp_path: Path) -> None:
    write_toy_target(site)
    board, mod = platform_file(tmp_path, 'simd = "host"', 'simd = "toy"'), tvm_ext.load(softmax(tmp_path))
    package = tvm_ext.build(mod, str(board), tmp_path / "out", BuildOptions(verify=("host",)))
    assert package.report["steps"][-1]["kernel"] == "softmax_toy"
    assert "toy_softmax(input, output, 14, 7);" in (tmp_path / "out" / "small.c").read_text()
    assert (tmp_path / "out" / "tvm_ext_toy.h").is_file()
    x = np.random.default_rng(0).standard_normal((2, 7)).astype("float32")
    (result,) = package.run({"x": x}).values()
    exponentials = np.exp(np.maximum(x, 0))
    np.testing.assert_allclose(result, exponentials / exponentials.sum(1, keepdims=True), rtol=1e-5)


def test_other_targets_refuse_its_kernels(site: Path, tmp_path: Path) -> None:
    write_toy_target(site)
    package = tvm_ext.build(tvm_ext.load(softmax(tmp_path)), "host", tmp_path / "out", BuildOptions(verify=()))
    step = package.report["steps"][-1]
    assert step["kernel"] == "softmax_f32"
    refused = {alternative["kernel"]: alternative["refused"] for alternative in step["alternatives"]}
    assert refused["softmax_toy"] == "the processor must have toy vectors"


def test_a_call_takes_headers_of_its_own_processor(site: Path, tmp_path: Path) -> None:
    write_toy_target(site)
    platform = Platform.load(platform_file(tmp_path, 'simd = "host"', 'simd = "toy"'))
    compiled = compile_module(tvm_ext.load(softmax(tmp_path)), platform, BuildOptions())
    assert {call.processor for call in compiled.program.kernel_calls()} == {"cpu"}
    other = replace(platform.processor, name="other", simd="host")
    two = replace(compiled, platform=replace(platform, processors=(other, platform.processor)))
    assert two.sources()["tvm_ext_toy.h"] == compiled.sources()["tvm_ext_toy.h"]


def test_its_boards_start_with_its_own_code(site: Path, tmp_path: Path) -> None:
    write_toy_target(site)
    text = (Path(tvm_ext.__file__).parent / "platforms" / "cortex_m4.toml").read_text(encoding="utf-8")
    for old, new in (("armv7e-m", "toy1"), ('"dsp"', '"toy"'), ('"cmsdk"', '"tick"')):
        text = text.replace(old, new)
    (tmp_path / "board.toml").write_text(text, encoding="utf-8")
    platform = Platform.load(tmp_path / "board.toml")
    compiled = compile_module(tvm_ext.load(softmax(tmp_path)), platform, BuildOptions())
    files = emit_firmware(compiled.interface, platform) | emit_build_files("small", ["small.c"], platform, "speed")
    assert files["board/startup.c"] == "/* toy startup.c */\n" and files["board/timer.h"] == "/* toy timer_tick.h */\n"
    assert 'volatile("copy %0, stack"' in files["board/firmware.c"]
    said = measured_assurance(tmp_path, compiled, tmp_path / "net.elf", (), None)
    assert said["stack_bound"]["reason"] == "machine code of toy1 is not supported by the analysis"
    assert "qemu-system-toy -M" in files["Makefile"] and "qemu-system-toy -M" in files["CMakeLists.txt"]


def test_two_targets_of_one_name(site: Path) -> None:
    write_toy_target(site)
    write_toy_target(site, "second_target")
    with pytest.raises(ImportError, match="target 'toy' is defined in second_target and toy_target"):
        instruction_sets()
