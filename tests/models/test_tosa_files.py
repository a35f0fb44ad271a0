"""TOSA files: the arithmetic of the specification, and files that are damaged or cannot be compiled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.tosa_file import Operator, tosa_file
from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.frontends.load import load
from tvm_ext.verification.reference_runtimes.ask import run_module

_RANDOM = np.random.default_rng(1)
_WEIGHT, _BIAS = _RANDOM.integers(-127, 128, (5, 3, 3, 4)), _RANDOM.integers(-9000, 9000, 5)
_MULTIPLIER, _SHIFT = _RANDOM.integers(1 << 30, (1 << 31) - 1, 5), np.array([38, 39, 40, 41, 38])
_RESCALE = {"scale32": True, "per_channel": True, "input_unsigned": False, "output_unsigned": False}
_WINDOW = {"pad": [1, 1, 1, 1], "stride": [1, 1], "dilation": [1, 1], "acc_type": "int32"}


def _layer(rounding: str = "DOUBLE_ROUND", **others: object) -> bytes:
    """Return a convolution of int8 that a RESCALE for each channel and a CLAMP follow, as converters write it."""
    tensors = {
        "x": ("int8", (1, 6, 7, 4), None),
        "weight": ("int8", _WEIGHT.shape, _WEIGHT.astype("i1")),
        "bias": ("int32", (5,), _BIAS.astype("<i4")),
        "x_zp": ("int8", (1,), np.array([-3], "i1")),
        "weight_zp": ("int8", (1,), np.array([0], "i1")),
        "sums": ("int32", (1, 6, 7, 5), None),
        "multiplier": ("int32", (5,), _MULTIPLIER.astype("<i4")),
        "shift": ("int8", (5,), _SHIFT.astype("i1")),
        "sums_zp": ("int32", (1,), np.array([0], "<i4")),
        "y_zp": ("int8", (1,), np.array([7], "i1")),
        "scaled": ("int8", (1, 6, 7, 5), None),
        "y": ("int8", (1, 6, 7, 5), None),
    }
    operators = [
        Operator(name="CONV2D", inputs=["x", "weight", "bias", "x_zp", "weight_zp"], output="sums", attributes=_WINDOW),
        Operator(
            name="RESCALE", inputs=["sums", "multiplier", "shift", "sums_zp", "y_zp"], output="scaled",
            attributes={**_RESCALE, "rounding_mode": rounding},
        ),
        Operator(name="CLAMP", inputs=["scaled"], output="y", attributes={"min_val": [7], "max_val": [100]}),
    ]  # fmt: skip
    return tosa_file(tensors, operators, ["x"], ["y"], **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("rounding", ["SINGLE_ROUND", "DOUBLE_ROUND"])
def test_a_convolution_with_its_rescale_gives_the_bytes_of_the_specification(rounding: str) -> None:
    mod = load(_layer(rounding))
    x = np.random.default_rng(2).integers(-128, 128, (1, 6, 7, 4)).astype(np.int8)
    steps = np.pad(x.astype(np.int64) + 3, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(steps, (3, 3), (1, 2))
    sums = np.einsum("nyxcrs,krsc->nyxk", windows, _WEIGHT) + _BIAS
    second = np.where(sums < 0, -(1 << 30), 1 << 30) if rounding == "DOUBLE_ROUND" else 0
    scaled = (sums * _MULTIPLIER + (np.int64(1) << (_SHIFT - 1)) + second) >> _SHIFT
    (found,) = run_module(mod, [{"x": x}])
    assert np.array_equal(found["y"], np.clip(scaled + 7, 7, 100).astype(np.int8))


def test_a_chain_of_element_wise_operators_is_one_loop() -> None:
    tensors = {name: ("int32", (2, 3), None) for name in "xabcy"}
    names = [("ABS", "x", "a"), ("BITWISE_NOT", "a", "b"), ("CLZ", "b", "c"), ("ABS", "c", "y")]
    operators = [Operator(name=name, inputs=[given], output=result) for name, given, result in names]
    mod = load(tosa_file(tensors, operators, ["x"], ["y"]))
    assert sorted(var.name_hint for var in mod.get_global_vars()) == ["elements", "main"]


def test_a_file_compiles_and_the_report_names_the_reference_model_or_that_it_is_missing(tmp_path: Path) -> None:
    (tmp_path / "m.tosa").write_bytes(_layer())
    command = [sys.executable, "-m", "tvm_ext", "compile", "m.tosa", "-p", "host", "-o", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    text = json.dumps(json.loads((tmp_path / "out" / "report.json").read_text()))
    assert '"reference": "the TOSA reference model"' in text or "tosa-tools" in text


def test_moves_pools_and_reductions() -> None:
    tensors = {
        "x": ("int8", (1, 4, 4, 2), None),
        "zp": ("int8", (1,), np.array([0], "i1")),
        "pool": ("int8", (1, 2, 2, 2), None),
        "flat": ("int8", (2, 4), None),
        "turned": ("int8", (4, 2), None),
        "y": ("int8", (1, 2), None),
    }
    pool = {"kernel": [2, 2], "stride": [2, 2], "pad": [0, 0, 0, 0], "acc_type": "int32"}
    operators = [
        Operator(name="AVG_POOL2D", inputs=["x", "zp", "zp"], output="pool", attributes=pool),
        Operator(name="RESHAPE", inputs=["pool", "shape"], output="flat"),
        Operator(name="TRANSPOSE", inputs=["flat"], output="turned", attributes={"perms": [1, 0]}),
        Operator(name="REDUCE_MAX", inputs=["turned"], output="y", attributes={"axis": 0, "nan_mode": "PROPAGATE"}),
    ]
    mod = load(tosa_file(tensors, operators, ["x"], ["y"], shapes={"shape": [2, 4]}))
    x = np.random.default_rng(3).integers(-128, 128, (1, 4, 4, 2)).astype(np.int8)
    sums = x.astype(np.int64).reshape(1, 2, 2, 2, 2, 2).sum((2, 4))
    pooled = (sums * ((((1 << 30) + 1) << 2) // 4) + (1 << 31)) >> 32
    (found,) = run_module(mod, [{"x": x}])
    assert np.array_equal(found["y"], pooled.reshape(2, 4).T.max(0, keepdims=True).astype(np.int8))


@pytest.mark.parametrize(("rows", "refused"), [(-1, False), (3, False), (-2, True), (4, True)])
def test_a_slice_of_an_open_axis_takes_all_that_follows(rows: int, refused: bool) -> None:
    """Arm's converter writes -1 for the batch of a file whose batch is open."""
    tensors = {"x": ("int32", (4, 2), None), "y": ("int32", (3, 1), None)}
    operator = Operator(name="SLICE", inputs=["x", "begin", "size"], output="y")
    text = tosa_file(tensors, [operator], ["x"], ["y"], shapes={"begin": [1, 0], "size": [rows, 1]})
    if refused:
        with pytest.raises(UnsupportedModel, match="it reads outside of its input"):
            load(text)
        return
    x = np.arange(8, dtype=np.int32).reshape(4, 2)
    (found,) = run_module(load(text), [{"x": x}])
    np.testing.assert_array_equal(found["y"], x[1:, :1])


def _single(operator: str, type_name: str = "int32") -> bytes:
    tensors = {"x": (type_name, (2, 3), None), "y": (type_name, (2, 3), None)}
    return tosa_file(tensors, [Operator(name=operator, inputs=["x"], output="y")], ["x"], ["y"])


def test_every_operator_that_cannot_be_compiled_is_named_with_its_reason() -> None:
    with pytest.raises(UnsupportedModel, match="SIGMOID, once"):
        load(_single("SIGMOID"))
    with pytest.raises(UnsupportedModel, match="its element types float32 are not all integers"):
        load(_single("ABS", "float32"))
    with pytest.raises(UnsupportedModel, match="its element type float16 is not supported"):
        load(_single("ABS", "float16"))
    with pytest.raises(UnsupportedModel, match="rounding mode is INEXACT_ROUND"):
        load(_layer("INEXACT_ROUND"))


def test_other_versions_and_control_flow_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match=r"has version 0\.80 of TOSA"):
        load(_layer(version=(0, 80)))
    with pytest.raises(UnsupportedModel, match="one region with one block"):
        load(_layer(num_blocks=2))


def test_damaged_files_are_refused_as_damaged() -> None:
    data, random = _layer(), np.random.default_rng(4)
    for size in range(8, len(data), 97):
        with pytest.raises((BadModel, UnsupportedModel)):
            load(data[:size])
    for _ in range(40):
        changed = bytearray(data)
        for place in random.integers(8, len(data), 4):
            changed[place] = random.integers(0, 256)
        try:
            load(bytes(changed))
        except (BadModel, UnsupportedModel):
            continue


def test_a_tensor_that_nothing_computes_is_refused() -> None:
    tensors = {"x": ("int32", (2,), None), "y": ("int32", (2,), None)}
    with pytest.raises(BadModel, match="a tensor is missing"):
        load(tosa_file(tensors, [Operator(name="ADD", inputs=["x", "z"], output="y")], ["x"], ["y"]))
    with pytest.raises(BadModel, match="is not one of its tensors"):
        load(tosa_file(tensors, [], ["x"], ["y"]))
