"""Int8 networks have the same bytes on every target as on the host, where they are TensorFlow Lite Micro's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.targets import PLATFORMS, SAMPLES, assert_equal, built, drawn, in_series
from tests.support.six_networks import SIX
from tests.support.sweeps import some_rows
from tvm_ext import Package, Platform
from tvm_ext.core.shipped import core_names

OTHER_MARKS = {
    "banana_pi_f3": "process_board",
    "coral_npu": "riscv_board",
    "hexagon_v66": "process_board",
    "raspberry_pi_4": "process_board",
    "raspberry_pi_5": "process_board",
    "riscv32": "riscv_board",
    "riscv32_zve32f": "riscv_clang",
    "riscv32_zve32x": "riscv_board",
    "riscv64_v": "process_board",
    "wasm": "wasm_board",
    "xtensa_lx106": "xtensa_board",
}
SEVERAL = {"cortex_m33_npu", "dual_m33", "dual_m33_equal"}
"""Platforms with several processors, whose bytes other tests compare."""
MEMORIES = {"always_on", "cortex_m7_psram"}
"""Platforms that differ from another one in their memories alone."""
BOARDS_OF_THEIR_OWN = {"coral_npu"}
"""Boards whose core is not the core of any platform."""
EACH_TARGET = {
    "cortex_m0plus", "cortex_m4", "cortex_m55", "coral_npu", "hexagon_v66", "raspberry_pi_4", "riscv32_zve32x",
    "riscv64_v", "wasm", "xtensa_lx106",
}  # fmt: skip
"""One platform for each instruction set. The other platforms choose among the same kernels."""


def pairs(network: str, platforms: Iterable[str]) -> list[Any]:
    """Return parameters that pair a network with each platform, marked with the tools that the platform needs."""
    marks = {name: getattr(pytest.mark, OTHER_MARKS.get(name, "board")) for name in platforms}
    return [pytest.param(network, name, marks=mark) for name, mark in marks.items()]


OTHERS = [name for name in PLATFORMS if name not in EACH_TARGET]
PAIRS = some_rows(
    [*pairs("LSTM", PLATFORMS), *pairs("autoencoder", sorted(EACH_TARGET))],
    sweep=[
        *pairs("autoencoder", OTHERS),
        *(pair for network in SIX if network not in ("autoencoder", "LSTM") for pair in pairs(network, PLATFORMS)),
    ],
)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Package]]:
    """The file of a network, and its package for the host, which is verified there."""
    found: dict[str, tuple[Path, Package]] = {}

    def made(network: str) -> tuple[Path, Package]:
        if network not in found:
            model = tmp_path_factory.mktemp("network") / "net.tflite"
            model.write_bytes(SIX[network]())
            found[network] = model, built(model, "host", ("host",))
        return found[network]

    return made


@pytest.mark.parametrize(("network", "platform"), PAIRS)
def test_bytes_are_those_of_the_host(host: Callable[[str], tuple[Path, Package]], network: str, platform: str) -> None:
    model, package = host(network)
    assert package.report["verify"]["host"]["passed"]
    samples = [drawn(package, seed) for seed in range(SAMPLES)]
    ran = built(model, platform, ()).run_board(samples)
    for index, outputs in enumerate(in_series(package, samples)):
        assert_equal(ran.outputs[index], outputs, f"sample {index}")


def test_no_target_is_left_out() -> None:
    """Every platform with a board whose firmware runs here."""
    with_board = {name for name in core_names() if Platform.load(name).board is not None}
    assert with_board - SEVERAL - MEMORIES | BOARDS_OF_THEIR_OWN == set(PLATFORMS)
