"""Promises of docs/edges.md: numbers at the edges, the C under the undefined-behaviour sanitizer."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.edge_cases import CASES as NUMBERS
from tests.support.edge_cases import EdgeCase, model_of
from tests.support.index_cases import INDEX_CASES
from tests.support.onnx_models import saved
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.execution.host_model import HostModel
from tvm_ext.frontends.load import load

CASES = [*NUMBERS, *INDEX_CASES]
SANITIZE = ("-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all", "-O0")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Outputs of all cases from one library; undefined behaviour in any of them ends it."""
    folder = tmp_path_factory.mktemp("edges")
    compiled = compile_module(load(saved(model_of(CASES), folder)), Platform.load("host"), BuildOptions())
    for name, text in compiled.sources().items():
        (folder / name).write_text(text)
    inputs = {f"{case.name}_{name}": array for case in CASES for name, array in case.inputs.items()}
    with HostModel(folder, compiled.interface, flags=SANITIZE) as model:
        return model.run(inputs)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_numbers_at_the_edges(case: EdgeCase, found: dict[str, np.ndarray]) -> None:
    for name, expected in zip(case.outputs(), case.results(), strict=True):
        assert (found[name].shape, found[name].dtype) == (expected.shape, expected.dtype)
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], expected, err_msg=name)
