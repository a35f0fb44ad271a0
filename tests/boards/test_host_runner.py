"""Packages on the host through ctypes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.boards.toy import write_toy
from tvm_ext.core.errors import BadInput, BadPackage, BuildFailed, RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.runner import HostModel, run_host


@pytest.mark.parametrize("io", ["arena", "caller"])
def test_outputs_have_the_models_names_and_shapes(host: Platform, tmp_path: Path, io) -> None:
    toy = write_toy(tmp_path, host, io=io)
    before = sorted(tmp_path.rglob("*"))
    outputs = run_host(tmp_path, toy.interface, toy.sample)
    assert list(outputs) == ["out"]
    assert outputs["out"].shape == (8,) and outputs["out"].dtype == np.float32
    np.testing.assert_array_equal(outputs["out"], toy.expected["out"])
    assert sorted(tmp_path.rglob("*")) == before


def test_inputs_need_not_be_contiguous(host: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, host)
    strided = {name: np.asfortranarray(value) for name, value in toy.sample.items()}
    np.testing.assert_array_equal(run_host(tmp_path, toy.interface, strided)["out"], toy.expected["out"])


def test_a_changed_package_loads_anew_and_earlier_outputs_stay(host: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, host)
    with HostModel(tmp_path, toy.interface) as first:
        kept = first.run(toy.sample)["out"]
        write_toy(tmp_path, host, body="output[i] = 7.0f;")
        with HostModel(tmp_path, toy.interface) as second:
            assert second.run(toy.sample)["out"].tolist() == [7.0] * 8
            assert first.run(toy.sample)["out"].tolist() == toy.expected["out"].tolist()
    assert kept.tolist() == toy.expected["out"].tolist()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"input 'in:0 \*/ \?\?/' is missing"),
        ({"other": np.zeros(1)}, "'other' is not an input of toy"),
        ({"in:0 */ ??/": np.zeros((4, 2), np.float32)}, r"is float32\[4, 2\]; toy reads float32\[2, 4\]"),
        ({"in:0 */ ??/": np.zeros((2, 4))}, r"is float64\[2, 4\]"),
    ],
)
def test_wrong_inputs(host: Platform, tmp_path: Path, inputs, message: str) -> None:
    toy = write_toy(tmp_path, host)
    with pytest.raises(BadInput, match=message):
        run_host(tmp_path, toy.interface, inputs)


def test_a_status_other_than_zero(host: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, host)
    source = tmp_path / "toy.c"
    source.write_text(source.read_text().replace("return 0;", "return -2;"))
    with pytest.raises(RunFailed, match="toy_run returned -2"):
        run_host(tmp_path, toy.interface, toy.sample)


def test_folders_that_cannot_be_built_or_loaded(host: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, host)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadPackage, match="no C sources"):
        HostModel(tmp_path / "empty", toy.interface)
    source = tmp_path / "toy.c"
    source.write_text(source.read_text() + "int32_t absent(void);\nint32_t other(void) { return absent(); }\n")
    with pytest.raises(BadPackage, match="absent"):
        HostModel(tmp_path, toy.interface, flags=["-Wl,-z,now"])
    source.write_text("broken")
    with pytest.raises(BuildFailed, match=r"toy\.c:1"):
        HostModel(tmp_path, toy.interface)
