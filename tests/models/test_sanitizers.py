"""The generated C, self-test included, under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.onnx_models import SMALL_MODELS
from tests.support.packages import Packages
from tests.support.random_models import random_model
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Package
from tvm_ext.assurance.coverage import LOOPS_APART
from tvm_ext.core.platform import Toolchain
from tvm_ext.core.toolchain import compile_objects, find_compiler

# -O0: the source as it stands, and unrolled loops with a check at every access take gcc minutes above that.
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O0", LOOPS_APART)


@pytest.mark.parametrize("name", some_of(["kws_int8"], sweep=["kws_fp32"]))
def test_shared_models(packages: Packages, tmp_path: Path, name: str) -> None:
    done = _selftest(packages.shared(name), tmp_path)
    assert done.returncode == 0 and "PASS 1 vectors" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("seed", some_of([2, 8], sweep=[15]))
def test_random_models(packages: Packages, tmp_path: Path, seed: int) -> None:
    done = _selftest(packages.small(f"random_{seed}", lambda: random_model(seed)), tmp_path)
    assert done.returncode == 0 and "PASS 1 vectors" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["gathers", "moves_data", "reduces_and_normalises"])
def test_small_models(packages: Packages, tmp_path: Path, name: str) -> None:
    done = _selftest(packages.small(name, SMALL_MODELS[name]), tmp_path)
    assert done.returncode == 0 and "PASS 1 vectors" in done.stdout, done.stdout + done.stderr


def test_a_streamed_model(packages: Packages, tmp_path: Path) -> None:
    """Its self-test hands over rows, and takes them."""
    options = BuildOptions(io="stream", ram=1600, verify=("host",))
    package = packages.small("image_in_and_out", SMALL_MODELS["image_in_and_out"], options=options)
    done = _selftest(package, tmp_path)
    assert done.returncode == 0 and "PASS 1 vectors" in done.stdout, done.stdout + done.stderr


def test_the_sanitizers_see_a_step_that_leaves_its_array(packages: Packages, tmp_path: Path) -> None:
    package = packages.small("gathers", SMALL_MODELS["gathers"])
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in package.folder.iterdir():
        if file.suffix in (".c", ".h"):
            (broken / file.name).write_bytes(file.read_bytes())
    source = broken / "gathers.c"
    text = source.read_text()
    assert text.count("    return gathers_ok;") == 1
    past_the_end = "    for (volatile int32_t i = 0; i < 4096; i++) {\n        gathers_rows()[i] = 0;\n    }\n"
    source.write_text(text.replace("    return gathers_ok;", f"{past_the_end}    return gathers_ok;"))
    done = _selftest(Package(folder=broken, report=package.report), tmp_path)
    assert done.returncode != 0
    assert "AddressSanitizer" in done.stderr or "runtime error" in done.stderr


def _selftest(package: Package, folder: Path) -> subprocess.CompletedProcess[str]:
    """The self-test program, built with the package's warnings and the sanitizers, run."""
    toolchain = Toolchain()
    sources = sorted(package.folder.glob("*.c"))
    objects = compile_objects(sources, folder / "objects", toolchain, flags=SANITIZE, include_dirs=[package.folder])
    program = folder / "selftest"
    command = [*find_compiler(toolchain), *SANITIZE, *map(str, objects), "-lm", "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True)
    environment = {
        **os.environ,
        "ASAN_OPTIONS": "detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    return subprocess.run([str(program)], capture_output=True, text=True, timeout=300, env=environment)
