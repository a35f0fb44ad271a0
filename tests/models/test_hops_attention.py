"""Packages of transformers that take hops of a window over time, on boards too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.support.onnx_models import saved
from tests.support.stream_transformers import FEATURES, transformer
from tvm_ext import BuildOptions
from tvm_ext.core.errors import NotReady

FRAMES = 24


def test_a_quantized_transformer_has_the_bytes_of_whole_windows(tmp_path: Path) -> None:
    """Each step is judged by onnxruntime, and each output equals that of the program of whole windows."""
    path = saved(transformer(FRAMES, reach=6, quantized=True), tmp_path)
    options = BuildOptions(new_frames={"x": 1}, time_axis={"x": 2}, verify=("host",))
    host = tvm_ext.build(path, "host", tmp_path / "package", options).report["verify"]["host"]
    assert host["passed"] and host["reference"] == "onnxruntime"


@pytest.mark.board
def test_a_transformer_on_a_board_computes_new_rows_in_integers(tmp_path: Path) -> None:
    """The program of whole windows needs 281,000 instructions."""
    random = np.random.default_rng(0)
    samples = [{"x": random.standard_normal((1, FEATURES, FRAMES)).astype(np.float32)} for _ in range(4)]
    options = BuildOptions(new_frames={"x": 1}, time_axis={"x": 2}, quantize="int8", verify=("host", "qemu"))
    package = tvm_ext.build(
        saved(transformer(FRAMES, reach=6), tmp_path), "cortex_m4", tmp_path / "package", options, calibration=samples
    )
    verified = package.report["verify"]
    assert verified["host"]["passed"] and verified["qemu"]["passed"]
    assert not {step["kernel"] for step in package.report["steps"]} & {"generic", "softmax_f32", "matmul_f32"}
    assert verified["qemu"]["instructions"] < 17_000


def test_causal_attention_goes_on_as_in_a_clip(tmp_path: Path) -> None:
    path = saved(transformer(FRAMES, ahead=2), tmp_path)
    options = BuildOptions(new_frames={"x": 2}, time_axis={"x": 2}, verify=("host",))
    package = tvm_ext.build(path, "host", tmp_path / "package", options)
    host = package.report["verify"]["host"]
    assert host["passed"] and host["reference"].startswith("onnxruntime for the first window and TVM")
    clip = np.random.default_rng(0).standard_normal((1, FEATURES, 60)).astype(np.float32)
    path = saved(transformer(60, ahead=2, reach=FRAMES), tmp_path)
    whole = tvm_ext.build(path, "host", tmp_path / "whole", BuildOptions(verify=()))
    (wanted,) = whole.run({"x": clip}).values()
    with package.session() as session:
        for end in range(2, 61, 2):
            part = {"x": np.ascontiguousarray(clip[:, :, end - 2 : end])}
            if end < FRAMES:
                with pytest.raises(NotReady):
                    session.run(part)
            else:
                (found,) = session.run(part).values()
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=5e-6)
