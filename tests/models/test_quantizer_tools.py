"""Files as Brevitas, torchao, ai-edge-quantizer and Keras write them: taken, in integer kernels, with their accuracy.

The tools are extras (`quantizers`, `keras`); without them these tests are skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.quantizing.networks import held_out, tutorial_network
from benchmarks.quantizing.ours import built, integer_share, macs_by_kernel, run_ours
from benchmarks.quantizing.tools import FORMS, Form
from tests.support.peers import tool

NUM_IMAGES = 100
KNOWN = [form for form in FORMS if form.tool != "onnxruntime"]


def written(form: Form, folder: Path) -> Path:
    """The file that the tool writes of the digits."""
    for name in form.needs:
        tool(name)
    path = folder / f"model{form.ending}"
    form.write(tutorial_network(), path)
    return path


def named(form: Form) -> str:
    return f"{form.tool}: {form.name}"


@pytest.mark.parametrize("form", KNOWN, ids=named)
def test_taken(form: Form, tmp_path: Path) -> None:
    path = written(form, tmp_path)
    package = built(path, tmp_path / "out")
    verified = package.report["verify"]["host"]
    assert verified["passed"] and verified["own_reading"] is None
    inputs, labels = (values[:NUM_IMAGES] for values in held_out())
    wanted, found = form.run(path, inputs).argmax(axis=1), run_ours(package, inputs).argmax(axis=1)
    assert abs(int((found == labels).sum()) - int((wanted == labels).sum())) <= 1
    if "weight_only" in form.name:
        return
    assert verified["tensors_compared"] > 5  # each of them within a step of the tool's own runtime
    if form.name == "dynamic":  # TFLiteConverter leaves weights of fewer than 1024 elements in floats
        assert 0.9 < integer_share(package.report) < 1
    else:
        assert all(kernel.startswith("q") for kernel in macs_by_kernel(package.report))
