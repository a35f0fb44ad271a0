"""Transformers that PyTorch exports: decomposed attention is found again, in float and in int8."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.support.sweeps import some_of
from tests.support.torch_models import export_on, nn, torch
from tvm_ext import BuildOptions

TOKENS, WIDTH, HEADS = 8, 16, 2
ATTENTION = {
    "none": {"matmul_f32", "softmax_f32", "normalize_f32", "dense_f32", "elementwise_f32", "gather"},
    "int8": {
        *(f"{name}_i8" for name in "qmatmul qsoftmax qnormalize qbinary qunary".split()),
        *(f"{name}_host" for name in "qdense qconv2d qbinary".split()), "gather",
    },
}  # fmt: skip


def encoder_layer() -> nn.Module:
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(
        WIDTH, HEADS, 2 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    ).eval()


class Decoder(nn.Module):
    """Tokens from a table, RMSNorm, rotary embeddings, causal attention beside its input."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(20, WIDTH)
        self.norm, self.parts, self.out = (
            nn.RMSNorm(WIDTH, eps=1e-5),
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )
        depth = WIDTH // HEADS
        angles = torch.arange(TOKENS)[:, None] * 100.0 ** (-torch.arange(0, depth, 2) / depth)
        self.register_buffer("cosines", angles.cos().repeat(1, 2))
        self.register_buffer("sines", angles.sin().repeat(1, 2))

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return x * self.cosines + torch.cat((-second, first), -1) * self.sines

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        parts = self.parts(self.norm(x)).chunk(3, -1)
        q, k, v = (part.view(1, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2) for part in parts)
        sums = nn.functional.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True)
        return x + self.out(sums.transpose(1, 2).reshape(1, TOKENS, WIDTH))


@pytest.mark.parametrize("quantize", some_of(["int8"], sweep=["none"]))
def test_an_encoder_layer_has_no_step_but_attention(quantize: str, tmp_path: Path) -> None:
    """No permutations, no guards around the softmax, in int8 no float."""
    samples = np.random.default_rng(0).standard_normal((8, 1, TOKENS, WIDTH)).astype(np.float32)
    model = export_on(encoder_layer(), torch.from_numpy(samples[0]), tmp_path / "layer.pt2")
    package = tvm_ext.build(
        tvm_ext.load(model), "host", tmp_path / "package", BuildOptions(quantize=quantize),  # type: ignore[arg-type]
        calibration={"src": samples} if quantize == "int8" else None,
    )  # fmt: skip
    assert {step["kernel"] for step in package.report["steps"]} <= ATTENTION[quantize]
    verified = package.report["verify"]["host"]
    assert verified["passed"] and verified["reference"] == ("PyTorch" if quantize == "none" else "TVM")
    if quantize == "int8":
        assert all(operator["snr_db"] > 25 for operator in package.report["quantization"]["operators"])


@pytest.mark.parametrize("quantize", some_of(["int8"], sweep=["none"]))
def test_a_decoder_with_rotary_embeddings(quantize: str, tmp_path: Path) -> None:
    """Its output has the name of a tensor inside, of as many bytes: each is compared with its own."""
    samples = np.random.default_rng(0).integers(0, 20, (16, 1, TOKENS)).astype(np.int64)
    model = export_on(Decoder().eval(), torch.from_numpy(samples[0]), tmp_path / "decoder.pt2")
    package = tvm_ext.build(
        tvm_ext.load(model), "host", tmp_path / "package", BuildOptions(quantize=quantize),  # type: ignore[arg-type]
        calibration={"tokens": samples} if quantize == "int8" else None,
    )  # fmt: skip
    assert package.report["verify"]["host"]["passed"]
    products = {step["kernel"] for step in package.report["steps"] if step["macs"]}
    expected = {"qmatmul_i8", "qdense_host"} if quantize == "int8" else {"matmul_f32", "dense_f32"}
    assert products <= expected | {"qconv2d_host", "qaffine_i8"} and expected & products
