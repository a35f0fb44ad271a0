"""The timeline of a run: times of the report, no lane does two things at once, nothing is read before it is written."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tvm_ext
from tests.report.reports import parsed
from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext import BuildOptions
from tvm_ext.command_line.main import app
from tvm_ext.report.page.drawing import LAYER_KINDS, layer_kind
from tvm_ext.report.page.page import report_page
from tvm_ext.report.timeline import DMA, lanes_of, timeline_of, trace_of


def step(index: int, name: str, cycles: int, reads: list[str], writes: list[str], **more: object) -> dict[str, object]:
    outputs = [{"c_name": one} for one in writes]
    fields = {"kernel": "conv2d_f32", "processor": "cpu", **more}
    return {"index": index, "name": name, "predicted_cycles": cycles, "reads": reads, "outputs": outputs, **fields}


def tensor(name: str, offset: int, num_bytes: int = 8) -> dict[str, object]:
    return {"c_name": name, "memory": "sram", "offset": offset, "num_bytes": num_bytes}


FETCHED = {
    "steps": [
        step(0, "fetch", 100, [], ["weights"], kernel="dma"),
        step(1, "first", 30, ["x"], ["a"]),
        step(2, "wait_weights", 0, [], ["weights"], kernel="wait"),
        step(3, "second", 50, ["a", "weights"], ["b"]),
    ],
    "tensors": [tensor("x", 0), tensor("a", 8), tensor("weights", 16), tensor("b", 24)],
}
SHARED = {
    "steps": [
        step(0, "top", 40, ["x"], ["upper"], processor="cpu0"),
        step(1, "bottom", 70, ["x"], ["lower"], processor="cpu1"),
        step(2, "both", 10, ["whole"], ["y"], processor="cpu0"),
    ],
    "tensors": [tensor("x", 0), tensor("upper", 8), tensor("lower", 16), tensor("whole", 8, 16), tensor("y", 32)],
}


def test_a_transfer_goes_on_while_the_processor_computes() -> None:
    found = [(one.lane, one.step, one.doing, one.begin, one.end) for one in timeline_of(FETCHED)]
    assert found == [
        (DMA, "fetch", "moves", 0, 100), ("cpu", "first", "computes", 0, 30),
        ("cpu", "wait_weights", "waits", 30, 100), ("cpu", "second", "computes", 100, 150),
    ]  # fmt: skip


def test_a_tensor_of_two_processors_is_read_when_both_have_written() -> None:
    found = [(one.lane, one.step, one.doing, one.begin, one.end) for one in timeline_of(SHARED)]
    assert found == [
        ("cpu0", "top", "computes", 0, 40), ("cpu1", "bottom", "computes", 0, 70),
        ("cpu0", "both", "waits", 40, 70), ("cpu0", "both", "computes", 70, 80),
    ]  # fmt: skip


def test_a_trace_holds_each_slice_once_in_order() -> None:
    slices = timeline_of(FETCHED)
    events = trace_of("net", slices, clock_hz=1_000_000)["traceEvents"]
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert [*lanes.values()] == lanes_of(slices) == ["cpu", DMA]
    shown = [event for event in events if event["ph"] == "X"]
    assert sum(event["dur"] for event in shown) == sum(one.end - one.begin for one in slices)
    for lane in lanes:
        mine = [event for event in shown if event["tid"] == lane]
        assert all(one["ts"] + one["dur"] <= other["ts"] for one, other in pairwise(mine))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tvm_ext.Package:
    folder = tmp_path_factory.mktemp("moved")
    model = saved(SMALL_MODELS["image_in_and_out"](), folder)
    return tvm_ext.build(model, "always_on", folder / "out", BuildOptions(verify=()))


def test_of_a_package_it_ends_when_the_prediction_says(package: tvm_ext.Package, tmp_path: Path) -> None:
    slices, cycles = timeline_of(package.report), package.report["prediction"]["cycles"]
    assert max(one.end for one in slices) == pytest.approx(cycles, rel=0.02)
    computed = {one.step: one.end - one.begin for one in slices if one.doing != "waits"}
    steps = {one["name"]: one["predicted_cycles"] for one in package.report["steps"] if one["kernel"] != "wait"}
    assert computed == steps
    trace = tmp_path / "run.json"
    result = CliRunner().invoke(app, ["report", str(package.folder), "--trace", str(trace)])
    assert result.exit_code == 0 and json.loads(trace.read_text())["traceEvents"]
    again = CliRunner().invoke(app, ["report", str(package.folder), "--trace", str(trace)])
    assert again.exit_code == 1 and "File exists" in again.stderr


def test_a_page_has_a_timeline_where_several_lanes_work(package: tvm_ext.Package) -> None:
    lanes = lanes_of(timeline_of(package.report))
    page = parsed(report_page(package.report))
    assert bool(page.findall(".//section[@id='m0-timeline']")) == (len(lanes) > 1)


def test_kinds_of_kernels() -> None:
    kernels = {
        "qconv2d_dsp": "convolution", "qdepthwise_helium": "depthwise", "qdense_dsp": "dense", "qmatmul_i8": "dense",
        "qpool2d_i8": "pool", "qsoftmax_i8": "normalize", "dma": "move", "permute_helium": "move",
        "qbinary_dsp": "elementwise", "quantize": "elementwise",
        "some_operator_of_mine": "other",
    }  # fmt: skip
    assert {kernel: layer_kind(kernel) for kernel in kernels} == kernels
    assert {*kernels.values()} == {*LAYER_KINDS}
