"""Programs with the operators that PT2E quantization writes: integers as torch computes them, refusals by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.models.agree import run
from tests.support.packages import HOST_ONLY
from tests.support.peers import peer
from tests.support.torch_models import export, nn, torch
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.frontends.load import load
from tvm_ext.frontends.pytorch.operators import register_operators

peer("torch")
register_operators()
OPERATORS = torch.ops.quantized_decomposed
INT8 = (-128, 127, torch.int8)


class Quantized(nn.Module):
    """A convolution by channel, its ReLU, a dense layer by tensor; activations of 4 bits in between."""

    def __init__(self) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(0)
        for name, shape in (("conv", (4, 3, 3, 3)), ("dense", (5, 4))):
            self.register_buffer(name, torch.randint(-127, 128, shape, generator=random).to(torch.int8))
        self.register_buffer("scales", torch.tensor([0.01, 0.02, 0.005, 0.03], dtype=torch.float64))
        self.register_buffer("nones", torch.zeros(4, dtype=torch.int64))
        self.register_buffer("scale", torch.tensor([0.25]))
        self.register_buffer("point", torch.tensor([3]))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = OPERATORS.dequantize_per_tensor(OPERATORS.quantize_per_tensor(image, 0.05, 2, *INT8), 0.05, 2, *INT8)
        conv = OPERATORS.dequantize_per_channel(self.conv, self.scales, self.nones, 0, -127, 127, torch.int8)
        y = nn.functional.conv2d(x, conv.float(), padding=1).relu()
        y = OPERATORS.quantize_per_tensor(y, 0.5, 0, 0, 15, torch.uint8)
        y = nn.functional.max_pool2d(OPERATORS.dequantize_per_tensor(y, 0.5, 0, 0, 15, torch.uint8), 8).flatten(1)
        dense = OPERATORS.dequantize_per_tensor(self.dense, 0.02, 0, *INT8)
        y = nn.functional.linear(y, dense)
        y = OPERATORS.quantize_per_tensor.tensor(y, self.scale, self.point, *INT8)
        return OPERATORS.dequantize_per_tensor.tensor(y, self.scale, self.point, *INT8)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(Quantized().eval(), (1, 3, 8, 8), tmp_path_factory.mktemp("quantized") / "quantized.pt2")


def test_integer_kernels(path: Path, tmp_path: Path) -> None:
    package = tvm_ext.build(load(path), "host", tmp_path / "out", HOST_ONLY)
    verified = package.report["verify"]["host"]
    assert verified["passed"] and (verified["reference"], verified["own_reading"]) == ("PyTorch", None)
    assert verified["tensors_compared"] >= 3  # those inside it, too
    kernels = [step["kernel"] for step in package.report["steps"]]
    assert {"qconv2d_host", "qdense_host"} <= set(kernels) and not {"conv2d_f32", "dense_f32"} & set(kernels)
    assert "generic" not in kernels  # the clip to 4 bits is the layer's clamp


def test_the_numbers_are_those_of_torch(path: Path) -> None:
    x = np.random.default_rng(1).normal(0, 3, (1, 3, 8, 8)).astype(np.float32)
    (found,) = run(load(path), [x])
    expected = Quantized()(torch.from_numpy(x)).numpy()
    assert np.abs(found - expected).max() <= 0.2501  # a step, where sums of floats lie at a tie
    assert (found == expected).mean() > 0.7 and len(np.unique(expected)) > 3


def test_other_integers_are_refused(tmp_path: Path) -> None:
    class Wide(nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            q = OPERATORS.quantize_per_tensor(values, 0.1, 0, -(1 << 20), 1 << 20, torch.int32)
            return OPERATORS.dequantize_per_tensor(q, 0.1, 0, -(1 << 20), 1 << 20, torch.int32)

    class Half(nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            q = OPERATORS.quantize_per_tensor(values, 0.1, 0, *INT8)
            return OPERATORS.dequantize_per_tensor(q, 0.1, 0, *INT8, out_dtype=torch.float16)

    class Empty(nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            q = OPERATORS.quantize_per_tensor(values, 0.1, 0, 5, 4, torch.int8)
            return OPERATORS.dequantize_per_tensor(q, 0.1, 0, 5, 4, torch.int8)

    for network, reason in (
        (Wide(), "it quantizes float32 to int32"),
        (Half(), "it dequantizes int8 to float16"),
        (Empty(), "bounds 5 and 4 leave no integer"),
    ):
        target = export(network, (1, 4), tmp_path / f"{type(network).__name__}.pt2")
        with pytest.raises(UnsupportedModel, match=reason):
            load(target)


def test_scales_that_an_input_decides_are_refused(tmp_path: Path) -> None:
    class Dynamic(nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            scale, point = OPERATORS.choose_qparams(values, -128, 127, 1e-5, torch.int8)
            q = OPERATORS.quantize_per_tensor.tensor(values, scale, point, *INT8)
            return OPERATORS.dequantize_per_tensor.tensor(q, scale, point, *INT8)

    target = export(Dynamic(), (1, 4), tmp_path / "dynamic.pt2")
    with pytest.raises(UnsupportedModel, match=r"choose_qparams.*dynamic quantization.* quantize statically"):
        load(target)


def test_scales_for_groups_are_refused(tmp_path: Path) -> None:
    class Grouped(nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            scales, points = torch.ones(2, 2), torch.zeros(2, 2)
            weight = torch.ones(2, 4, dtype=torch.int8)
            real = OPERATORS.dequantize_per_channel_group(weight, scales, points, -8, 7, torch.int8, 2, torch.float32)
            return values @ real.T

    target = export(Grouped(), (1, 4), tmp_path / "grouped.pt2")
    with pytest.raises(UnsupportedModel, match=r"per_channel_group.*: of quantized operators, those of a scale"):
        load(target)
