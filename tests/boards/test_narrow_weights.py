"""Weights of 16 bits on boards: each one read as the number that it is."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tvm_ext
from tests.support.onnx_models import NODE, model_of, saved
from tests.support.sweeps import some_of

pytestmark = pytest.mark.board
NARROW = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
LEAST = {"float16": 0.0, "bfloat16": 2.0**-126}
"""Magnitudes below are flushed to zero by Helium, of float32 as well."""


@pytest.mark.parametrize("dtype", some_of(["float16"], sweep=["bfloat16"]))
@pytest.mark.parametrize("platform", ["cortex_m4", "cortex_m55"])
def test_every_finite_weight_is_read_exactly(tmp_path: Path, platform: str, dtype: str) -> None:
    """One element, 1, times a row of all of them; numbers below the normal ones are among them."""
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(NARROW[dtype]).astype(np.float32)
    weights = every[np.isfinite(every) & ((every == 0) | (np.abs(every) >= LEAST[dtype]))]
    model = model_of([NODE("MatMul", ["x", "w"], ["y"])], {"x": (1, 1)}, ["y"], {"w": weights.reshape(1, -1)})
    package = tvm_ext.build(
        tvm_ext.load(saved(model, tmp_path)), platform, tmp_path / "out", tvm_ext.BuildOptions(verify=())
    )
    found = package.run({"x": np.ones((1, 1), np.float32)}, on="qemu")["y"]
    np.testing.assert_array_equal(found.reshape(-1), weights)
    assert package.report["weights_bytes"] == 6 * weights.size, "two bytes a weight, four a bias"
