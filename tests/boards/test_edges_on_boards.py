"""Numbers at the edges on the boards: whose own conversions saturate, and whose divisions by zero give zero."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from codegen_c.emit.firmware import emit_firmware
from codegen_c.emit.selftest import TestVector, emit_selftest, emit_vectors
from tests.boards.toy import build_elf, write_texts
from tests.support.edge_cases import CASES, model_of
from tests.support.index_cases import INDEX_CASES
from tests.support.onnx_models import saved
from tests.support.sweeps import some_of
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.execution.board import run_qemu
from tvm_ext.frontends.load import load

pytestmark = pytest.mark.board
# The boards' C library says that -1 to the power of NaN is 1 (docs/edges.md).
TESTED = [case for case in (*CASES, *INDEX_CASES) if case.name != "Pow"]


@pytest.mark.parametrize("board", some_of(["cortex_m55"], sweep=["cortex_m4"]), indirect=True)
def test_results_are_those_of_the_table(board: Platform, tmp_path: Path) -> None:
    compiled = compile_module(load(saved(model_of(TESTED), tmp_path)), board, BuildOptions())
    interface = compiled.interface
    inputs = {f"{case.name}_{name}": array for case in TESTED for name, array in case.inputs.items()}
    expected = {name: array for case in TESTED for name, array in zip(case.outputs(), case.results(), strict=True)}
    vector = TestVector(inputs=inputs, outputs=expected)
    texts = {**compiled.sources(), **emit_vectors(interface, [vector]), **emit_selftest(interface)}
    package = tmp_path / "package"
    write_texts(package, {**texts, **emit_firmware(interface, board)})
    (outputs,) = run_qemu(build_elf(package, board, tmp_path / "built"), board, interface, [inputs]).outputs
    for name, array in expected.items():
        np.testing.assert_allclose(outputs[name], array, rtol=1e-4, atol=1e-6, err_msg=name)
