"""Networks of inverted bottlenecks, after their PyTorch sources: images are [1, 3, S, S], padding is symmetric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from benchmarks.networks.graph import Graph


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """Expand with 1x1, filter each channel, project with 1x1; the input is added where shapes allow it."""

    c_in: int
    c_out: int
    expansion: int
    stride: int
    kernel: int


def _table(*rows: tuple[int, int, int, int, int]) -> tuple[Bottleneck, ...]:
    return tuple(Bottleneck(c_in=a, c_out=b, expansion=e, stride=s, kernel=k) for a, b, e, s, k in rows)


MCUNET_320K = _table(
    (8, 16, 3, 2, 7), (16, 16, 5, 1, 3), (16, 16, 5, 1, 7), (16, 16, 4, 1, 5), (16, 24, 5, 2, 5), (24, 24, 5, 1, 5),
    (24, 24, 5, 1, 5), (24, 40, 5, 2, 3), (40, 40, 6, 1, 7), (40, 40, 4, 1, 5), (40, 48, 5, 1, 5), (48, 48, 5, 1, 7),
    (48, 48, 5, 1, 3), (48, 96, 6, 2, 3), (96, 96, 5, 1, 7), (96, 96, 4, 1, 3), (96, 160, 5, 1, 7),
)  # fmt: skip
MCUNET_5FPS_VWW = _table(
    (8, 16, 6, 2, 3), (16, 16, 3, 1, 3), (16, 16, 3, 1, 3), (16, 24, 3, 2, 7), (24, 24, 6, 1, 3), (24, 24, 5, 1, 5),
    (24, 40, 6, 2, 7), (40, 40, 6, 1, 7), (40, 48, 6, 1, 3), (48, 48, 4, 1, 3), (48, 96, 5, 2, 5), (96, 96, 5, 1, 3),
    (96, 96, 4, 1, 3), (96, 160, 3, 1, 7),
)  # fmt: skip
# expansion, channels at width 1, repeats, stride of the first repeat
_MOBILENET_V2 = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


def make_divisible(value: float, divisor: int = 8) -> int:
    """Channels rounded to a multiple of `divisor`, up where rounding would take more than a tenth."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded


def mobilenet_v2(name: str, *, width: float, size: int, num_classes: int = 1000) -> onnx.ModelProto:
    """Sandler et al. 2018: float32[1, 3, size, size] -> scores of num_classes classes."""
    graph = Graph(name, (1, 3, size, size), padding="symmetric")
    c_in = make_divisible(32 * width)
    x = graph.conv("input", c_in, 3, stride=2, activation="relu6")
    blocks: list[Bottleneck] = []
    for expansion, channels, repeats, stride in _MOBILENET_V2:
        for index in range(repeats):
            c_out, step = make_divisible(channels * width), stride if index == 0 else 1
            blocks.append(Bottleneck(c_in=c_in, c_out=c_out, expansion=expansion, stride=step, kernel=3))
            c_in = c_out
    x = graph.conv(_bottlenecks(graph, x, blocks), make_divisible(1280 * max(1.0, width)), activation="relu6")
    return graph.model(graph.dense(graph.global_pool(x), num_classes))


def mcunet(name: str, blocks: Sequence[Bottleneck], *, size: int, num_classes: int) -> onnx.ModelProto:
    """Lin et al. 2020, the searched networks: float32[1, 3, size, size] -> scores of num_classes classes."""
    graph = Graph(name, (1, 3, size, size), padding="symmetric")
    x = graph.conv("input", 16, 3, stride=2, activation="relu6")
    x = graph.conv(graph.depthwise(x, 3, activation="relu6"), 8)
    return graph.model(graph.dense(graph.global_pool(_bottlenecks(graph, x, blocks)), num_classes))


def _bottlenecks(graph: Graph, x: str, blocks: Sequence[Bottleneck]) -> str:
    for block in blocks:
        y = graph.conv(x, block.c_in * block.expansion, activation="relu6") if block.expansion > 1 else x
        y = graph.depthwise(y, block.kernel, stride=block.stride, activation="relu6")
        y = graph.conv(y, block.c_out)
        x = graph.add(x, y) if block.stride == 1 and block.c_in == block.c_out else y
    return x
