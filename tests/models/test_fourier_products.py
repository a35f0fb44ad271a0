"""Fourier transforms that exporters write as products with constant matrices, beside onnxruntime."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tvm_ext
from tests.support.onnx_models import model_of, saved
from tvm_ext import BuildOptions, Package
from tvm_ext.core.errors import VerificationFailed

NODE = helper.make_node
LENGTH = 64
BINS = LENGTH // 2 + 1


def matrix(bins: int = BINS) -> np.ndarray:
    """Rows as numpy and exporters compute them: a sine that is zero is 1e-16 or so."""
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(LENGTH) / LENGTH)
    angles = 2 * np.pi / LENGTH * np.arange(bins)[:, np.newaxis] * np.arange(LENGTH)
    return np.concatenate([window * np.cos(angles), -window * np.sin(angles)]).astype(np.float32)


def of_signal() -> onnx.ModelProto:
    nodes = [NODE("Conv", ["x", "w"], ["y"], strides=[20])]
    return model_of(nodes, {"x": (1, 1, 264)}, ["y"], {"w": matrix()[:, np.newaxis]})


def of_padded_signal() -> onnx.ModelProto:
    nodes = [NODE("Conv", ["x", "w"], ["y"], strides=[20], pads=[20, 20]), NODE("Relu", ["y"], ["z"])]
    return model_of(nodes, {"x": (1, 1, 264)}, ["z"], {"w": matrix()[:, np.newaxis]})


def of_vectors() -> onnx.ModelProto:
    return model_of([NODE("MatMul", ["x", "w"], ["y"])], {"x": (6, LENGTH)}, ["y"], {"w": matrix().T.copy()})


def of_columns() -> onnx.ModelProto:
    return model_of([NODE("MatMul", ["w", "x"], ["y"])], {"x": (LENGTH, 6)}, ["y"], {"w": matrix()})


def of_operator(window: bool, onesided: int) -> onnx.ModelProto:
    """ONNX's own operator, with the window that another operator computes, or without one."""
    nodes = [NODE("HannWindow", ["n"], ["w"])] if window else []
    nodes += [NODE("STFT", ["x", "step", "w" if window else "", "n"], ["y"], onesided=onesided)]
    return model_of(nodes, {"x": (2, 264, 1)}, ["y"], {"n": np.int64(LENGTH), "step": np.int64(20)})


def of_dft() -> onnx.ModelProto:
    return model_of([NODE("DFT", ["x"], ["y"], axis=1, onesided=1)], {"x": (3, LENGTH, 1)}, ["y"])


def of_powers() -> onnx.ModelProto:
    """Powers of the frames, and logarithms."""
    model = of_operator(True, 1)
    graph = model.graph
    graph.node.extend(
        [
            NODE("Mul", ["y", "y"], ["s"]), NODE("ReduceSum", ["s", "parts"], ["p"], keepdims=0),
            NODE("Max", ["p", "floor"], ["m"]), NODE("Log", ["m"], ["z"]),
        ]
    )  # fmt: skip
    constants = {"parts": np.array([3], np.int64), "floor": np.float32(1e-3)}
    graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items())
    graph.output[0].name = "z"
    return model


def with_its_parts() -> onnx.ModelProto:
    """The same, where the parts are results as well."""
    model = of_powers()
    model.graph.output.append(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None))
    return model


MODELS = {
    "fourier_frames_f32": (
        of_signal, of_padded_signal, partial(of_operator, True, 1), partial(of_operator, False, 1),
        partial(of_operator, True, 0), with_its_parts,
    ),
    "fourier_powers_f32": (of_powers,),
    "fourier_vectors_f32": (of_vectors, of_dft),
    "fourier_columns_f32": (of_columns,),
}  # fmt: skip


@pytest.mark.parametrize(("kernel", "make"), [(kernel, make) for kernel, makes in MODELS.items() for make in makes])
def test_a_product_is_computed_as_a_transform(tmp_path: Path, kernel: str, make: object) -> None:
    """The build verifies every element, also those of rows that should be zeros and are not."""
    package = _built(make(), tmp_path)  # type: ignore[operator]
    assert [step["kernel"] for step in package.report["steps"] if step["macs"]] == [kernel]


def test_a_window_that_is_an_input_multiplies_the_frames(tmp_path: Path) -> None:
    node = NODE("STFT", ["x", "step", "w", "n"], ["y"])
    model = model_of([node], {"x": (1, 264, 1), "w": (LENGTH,)}, ["y"], {"n": np.int64(LENGTH), "step": np.int64(20)})
    assert "fourier_vectors_f32" in [step["kernel"] for step in _built(model, tmp_path).report["steps"]]


def test_a_real_signal_of_rank_2(tmp_path: Path) -> None:
    """As PyTorch's exporter writes it, and onnxruntime takes it."""
    constants = {"n": np.int64(LENGTH), "step": np.int64(20), "w": np.hanning(LENGTH).astype(np.float32)}
    model = model_of([NODE("STFT", ["x", "step", "w", "n"], ["y"])], {"x": (2, 264)}, ["y"], constants)
    assert [step["kernel"] for step in _built(model, tmp_path).report["steps"]] == ["fourier_frames_f32"]


def test_few_frequencies_remain_a_product(tmp_path: Path) -> None:
    few = model_of([NODE("MatMul", ["x", "w"], ["y"])], {"x": (6, LENGTH)}, ["y"], {"w": matrix(2).T.copy()})
    assert [step["kernel"] for step in _built(few, tmp_path).report["steps"]] == ["dense_f32"]


def test_a_wrong_transform_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tolerance of rows that are nearly zero hides no error of the size of a rounding of a basis."""
    from codegen_c.kernels.fourier import transform

    right = transform._pairs
    monkeypatch.setattr(transform, "_pairs", lambda numbers: right(numbers * np.exp(2e-5j)))
    with pytest.raises(VerificationFailed):
        _built(of_vectors(), tmp_path)


def _built(model: onnx.ModelProto, folder: Path) -> Package:
    options = BuildOptions(verify=("host",))
    return tvm_ext.build(tvm_ext.load(saved(model, folder)), "cortex_m4", folder / "out", options)
