"""Blocks in the manner of three families of PyTorch's libraries, exported by torch.export.

The libraries' own networks are exported and built by `benchmarks/torch_networks.py`.
"""

from __future__ import annotations

from pathlib import Path

import tvm_ext
from tests.support.packages import HOST_ONLY
from tests.support.torch_models import nn, torch

functional = nn.functional


class Inverted(nn.Module):
    """Inverted residual of torchvision's MobileNetV3: expansion, depthwise layer, squeeze and excitation."""

    def __init__(self, channels: int = 8, inner: int = 24) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.Hardswish())
        self.depthwise = nn.Sequential(
            nn.Conv2d(inner, inner, 5, padding=2, groups=inner, bias=False), nn.BatchNorm2d(inner), nn.Hardswish()
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, 8, 1), nn.ReLU(), nn.Conv2d(8, inner, 1), nn.Hardsigmoid()
        )
        self.project = nn.Sequential(nn.Conv2d(inner, channels, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.depthwise(self.expand(x))
        return x + self.project(self.squeeze(inner) * inner)


class Shifted(nn.Module):
    """Attention of a Swin transformer: windows of 4 x 4 that are shifted by 2, with a bias for each distance."""

    def __init__(self, width: int = 16, heads: int = 2, window: int = 4) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.norm, self.pairs, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(0.1 * torch.randn((2 * window - 1) ** 2, heads))
        at = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = at[:, :, None] - at[:, None, :] + window - 1
        self.register_buffer("distances", apart[0] * (2 * window - 1) + apart[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, channels = x.shape
        size, count = self.window, self.window**2
        moved = torch.roll(self.norm(x), (-size // 2, -size // 2), (1, 2))
        tiles = moved.view(batch, height // size, size, width // size, size, channels).permute(0, 1, 3, 2, 4, 5)
        query, key, value = (
            self.pairs(tiles.reshape(-1, count, channels))
            .reshape(-1, count, 3, self.heads, channels // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        scores = query @ key.transpose(-2, -1) * (channels // self.heads) ** -0.5
        bias = self.table[self.distances.view(-1)].view(count, count, self.heads).permute(2, 0, 1)
        found = (functional.softmax(scores + bias, -1) @ value).transpose(1, 2).reshape(-1, count, channels)
        whole = self.out(found).view(batch, height // size, width // size, size, size, channels)
        back = whole.permute(0, 1, 3, 2, 4, 5).reshape(x.shape)
        return x + torch.roll(back, (size // 2, size // 2), (1, 2))


class Decoder(nn.Module):
    """Layer of Llama: RMS norm, rotated queries and keys, heads in pairs that share keys, a causal mask, a gate."""

    def __init__(self, words: int = 20, width: int = 16, heads: int = 4, shared: int = 2, length: int = 8) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.words, self.first, self.second = nn.Embedding(words, width), nn.RMSNorm(width), nn.RMSNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, 2 * shared * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = nn.Linear(width, 32), nn.Linear(width, 32), nn.Linear(32, width)
        angles = torch.outer(torch.arange(length), 100.0 ** -torch.linspace(0, 1, self.size // 2)).repeat(1, 2)
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        ahead, behind = x.chunk(2, -1)
        return x * self.cosines + torch.cat([-behind, ahead], -1) * self.sines

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        batch, length, _ = x.shape
        inner = self.first(x)
        query = self.query(inner).view(batch, length, self.heads, self.size).transpose(1, 2)
        key, value = self.keys(inner).view(batch, length, 2, self.shared, self.size).permute(2, 0, 3, 1, 4)
        key, value = (part.repeat_interleave(self.heads // self.shared, 1) for part in (self.rotated(key), value))
        found = functional.scaled_dot_product_attention(self.rotated(query), key, value, is_causal=True)
        x = x + self.out(found.transpose(1, 2).reshape(x.shape))
        inner = self.second(x)
        return (x + self.down(functional.silu(self.gate(inner)) * self.up(inner))) @ self.words.weight.t()


class Families(nn.Module):
    """One block of each family. They share one export and one build."""

    def __init__(self) -> None:
        super().__init__()
        self.inverted, self.shifted, self.decoder = Inverted(), Shifted(), Decoder()

    def forward(self, image: torch.Tensor, rows: torch.Tensor, tokens: torch.Tensor) -> list[torch.Tensor]:
        return [self.inverted(image), self.shifted(rows), self.decoder(tokens)]


def test_three_families(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Families().eval()
    inputs = (torch.randn(1, 8, 12, 12), torch.randn(1, 8, 8, 16), torch.randint(0, 20, (1, 8)))
    mod = tvm_ext.load(module, example_inputs=inputs)
    package = tvm_ext.build(mod, "host", tmp_path / "out", HOST_ONLY)
    verified = package.report["verify"]["host"]
    assert verified["passed"] and verified["reference"] == "PyTorch"
    found = package.run({name: value.numpy() for name, value in zip(package.inputs, inputs, strict=True)})
    for ours, theirs in zip(found.values(), module(*inputs), strict=True):
        torch.testing.assert_close(torch.from_numpy(ours), theirs, rtol=1e-5, atol=1e-5)


class Recurrent(nn.Module):
    """Layers of torchaudio's DeepSpeech. Decomposed, the recurrent layer would have `addmm` nodes of the same shape."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead, self.after = nn.Linear(6, 5), nn.Linear(4, 4)
        self.steps = nn.RNN(5, 4, nonlinearity="relu", batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.softmax(self.after(self.steps(self.ahead(x))[0]), -1)


def test_tensors_after_a_recurrent_layer_are_compared(tmp_path: Path) -> None:
    torch.manual_seed(0)
    mod = tvm_ext.load(Recurrent().eval(), example_inputs=torch.randn(1, 7, 6))
    verified = tvm_ext.build(mod, "host", tmp_path / "out", HOST_ONLY).report["verify"]["host"]
    assert verified["passed"] and verified["reference"] == "PyTorch"
