"""Winograd's tiles on a Cortex-M4: modelled instructions against executed ones, and beside those of the products."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

import tvm_ext
from benchmarks.modelled import rows_of
from benchmarks.networks.graph import Graph
from benchmarks.networks.quantize import quantized
from tests.support.onnx_models import saved
from tests.support.sweeps import some_rows
from tvm_ext import BuildOptions
from tvm_ext.core.platform import Platform

pytestmark = pytest.mark.board

KERNELS = ((3, 3), (1, 3), (3, 1), (1, 5), (5, 1), (5, 5), (5, 3))
TILES = ("qwinograd_dsp", "qline_dsp")


def network(rows: int, columns: int, channels: int) -> onnx.ModelProto:
    """A layer of each window behind the other."""
    graph = Graph("net", (1, rows, columns, channels), padding="same")
    x = graph.channels_first("input")
    for kernel in KERNELS:
        x = graph.conv(x, channels, kernel, activation="relu")
    return quantized(graph.model(graph.dense(graph.global_pool(x), 3)))


def layers(model: Path, platform: Platform, folder: Path, *, least_flash: bool) -> dict[str, Mapping[str, Any]]:
    """Kernel, modelled and executed instructions of each convolution."""
    options = BuildOptions(verify=(), name="net", optimize="speed", least_flash=least_flash)
    package = tvm_ext.build(tvm_ext.load(model), platform, folder, options)
    return {row["step"]: row for row in rows_of(package) if "conv" in row["step"]}


@pytest.mark.parametrize(("rows", "columns", "channels"), some_rows([(6, 2, 16), (5, 5, 48)], sweep=[(13, 13, 12)]))
def test_tiles_take_what_is_modelled_and_less_than_products(
    cortex_m4: Platform, rows: int, columns: int, channels: int, tmp_path: Path
) -> None:
    """Images in which many tiles reach beyond borders, and few channels."""
    model = saved(network(rows, columns, channels), tmp_path, "net")
    fast = layers(model, cortex_m4, tmp_path / "fast", least_flash=False)
    small = layers(model, cortex_m4, tmp_path / "small", least_flash=True)
    assert len(fast) == len(KERNELS)
    by_tiles = {name: row for name, row in fast.items() if row["kernel"] in TILES}
    assert by_tiles and not {row["kernel"] for row in small.values()} & set(TILES)
    for name, row in by_tiles.items():
        assert row["executed"] / 1.1 < row["modelled"] < 1.1 * row["executed"], row
        assert row["executed"] < 1.03 * small[name]["executed"], (row, small[name])
