"""TensorFlow Lite layers of float activations and int8 weights: LiteRT's numbers, on all targets, within little RAM."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from codegen_c.backend.byoc import CodegenBackend
from codegen_c.targets.registry import target_of
from relay_passes.composites import composite_of
from relay_passes.dataflow import bindings
from relay_passes.regions.form_composites import FormComposites
from relay_passes.simplify.duplicate_dequantize import DuplicateDequantize
from tests.support.packages import HOST_ONLY
from tests.support.peers import tool
from tests.support.sweeps import some_of
from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_models import RELU, RELU6, SAME, VALID
from tvm_ext import BuildOptions
from tvm_ext.compilation.pipeline import compile_model
from tvm_ext.core.platform import Platform
from tvm_ext.verification.verify import BOARD_TOLERANCE, tolerance_of

LITERT = "ai_edge_litert"


class Layers:
    """A file with float activations and int8 weights, written layer by layer."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.writer, self.random = TfliteWriter(), np.random.default_rng(0)
        self.value, self.shape = self.writer.input("x", shape), shape

    def _weights(self, name: str, shape: tuple[int, ...], channels: int, axis: int, *, by_channel: bool) -> list[int]:
        scales = [float(s) for s in self.random.uniform(0.002, 0.01, channels)] if by_channel else 0.005
        weight = self.random.integers(-127, 128, shape).astype(np.int8)
        bias = self.random.standard_normal(channels).astype(np.float32)
        return [
            self.writer.constant(f"{name}_w", weight, Quantized(scale=scales, axis=axis)),
            self.writer.constant(f"{name}_b", bias),
        ]

    def _add(self, kind: str, name: str, weights: list[int], shape: tuple[int, ...], **options: object) -> Layers:
        made = self.writer.tensor(name, shape)
        title = {"CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions"}
        options |= {"FusedActivationFunction": RELU6 if kind == "DEPTHWISE_CONV_2D" else RELU}
        self.writer.operator(kind, [self.value, *weights], made, title.get(kind, "FullyConnectedOptions"), **options)
        self.value, self.shape = made, shape
        return self

    def conv(self, channels: int, kernel: int = 3, *, by_channel: bool = True, groups: int = 1) -> Layers:
        name, depth = f"conv{self.value}", self.shape[3] // groups
        weights = self._weights(name, (channels, kernel, kernel, depth), channels, 0, by_channel=by_channel)
        step = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": SAME}
        return self._add("CONV_2D", name, weights, (*self.shape[:3], channels), **step)

    def depthwise(self, stride: int = 1) -> Layers:
        name, channels = f"depthwise{self.value}", self.shape[3]
        weights = self._weights(name, (1, 3, 3, channels), channels, 3, by_channel=True)
        rows, columns = ((extent - 3) // stride + 1 for extent in self.shape[1:3])
        step = {"StrideH": stride, "StrideW": stride, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": VALID}
        step |= {"DepthMultiplier": 1}
        return self._add("DEPTHWISE_CONV_2D", name, weights, (1, rows, columns, channels), **step)

    def dense(self, channels: int, *, by_channel: bool, asymmetric: bool, keeps: bool = False) -> Layers:
        name, depth = f"dense{self.value}", self.shape[-1]
        weights = self._weights(name, (channels, depth), channels, 0, by_channel=by_channel)
        options = {"AsymmetricQuantizeInputs": asymmetric, "KeepNumDims": keeps}
        shape = (*self.shape[:-1], channels) if keeps else (int(np.prod(self.shape[:-1])), channels)
        return self._add("FULLY_CONNECTED", name, weights, shape, **options)

    def saved(self, folder: Path) -> Path:
        path = folder / "dynamic.tflite"
        path.write_bytes(self.writer.finish([self.value]))
        return path


def image_network() -> Layers:
    """Convolutions with scales by channel and by tensor, with and without padding, and a depthwise one."""
    return Layers((1, 9, 8, 3)).conv(8).conv(12, by_channel=False).depthwise(stride=2).conv(16, kernel=1)


@pytest.fixture(scope="module")
def image_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_network().saved(tmp_path_factory.mktemp("dynamic"))


@pytest.mark.parametrize("platform", some_of(["host", "cortex_m55"], sweep=["cortex_m4"]))
def test_convolutions_are_litert_s(platform: str, image_file: Path, tmp_path: Path) -> None:
    """Bit for bit: with the range, all arithmetic is the same."""
    tool(LITERT)
    package = tvm_ext.build(tvm_ext.load(image_file), platform, tmp_path / "out", HOST_ONLY)
    verified = package.report["verify"]["host"]
    assert verified["reference"] == "LiteRT" and verified["differing"] == 0 and verified["tensors_compared"] == 4
    kernels = [step["kernel"] for step in package.report["steps"]]
    assert all(kernel.startswith("q") and kernel.endswith("_real") for kernel in kernels) and len(kernels) == 4


@pytest.mark.parametrize(("by_channel", "asymmetric"), [(False, False), (True, True)])
def test_rows_of_dense_layers_have_ranges_of_their_own(by_channel: bool, asymmetric: bool, tmp_path: Path) -> None:
    tool(LITERT)
    net = Layers((2, 3, 16)).dense(12, by_channel=by_channel, asymmetric=asymmetric, keeps=True)
    path = net.dense(8, by_channel=by_channel, asymmetric=asymmetric).saved(tmp_path)
    random = np.random.default_rng(1)
    unequal = random.standard_normal((4, 2, 3, 16)) * np.array([0, 1e-2, 1e2])[:, None]  # rows of zeros, too
    samples = {"x": unequal.astype(np.float32)}
    package = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out", HOST_ONLY, verify_inputs=samples)
    verified = package.report["verify"]["host"]
    assert verified["reference"] == "LiteRT" and verified["differing"] == 0 and verified["tensors_compared"] >= 2
    assert {step["kernel"] for step in package.report["steps"]} == {"qdense_i8_real"}


def test_groups_are_asymmetric_with_one_scale_too(tmp_path: Path) -> None:
    """LiteRT computes groups by its loops for channels, whatever their scales."""
    tool(LITERT)
    path = Layers((1, 5, 5, 4)).conv(8, by_channel=True, groups=2).saved(tmp_path)
    package = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out", HOST_ONLY)
    assert package.report["verify"]["host"]["differing"] == 0


def test_images_with_ranges_of_their_own_stay_in_floats(tmp_path: Path) -> None:
    """Two images are two ranges; the integer kernel takes one image, plain loops take both."""
    tool(LITERT)
    path = Layers((2, 4, 4, 3)).conv(4).saved(tmp_path)
    package = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out", HOST_ONLY)
    verified = package.report["verify"]["host"]
    assert verified["passed"] and verified["reference"] == "LiteRT" and verified["max_rel_error"] < 1e-5
    assert "generic" in {step["kernel"] for step in package.report["steps"]}


def test_memory_passes_find_no_rows(image_file: Path) -> None:
    """A range rests on all rows, so no pass may compute a layer by rows, columns or parts of its input."""
    target = target_of(Platform.load("cortex_m4").processor)
    backend = CodegenBackend(target=target)
    mod = FormComposites(backend)(DuplicateDequantize()(tvm_ext.load(image_file)))
    found = [composite_of(mod, binding.value) for binding in bindings(mod["main"])]
    prints = [backend.footprint(composite) for composite in found if composite is not None]
    assert len(prints) == 4
    for one in prints:
        assert one.rows is None and one.accumulation is None and one.columns is None and one.bands is None


def test_boards_may_differ_by_steps_only_behind_floats(image_file: Path, tmp_path: Path) -> None:
    """An ulp of a sigmoid moves an element to its next step; without such a step before, all bits are the same."""
    options, platform = BuildOptions(verify=()), Platform.load("cortex_m4")
    net = Layers((1, 9, 8, 3))
    gates = net.writer.tensor("gates", net.shape)
    net.value = net.writer.operator("LOGISTIC", [net.value], gates)
    behind = tvm_ext.load(net.conv(8).saved(tmp_path))
    programs = [compile_model(mod, platform, options)[1].program for mod in (tvm_ext.load(image_file), behind)]
    assert [tolerance_of(program, BOARD_TOLERANCE) for program in programs] == [BOARD_TOLERANCE, 2.0**-7]
