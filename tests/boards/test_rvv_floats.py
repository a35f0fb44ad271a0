"""Float networks with RISC-V's vectors: the bits of the host, for vectors of any length, in few instructions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.boards.on_board import set_vector_bits
from tests.support.packages import Packages, sample
from tests.support.sweeps import some_of, some_rows
from tvm_ext import BuildOptions

pytestmark = [pytest.mark.board, pytest.mark.riscv_board, pytest.mark.riscv_clang]

NAME = "riscv32_zve32f"
VERIFIED = BuildOptions(verify=("host", "qemu"))


@pytest.mark.parametrize(
    ("model", "most"), some_rows([("kws_fp32", 0.45)], sweep=[("resnet_fp32", 0.45), ("kws_int8", 0.3)])
)
def test_networks_take_few_instructions(packages: Packages, model: str, most: float) -> None:
    report = packages.shared(model, NAME, VERIFIED).report
    verified = report["verify"]["qemu"]
    assert verified["passed"] and verified["instructions"] < most * report["macs"]


@pytest.mark.parametrize("model", some_of(["kws_fp32"], sweep=["resnet_fp32", "kws_int8"]))
def test_bits_are_those_of_the_host_for_vectors_of_any_length(
    packages: Packages, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One firmware; the host adds in the same order, and fuses as well."""
    package = packages.shared(model, NAME, VERIFIED)
    expected = package.run(sample(package), on="host")
    for vector_bits in (128, 256, 512):
        set_vector_bits(monkeypatch, package.platform, vector_bits)
        for name, array in package.run_board([sample(package)]).outputs[0].items():
            np.testing.assert_array_equal(array.view(np.uint8), np.asarray(expected[name]).view(np.uint8))
