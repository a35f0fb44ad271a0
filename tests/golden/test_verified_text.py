"""The sentence of a README about its verification."""

from __future__ import annotations

import pytest

from codegen_c.emit.readme import verified


@pytest.mark.parametrize(
    ("difference", "text"), [(0.25, "largest difference 0.25"), (None, "a difference that is not finite")]
)
def test_outputs_may_be_infinite(difference: float | None, text: str) -> None:
    """A model that overflows in both runtimes passes, and JSON has no infinity."""
    result = {"reference": "onnxruntime", "max_abs_error": difference, "elements": 8}
    assert verified({"host": result}) == f"Verified on the host against onnxruntime: {text} over 8 output elements."
