"""Convolutions and products of TOSA files that become kernels: their C has the bytes of the loops they replace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.support.packages import HOST_ONLY
from tests.support.tosa_file import Operator, stored, tosa_file
from tvm_ext.frontends.load import load
from tvm_ext.frontends.tosa import load_tosa
from tvm_ext.verification.reference_runtimes.ask import run_module

Tensors = dict[str, tuple[str, Sequence[int], np.ndarray | None]]


class _File:
    """A file that grows by one layer at a time."""

    def __init__(self, seed: int, shape: tuple[int, ...], *, words: bool = False) -> None:
        self.random = np.random.default_rng(seed)
        self.type, self.sums = ("int16", "int48") if words else ("int8", "int32")
        self.tensors: Tensors = {"x": (self.type, shape, None)}
        self.operators: list[Operator] = []
        self.last, self.shape, self.zero_point = "x", shape, 0 if words else -7

    def constant(self, name: str, type_name: str, numbers: np.ndarray) -> str:
        self.tensors[name] = (type_name, np.shape(numbers), stored(np.asarray(numbers), type_name))
        return name

    def layer(
        self, name: str, operator: str, shape: tuple[int, ...], weight: tuple[int, ...], rounding: str, *,
        pad: Sequence[int] = (0, 0, 0, 0), per_channel: bool = True, clamp: tuple[int, int] | None = None,
        multiplier: int | None = None,
    ) -> None:  # fmt: skip
        """Append a product, a RESCALE and, with limits, a CLAMP. A product without weights is one with itself."""
        channels, words = shape[-1], self.sums == "int48"
        if weight:
            self.constant(f"{name}.w", "int8", self.random.integers(-127, 128, weight))
            self.constant(f"{name}.b", self.sums, self.random.integers(-9000, 9000, channels) << (8 if words else 0))
            zeros = [self.constant(f"{name}.xz", self.type, np.array([self.zero_point]))]
            inputs = [self.last, f"{name}.w", f"{name}.b", *zeros, self.constant(f"{name}.wz", "int8", np.array([0]))]
            window = {"pad": pad, "stride": [1, 1], "dilation": [1, 1], "acc_type": self.sums}
            taps = int(np.prod(weight)) // channels
        else:
            zero = self.constant(f"{name}.xz", self.type, np.array([self.zero_point]))
            inputs, window, taps = [self.last, self.last, zero, zero], {}, shape[-1]
        self.tensors[f"{name}.s"] = (self.sums, shape, None)
        self.operators.append(Operator(name=operator, inputs=inputs, output=f"{name}.s", attributes=window))
        self._rescale(name, shape, rounding, taps, channels if per_channel else 1, multiplier)
        if clamp:
            self.tensors[f"{name}.c"] = (self.type, shape, None)
            low, high = (list(np.array([limit], f"<{np.dtype(self.type).str[1:]}").tobytes()) for limit in clamp)
            limits = {"min_val": low, "max_val": high, "nan_mode": "PROPAGATE"}
            self.operators.append(Operator(name="CLAMP", inputs=[self.last], output=f"{name}.c", attributes=limits))
            self.last = f"{name}.c"

    def _rescale(
        self, name: str, shape: tuple[int, ...], rounding: str, taps: int, count: int, multiplier: int | None
    ) -> None:
        bits = 15 if self.sums == "int48" else 31
        given = self.random.integers(1 << (bits - 1), 1 << bits, count)
        product_bits = int(np.log2(90 * 90 * taps**0.5 / 60)) if bits == 31 else int(np.log2(127 * taps**0.5))
        shifts = bits + product_bits + self.random.integers(-1, 2, count)
        zero_point = 0 if bits == 15 else 5
        numbers = given if multiplier is None else np.full(count, multiplier)
        parts = [
            self.constant(f"{name}.m", "int32" if bits == 31 else "int16", numbers),
            self.constant(f"{name}.sh", "int8", shifts), self.constant(f"{name}.sz", self.sums, np.array([0])),
            self.constant(f"{name}.yz", self.type, np.array([zero_point])),
        ]  # fmt: skip
        self.tensors[f"{name}.r"] = (self.type, shape, None)
        attributes = {
            "scale32": bits == 31, "per_channel": count > 1, "input_unsigned": False, "output_unsigned": False,
            "rounding_mode": rounding,
        }  # fmt: skip
        inputs = [f"{name}.s", *parts]
        self.operators.append(Operator(name="RESCALE", inputs=inputs, output=f"{name}.r", attributes=attributes))
        self.last, self.shape, self.zero_point = f"{name}.r", shape, zero_point

    def bytes(self) -> bytes:
        return tosa_file(self.tensors, self.operators, ["x"], [self.last])


def _network(rounding: str, *, words: bool = False) -> bytes:
    file = _File(11 + words, (1, 7, 6, 5), words=words)
    file.layer("a", "CONV2D", (1, 7, 6, 6), (6, 3, 3, 5), rounding, pad=(1, 1, 1, 1), clamp=(5, 101))
    file.layer("b", "DEPTHWISE_CONV2D", (1, 5, 5, 12), (3, 2, 6, 2), rounding)
    file.layer("c", "CONV2D", (1, 5, 5, 4), (4, 1, 1, 12), rounding, per_channel=False)
    return file.bytes()


def _in_padding(rounding: str) -> bytes:
    """Windows that lie in padding alone: two rows ahead of the image, and a row on each side of all others."""
    file = _File(18, (1, 4, 4, 3))
    file.layer("a", "CONV2D", (1, 6, 4, 3), (3, 1, 1, 3), rounding, pad=(2, 0, 0, 0))
    file.layer("b", "DEPTHWISE_CONV2D", (1, 10, 8, 3), (2, 2, 3, 1), rounding, pad=(2, 3, 3, 2))
    return file.bytes()


def _square(rounding: str) -> bytes:
    file = _File(14, (2, 6, 6))
    file.layer("a", "MATMUL", (2, 6, 6), (), rounding, per_channel=False, clamp=(-90, 77))
    return file.bytes()


def _as_loops(data: bytes, samples: Sequence[Mapping[str, np.ndarray]], patch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Return the results of a file whose operators are all converted one by one."""
    with patch.context() as inside:
        inside.setattr(load_tosa, "find_layers", lambda graph: ({}, "onnx"))
        mod = load(data)
    assert "dequantize" not in mod.script()
    return [next(iter(found.values())) for found in run_module(mod, samples)]


@pytest.mark.parametrize(
    ("data", "count"),
    [
        pytest.param(_network("SINGLE_ROUND"), 3, id="single"),
        pytest.param(_network("DOUBLE_ROUND"), 3, id="double"),
        pytest.param(_network("SINGLE_ROUND", words=True), 3, id="words"),
        pytest.param(_in_padding("DOUBLE_ROUND"), 2, id="padding"),
        pytest.param(_square("DOUBLE_ROUND"), 1, id="matmul"),
    ],
)
def test_kernels_have_the_bytes_of_the_loops(
    data: bytes, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mod = load(data)
    assert mod.script().count("R.quantize(") == count
    param = mod["main"].params[0]
    shape, dtype = tuple(map(int, param.ty.shape)), str(param.ty.dtype)
    limits, random = np.iinfo(dtype), np.random.default_rng(15)
    inputs = [random.integers(limits.min, limits.max + 1, shape).astype(dtype) for _ in range(3)]
    inputs += [np.full(shape, limit, dtype) for limit in (limits.min, limits.max)]
    package = tvm_ext.build(mod, "host", tmp_path / "out", options=HOST_ONLY)
    # Integers of TOSA have no scales, although the layers inside are written with a scale of one.
    assert [port.quantization for port in (*package.interface.inputs, *package.interface.outputs)] == [None, None]
    expected = _as_loops(data, [{"x": x} for x in inputs], monkeypatch)
    for x, wanted in zip(inputs, expected, strict=True):
        (found,) = package.run({"x": x}).values()
        assert np.array_equal(found, wanted)


def _one(rounding: str, **options: int) -> str:
    file = _File(16, (1, 4, 4, 3))
    file.layer("a", "CONV2D", (1, 4, 4, 4), (4, 1, 1, 3), rounding, per_channel=False, **options)  # type: ignore[arg-type]
    return load(file.bytes()).script()


def test_layers_whose_bytes_no_kernel_has_stay_loops() -> None:
    assert "R.quantize" in _one("SINGLE_ROUND")
    # Sums lie halfway between two results, which SINGLE_ROUND takes up and the kernels take to even numbers.
    assert "R.quantize" not in _one("SINGLE_ROUND", multiplier=1 << 30)
    assert "R.quantize" in _one("DOUBLE_ROUND", multiplier=1 << 30)
    # A multiplier of fewer bits rounds at another bit.
    assert "R.quantize" not in _one("DOUBLE_ROUND", multiplier=1 << 29)


def test_a_module_has_the_rounding_of_most_of_its_layers() -> None:
    file = _File(17, (1, 4, 4, 3))
    for name, rounding in zip("abc", ("DOUBLE_ROUND", "SINGLE_ROUND", "DOUBLE_ROUND"), strict=True):
        file.layer(name, "CONV2D", (1, 4, 4, 3), (3, 1, 1, 3), rounding)
    assert load(file.bytes()).script().count("R.quantize(") == 2
