"""Boxes from heads of YOLO and SSD, against a decoder of ONNX operators and NonMaxSuppression in onnxruntime."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import tvm_ext.boxes
from tests.support.onnx_models import NODE, model_of
from tvm_ext.boxes import AnchorFree, AnchorFreeHead, Detector, DetectorFile, Ssd, Yolo, YoloHead, boxes_header
from tvm_ext.core.errors import BadOptions

Array = np.ndarray
CLASSES, ANCHORS = 3, ((12.0, 16.0), (30.0, 20.0))
SCORE, OVERLAP = 0.4, 0.3
WIDTH = len(ANCHORS) * (5 + CLASSES)
SCALES = {"int8": (0.06, -12), "uint8": (0.05, 140), "int16": (0.0003, 0)}


COLUMNS = ("x0", "y0", "x1", "y1", "score", "class_index")


class Box(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32 if name == "class_index" else ctypes.c_float) for name in COLUMNS]


def report_of(outputs: Mapping[str, tuple[Sequence[int], str]]) -> dict[str, Any]:
    return {
        "model": {"name": "net"},
        "outputs": [
            {
                "name": name,
                "c_name": name,
                "shape": list(shape),
                "dtype": dtype,
                "scale": SCALES.get(dtype, (None,))[0],
                "zero_point": SCALES.get(dtype, (0, None))[1],
            }
            for name, (shape, dtype) in outputs.items()
        ],
    }


def found_by_c(
    folder: Path, report: dict[str, Any], detector: Detector, arrays: Mapping[str, Array], **given: Any
) -> Array:
    """Rows of corners, score and class by the C, compiled with accessors of constant outputs."""
    folder.mkdir(parents=True, exist_ok=True)
    options = {"score": SCORE, "overlap": OVERLAP, "most": 400, "candidates": 2000, **given}
    (folder / "net_boxes.h").write_text(boxes_header(report, detector, **options), encoding="utf-8")
    runtime = Path(tvm_ext.boxes.__file__).parents[1] / "codegen_c" / "custom" / "detection" / "runtime"
    accessors = "".join(
        f"static const void *net_{name}_values;\n"
        f"static inline const void *net_{name}(void) {{ return net_{name}_values; }}\n"
        for name in arrays
    )
    (folder / "net.h").write_text("#include <stdint.h>\n" + accessors, encoding="utf-8")
    setting = "".join(f"    net_{name}_values = values[{place}];\n" for place, name in enumerate(arrays))
    source, library = folder / "net.c", folder / "net.so"
    source.write_text(
        f'#include "net_boxes.h"\n'
        f"int32_t run(const void **values, tvm_ext_box *boxes)\n{{\n{setting}    return net_boxes(boxes);\n}}\n",
        encoding="utf-8",
    )
    flags = "-std=c11 -O1 -Wall -Wextra -Wconversion -Werror -fsanitize=undefined -shared -fPIC".split()
    subprocess.run(["gcc", *flags, f"-I{folder}", f"-I{runtime}", str(source), "-o", str(library), "-lm"], check=True)
    boxes = (Box * options["candidates"])()
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays.values()))
    count = ctypes.CDLL(str(library)).run(pointers, boxes)
    rows = [[getattr(box, name) for name in COLUMNS] for box in boxes[:count]]
    return np.array(rows, np.float32).reshape(-1, len(COLUMNS))


def real(array: Array) -> Array:
    if array.dtype == np.float32:
        return array
    scale, zero_point = SCALES[str(array.dtype)]
    return ((array.astype(np.int32) - zero_point) * np.float32(scale)).astype(np.float32)


def drawn(random: np.random.Generator, shape: Sequence[int], dtype: str, mean: float = -1.0) -> Array:
    values = random.normal(mean, 2.0, shape)
    if dtype == "float32":
        return values.astype(np.float32)
    scale, zero_point = SCALES[dtype]
    limits = np.iinfo(dtype)
    return np.clip(np.round(values / scale) + zero_point, limits.min, limits.max).astype(dtype)


def selected(nodes: list[onnx.NodeProto], inputs: dict[str, Array], constants: dict[str, Array]) -> Array:
    """Run nodes that give corners [1, N, 4] and scores [1, K, N], and NonMaxSuppression; rows as the C returns them."""
    limits = {"most": np.array([10000]), "iou": np.float32([OVERLAP]), "least": np.float32([SCORE])}
    nodes = [*nodes, NODE("NonMaxSuppression", ["corners", "scores", *limits], ["kept"])]
    shapes = {name: array.shape for name, array in inputs.items()}
    outputs = ["corners", "scores", ("kept", onnx.TensorProto.INT64)]
    model = model_of(nodes, shapes, outputs, {**constants, **limits})
    session = onnxruntime.InferenceSession(model.SerializeToString())
    corners, scores, kept = (np.asarray(array) for array in session.run(None, inputs))
    rows = [[*corners[0, i], scores[0, k, i], k, i] for _, k, i in kept]
    return np.array(sorted(rows, key=lambda row: (-row[4], row[6])), np.float32).reshape(-1, 7)[:, :6]


def by_onnxruntime(heads: Sequence[Array], strides: Sequence[float], version: int) -> Array:
    """heads: real numbers [H, W, A, 5 + K]."""
    raw, grid, size, stride = [], [], [], []
    for head, step in zip(heads, strides, strict=True):
        rows, columns = head.shape[:2]
        raw.append(head.reshape(-1, 5 + CLASSES))
        y, x = np.divmod(np.arange(rows * columns), columns)
        grid.append(np.repeat(np.stack([x, y], 1), len(ANCHORS), 0))
        size.append(np.tile(np.array(ANCHORS), (rows * columns, 1)))
        stride.append(np.full((len(raw[-1]), 1), step))
    constants = {
        name: np.concatenate(parts)[np.newaxis].astype(np.float32)
        for name, parts in (("grid", grid), ("size", size), ("stride", stride))
    }
    constants |= {
        "parts": np.array([2, 2, 1, CLASSES]),
        "two": np.float32(2),
        "half": np.float32(0.5),
        "depth": np.array(CLASSES),
        "hot": np.array([0, 1], np.float32),
    }
    of_version = {
        3: [NODE("Exp", ["wh"], ["grown"]), NODE("Identity", ["sxy"], ["shifted"])],
        5: [
            NODE("Sigmoid", ["wh"], ["swh"]),
            NODE("Mul", ["swh", "two"], ["twice"]),
            NODE("Mul", ["twice", "twice"], ["grown"]),
            NODE("Mul", ["sxy", "two"], ["wide"]),
            NODE("Sub", ["wide", "half"], ["shifted"]),
        ],
    }
    nodes = [
        NODE("Split", ["raw", "parts"], ["xy", "wh", "object", "kinds"], axis=2),
        NODE("Sigmoid", ["xy"], ["sxy"]),
        *of_version[version],
        NODE("Add", ["shifted", "grid"], ["moved"]),
        NODE("Mul", ["moved", "stride"], ["centre"]),
        NODE("Mul", ["grown", "size"], ["whole"]),
        NODE("Mul", ["whole", "half"], ["halves"]),
        NODE("Sub", ["centre", "halves"], ["low"]),
        NODE("Add", ["centre", "halves"], ["high"]),
        NODE("Concat", ["low", "high"], ["corners"], axis=2),
        NODE("ArgMax", ["kinds"], ["best"], axis=2, keepdims=0),
        NODE("OneHot", ["best", "depth", "hot"], ["one"]),
        NODE("Sigmoid", ["object"], ["sure"]),
        NODE("Sigmoid", ["kinds"], ["likely"]),
        NODE("Mul", ["likely", "one"], ["of_best"]),
        NODE("Mul", ["of_best", "sure"], ["columns"]),
        NODE("Transpose", ["columns"], ["scores"], perm=[0, 2, 1]),
    ]
    return selected(nodes, {"raw": np.concatenate(raw)[np.newaxis]}, constants)


@pytest.mark.parametrize(
    ("dtype", "version", "channels_last"),
    [("float32", 5, False), ("int8", 5, True), ("uint8", 3, False), ("int16", 3, True)],
)
def test_yolo(dtype: str, version: Any, channels_last: bool, tmp_path: Path) -> None:
    """Two heads, boxes of both among each other."""
    random, extents, strides = np.random.default_rng(7), ((6, 8), (3, 4)), (8.0, 16.0)
    arrays = {f"p{n}": drawn(random, (1, *extent, WIDTH), dtype) for n, extent in enumerate(extents)}
    heads = [real(array).reshape(*array.shape[1:3], len(ANCHORS), 5 + CLASSES) for array in arrays.values()]
    if not channels_last:
        arrays = {name: np.ascontiguousarray(array.transpose(0, 3, 1, 2)) for name, array in arrays.items()}
    detector = Yolo(
        heads=[
            YoloHead(output=name, stride=stride, anchors=ANCHORS, channels_last=channels_last)
            for name, stride in zip(arrays, strides, strict=True)
        ],
        classes=CLASSES,
        version=version,
    )
    report = report_of({name: (array.shape, dtype) for name, array in arrays.items()})
    found, expected = found_by_c(tmp_path, report, detector, arrays), by_onnxruntime(heads, strides, version)
    assert 10 < len(found) == len(expected)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    few = found_by_c(tmp_path / "few", report, detector, arrays, most=4, candidates=40)
    np.testing.assert_array_equal(few, found[:4])


def anchor_free_by_onnxruntime(heads: Sequence[Array], strides: Sequence[float], bins: int) -> Array:
    """heads: real numbers [H, W, 4 * bins + K]."""
    raw = np.concatenate([head.reshape(-1, head.shape[-1]) for head in heads])[np.newaxis]
    grid, stride = list[Array](), list[Array]()
    for head, step in zip(heads, strides, strict=True):
        y, x = np.divmod(np.arange(head.shape[0] * head.shape[1]), head.shape[1])
        grid.append(np.stack([x, y], 1) + 0.5)
        stride.append(np.full((len(x), 1), step))
    constants = {
        "grid": np.concatenate(grid)[np.newaxis].astype(np.float32),
        "stride": np.concatenate(stride)[np.newaxis].astype(np.float32),
        "parts": np.array([4 * bins, CLASSES]), "sides": np.array([1, -1, 4, bins]), "pairs": np.array([2, 2]),
        "numbers": np.arange(bins, dtype=np.float32), "depth": np.array(CLASSES), "hot": np.array([0, 1], np.float32),
    }  # fmt: skip
    by_bins = [
        NODE("Reshape", ["near", "sides"], ["binned"]),
        NODE("Softmax", ["binned"], ["weights"], axis=3),
        NODE("MatMul", ["weights", "numbers"], ["distances"]),
    ]
    nodes = [
        NODE("Split", ["raw", "parts"], ["near", "kinds"], axis=2),
        *(by_bins if bins > 1 else [NODE("Identity", ["near"], ["distances"])]),
        NODE("Split", ["distances", "pairs"], ["before", "after"], axis=2),
        NODE("Sub", ["grid", "before"], ["first"]),
        NODE("Add", ["grid", "after"], ["last"]),
        NODE("Mul", ["first", "stride"], ["low"]),
        NODE("Mul", ["last", "stride"], ["high"]),
        NODE("Concat", ["low", "high"], ["corners"], axis=2),
        NODE("ArgMax", ["kinds"], ["best"], axis=2, keepdims=0),
        NODE("OneHot", ["best", "depth", "hot"], ["one"]),
        NODE("Sigmoid", ["kinds"], ["likely"]),
        NODE("Mul", ["likely", "one"], ["columns"]),
        NODE("Transpose", ["columns"], ["scores"], perm=[0, 2, 1]),
    ]
    return selected(nodes, {"raw": raw}, constants)


@pytest.mark.parametrize(
    ("dtype", "bins", "channels_last", "apart"),
    [("float32", 16, False, False), ("int8", 16, True, True), ("uint8", 7, False, True), ("int16", 1, True, False)],
)
def test_heads_without_anchors(dtype: str, bins: int, channels_last: bool, apart: bool, tmp_path: Path) -> None:
    """Two heads with distances and classes in an output, or in two."""
    random, extents, strides = np.random.default_rng(9), ((6, 8), (3, 4)), (8.0, 16.0)
    whole = [drawn(random, (1, *extent, 4 * bins + CLASSES), dtype) for extent in extents]
    if bins == 1:
        for one in whole:
            one[..., :4] = np.abs(one[..., :4])  # distances
    expected = anchor_free_by_onnxruntime([real(one[0]) for one in whole], strides, bins)
    arrays, heads = dict[str, Array](), list[AnchorFreeHead]()
    for n, (one, stride) in enumerate(zip(whole, strides, strict=True)):
        parts = {f"d{n}": one[..., : 4 * bins], f"s{n}": one[..., 4 * bins :]} if apart else {f"d{n}": one}
        axes = (0, 1, 2, 3) if channels_last else (0, 3, 1, 2)
        arrays |= {name: np.ascontiguousarray(part.transpose(axes)) for name, part in parts.items()}
        scores = f"s{n}" if apart else None
        heads.append(AnchorFreeHead(output=f"d{n}", stride=stride, scores=scores, channels_last=channels_last))
    report = report_of({name: (array.shape, dtype) for name, array in arrays.items()})
    found = found_by_c(tmp_path, report, AnchorFree(heads=heads, classes=CLASSES, bins=bins), arrays)
    assert 5 < len(found) == len(expected)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("dtype", "is_logit"), [("float32", False), ("uint8", True), ("int8", True)])
def test_ssd(dtype: str, is_logit: bool, tmp_path: Path) -> None:
    random, count = np.random.default_rng(3), 60
    scores = drawn(random, (1, count, CLASSES + 1), dtype)
    if not is_logit:
        scores = (1 / (1 + np.exp(-scores))).astype(np.float32)
    arrays = {"codes": drawn(random, (1, count, 4), dtype, 0.0), "likely": scores}
    places = np.concatenate([random.random((count, 2)), 0.1 + 0.3 * random.random((count, 2))], 1).astype(np.float32)
    detector = Ssd(encodings="codes", scores="likely", anchors=places, is_logit=is_logit)
    report = report_of({name: (array.shape, dtype) for name, array in arrays.items()})
    constants = {
        "middles": places[:, :2],
        "sizes": places[:, 2:],
        "ten": np.float32(10),
        "five": np.float32(5),
        "half": np.float32(0.5),
        "apart": np.array([2, 2]),
        "swapped": np.array([1, 0, 3, 2]),
        "depth": np.array(CLASSES),
        "hot": np.float32([0, 1]),
        "background": np.array([1, CLASSES]),
    }
    nodes = [
        NODE("Split", ["codes", "apart"], ["yx", "hw"], axis=2),
        NODE("Div", ["yx", "ten"], ["a"]),
        NODE("Mul", ["a", "sizes"], ["b"]),
        NODE("Add", ["b", "middles"], ["c"]),
        NODE("Div", ["hw", "five"], ["d"]),
        NODE("Exp", ["d"], ["e"]),
        NODE("Mul", ["e", "sizes"], ["f"]),
        NODE("Mul", ["f", "half"], ["g"]),
        NODE("Sub", ["c", "g"], ["low"]),
        NODE("Add", ["c", "g"], ["high"]),
        NODE("Concat", ["low", "high"], ["yxyx"], axis=2),
        NODE("Gather", ["yxyx", "swapped"], ["corners"], axis=2),
        NODE("Sigmoid" if is_logit else "Identity", ["likely"], ["shares"]),
        NODE("Split", ["shares", "background"], ["none", "kinds"], axis=2),
        NODE("ArgMax", ["kinds"], ["best"], axis=2, keepdims=0),
        NODE("OneHot", ["best", "depth", "hot"], ["one"]),
        NODE("Mul", ["kinds", "one"], ["columns"]),
        NODE("Transpose", ["columns"], ["scores"], perm=[0, 2, 1]),
    ]
    expected = selected(nodes, {name: real(array) for name, array in arrays.items()}, constants)
    found = found_by_c(tmp_path, report, detector, arrays)
    assert 10 < len(found) == len(expected)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


YOLO = Yolo(heads=[YoloHead(output="p0", stride=8, anchors=ANCHORS)], classes=CLASSES)
SSD = Ssd(encodings="codes", scores="likely", anchors=np.ones((6, 4)))
GIVEN: dict[str, Any] = {"score": 0.5, "overlap": 0.5, "most": 8, "candidates": 8}
FREE = AnchorFree(heads=[AnchorFreeHead(output="p0", stride=8)], classes=WIDTH - 8, bins=2)
OUTPUTS = {"p0": ((1, WIDTH, 4, 4), "float32"), "codes": ((1, 6, 4), "int8"), "likely": ((1, 6, 4), "float32")}


@pytest.mark.parametrize(
    ("detector", "given", "reason"),
    [
        (YOLO, {"score": 1.0}, r"score must be in \(0, 1\)"),
        (YOLO, {"overlap": -0.1}, r"overlap in \[0, 1\]"),
        (YOLO, {"most": 9, "candidates": 8}, "give 1 <= most <= candidates <= 65536"),
        (Yolo(heads=YOLO.heads, classes=4), {}, "2 anchors of 4 classes have 18 channels, the second of 4 axes"),
        (Yolo(heads=[YoloHead(output="x", stride=8, anchors=ANCHORS)], classes=3), {}, "no output 'x'; it has 'p0'"),
        (Yolo(heads=[YoloHead(output="p0", stride=0, anchors=ANCHORS)], classes=3), {}, "must be above 0"),
        (Yolo(heads=[], classes=3), {}, "at least one head"),
        (Ssd(encodings="codes", scores="likely", anchors=np.ones((5, 4))), {}, "20 numbers are given; 24 finite"),
        (Ssd(encodings="codes", scores="likely", anchors=np.full((6, 4), np.nan)), {}, "24 finite ones are needed"),
        (Ssd(encodings="codes", scores="p0", anchors=np.ones((6, 4))), {}, r"are not \[1, B, 4\+\] and \[1, B, K\]"),
        (Ssd(encodings="codes", scores="likely", anchors=np.ones((6, 4)), scale=(0, 1, 1, 1)), {}, "a scale of enc"),
    ],
)
def test_what_is_refused(detector: Detector, given: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadOptions, match=reason):
        boxes_header(
            report_of(OUTPUTS), detector, **{"score": 0.5, "overlap": 0.5, "most": 8, "candidates": 8, **given}
        )


def test_outputs_that_are_no_numbers() -> None:
    report = report_of({**OUTPUTS, "p0": ((1, WIDTH, 4, 4), "int32")})
    with pytest.raises(BadOptions, match="output 'p0' is int32 without a scale; boxes are taken from float32, or from"):
        boxes_header(report, YOLO, **GIVEN)


LIMITS = "score = 0.5\noverlap = 0.5\nmost = 8\n"
HEADS = {
    "yolo": (f'classes = {CLASSES}\nheads = [{{output = "p0", stride = 8, anchors = [[12, 16], [30, 20]]}}]', YOLO),
    "anchor_free": (f'classes = {WIDTH - 8}\nbins = 2\nheads = [{{output = "p0", stride = 8}}]', FREE),
    "ssd": (f'encodings = "codes"\nscores = "likely"\nanchors = [{", ".join(["[1, 1, 1, 1]"] * 6)}]', SSD),
}


@pytest.mark.parametrize("kind", HEADS)
def test_a_file_gives_the_same_header(kind: str, tmp_path: Path) -> None:
    text, detector = HEADS[kind]
    path = tmp_path / "detector.toml"
    path.write_text(f"{LIMITS}[{kind}]\n{text}\n", encoding="utf-8")
    found, report = DetectorFile.load(path), report_of(OUTPUTS)
    limits = {"score": found.score, "overlap": found.overlap, "most": found.most, "candidates": 64}
    assert boxes_header(report, found.detector, **limits) == boxes_header(report, detector, **limits)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LIMITS, r"give one of the tables \[yolo\], \[anchor_free\] and \[ssd\]; it has none"),
        (LIMITS + "".join(f"[{kind}]\n{HEADS[kind][0]}\n" for kind in ("yolo", "ssd")), "it has yolo and ssd"),
        (LIMITS + "[yolo]\nclases = 2\nheads = []", "Did you mean 'classes'"),
        ("score = [", "is not valid TOML"),
    ],
)
def test_files_that_are_refused(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "detector.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadOptions, match=reason):
        DetectorFile.load(path)
