"""Kinds of layers, by their kernels' names: each has a colour on the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

LAYER_KINDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "convolution": ("intermediate-edge", "convolution"),
        "depthwise": ("input-edge", "depthwise convolution"),
        "dense": ("state-edge", "dense, matrix product"),
        "pool": ("output-edge", "pool, reduction"),
        "elementwise": ("copy-edge", "element by element"),
        "normalize": ("weights-edge", "softmax, normalization"),
        "move": ("scratch-edge", "moves bytes"),
        "other": ("bound", "other"),
    }
)
"""Kind -> name of its colour, and words for the legend."""
_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "depthwise": "depthwise",
        "convolution": "conv pointwise winograd column line",
        "dense": "dense matmul svdf",
        "pool": "pool reduce mean sum max min arg",
        "normalize": "softmax norm normalize variance",
        "move": "dma copy permute transpose pad concat slice gather reshape split tile shift ring push repeat take",
        "elementwise": "binary unary add sub mul relu clip sigmoid tanh quantize convert cast affine elementwise "
        "broadcast leaky div exp exponential sqrt interpolate linear",
    }
)
"""Parts of kernels' names that tell their kind; the first that is found decides."""


def layer_kind(kernel: str) -> str:
    """The kind of a step, from its kernel's name; `other` where no word is known."""
    found = re.split(r"[_\d]+", kernel.lower())
    parts = {*found, *(part.removeprefix("q") for part in found)}  # qconv2d, quantize
    return next((kind for kind, words in _WORDS.items() if parts & {*words.split()}), "other")
