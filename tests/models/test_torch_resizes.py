"""Images that PyTorch's programs resize: as torch computes them, by tables instead of places found as they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm_ext
from tests.support.packages import HOST_ONLY
from tests.support.torch_models import export, nn, torch
from tvm_ext.frontends.load import load

WAYS: list[dict[str, Any]] = [
    {"scale_factor": 2, "mode": "bilinear"},
    {"scale_factor": 1.7, "mode": "bilinear"},
    {"size": (7, 9), "mode": "bilinear", "align_corners": True},
    {"size": (1, 5), "mode": "bilinear"},
    {"scale_factor": 0.6, "mode": "bicubic", "align_corners": True},
    {"size": (11, 13), "mode": "bicubic", "align_corners": True},
    {"size": (7, 13), "mode": "bicubic"},
    {"size": (7, 17), "mode": "nearest"},
    {"size": (17, 7), "mode": "nearest-exact"},
    {"size": (5, 4), "mode": "bilinear", "antialias": True},
    {"size": (5, 4), "mode": "bicubic", "antialias": True},
]


class Resizes(nn.Module):
    def forward(self, image: torch.Tensor) -> list[torch.Tensor]:
        return [nn.functional.interpolate(image, **way) for way in WAYS]


def test_all_ways(tmp_path: Path) -> None:
    path = export(Resizes().eval(), (1, 3, 12, 10), tmp_path / "resizes.pt2")
    script = load(path).script()
    assert not any(name in script for name in ("resize2d", "floor", "astype")), "places are found as the model runs"
    verified = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out", HOST_ONLY).report["verify"]["host"]
    assert verified["passed"] and verified["reference"] == "PyTorch" and verified["max_rel_error"] < 1e-5
