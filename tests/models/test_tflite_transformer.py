"""A transformer block in TensorFlow Lite's operators gives the bytes of TensorFlow Lite Micro."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.sweeps import some_of
from tests.support.tflite_runners import litert, referenced, saved_tflite, tflite_micro
from tests.support.tflite_transformer import encoder_block

SHAPES = {"small": (8, 16, 2), "odd": (7, 20, 5)}
WAYS = some_of([("TANH", "small")], sweep=[("LOGISTIC", "small"), ("TANH", "odd")])


def drawn(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_an_encoder_block_of_bytes(way: tuple[str, str], tmp_path: Path) -> None:
    """Layer normalization written out, BATCH_MATMUL with a transposed operand, layers that keep the axes."""
    activation, (tokens, width, heads) = way[0], SHAPES[way[1]]
    data = encoder_block(int8=True, tokens=tokens, width=width, heads=heads, activation=activation)
    x = drawn((1, tokens, width), 0)
    found, _ = referenced(saved_tflite(data, tmp_path), [x])
    expected = tflite_micro(data, [x])
    assert len(np.unique(expected)) > 40, "much of the range is met"
    np.testing.assert_array_equal(found[0], expected)


@pytest.mark.parametrize("int8", some_of([], sweep=[True, False]))
def test_an_encoder_block_with_gelu(int8: bool, tmp_path: Path) -> None:
    """Micro's interpreter of Python has no GELU; how LiteRT rounds other operators is not how Micro does."""
    data = encoder_block(int8=int8)
    x = drawn((1, 8, 16), 3)
    arrays = [x if int8 else x.astype(np.float32) / 32]
    found, _ = referenced(saved_tflite(data, tmp_path), arrays)
    expected = litert(data, arrays)[0]
    apart = np.abs(found[0].astype(np.float64) - expected).max()
    assert apart <= (2 if int8 else 1e-5 * np.abs(expected).max())
