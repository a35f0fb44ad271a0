"""A memory that one core of a board has to itself: arena and copies are where they were planned, answers the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.boards.test_two_memories import lies_in
from tests.support.core_platforms import with_own_memory
from tests.support.image_networks import image_network
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform

pytestmark = pytest.mark.board


def test_cpu1_works_in_its_own_memory(tmp_path: Path) -> None:
    """The start-up code of CPU0 does not zero it: by the platform, CPU0 does not reach it."""
    onnx.save(image_network(1), tmp_path / "net.onnx")
    platform = with_own_memory(Platform.load("dual_m33"), "cpu1", capacity_bytes=1 << 15)
    options = BuildOptions(name="net", quantize="int8", verify=("host", "qemu"))
    mod = tvm_ext.load(tmp_path / "net.onnx")
    shape = [int(extent) for extent in mod["main"].params[0].ty.shape.values]
    samples = [{"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}]
    package = tvm_ext.build(mod, platform, tmp_path / "out", options, calibration=samples)
    report = package.report
    assert report["verify"]["host"]["passed"] and report["verify"]["qemu"]["passed"]
    assert report["verify"]["qemu"]["moved"] == report["prediction"]["moved"] != []
    assert lies_in(package, "net_own", "own") and lies_in(package, "net_sram", "sram")
    linked = (tmp_path / "out" / "board" / "link.ld").read_text()
    zeroed = linked[linked.index("zero_table_begin = .") : linked.index("zero_table_end")]
    assert "bss_begin" in zeroed and "memory_own" not in zeroed
    copied = [step for step in report["steps"] if step["kernel"] == "copy"]
    by = {name: processor["name"] for processor in report["processors"] for name in processor["steps"]}
    assert copied and {by[step["name"]] for step in copied} == {"cpu1"}
