"""Quantized models end to end over many inputs: the class onnxruntime gives, and TensorFlow Lite Micro's bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

import tvm_ext
from tests.models.test_tflite_bytes import HASHES, fnv, inputs
from tests.support.packages import Packages
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.core.limits import Limits
from tvm_ext.execution.board import run_qemu
from tvm_ext.execution.host_model import HostModel
from tvm_ext.frontends.onnx.read_file import read_onnx
from tvm_ext.verification.input_ranges import random_inputs
from tvm_ext.verification.reference_runtimes.onnxruntime_runtime import onnx_outputs

INPUTS = 200


@pytest.mark.parametrize("name", ["kws_int8", "resnet_int8"])
def test_the_class_is_onnxruntimes(packages: Packages, shared_models: Path, name: str) -> None:
    package = packages.shared(name)
    specs = {key: (spec.shape, spec.dtype) for key, spec in package.inputs.items()}
    samples = [random_inputs(specs, seed) for seed in range(INPUTS)]
    expected = onnx_outputs(read_onnx(shared_models / f"{name}.onnx", Limits()).model, samples)
    (output,) = package.outputs
    with HostModel(package.folder, package.interface) as model:
        found = [model.run(sample)[output].argmax() for sample in samples]
    same = sum(int(a == b[output].argmax()) for a, b in zip(found, expected, strict=True))
    assert same >= 0.99 * INPUTS


@pytest.mark.board
@pytest.mark.filterwarnings("ignore::tvm_ext.frontends.load.ModelNotice")
@pytest.mark.parametrize("platform", some_of(["cortex_m4"], sweep=["cortex_m55"]))
@pytest.mark.parametrize("name", HASHES)
def test_boards_give_tflms_bytes(shared_models: Path, tmp_path: Path, name: str, platform: str) -> None:
    module = tvm_ext.load(shared_models / f"{name}.tflite")
    package = tvm_ext.build(module, platform, tmp_path / "out", BuildOptions(verify=()))
    ((key, spec),) = package.inputs.items()
    elf = package.folder / package.report["artifacts"]["elf"]
    results = run_qemu(elf, package.platform, package.interface, [{key: x} for x in inputs(spec.shape)]).outputs
    assert fnv(b"".join(next(iter(result.values())).tobytes() for result in results)) == HASHES[name][-1]
