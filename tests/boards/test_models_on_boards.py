"""The shared networks and small models on both boards."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_ext.building.build
from tests.support.onnx_models import SMALL_MODELS, saved
from tests.support.packages import Packages, assert_close, sample
from tests.support.sweeps import some_of, some_rows
from tvm_ext import BuildOptions
from tvm_ext.core.errors import VerificationFailed
from tvm_ext.core.platform import Platform

pytestmark = pytest.mark.board

BOTH = BuildOptions(verify=("host", "qemu"))
SMALL = BuildOptions(io="caller", optimize="size", verify=("host", "qemu"))


@pytest.mark.parametrize("name", some_of(["resnet_int8"], sweep=["kws_int8", "kws_fp32", "resnet_fp32"]))
@pytest.mark.parametrize("board", some_of(["cortex_m55"], sweep=["cortex_m4"]), indirect=True)
def test_shared_models(packages: Packages, shared_models, board: Platform, name: str) -> None:
    """Verified on host and board; a run of one's own agrees, bytes for integers, and instructions are counted."""
    package = packages.shared(name, board.name, BOTH)
    verify, report = package.report["verify"], package.report
    assert verify["host"]["passed"] and verify["qemu"]["passed"]
    assert verify["qemu"]["instructions"] > report["macs"] / 16
    assert 0 < report["stack_bytes"] < 4096
    assert (package.folder / report["artifacts"]["elf"]).is_file()
    assert (package.folder / report["artifacts"]["library"]).is_file()
    stored = np.load(shared_models / f"{name}.npz")
    (input_name,) = package.inputs
    inputs = {input_name: stored["in0"]}
    result = package.run_board([inputs])
    on_host = package.run(inputs, on="host")
    assert_close(result.outputs[0], on_host, tolerance=1e-5)
    assert result.instructions > report["macs"] / 16
    alive_bytes = {"kws_fp32": 64_000, "kws_int8": 16_000, "resnet_fp32": 196_608, "resnet_int8": 49_152}
    assert report["arena_bytes"] <= alive_bytes[name] + 256


@pytest.mark.parametrize(
    ("name", "options"),
    some_rows(
        [("branches", BOTH), ("moves_data", SMALL), ("nasty_names", SMALL)],
        sweep=[
            *((name, SMALL) for name in ("branches", "gathers", "output_that_is_an_input")),
            *((name, BOTH) for name in ("moves_data", "nasty_names", "gathers", "output_that_is_an_input")),
        ],
    ),
)
def test_small_models(packages: Packages, name: str, options: BuildOptions) -> None:
    package = packages.small(name, SMALL_MODELS[name], "cortex_m4", options)
    assert package.report["verify"]["qemu"]["passed"]
    inputs = sample(package)
    assert_close(package.run(inputs, on="qemu"), package.run(inputs, on="host"), tolerance=1e-5)


def test_a_board_that_computes_something_else_fails_verification(tmp_path, monkeypatch) -> None:
    real = tvm_ext.building.build.run_qemu

    def wrong(*arguments: object, **options: object) -> object:
        result = real(*arguments, **options)
        for outputs in result.outputs:
            for array in outputs.values():
                array += np.float32(0.01)
        return result

    monkeypatch.setattr(tvm_ext.building.build, "run_qemu", wrong)
    mod = tvm_ext.load(saved(SMALL_MODELS["branches"](), tmp_path))
    with pytest.raises(VerificationFailed, match=r"board: outputs differ from the host's by 0\.0"):
        tvm_ext.build(mod, "cortex_m4", tmp_path / "out", BOTH)
    assert not (tmp_path / "out").exists()
