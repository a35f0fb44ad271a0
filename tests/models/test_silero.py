"""Silero's detector of speech, in the forms of its repository, over 200 frames with state beside onnxruntime.

The files are those of the package `silero-vad` (`pip install --no-deps silero-vad`), or lie in the shared models.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import tvm_ext
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.core.errors import UnsupportedModel

NUM_FRAMES = 200
STATE = (2, 1, 128)
# File, inputs that select, samples of a frame with those of the frame before that it begins with.
FORMS = {
    "16 kHz": ("silero_vad", {"sr": 16000}, 576),
    "8 kHz": ("silero_vad", {"sr": 8000}, 288),
    "opset 15": ("silero_vad_16k_op15", {"sr": 16000}, 576),
    "half floats": ("silero_vad_half", {}, 576),
    "without branches": ("silero_vad_op18_ifless", {"sr": 16000}, 576),
}


def file_of(name: str) -> Path:
    """The file, of the package or of the shared folder; skips, or fails where TVM_EXT_REQUIRE_SHARED=1 wants it."""
    package = importlib.util.find_spec("silero_vad")
    installed = [Path(place) / "data" for place in (package.submodule_search_locations or ())] if package else []
    shared = Path(os.environ.get("TVM_EXT_SHARED", Path(__file__).parents[3] / "shared")) / "models"
    found = [path for folder in (*installed, shared) if (path := folder / f"{name}.onnx").exists()]
    if not found:
        pytest.skip(f"no {name}.onnx: neither is silero-vad installed, nor has the shared folder the file")
    return found[0]


def frames(length: int) -> np.ndarray:
    """Something between speech and noise: a tone that glides, and comes and goes. float32[frames, 1, length]."""
    time = np.arange(NUM_FRAMES * length) / 16000
    voiced = np.sin(2 * np.pi * 0.7 * time) > 0
    tone = 0.3 * np.sin(2 * np.pi * (120 + 60 * np.sin(3 * time)) * time) * voiced
    noise = 0.02 * np.random.default_rng(0).normal(size=time.size)
    return (tone + noise).astype(np.float32).reshape(NUM_FRAMES, 1, length)


def expected(path: Path, samples: np.ndarray, bound: Mapping[str, int]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    runtime = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    state, found = np.zeros(STATE, np.float32), list[np.ndarray]()
    for frame in samples:
        given = {"input": frame, "state": state, **{name: np.array(value) for name, value in bound.items()}}
        output, state = runtime.run(["output", "stateN"], given)
        found.append(output)
    return found


@pytest.mark.parametrize("form", some_of(["opset 15"], sweep=sorted({*FORMS} - {"opset 15"})))
def test_frames_with_state(form: str, tmp_path: Path) -> None:
    """Verified as by default, then frame by frame: probabilities within 1e-5 of onnxruntime's, its state inside."""
    name, bound, length = FORMS[form]
    path, samples = file_of(name), frames(length)
    mod = tvm_ext.load(
        path, shapes={"input": (1, length), "state": STATE}, bind=bound, states={"state": "stateN"}
    )  # fmt: skip
    package = tvm_ext.build(mod, "host", tmp_path / "out", BuildOptions())
    assert package.report["verify"]["host"]["reference"] == "onnxruntime"
    assert list(package.inputs) == ["input"] and list(package.outputs) == ["output"]
    wanted = expected(path, samples, bound)
    with package.session() as session:
        for frame, output in zip(samples, wanted, strict=True):
            np.testing.assert_allclose(session.run({"input": frame})["output"], output, rtol=0, atol=1e-5)
    assert np.ptp(np.array(wanted)) > 0.03, "the frames are told apart"


def test_an_input_that_selects_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"input sr selects it; .*--bind sr=VALUE"):
        tvm_ext.load(file_of("silero_vad"), shapes={"input": (1, 576), "state": STATE}, states={"state": "stateN"})
