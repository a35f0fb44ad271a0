"""A kernel call as plain numbers, from which its cost can be learned: what it computes, on how much, with what."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from codegen_c.kernels import generic
from codegen_c.kernels.contract import Implementation
from codegen_c.operators.kinds import TensorType

FEATURES = (
    "modelled", "macs", "scratch_bytes", "constant_bytes", "num_inputs", "input_elements", "first_input_elements",
    "input_item_bytes", "output_elements", "output_item_bytes", "output_channels", "output_width", "output_rows",
    "input_channels", "input_width", "window_height", "window_width", "stride", "taps",
)  # fmt: skip
"""macs: none of generic code, as when the shipped costs were learned. taps: multiply-accumulates for each element of
the output. Sizes of channels and width are those of images stored [N, H, W, C]; other tensors have their last axis as
channels. modelled: the kernel's own estimate of instructions."""


def step_features(
    implementation: Implementation, inputs: Sequence[TensorType], outputs: Sequence[TensorType]
) -> tuple[int, ...]:
    """One number for each of FEATURES."""
    first, result = (*inputs, *outputs)[0], outputs[0]
    elements = sum(prod(kind.shape) for kind in outputs)
    read = sum(prod(kind.shape) for kind in inputs)
    window = implementation.spatial.window if implementation.spatial else None
    height, width = window.kernel if window else (1, 1)
    macs = 0 if implementation.kernel == generic.KERNEL.name else implementation.macs
    return (
        modelled(implementation, inputs, outputs), macs, implementation.scratch_bytes,
        implementation.constant_bytes, len(inputs), read, prod(first.shape),
        _item_bytes(first), elements, _item_bytes(result), *_extents(result)[:2], _rows(result), *_extents(first),
        height, width, window.strides[0] if window else 1, macs // max(elements, 1),
    )  # fmt: skip


def modelled(implementation: Implementation, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
    """Instructions as the kernel models them; of generic code, which has no model, one for each element it touches."""
    return implementation.instructions or sum(prod(kind.shape) for kind in (*inputs, *outputs))


def _item_bytes(kind: TensorType) -> int:
    return np.dtype(kind.dtype).itemsize


def _extents(kind: TensorType) -> tuple[int, int]:
    """Channels and width."""
    channels = kind.shape[-1] if kind.shape else 1
    return channels, kind.shape[-2] if len(kind.shape) > 2 else 1


def _rows(kind: TensorType) -> int:
    return kind.shape[-3] if len(kind.shape) > 2 else 1
