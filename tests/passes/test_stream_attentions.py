"""StreamWindows with attention over time, beside onnxruntime on whole windows and on whole clips."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tvm

import tvm_ext
from codegen_c.tir.llvm import compiled_with_llvm
from tests.support.onnx_models import saved
from tests.support.stream_transformers import CLASSES, FEATURES, HIDDEN, TAPS, WIDTH, transformer
from tests.support.sweeps import some_of
from tvm_ext.compilation.stages import streaming
from tvm_ext.core.decisions.models import HopCost, KeptStates, WarmUp

FRAMES = 24


def streamed(hop: int, folder: Path, **choices: Any) -> tvm.IRModule:
    module = tvm_ext.load(saved(transformer(FRAMES, **choices), folder))
    return tvm.transform.Sequential(streaming("x", hop, 2))(module)


def assert_runs(stream: tvm.IRModule, hop: int, choices: Mapping[str, Any]) -> None:
    """Compare runs over more than two windows: with windows, or with whole clips where the rows go on."""
    steps, states = compiled_with_llvm(stream), [state.initial for state in KeptStates.read(stream).states]
    warm_up = WarmUp.read(stream)
    clip = np.random.default_rng(hop).standard_normal((1, FEATURES, 2 * FRAMES + 5 * hop)).astype(np.float32)
    rows = FRAMES + choices.get("ahead", 0) - TAPS + 1
    of_clip = {**choices, "reach": choices.get("reach") or rows}
    for end in range(hop, clip.shape[2] + 1, hop):
        found = steps([clip[:, :, end - hop : end], *states])
        (output, *_), states = found, found[len(found) - len(states) :]
        if end <= warm_up.runs * hop:
            continue
        begin = 0 if warm_up.goes_on else end - FRAMES
        model = transformer(end - begin, **(of_clip if warm_up.goes_on else choices))
        (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": clip[:, :, begin:end]})
        np.testing.assert_allclose(output, wanted, rtol=2e-5, atol=5e-6)


CASES: Mapping[str, tuple[bool, Mapping[str, Any]]] = {
    "a mask of 6 rows": (False, {"reach": 6}),
    "a mask of both sides": (False, {"mask": "both sides", "reach": 2, "blocks": 1}),
    "numbers for distances": (False, {"mask": "distances", "reach": 5}),
    "a mean of all rows": (False, {"reach": 4, "head": "mean"}),
    "one causal block": (False, {"blocks": 1}),
    "one block that is read in its last row": (False, {"blocks": 1, "mask": "none"}),
    "two causal blocks": (True, {"ahead": 2}),
    "a selection of scores": (True, {"mask": "where", "ahead": 2}),
    "two causal blocks behind a convolution without padding": (True, {}),
}  # fmt: skip
"""Name -> whether rows go on, and the model."""


@pytest.mark.parametrize("hop", some_of([1], sweep=[2, 4]))
@pytest.mark.parametrize("case", CASES)
def test_new_rows_attend_to_rows_that_are_kept(case: str, hop: int, tmp_path: Path) -> None:
    goes_on, choices = CASES[case]
    stream = streamed(hop, tmp_path, **choices)
    assert WarmUp.read(stream).goes_on == goes_on
    assert_runs(stream, hop, choices)


@pytest.mark.parametrize("case", ["a mask of 6 rows", "two causal blocks"])
def test_several_new_rows(case: str, tmp_path: Path) -> None:
    _, choices = CASES[case]
    assert_runs(streamed(3, tmp_path, **choices), 3, choices)


def test_a_run_computes_one_row(tmp_path: Path) -> None:
    """Each of two blocks: four dense layers of the attention, its products with 6 rows, and two more dense layers."""
    cost = HopCost.read(streamed(1, tmp_path, reach=6))
    row = 4 * WIDTH * WIDTH + 2 * 6 * WIDTH + 2 * WIDTH * HIDDEN
    assert cost.macs == FEATURES * WIDTH * TAPS + 2 * row + WIDTH * CLASSES
    assert cost.window_macs > 20 * cost.macs and not cost.remarks


def test_rows_that_go_on_are_named(tmp_path: Path) -> None:
    (remark,) = HopCost.read(streamed(1, tmp_path, ahead=2)).remarks
    assert remark.startswith("the keys and values of matmul_")
    assert remark.endswith(
        "(matmul) go on from run to run, so outputs are those of all frames since the reset, and not of a window that "
        "begins in the initial state"
    )


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({"mask": "rows"}, "has a mask that is not the same for each row"),
        ({"mask": "none"}, "reads all rows of the window for each row"),
        ({"positions": True}, "combines a value with a constant that differs over time"),
    ],
)
def test_attention_that_is_computed_for_the_whole_window_says_why(
    choices: Mapping[str, Any], reason: str, tmp_path: Path
) -> None:
    stream = streamed(1, tmp_path, **choices)
    assert not WarmUp.read(stream).goes_on
    assert reason in " ".join(HopCost.read(stream).remarks)
    assert_runs(stream, 1, choices)


def test_an_encoder_layer_of_pytorch(tmp_path: Path) -> None:
    """PyTorch decomposes it into views, factors and guards, which do not hide the attention."""
    torch = pytest.importorskip("torch")

    class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Conv1d(FEATURES, WIDTH, TAPS)
            self.layer = torch.nn.TransformerEncoderLayer(WIDTH, 2, HIDDEN, 0.0, batch_first=True)
            mask = torch.nn.Transformer.generate_square_subsequent_mask(FRAMES - TAPS + 1)
            self.register_buffer("mask", mask)
            self.head = torch.nn.Linear(WIDTH, CLASSES)

        def forward(self, x: Any) -> Any:
            rows = torch.relu(self.stem(x)).transpose(1, 2)
            return self.head(self.layer(rows, src_mask=self.mask)[:, -1])

    torch.manual_seed(0)
    network, clip = Network().eval(), torch.randn(1, FEATURES, 3 * FRAMES)
    torch.export.save(torch.export.export(network, (clip[:, :, :FRAMES],)), tmp_path / "network.pt2")
    stream = tvm.transform.Sequential(streaming("x", 1, 2))(tvm_ext.load(tmp_path / "network.pt2"))
    rows, cost = FRAMES - TAPS + 1, HopCost.read(stream)
    block = 4 * WIDTH * WIDTH + 2 * rows * WIDTH + 2 * WIDTH * HIDDEN
    assert cost.macs == FEATURES * WIDTH * TAPS + block + WIDTH * CLASSES and not cost.remarks
    steps, states = compiled_with_llvm(stream), [state.initial for state in KeptStates.read(stream).states]
    for end in range(1, clip.shape[2] + 1):
        output, *states = steps([clip[:, :, end - 1 : end].numpy(), *states])
        if end >= FRAMES:
            wanted = network(clip[:, :, end - FRAMES : end]).detach().numpy()
            np.testing.assert_allclose(output, wanted, rtol=2e-5, atol=5e-6)
