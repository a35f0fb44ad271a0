"""C that turns the outputs of a detector into boxes: heads of YOLO with or without anchors, or those of SSD.

The package's model ends with the network's last convolutions. `write_boxes` writes two headers beside it: one with the
numbers of this detector and a function `<model>_boxes`, and one with the code. A `DetectorFile` says in TOML what
`tvm-ext compile --detector` writes. docs/howto/boxes.md follows a detector from the model to the firmware.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass as read_dataclass

from codegen_c.c_text.text import float_literal
from tvm_ext.core.bundle_file import STRICT, Extent, Tensor, checked
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.files.user_tables import read_table
from tvm_ext.packages.package import Package

HEADER = "tvm_ext_boxes.h"
_KINDS = {"float32": "floats", "int8": "int8", "uint8": "uint8", "int16": "int16"}
_NO_ELEMENT = 1 << 17


@dataclass(frozen=True, kw_only=True)
class YoloHead:
    """An output of a YOLO network: x, y, width, height, objectness and classes of each anchor, before the sigmoid.

    output: name of the output, [1, A * (5 + K), H, W], or [1, H, W, A * (5 + K)] with channels_last. stride: pixels of
    the input for a pixel of the head. anchors: width and height of each, in pixels of the input.
    """

    output: str
    stride: float
    anchors: Sequence[tuple[float, float]]
    channels_last: bool = False


@dataclass(frozen=True, kw_only=True)
class Yolo:
    """A YOLO detector. Boxes are in pixels of the network's input; the score is objectness times the best class.

    version: 5 for centres 2 * sigmoid(x) - 0.5 and sizes (2 * sigmoid(w))^2 (YOLOv5 and v7), 3 for sigmoid(x) and
    exp(w) (YOLOv2 to v4).
    """

    heads: Sequence[YoloHead]
    classes: int
    version: Literal[3, 5] = 5


@dataclass(frozen=True, kw_only=True)
class AnchorFreeHead:
    """Outputs of a network such as YOLOv8: four distances of each pixel to the edges of its box, and classes.

    output: name of the output [1, 4 * bins + K, H, W], or [1, H, W, 4 * bins + K] with channels_last; classes are
    before the sigmoid. scores: name of the output [1, K, H, W] with the classes, if `output` has the distances alone.
    stride: pixels of the input for a pixel of the head.
    """

    output: str
    stride: float
    scores: str | None = None
    channels_last: bool = False


@dataclass(frozen=True, kw_only=True)
class AnchorFree:
    """A detector without anchors and objectness: YOLOv8, v9, v11. Boxes are in pixels of the network's input.

    bins: elements of each distance, left, top, right, bottom: the softmax of them weights the distances 0, 1, ... in
    pixels of the head (distribution focal loss). With 1 an element is the distance itself.
    """

    heads: Sequence[AnchorFreeHead]
    classes: int
    bins: int = 16


@dataclass(frozen=True, kw_only=True)
class Ssd:
    """An SSD detector. Boxes are in the units of its anchors, in most models fractions of the image.

    encodings: name of the output [1, B, 4 or more], {y, x, h, w} relative to the anchors. scores: name of the output
    [1, B, K]. anchors: {y, x, h, w} of each. background: True if the first column of scores is no class. is_logit: True
    if scores are before the sigmoid. Scores before a softmax are not taken: let the model end with it. scale: of
    encodings.
    """

    encodings: str
    scores: str
    anchors: Sequence[Sequence[float]] | np.ndarray
    background: bool = True
    is_logit: bool = False
    scale: tuple[float, float, float, float] = (10.0, 10.0, 5.0, 5.0)


Detector = Yolo | AnchorFree | Ssd

_Number = Annotated[float, Field(strict=False, allow_inf_nan=False)]
_Pair = Annotated[tuple[_Number, _Number], Field(strict=False)]
_Four = Annotated[tuple[_Number, _Number, _Number, _Number], Field(strict=False)]


@read_dataclass(frozen=True, kw_only=True, config=STRICT)
class _YoloHeadTable:
    output: Tensor
    stride: _Number
    anchors: Annotated[tuple[_Pair, ...], Field(max_length=256, strict=False)]
    channels_last: bool = False


@read_dataclass(frozen=True, kw_only=True, config=STRICT)
class _YoloTable:
    heads: Annotated[tuple[_YoloHeadTable, ...], Field(max_length=256, strict=False)]
    classes: Extent
    version: Literal[3, 5] = 5


@read_dataclass(frozen=True, kw_only=True, config=STRICT)
class _AnchorFreeHeadTable:
    output: Tensor
    stride: _Number
    scores: Tensor | None = None
    channels_last: bool = False


@read_dataclass(frozen=True, kw_only=True, config=STRICT)
class _AnchorFreeTable:
    heads: Annotated[tuple[_AnchorFreeHeadTable, ...], Field(max_length=256, strict=False)]
    classes: Extent
    bins: Extent = 16


@read_dataclass(frozen=True, kw_only=True, config=STRICT)
class _SsdTable:
    encodings: Tensor
    scores: Tensor
    anchors: Annotated[tuple[_Four, ...], Field(max_length=1 << 16, strict=False)]
    background: bool = True
    is_logit: bool = False
    scale: _Four = (10.0, 10.0, 5.0, 5.0)


@read_dataclass(frozen=True, kw_only=True, config=STRICT)
class DetectorFile:
    """A detector and the limits of its boxes, which `write_boxes` takes as arguments, from a TOML file.

    Exactly one of the tables yolo, anchor_free and ssd is given. Their keys are the fields of `Yolo`, `AnchorFree` and
    `Ssd`.
    """

    score: _Number
    overlap: _Number
    most: Extent
    candidates: Extent | None = None
    yolo: _YoloTable | None = None
    anchor_free: _AnchorFreeTable | None = None
    ssd: _SsdTable | None = None
    folder: str = ""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file. Raises BadOptions."""
        path = Path(path)
        found = checked(cls, read_table(path, "detector", BadOptions), path, _TABLES, "detector", BadOptions)
        given = [name for name in ("yolo", "anchor_free", "ssd") if getattr(found, name) is not None]
        if len(given) != 1:
            listed = " and ".join(given) or "none"
            raise BadOptions(f"{path}: give one of the tables [yolo], [anchor_free] and [ssd]; it has {listed}.")
        return found

    @property
    def detector(self) -> Detector:
        """The detector whose table is given."""
        if self.yolo is not None:
            heads = [YoloHead(**vars(head)) for head in self.yolo.heads]
            return Yolo(heads=heads, classes=self.yolo.classes, version=self.yolo.version)
        if self.anchor_free is not None:
            free = [AnchorFreeHead(**vars(head)) for head in self.anchor_free.heads]
            return AnchorFree(heads=free, classes=self.anchor_free.classes, bins=self.anchor_free.bins)
        assert self.ssd is not None, "load refuses a file without a table"
        return Ssd(**vars(self.ssd))

    def write(self, package: Package, folder: str | Path) -> Path:
        """Write the headers to a folder, as `write_boxes` does."""
        return write_boxes(
            package, folder, self.detector, score=self.score, overlap=self.overlap, most=self.most,
            candidates=self.candidates,
        )  # fmt: skip


_TABLES: Mapping[str, type] = {
    "yolo.heads": _YoloHeadTable, "yolo": _YoloTable, "anchor_free.heads": _AnchorFreeHeadTable,
    "anchor_free": _AnchorFreeTable, "ssd": _SsdTable,
}  # fmt: skip


def write_boxes(
    package: Package,
    folder: str | Path,
    detector: Detector,
    *,
    score: float,
    overlap: float,
    most: int,
    candidates: int | None = None,
) -> Path:
    """Write `<model>_boxes.h` and the header that it includes to a folder; return the path of the first.

    score: least score of a box, in (0, 1). overlap: intersection over union up to which a box beside a better box of
    its class is kept, in [0, 1]. most: boxes that come out. candidates: boxes above the score that are compared, by
    default 8 times `most`; the best ones if there are more.
    Raises BadOptions for numbers that are impossible, or that do not fit the outputs of the package.
    """
    candidates = 8 * most if candidates is None else candidates
    text = boxes_header(package.report, detector, score=score, overlap=overlap, most=most, candidates=candidates)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    shared = files("codegen_c.custom.detection") / "runtime" / HEADER
    (target / HEADER).write_text(shared.read_text(encoding="utf-8"), encoding="utf-8")
    path = target / f"{package.report['model']['name']}_boxes.h"
    path.write_text(text, encoding="utf-8")
    return path


def boxes_header(
    report: Mapping[str, Any], detector: Detector, *, score: float, overlap: float, most: int, candidates: int
) -> str:
    """Return the text of `<model>_boxes.h`. report: of the package. Raises BadOptions."""
    if not 0 < score < 1 or not 0 <= overlap <= 1:
        raise BadOptions(f"boxes: score is {score} and overlap {overlap}; score must be in (0, 1), overlap in [0, 1].")
    if not 1 <= most <= candidates <= 1 << 16:
        raise BadOptions(f"boxes: most is {most} and candidates {candidates}; give 1 <= most <= candidates <= 65536.")
    outputs = {output["name"]: output for output in report["outputs"]}
    name = report["model"]["name"]
    if isinstance(detector, Yolo):
        tables, calls = _of_yolo(name, detector, outputs, score)
    elif isinstance(detector, AnchorFree):
        tables, calls = _of_anchor_free(name, detector, outputs, score)
    else:
        tables, calls = _of_ssd(name, detector, outputs, score)
    upper, lines = name.upper(), "\n".join(f"    {call}" for call in calls)
    return f"""/* {name}: boxes from the outputs of a run. Written by tvm_ext.boxes. */
#ifndef {upper}_BOXES_H
#define {upper}_BOXES_H

#include "{name}.h"
#include "{HEADER}"

#define {upper}_MOST_BOXES {most}
#define {upper}_BOX_CANDIDATES {candidates}

{tables}
/* Call it after a run. The boxes, best first, are written to the front of the array; their number is returned. */
static inline int32_t {name}_boxes(tvm_ext_box boxes[{upper}_BOX_CANDIDATES])
{{
    tvm_ext_boxes_list list = {{boxes, 0, {upper}_BOX_CANDIDATES}};
{lines}
    return tvm_ext_boxes_select(&list, {float_literal(overlap)}, {upper}_MOST_BOXES);
}}

#endif
"""


def _of_yolo(
    name: str, detector: Yolo, outputs: Mapping[str, Mapping[str, Any]], score: float
) -> tuple[str, list[str]]:
    if detector.version not in (3, 5) or detector.classes < 1 or not detector.heads:
        raise BadOptions("Yolo: give version 3 or 5, at least one class and at least one head.")
    tables, calls = list[str](), list[str]()
    for number, head in enumerate(detector.heads):
        output, width = _output(outputs, head.output), len(head.anchors) * (5 + detector.classes)
        shape = output["shape"]
        if len(shape) != 4 or shape[0] != 1 or not head.anchors or shape[3 if head.channels_last else 1] != width:
            raise BadOptions(
                f"output {head.output!r} has shape {shape}; {len(head.anchors)} anchors of {detector.classes} classes "
                f"have {width} channels, the {'last' if head.channels_last else 'second'} of 4 axes."
            )
        rows, columns = shape[1:3] if head.channels_last else shape[2:4]
        pixels, channels = (width, 1) if head.channels_last else (1, rows * columns)
        sizes = _numbers([number for anchor in head.anchors for number in anchor], 2 * len(head.anchors), "anchors")
        if not head.stride > 0 or not (sizes > 0).all():
            raise BadOptions(f"stride and anchors of head {head.output!r} must be above 0.")
        table = f"{name}_head_{number}"
        tables.append(
            f"static const float {table}_sizes[{sizes.size}] = {{{_listed(sizes)}}};\n"
            f"static const tvm_ext_boxes_yolo_head {table} = {{\n"
            f"    {_elements(output, _logit(score))}, {rows}, {columns}, {len(head.anchors)}, {detector.classes},\n"
            f"    {pixels}, {channels}, {float_literal(head.stride)}, {table}_sizes,\n"
            f"    {'true' if detector.version == 5 else 'false'}, {float_literal(score)},\n}};\n"
        )
        calls.append(f"tvm_ext_boxes_yolo({name}_{output['c_name']}(), &{table}, &list);")
    return "".join(tables), calls


def _of_anchor_free(
    name: str, detector: AnchorFree, outputs: Mapping[str, Mapping[str, Any]], score: float
) -> tuple[str, list[str]]:
    if detector.classes < 1 or detector.bins < 1 or not detector.heads:
        raise BadOptions("AnchorFree: give at least one class, one bin and one head.")
    tables, calls = list[str](), list[str]()
    for number, head in enumerate(detector.heads):
        distances, width = _output(outputs, head.output), 4 * detector.bins
        scores = distances if head.scores is None else _output(outputs, head.scores)
        first = width if head.scores is None else 0
        shape = distances["shape"] if len(distances["shape"]) == 4 else [0, 0, 0, 0]
        rows, columns = shape[1:3] if head.channels_last else shape[2:4]
        widths = {head.output: width + (detector.classes if head.scores is None else 0)}
        widths |= {} if head.scores is None else {head.scores: detector.classes}
        for output, channels in widths.items():
            wanted = [1, rows, columns, channels] if head.channels_last else [1, channels, rows, columns]
            if list(outputs[output]["shape"]) != wanted:
                raise BadOptions(
                    f"output {output!r} has shape {outputs[output]['shape']}; with {detector.classes} classes and "
                    f"{detector.bins} bins it must have {channels} channels, the "
                    f"{'last' if head.channels_last else 'second'} of 4 axes, at the pixels of {head.output!r}."
                )
        if not head.stride > 0:
            raise BadOptions(f"the stride of head {head.output!r} must be above 0.")
        pixels = [one["shape"][3] if head.channels_last else 1 for one in (distances, scores)]
        table, apart = f"{name}_head_{number}", 1 if head.channels_last else rows * columns
        tables.append(
            f"static const tvm_ext_boxes_free_head {table} = {{\n"
            f"    {_elements(distances, 0.0)}, {_elements(scores, _logit(score))},\n"
            f"    {rows}, {columns}, {detector.bins}, {detector.classes},\n"
            f"    {pixels[0]}, {pixels[1]}, {apart}, {float_literal(head.stride)}, {float_literal(score)},\n}};\n"
        )
        given = ", ".join(f"{name}_{one['c_name']}()" for one in (distances, scores))
        calls.append(f"tvm_ext_boxes_free({given}, {first * apart}, &{table}, &list);")
    return "".join(tables), calls


def _of_ssd(name: str, detector: Ssd, outputs: Mapping[str, Mapping[str, Any]], score: float) -> tuple[str, list[str]]:
    encodings, scores = _output(outputs, detector.encodings), _output(outputs, detector.scores)
    shape, columns, first = encodings["shape"], scores["shape"][-1], int(detector.background)
    fits = len(shape) == len(scores["shape"]) == 3 and shape[0] == 1 and shape[:2] == scores["shape"][:2]
    if not fits or shape[2] < 4 or columns <= first:
        raise BadOptions(f"Ssd: encodings {shape} and scores {scores['shape']} are not [1, B, 4+] and [1, B, K].")
    places = _numbers(np.reshape(detector.anchors, -1), 4 * shape[1], "anchors")
    scale = _numbers(detector.scale, 4, "scale")
    if (scale == 0).any():
        raise BadOptions("Ssd: a scale of encodings is 0; give the four scales of the model's box coder.")
    least = _logit(score) if detector.is_logit else score
    table = f"{name}_anchors"
    tables = (
        f"static const float {table}[{places.size}] = {{{_listed(places)}}};\n"
        f"static const tvm_ext_boxes_ssd_head {name}_head = {{\n"
        f"    {_elements(encodings, 0.0)}, {_elements(scores, least)},\n"
        f"    {shape[1]}, {shape[2]}, {columns}, {first}, {'true' if detector.is_logit else 'false'},\n"
        f"    {{{_listed(scale)}}}, {table},\n}};\n"
    )
    given = (f"{name}_{output['c_name']}()" for output in (encodings, scores))
    return tables, [f"tvm_ext_boxes_ssd({', '.join(given)}, &{name}_head, &list);"]


def _output(outputs: Mapping[str, Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    found = outputs.get(name)
    if found is None:
        raise BadOptions(f"the package has no output {name!r}; it has {', '.join(map(repr, outputs))}.")
    if found["dtype"] not in _KINDS or (found["dtype"] != "float32" and found["scale"] is None):
        raise BadOptions(
            f"output {name!r} is {found['dtype']}{'' if found['scale'] else ' without a scale'}; boxes are taken from "
            f"float32, or from int8, uint8 or int16 with a scale."
        )
    return found


def _elements(output: Mapping[str, Any], least: float) -> str:
    """Return the structure of an output's elements. least: real number below which an element counts for nothing."""
    kind = f"tvm_ext_boxes_{_KINDS[output['dtype']]}"
    if output["dtype"] == "float32":
        return f"{{{kind}, 0.0f, 0, 0, {float_literal(float(np.float32(least)))}}}"
    step, zero_point = np.float32(output["scale"]), int(output["zero_point"])
    every = np.arange(-(1 << 15), 1 << 16, dtype=np.int32)
    known = every[(every - zero_point).astype(np.float32) * step >= np.float32(least)]
    smallest = int(known[0]) if known.size else _NO_ELEMENT
    return f"{{{kind}, {float_literal(float(step))}, {zero_point}, {smallest}, 0.0f}}"


def _logit(probability: float) -> float:
    """Return the number whose sigmoid is just below a probability, so that rounding excludes no box."""
    return math.log(probability / (1 - probability)) - 1e-3


def _numbers(values: Sequence[float] | np.ndarray, count: int, what: str) -> np.ndarray:
    numbers = np.asarray(values, np.float32).reshape(-1)
    if numbers.size != count or not np.isfinite(numbers).all():
        raise BadOptions(f"{what} of a detector: {numbers.size} numbers are given; {count} finite ones are needed.")
    return numbers


def _listed(numbers: np.ndarray) -> str:
    return ", ".join(float_literal(float(number)) for number in numbers)
