"""Networks over time as their authors describe them, in PyTorch with drawn weights: noise suppression and keywords.

Sizes are those of the publications; weights do not change what a compiled network costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

NUM_FEATURES, NUM_BANDS = 42, 22
"""Features of a frame and gains of RNNoise."""
COEFFICIENTS, FRAMES, KEYWORDS = 40, 98, 12
"""MFCC of a frame, frames of a second, and classes of Speech Commands."""


class RnNoise(nn.Module):
    """RNNoise's gains and voice activity from the features of frames: dense layers and three GRUs, 88 k weights."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(NUM_FEATURES, 24)
        self.vad_gru = nn.GRU(24, 24, batch_first=True)
        self.vad = nn.Linear(24, 1)
        self.noise_gru = nn.GRU(24 + 24 + NUM_FEATURES, 48, batch_first=True)
        self.denoise_gru = nn.GRU(24 + 48 + NUM_FEATURES, 96, batch_first=True)
        self.gains = nn.Linear(96, NUM_BANDS)

    def forward(
        self, features: Tensor, vad_state: Tensor, noise_state: Tensor, denoise_state: Tensor
    ) -> tuple[Tensor, ...]:
        """Features float32[1, frames, 42] and states [1, 1, units]; gains, voice activity and states."""
        dense = torch.tanh(self.features(features))
        voice, vad_state = self.vad_gru(dense, vad_state)
        noise, noise_state = self.noise_gru(torch.cat([dense, voice, features], dim=-1), noise_state)
        joined = torch.cat([voice, noise, features], dim=-1)
        denoised, denoise_state = self.denoise_gru(joined, denoise_state)
        gains = torch.sigmoid(self.gains(denoised))
        return gains, torch.sigmoid(self.vad(voice)), vad_state, noise_state, denoise_state


class RnNoiseClip(RnNoise):
    """RNNoise over a whole clip, from states of zeros."""

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        states = [features.new_zeros(1, 1, units) for units in (24, 48, 96)]
        return super().forward(features, *states)[:2]


class KeywordTransformer(nn.Module):
    """Keyword transformer, a token a frame: one head, 64 wide, 12 blocks, normalized after the sum, 0.6 M weights."""

    def __init__(self, *, width: int = 64, blocks: int = 12) -> None:
        super().__init__()
        self.embed = nn.Linear(COEFFICIENTS, width)
        self.class_token = nn.Parameter(torch.randn(1, 1, width) * 0.1)
        self.positions = nn.Parameter(torch.randn(1, FRAMES + 1, width) * 0.1)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, nhead=1, dim_feedforward=4 * width, dropout=0.0, activation="gelu", batch_first=True
            )
            for _ in range(blocks)
        )
        self.head = nn.Linear(width, KEYWORDS)

    def forward(self, mfcc: Tensor) -> Tensor:
        """Logits float32[1, 12] of MFCC float32[1, 98, 40]."""
        tokens = torch.cat([self.class_token, self.embed(mfcc)], dim=1) + self.positions
        for block in self.blocks:
            tokens = block(tokens)
        return self.head(tokens[:, 0])


class RootMeanSquare(nn.Module):
    """Normalization by the root of the mean square, in the operators that every exporter writes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class MambaBlock(nn.Module):
    """A selective state space in the form that scans step by step."""

    def __init__(self, *, width: int, inner: int, states: int, rank: int) -> None:
        super().__init__()
        self.states, self.rank = states, rank
        self.norm = RootMeanSquare(width)
        self.into = nn.Linear(width, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, 4, groups=inner)
        self.select = nn.Linear(inner, rank + 2 * states, bias=False)
        self.step = nn.Linear(rank, inner)
        self.decay = nn.Parameter(torch.log(torch.arange(1.0, states + 1)).repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))
        self.out = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, taps: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Frames [1, T, width], the last 3 inputs of the convolution [1, inner, 3], state [1, inner, states]."""
        u, gate = self.into(self.norm(x)).chunk(2, dim=-1)
        window = torch.cat([taps, u.transpose(1, 2)], dim=2)
        u = nn.functional.silu(self.conv(window)).transpose(1, 2)
        rate, b, c = self.select(u).split([self.rank, self.states, self.states], dim=-1)
        delta = nn.functional.softplus(self.step(rate))
        kept = torch.exp(delta.unsqueeze(-1) * -torch.exp(self.decay))
        added = (delta * u).unsqueeze(-1) * b.unsqueeze(2)
        outputs: list[Tensor] = []
        for time in range(x.shape[1]):
            state = kept[:, time] * state + added[:, time]
            outputs.append((state * c[:, time].unsqueeze(1)).sum(-1))
        y = torch.stack(outputs, dim=1) + self.skip * u
        return x + self.out(y * nn.functional.silu(gate)), window[:, :, -3:], state


class KeywordMamba(nn.Module):
    """Keyword spotting by selective state spaces, 64 wide, 6 blocks, 0.19 M weights: one frame a run, with states."""

    def __init__(self, *, width: int = 64, states: int = 8, blocks: int = 6) -> None:
        super().__init__()
        self.inner, self.states = 2 * width, states
        self.embed = nn.Linear(COEFFICIENTS, width)
        self.blocks = nn.ModuleList(
            MambaBlock(width=width, inner=self.inner, states=states, rank=8) for _ in range(blocks)
        )
        self.norm = RootMeanSquare(width)
        self.head = nn.Linear(width, KEYWORDS)

    def forward(self, mfcc: Tensor, taps: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the last frame of MFCC [1, T, 40]; all blocks' taps [blocks, inner, 3] and states."""
        x, new_taps, new_states = self.embed(mfcc), list[Tensor](), list[Tensor]()
        for index, block in enumerate(self.blocks):
            x, last, scanned = block(x, taps[index : index + 1], state[index : index + 1])
            new_taps.append(last)
            new_states.append(scanned)
        return self.head(self.norm(x[:, -1])), torch.cat(new_taps), torch.cat(new_states)


class KeywordMambaWindow(KeywordMamba):
    """Return the outputs for a whole window. All states begin at zero."""

    def forward(self, mfcc: Tensor) -> Tensor:  # type: ignore[override]
        taps = mfcc.new_zeros(len(self.blocks), self.inner, 3)
        return super().forward(mfcc, taps, mfcc.new_zeros(len(self.blocks), self.inner, self.states))[0]


@dataclass(frozen=True, kw_only=True)
class Described:
    """A network of this file: how to make it, shapes of its inputs by name, names of its outputs, and its states."""

    make: Callable[[], nn.Module]
    inputs: Mapping[str, tuple[int, ...]]
    outputs: tuple[str, ...]
    states: Mapping[str, str]
    """Inputs that hold a state, and the output of each."""

    def module(self) -> nn.Module:
        """The network with the same weights at each call."""
        torch.manual_seed(0)
        return self.make().eval()


_RNNOISE_STATES = {"vad_state": (1, 1, 24), "noise_state": (1, 1, 48), "denoise_state": (1, 1, 96)}
NETWORKS: Mapping[str, Described] = {
    "rnnoise_frame": Described(
        make=RnNoise,
        inputs={"features": (1, 1, NUM_FEATURES), **_RNNOISE_STATES},
        outputs=("gains", "voice", *(f"{name}_out" for name in _RNNOISE_STATES)),
        states={name: f"{name}_out" for name in _RNNOISE_STATES},
    ),
    "rnnoise_clip": Described(
        make=RnNoiseClip, inputs={"features": (1, 100, NUM_FEATURES)}, outputs=("gains", "voice"), states={}
    ),
    "keyword_transformer": Described(
        make=KeywordTransformer, inputs={"mfcc": (1, FRAMES, COEFFICIENTS)}, outputs=("logits",), states={}
    ),
    "keyword_mamba_frame": Described(
        make=KeywordMamba,
        inputs={"mfcc": (1, 1, COEFFICIENTS), "taps": (6, 128, 3), "state": (6, 128, 8)},
        outputs=("logits", "taps_out", "state_out"),
        states={"taps": "taps_out", "state": "state_out"},
    ),
    "keyword_mamba_window": Described(
        make=KeywordMambaWindow, inputs={"mfcc": (1, FRAMES, COEFFICIENTS)}, outputs=("logits",), states={}
    ),
}
