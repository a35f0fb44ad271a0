"""Tables in a terminal of 80 columns: no number is cut."""

from __future__ import annotations

import re

import onnx
import pytest
from rich.console import Console

import tvm_ext
from tests.golden.models import integer_network
from tvm_ext import BuildOptions
from tvm_ext.report.tables import report_tables


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("columns")
    onnx.save(integer_network(), folder / "net.onnx")
    return tvm_ext.build(folder / "net.onnx", "cortex_m4", folder / "out", BuildOptions(verify=("host",))).report


def shown(report: dict[str, object], columns: int) -> str:
    console = Console(width=columns, record=True, file=open("/dev/null", "w"))  # noqa: SIM115 - never written
    for table in report_tables(report):
        console.print(table)
    return console.export_text()


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_nothing_is_cut(report: dict[str, object], columns: int) -> None:
    text = shown(report, columns)
    assert "…" not in text and max(map(len, text.splitlines())) <= columns


@pytest.mark.parametrize("columns", [80, 140])
def test_every_figure_of_a_step_stands_whole(report: dict[str, object], columns: int) -> None:
    words = set(re.split(r"[\s│]+", shown(report, columns)))
    for step in report["steps"]:  # type: ignore[attr-defined]
        assert f"{step['modelled_instructions']:,}" in words and f"{step['macs']:,}" in words
        for out in step["outputs"]:
            assert f"{out['dtype']}[{','.join(map(str, out['shape']))}]" in words
            assert f"{out['memory']}+{out['offset']}" in words
