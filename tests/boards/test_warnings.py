"""Packages compile without a warning at every level, by GCC and clang, for their board and for this machine.

A session of a board's package runs its C on this machine, where Helium's and other vectors are plain C.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import tvm_ext
from benchmarks.networks.graph import Graph
from benchmarks.networks.quantize import quantized
from codegen_c.kernels.registry import kernels
from tests.golden import models as small_models
from tests.support.kinds import KINDS, Source, image
from tests.support.onnx_models import saved
from tests.support.tflite_models import autoencoder, ds_cnn, resnet
from tests.support.tflite_runners import saved_tflite
from tvm_ext import BuildOptions, Package
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import LANGUAGE_FLAGS, WARNING_FLAGS, compile_command
from tvm_ext.execution.host_model import library_sources

pytestmark = [pytest.mark.board, pytest.mark.riscv_board]


def _wide(folder: Path) -> Path:
    """Depthwise and pointwise layers of many channels, as networks for keyword spotting have them."""
    graph = Graph("net", (1, 49, 10, 1), padding="same")
    x = graph.conv(graph.channels_first("input"), 64, (10, 4), stride=2, activation="relu")
    for stride in (1, 2):
        x = graph.conv(graph.depthwise(x, 3, stride=stride, activation="relu"), 64, 1, activation="relu")
    return saved(quantized(graph.model(graph.softmax(graph.dense(graph.global_pool(x), 12)))), folder, "net")


LEVELS = ("-O0", "-Os", "-O2", "-O3")
NETWORKS: dict[str, Source] = {
    "wide": _wide,
    "ds_cnn": lambda folder: saved_tflite(ds_cnn(int8=True), folder, "net"),
    "resnet": lambda folder: saved_tflite(resnet(int8=True), folder, "net"),
    "autoencoder": lambda folder: saved_tflite(autoencoder(int8=True), folder, "net"),
    "integers": lambda folder: saved(small_models.integer_network(), folder, "net"),
    "image": image(3, int8=True),
    **{name: kind.source for name, kind in KINDS.items() if kind.states is None and kind.options.new_frames is None},
}
PLATFORMS = ("cortex_m0plus", "cortex_m4", "cortex_m55", "riscv32_zve32x", "host")
_OF_ACCELERATORS = "offload_"
_ELSEWHERE = {"real_layer", "stream"}
"""Kernels of no network here: other tests compile those, and the ones for accelerators, as packages."""


def _built(name: str, platform: Platform, folder: Path) -> Package:
    folder.mkdir(parents=True)
    options = BuildOptions(verify=(), weights="mixed") if name == "four_bits" else BuildOptions(verify=())
    return tvm_ext.build(tvm_ext.load(NETWORKS[name](folder)), platform, folder / "out", replace(options, name="net"))


def _commands(platform: Platform) -> Iterator[list[str]]:
    """Commands that compile for this machine and, by its own compiler and clang, for the platform."""
    for program in ("gcc", "clang"):
        if shutil.which(program):
            yield [program, *LANGUAGE_FLAGS, "-fPIC"]
    toolchain = platform.toolchain
    if toolchain.prefix:
        yield compile_command(toolchain, "speed")
    if toolchain.prefix.startswith("arm") and shutil.which("clang"):
        flags = ("--target=arm-none-eabi", *toolchain.flags)
        yield compile_command(replace(toolchain, compiler="clang", flags=flags), "speed")


def complaints(package: Package, levels: tuple[str, ...] = LEVELS) -> set[str]:
    """What compilers say of a package's library, each line once, with the command that said so."""
    folder = package.folder
    sources = [path.name for path in library_sources(folder, package.interface.model)]

    def said(command: list[str]) -> set[str]:
        made = [*command, *WARNING_FLAGS, "-I.", "-c", "-o", "/dev/null"]
        done = [
            subprocess.run([*made, one], cwd=folder, capture_output=True, text=True, timeout=300) for one in sources
        ]
        lines = {line for one in done for line in one.stderr.splitlines() if re.search(r"(warning|error): ", line)}
        return {f"{Path(command[0]).name} {command[-1]}: {line}" for line in lines}

    work = [[*command, level] for command in _commands(package.platform) for level in levels]
    assert len(work) >= len(levels)
    with ThreadPoolExecutor(2) as pool:
        return set().union(*pool.map(said, work))


def test_a_session_of_a_board_with_vectors_compiles(tmp_path: Path) -> None:
    """Depthwise layers of Helium as plain C: GCC 12 took 19 values for uninitialized at -O3."""
    package = _built("wide", Platform.load("cortex_m55"), tmp_path / "net")
    assert "qdepthwise_squares_helium" in (package.folder / "net.c").read_text()
    assert complaints(package, ("-O3",)) == set()
    with package.session():
        pass


def test_a_planted_warning_is_found(tmp_path: Path) -> None:
    package = _built("integers", Platform.load("host"), tmp_path / "net")
    source = package.folder / "net.c"
    source.write_text(source.read_text() + "static short planted(int x) { return x; }\n")
    assert any("planted" in one for one in complaints(package, ("-O0",)))


@pytest.mark.sweep
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_for_every_target(name: str, platform: str, tmp_path: Path) -> None:
    assert complaints(_built(name, Platform.load(platform), tmp_path / "net")) == set()


@pytest.mark.sweep
def test_every_kernel_is_in_some_network(tmp_path: Path) -> None:
    used: set[str] = set()
    for name in NETWORKS:
        for platform in PLATFORMS:
            package = _built(name, Platform.load(platform), tmp_path / name / platform)
            used |= set(re.findall(r"kernel (\w+)", (package.folder / "net.c").read_text()))
    known = {kernel.name for kernel in kernels() if not kernel.name.startswith(_OF_ACCELERATORS)}
    assert known - used - _ELSEWHERE == set()
