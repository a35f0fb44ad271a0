"""Attributes of single operators that came out wrong once, each through the generated C against its runtime.

`benchmarks/attribute_pairs.py` finds such; this file keeps those that it found.
"""

from __future__ import annotations

from ast import literal_eval
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_ext
from benchmarks.pairing.examine import Outcome, examined_model, examined_models
from benchmarks.pairing.onnx_form import onnx_model
from benchmarks.pairing.operator_case import Input
from benchmarks.pairing.torch_form import torch_model
from tests.support.sweeps import some_rows
from tvm_ext.core.errors import UnsupportedModel

IMAGE = {"x": Input(shape=(1, 2, 9, 8))}


def _pads(**more: Any) -> dict[str, Any]:
    return {"kernel_shape": [3, 2], "strides": [2, 1], "auto_pad": "SAME_UPPER", **more}


def _where(coordinates: str) -> dict[str, Any]:
    return {"coordinate_transformation_mode": coordinates}


def _nearest(coordinates: str, nearest_mode: str) -> dict[str, Any]:
    return {"mode": "nearest", "nearest_mode": nearest_mode, **_where(coordinates)}


def _scales(factor: float) -> np.ndarray:
    return np.array([1, 1, 1, factor], np.float32)


def _sizes(extent: int) -> np.ndarray:
    return np.array([1, 1, 1, extent], np.int64)


ONNX: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "average of padding in one dimension": (
        "AveragePool", {"x": Input(shape=(1, 2, 9))},
        {"kernel_shape": [3], "auto_pad": "SAME_LOWER", "count_include_pad": 1},
    ),
    "product of two vectors": ("MatMul", {"a": Input(shape=(4,)), "b": Input(shape=(4,))}, {}),
    "product with a bias of one number": (
        "Gemm", {"A": Input(shape=(1, 5)), "B": np.ones((1, 1), np.float32), "C": np.array(0.5, np.float32)},
        {"transA": 1, "alpha": 0.5},
    ),
    "average of padding": ("AveragePool", IMAGE, _pads(count_include_pad=1)),
    "average of padding in three dimensions": (
        "AveragePool", {"x": Input(shape=(1, 2, 4, 5, 6))},
        {"kernel_shape": [3, 2, 3], "strides": [1, 2, 2], "auto_pad": "SAME_UPPER", "count_include_pad": 1},
    ),
    **{
        f"resized {name}": (
            "Resize", {"x": Input(shape=(1, 1, 1, n)), "roi": None, "scales": scales, "sizes": sizes}, how,
        )
        for name, n, scales, sizes, how in (
            ("half_pixel_symmetric", 7, _scales(0.5), None, _nearest("half_pixel_symmetric", "ceil")),
            ("half_pixel_symmetric to a size", 3, None, _sizes(1), _nearest("half_pixel_symmetric", "floor")),
            ("half_pixel", 7, None, _sizes(1), _nearest("half_pixel", "floor")),
            ("asymmetric", 5, _scales(1.6), None, _nearest("asymmetric", "round_prefer_ceil")),
            ("asymmetric to a size", 7, None, _sizes(2), _nearest("asymmetric", "round_prefer_ceil")),
            ("pytorch_half_pixel to one element", 2, _scales(0.7), None, _nearest("pytorch_half_pixel", "ceil")),
            ("as little as to the same size", 3, _scales(1.3), None, _nearest("half_pixel", "round_prefer_floor")),
            ("align_corners to a size", 5, None, _sizes(8), {"mode": "linear", **_where("align_corners")}),
        )
    },
}  # fmt: skip


def test_a_coordinate_that_runtimes_round_to_either_side_is_refused() -> None:
    inputs = {"x": Input(shape=(1, 1, 1, 6)), "roi": None, "scales": _scales(1.6)}
    model = onnx_model("Resize", inputs, attributes=_nearest("half_pixel_symmetric", "round_prefer_floor"))
    outcome = examined_model(model, "tie")
    assert outcome.verdict == "refused" and "give sizes in place of scales" in outcome.reason


@pytest.mark.parametrize("name", ONNX)
def test_onnx(name: str) -> None:
    kind, inputs, attributes = ONNX[name]
    outcome = examined_model(onnx_model(kind, inputs, attributes=attributes), name)
    assert (outcome.verdict, outcome.reason) == ("equal", "")


def test_the_norm_of_a_single_vector_is_quantized() -> None:
    inputs = {"x": Input(shape=(9,), offset=20.0), "scale": np.ones(9, np.float32)}
    model = onnx_model("RMSNormalization", inputs, opset=23, attributes={"epsilon": 0.01})
    outcome = examined_model(model, "vector", quantized=True)
    assert (outcome.verdict, outcome.quantized, outcome.quantized_reason) == ("equal", "equal", "")


@pytest.mark.parametrize("column_major", [0, 1])
def test_the_first_by_rows_of_equal_elements_counts(column_major: int) -> None:
    x = np.array([[[[0, 1, 0], [1, 0, 1]]]], np.int8)
    model = onnx_model(
        "MaxPool", {"x": Input(shape=x.shape, dtype="int8", low=0, high=2)}, outputs=["int8", "int64"],
        attributes={"kernel_shape": [2, 2], "storage_order": column_major},
    )  # fmt: skip
    outcome = examined_model(model, f"ties {column_major}")
    assert (outcome.verdict, outcome.reason) == ("equal", "")


@pytest.mark.parametrize("kind", ["AveragePool", "MaxPool", "LpPool"])
def test_automatic_padding_of_dilated_windows_is_refused(kind: str) -> None:
    """onnxruntime's result has another shape than the standard says."""
    outcome = examined_model(onnx_model(kind, IMAGE, attributes=_pads(dilations=[2, 1])), kind)
    assert outcome.verdict == "refused" and "write the padding as pads" in outcome.reason


@pytest.mark.parametrize("kind", ["LpPool", "GlobalLpPool"])
def test_powers_are_not_rounded_to_8_bits(kind: str) -> None:
    pads = {"kernel_shape": [3], "pads": [2, 0], "ceil_mode": 1} if kind == "LpPool" else {}
    model = onnx_model(kind, {"x": Input(shape=(2, 4, 7))}, attributes={"p": 3, **pads}, opset=18)
    outcome = examined_model(model, kind, quantized=True)
    assert (outcome.verdict, outcome.reason, outcome.quantized) == ("equal", "", "stays float")


def _torch_calls() -> dict[str, Any]:
    import torch
    from torch import nn
    from torch.nn.functional import interpolate

    return {
        "SELU": nn.SELU(),
        "CELU": nn.CELU(0.5),
        "divisor": nn.AvgPool2d((3, 2), stride=2, padding=1, divisor_override=4),
        "divisor of rounded-up sizes": nn.AvgPool2d(4, stride=3, ceil_mode=True, divisor_override=7),
        "padding of rounded-up sizes": nn.AvgPool2d(4, stride=3, padding=1, ceil_mode=True),
        "window of padding alone": nn.MaxPool2d(2, stride=1, padding=1, dilation=2),
        **{
            f"{kind} pool of rank {rank}": getattr(nn, f"Adaptive{kind}Pool{rank}d")((2, 5, 3)[-rank:])
            for kind in ("Avg", "Max")
            for rank in (1, 2, 3)
        },
        "places of adaptive maxima": nn.AdaptiveMaxPool2d((4, 3), return_indices=True),
        "least and largest": lambda image: (image.amin((0, 2)), image.amax(-1, keepdim=True), image.amin()),
        "logaddexp": lambda image: torch.logaddexp(image, image * 0.5),
        "nearest to a size": lambda image: interpolate(image, size=(7, 5), mode="nearest"),
        "nearest by factors": lambda image: interpolate(image, scale_factor=(1.7, 0.6), mode="nearest"),
        "group norm without weights": nn.GroupNorm(2, 2, affine=False),
        "a product of all": lambda image: torch.einsum("nchw,nchw->", image, image),
        "antialiased from the corners": lambda image: interpolate(
            image, size=(3, 11), mode="bilinear", align_corners=True, antialias=True
        ),
        "nearest, exact": lambda image: interpolate(image, size=(4, 13), mode="nearest-exact"),
    }


QUANTIZED = (
    "window of padding alone", "logaddexp", "SELU", "CELU", "divisor", "divisor of rounded-up sizes",
    "padding of rounded-up sizes", "places of adaptive maxima", "least and largest", "nearest to a size",
    "nearest by factors", "nearest, exact", "group norm without weights", "a product of all",
    "antialiased from the corners",
)  # fmt: skip
POOLED = {1: [(4, 9)], 2: [(3, 9, 8), (1, 3, 9, 8)], 3: [(2, 3, 7, 4)]}
"""Input shapes of adaptive pools in one, two and three dimensions, for a single image and for a batch."""
POOLS = [
    f"{kind} pool of rank {rank} of {shape}"
    for kind in ("Avg", "Max")
    for rank, shapes in POOLED.items()
    for shape in shapes
]
DIVISIONS = [*product(("int64", "int32", "float32"), ("floor", "trunc"), (3, -2))]
SCALED_SUMS = [*product(("int64", "float32"), ("add", "sub", "rsub"), (2, None))]


@pytest.fixture(scope="module")
def quantized_outcomes() -> dict[str, Outcome]:
    """Outcomes of calls of PyTorch in floats and quantized here, compiled together."""
    pytest.importorskip("torch")
    calls = _torch_calls()
    models = {}
    for name in QUANTIZED:
        shape = (1, 2, 1, 8) if "padding alone" in name else (1, 2, 9, 8)
        models[name] = torch_model(calls[name], [Input(shape=shape)])
    for name in POOLS:
        call, _, shape = name.rpartition(" of ")
        models[name] = torch_model(calls[call], [Input(shape=literal_eval(shape))])
    return examined_models(models, quantized=True)


@pytest.mark.parametrize("name", [*QUANTIZED, *POOLS])
def test_torch(name: str, quantized_outcomes: dict[str, Outcome]) -> None:
    outcome = quantized_outcomes[name]
    assert (outcome.verdict, outcome.reason, outcome.quantized_reason) == ("equal", "", "")


def test_torch_indices_count_from_the_end() -> None:
    torch = pytest.importorskip("torch")
    rows, columns = torch.tensor([-1, 0, 1]), torch.tensor([2, -3, 0])

    def call(x: Any, index: Any) -> tuple[Any, ...]:
        apart = x[rows, :, columns]  # axes of index tensors that stand apart come first
        return (
            x[..., -1],
            x[:, -2],
            x[:, [-1, 1]],
            x[:, rows, columns],
            apart,
            x[:, index],
            x[:, rows[:, None], columns],
        )

    inputs = [Input(shape=(2, 3, 4, 5)), Input(shape=(3,), dtype="int64", low=-3, high=2)]
    outcome = examined_model(torch_model(call, inputs), "indices", quantized=False)
    assert (outcome.verdict, outcome.reason) == ("equal", "")


def test_output_padding_beyond_the_strides_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from torch import nn

    from tests.support.torch_models import export

    layer = nn.ConvTranspose2d(2, 3, 3, padding=1, output_padding=1, dilation=2).eval()
    path = export(layer, (1, 2, 9, 8), tmp_path / "model.pt2")
    with pytest.raises(UnsupportedModel, match="a transposed convolution with output_padding of a stride or more"):
        tvm_ext.load(path)


def test_a_torch_split_into_one_part() -> None:
    torch = pytest.importorskip("torch")
    model = torch_model(lambda x: torch.split(x, 3, 1)[0] + 1, [Input(shape=(2, 3, 4))])
    outcome = examined_model(model, "split", quantized=False)
    assert (outcome.verdict, outcome.reason) == ("equal", "")


@pytest.mark.parametrize(
    ("mode", "padding"),
    some_rows(
        [("bilinear", "zeros"), ("nearest", "reflection"), ("bicubic", "border")],
        sweep=[
            *(("bilinear", padding) for padding in ("border", "reflection")),
            *(("nearest", padding) for padding in ("zeros", "border")),
            *(("bicubic", padding) for padding in ("zeros", "reflection")),
        ],
    ),
)
def test_torch_samples_by_a_grid_whose_last_axis_holds_the_coordinates(mode: str, padding: str) -> None:
    pytest.importorskip("torch")
    from torch.nn.functional import grid_sample

    inputs = [Input(shape=(1, 2, 6, 8)), Input(shape=(1, 3, 5, 2), scale=0.7)]
    model = torch_model(
        lambda image, grid: grid_sample(image, grid, mode=mode, padding_mode=padding, align_corners=False), inputs
    )
    outcome = examined_model(model, f"{mode} {padding}")
    assert (outcome.verdict, outcome.reason) == ("equal", "")


@pytest.fixture(scope="module")
def arithmetic_outcomes() -> dict[str, Outcome]:
    """Outcomes of PyTorch's divisions that round and of its sums that scale an operand, compiled together."""
    torch = pytest.importorskip("torch")
    models = {}
    for dtype, rounding, divisor in DIVISIONS:
        divide = partial(torch.div, other=divisor, rounding_mode=rounding)
        models[str((dtype, rounding, divisor))] = torch_model(divide, [Input(shape=(2, 9), dtype=dtype, scale=9.0)])
    for dtype, kind, other in SCALED_SUMS:
        inputs = [Input(shape=(2, 9), dtype=dtype)] * (1 if other else 2)
        models[str((dtype, kind, other))] = torch_model(_scaled_sum(getattr(torch, kind), other), inputs)
    return examined_models(models)


def _scaled_sum(call: Any, other: int | None) -> Any:
    return (lambda x: call(x, other, alpha=3)) if other else (lambda x, y: call(x, y, alpha=3))


@pytest.mark.parametrize("case", [*DIVISIONS, *SCALED_SUMS], ids=str)
def test_torch_arithmetic(case: tuple[object, ...], arithmetic_outcomes: dict[str, Outcome]) -> None:
    """Divisions by a number that round, and sums that scale what they add."""
    outcome = arithmetic_outcomes[str(case)]
    assert (outcome.verdict, outcome.reason) == ("equal", "")


def test_transposed_convolutions_over_three_axes_are_refused_by_name() -> None:
    torch = pytest.importorskip("torch")
    model = torch_model(torch.nn.ConvTranspose3d(2, 2, 2), [Input(shape=(1, 2, 3, 3, 3))])
    outcome = examined_model(model, "transposed")
    assert outcome.verdict == "refused" and "a transposed convolution over three axes" in outcome.reason


def test_torch_refuses_a_fraction_of_integers() -> None:
    torch = pytest.importorskip("torch")
    model = torch_model(lambda x: torch.add(x, x, alpha=0.5), [Input(shape=(3,))])
    assert examined_model(model, "fraction").verdict == "equal"
    mixed = torch_model(lambda x: torch.add(x, 1.5, alpha=2), [Input(shape=(3,), dtype="int32")])
    outcome = examined_model(mixed, "mixed")
    assert outcome.verdict == "refused" and "give all one type" in outcome.reason
