"""An accelerator on a board: what stands in for its driver counts the calls that were planned; another driver links."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.models.test_offload import branches
from tests.support.offload_platforms import with_accelerator
from tvm_ext.core.errors import RunFailed
from tvm_ext.core.options import BuildOptions
from tvm_ext.execution.board import run_qemu

pytestmark = pytest.mark.board

IDLE = """\
#include "npu_driver.h"

void npu_conv2d(const tvm_ext_offload_conv2d *layer, const void *input, const int8_t *weights, const int32_t *bias,
                const int32_t *multipliers, const int32_t *shifts, void *output)
{
    (void)layer, (void)input, (void)weights, (void)bias, (void)multipliers, (void)shifts, (void)output;
}

void npu_depthwise(const tvm_ext_offload_conv2d *layer, const void *input, const int8_t *weights, const int32_t *bias,
                   const int32_t *multipliers, const int32_t *shifts, void *output)
{
    npu_conv2d(layer, input, weights, bias, multipliers, shifts, output);
}

void npu_dense(const tvm_ext_offload_dense *layer, const void *input, const int8_t *weights, const int32_t *bias,
               const int32_t *multipliers, const int32_t *shifts, void *output)
{
    (void)layer;
    npu_conv2d(0, input, weights, bias, multipliers, shifts, output);
}

int32_t npu_wait(void)
{
    return 7;
}
"""


def test_calls_counted_are_those_planned(tmp_path: Path) -> None:
    onnx.save(branches(), tmp_path / "net.onnx")
    platform = with_accelerator("cortex_m4", {"conv2d": {}, "depthwise": {}, "dense": {}})
    mod = tvm_ext.load(tmp_path / "net.onnx")
    options = BuildOptions(quantize="int8", name="net", verify=("host", "qemu"))
    package = tvm_ext.build(mod, platform, tmp_path / "package", options, calibration=_samples())
    report = package.report
    first, npu = report["processors"]
    assert (first["name"], npu["name"], npu["instructions"]) == ("cpu", "npu", None)
    assert len(npu["steps"]) == report["placement"]["processors"][1]["operators"] >= 2
    planned = report["driver_calls"]
    assert planned == {"starts": len(npu["steps"]), "waits": len(npu["steps"])}
    assert report["verify"]["qemu"]["passed"] and report["verify"]["qemu"]["instructions"] is None
    assert package.run_board([_zeros(package)]).driver_calls == (planned["starts"], planned["waits"])
    assert package.interface.servers == ()
    readme = (package.folder / "README.md").read_text(encoding="utf-8")
    assert f"{planned['starts']} starts and" in readme and "`npu_driver.h`" in readme
    names = subprocess.run(
        ["arm-none-eabi-nm", package.folder / "libnet.a"], capture_output=True, text=True, check=True
    )
    assert "U npu_wait" in names.stdout and "T npu_wait" not in names.stdout
    (package.folder / "idle.c").write_text(IDLE, encoding="utf-8")
    make = ["make", "-s", "firmware", "DRIVER=idle.c"]
    subprocess.run(make, cwd=package.folder, check=True, capture_output=True, timeout=300)
    with pytest.raises(RunFailed, match="returned an error"):
        run_qemu(package.folder / "net.elf", platform, package.interface, [_zeros(package)])


def test_the_shipped_example(tmp_path: Path) -> None:
    """Convolutions go to the accelerator of `cortex_m33_npu`."""
    onnx.save(branches(), tmp_path / "net.onnx")
    options = BuildOptions(quantize="int8", name="net", verify=("host", "qemu"))
    mod = tvm_ext.load(tmp_path / "net.onnx")
    package = tvm_ext.build(mod, "cortex_m33_npu", tmp_path / "package", options, calibration=_samples())
    report = package.report
    assert report["verify"]["qemu"]["passed"] and report["driver_calls"]["starts"] == len(
        report["processors"][1]["steps"]
    )
    assert report["placement"]["makespan_cycles"] < report["placement"]["single_processor"]["makespan_cycles"]


def _samples() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.uniform(-1, 1, (1, 4, 12, 12)).astype(np.float32)} for _ in range(3)]


def _zeros(package: tvm_ext.Package) -> dict[str, np.ndarray]:
    return {name: np.zeros(spec.shape, spec.dtype) for name, spec in package.inputs.items()}
