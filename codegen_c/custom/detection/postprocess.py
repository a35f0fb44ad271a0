"""TFLite_Detection_PostProcess: decode boxes from anchors, and select the best boxes that overlap no better box.

Encodings [1, B, 4 or more], scores [1, B, K] and anchors [B, 4], each float32, or int8 or uint8 with a scale -> boxes
float32[1, D, 4], classes and scores float32[1, D], and their number float32[1]; the rest is zeros. K: num_classes, or
one more for the background. With use_regular_nms each class selects boxes separately, at most detections_per_class;
without it, each anchor takes part with its best class. A box without an area overlaps no box; TensorFlow Lite Micro
fails on it.

LiteRT alone takes uint8, and it reads the anchors in the type of the encodings. No runtime takes int8; its results are
those of LiteRT for uint8 with 128 added to each byte and zero point. A real number is (q - zero point) * scale in
float32, so the order of scores is that of their bytes. Boxes are decoded only of anchors whose best score reaches the
threshold, because each box takes two exponential functions in double precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import numpy as np

from codegen_c.c_text.text import float_literal
from codegen_c.custom.contract import Array, CustomCall, CustomCode, CustomOperator, CustomTensor

_HEADER = "tvm_ext_detection.h"
_SCALES = ("y_scale", "x_scale", "h_scale", "w_scale")
_MOST_OF_CLASS = 100
_BYTES = ("int8", "uint8")


def _number(call: CustomCall, name: str, default: float | None = None) -> float:
    value = call.options.get(name)
    value = default if value is None else value
    if not isinstance(value, int | float):
        raise ValueError(f"option {name!r} is {value!r}; it must be a number")
    return float(value)


def _most(call: CustomCall) -> int:
    return int(_number(call, "max_detections"))


def _by_class(call: CustomCall) -> bool:
    return bool(call.options.get("use_regular_nms"))


def _outputs(call: CustomCall) -> Sequence[CustomTensor]:
    shapes = [(1, _most(call), 4), (1, _most(call)), (1, _most(call)), (1,)]
    return [CustomTensor(shape=shape, dtype="float32") for shape in shapes]


def _refuses(call: CustomCall) -> str | None:
    """Return the reason why a call is not supported, or None."""
    given = call.present
    if len(given) != 3 or len(call.inputs) != 3 or any(tensor.dtype not in ("float32", *_BYTES) for tensor in given):
        return (
            f"its inputs are {', '.join(map(str, given))}; they must be encodings, scores and anchors in float32, int8 "
            "or uint8. Put a DEQUANTIZE before it"
        )
    if given[0].dtype != given[2].dtype:
        return f"its anchors are {given[2].dtype} and its encodings {given[0].dtype}; LiteRT reads both in one type"
    unscaled = next((t for t in given if t.dtype in _BYTES and not len(t.scale) == len(t.zero_point) == 1), None)
    if unscaled is not None:
        return f"its input {unscaled.name!r} is {unscaled.dtype} with {len(unscaled.scale)} scales; one scale is needed"
    encodings, scores, anchors = (tensor.shape for tensor in given)
    classes = int(_number(call, "num_classes"))
    if len(encodings) != 3 or len(scores) != 3 or encodings[:2] != scores[:2] or encodings[0] != 1:
        return f"encodings {list(encodings)} and scores {list(scores)} do not belong to the anchors of one image"
    if encodings[2] < 4 or anchors != (encodings[1], 4) or classes < 1 or scores[2] not in (classes, classes + 1):
        return (
            f"encodings {list(encodings)}, anchors {list(anchors)}, {classes} classes, scores {list(scores)} do not fit"
        )
    if _most(call) < 1 or (not _by_class(call) and _number(call, "max_classes_per_detection") != 1):
        return "it returns several classes for one box, or no box; supported is one class, or use_regular_nms"
    if _number(call, "detections_per_class", _MOST_OF_CLASS) < 1 or not 0 < _number(call, "nms_iou_threshold") <= 1:
        return "its detections_per_class is below 1, or its nms_iou_threshold is outside of (0, 1]"
    return "a scale of its encodings is 0" if any(_number(call, name) == 0 for name in _SCALES) else None


@np.errstate(over="ignore", invalid="ignore")  # as in the C, large encodings give boxes without end
def _reference(call: CustomCall, inputs: Sequence[Array | None]) -> Sequence[Array]:
    pairs = zip(call.present, (array for array in inputs if array is not None), strict=True)
    encodings, scores, anchors = (_real(tensor, array) for tensor, array in pairs)
    classes, most = int(_number(call, "num_classes")), _most(call)
    boxes, known = _decoded(call, encodings[0], anchors), scores[0, :, scores.shape[2] - classes :]
    if _by_class(call):
        limit = int(_number(call, "detections_per_class", _MOST_OF_CLASS))
        found = [(i, k) for k in range(classes) for i in _selected(call, boxes, known[:, k], limit)]
        found = sorted(found, key=lambda pair: -known[pair])[:most]
    else:
        found = [(i, int(known[i].argmax())) for i in _selected(call, boxes, known.max(1), most)]
    results = [np.zeros((most, 4), np.float32), np.zeros(most, np.float32), np.zeros(most, np.float32)]
    for place, (i, k) in enumerate(found):
        results[0][place], results[1][place], results[2][place] = boxes[i], k, known[i, k]
    return [*(result[np.newaxis] for result in results), np.array([len(found)], np.float32)]


def _real(tensor: CustomTensor, array: Array) -> Array:
    if tensor.dtype == "float32":
        return array
    return (array.astype(np.float32) - np.float32(tensor.zero_point[0])) * np.float32(tensor.scale[0])


def _decoded(call: CustomCall, encodings: Array, anchors: Array) -> Array:
    """Return the boxes [y0, x0, y1, x1] that encodings relative to anchors describe, float32[B, 4]."""
    y, x, h, w = (np.float64(np.float32(_number(call, name))) for name in _SCALES)
    codes, places = encodings.astype(np.float64), anchors.astype(np.float64)
    middles = codes[:, :2] / [y, x] * places[:, 2:] + places[:, :2]
    halves = 0.5 * np.exp(codes[:, 2:4] / [h, w]) * places[:, 2:]
    middles, halves = middles.astype(np.float32), halves.astype(np.float32)
    return np.concatenate([middles - halves, middles + halves], 1)


def _selected(call: CustomCall, boxes: Array, scores: Array, most: int) -> list[int]:
    """Return the boxes with the best scores that overlap no better box, the best first."""
    least, limit = (np.float32(_number(call, name)) for name in ("nms_score_threshold", "nms_iou_threshold"))
    left = [int(i) for i in np.argsort(-scores, kind="stable") if scores[i] >= least]
    found = list[int]()
    while left and len(found) < most:
        found.append(left[0])
        left = [i for i in left[1:] if not _overlap(boxes[left[0]], boxes[i]) > limit]
    return found


def _overlap(a: Array, b: Array) -> np.float32:
    """Return the intersection over union of two boxes."""
    area_a, area_b = ((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    if area_a <= 0 or area_b <= 0:
        return np.float32(0)
    height, width = (max(min(a[k + 2], b[k + 2]) - max(a[k], b[k]), np.float32(0)) for k in range(2))
    return height * width / (area_a + area_b - height * width)


def _code(call: CustomCall) -> CustomCode:
    encodings, scores, _ = call.present
    (_, boxes, coordinates), columns = encodings.shape, scores.shape[2]
    classes, most = int(_number(call, "num_classes")), _most(call)
    of_class = min(boxes, int(_number(call, "detections_per_class", _MOST_OF_CLASS)))
    scale, least, overlap = (
        ", ".join(float_literal(_number(call, name)) for name in names)
        for names in (_SCALES, ["nms_score_threshold"], ["nms_iou_threshold"])
    )
    numbers = [boxes, coordinates, columns, classes, columns - classes, most, of_class]
    steps = [_steps(tensor) for tensor in call.present]
    search = "by_class" if _by_class(call) else "fast"
    floats = 5 * boxes + most
    body = [
        "static const tvm_ext_detection shape = {",
        f"    {', '.join(map(str, numbers))}, {{{scale}}}, {least}, {overlap},",
        f"    {', '.join(steps)}",
        "};",
        "float *const numbers = (float *)(void *)scratch;",
        f"int32_t *const places = (int32_t *)(void *)&scratch[{4 * floats}];",
        "const tvm_ext_detection_memory memory = {",
        f"    numbers, &numbers[{4 * boxes}], &numbers[{5 * boxes}], places, &places[{most}],",
        f"    &scratch[{4 * (floats + most + boxes)}]",
        "};",
        "tvm_ext_detection_decode(encodings, anchors, class_scores, memory.boxes, &shape);",
        f"const int32_t count = tvm_ext_detection_{search}(class_scores, &memory, &shape);",
        "tvm_ext_detection_results(&memory, count, boxes, classes, scores, number, &shape);",
    ]
    text = (files("codegen_c.custom.detection") / "runtime" / _HEADER).read_text(encoding="utf-8")
    return CustomCode(
        inputs=("encodings", "class_scores", "anchors"),
        outputs=("boxes", "classes", "scores", "number"),
        body="\n".join(body),
        headers={_HEADER: text},
        scratch_bytes=4 * (floats + most + boxes) + boxes,
        instructions=boxes * (800 + 12 * classes + 40 * most),
    )


def _steps(tensor: CustomTensor) -> str:
    """Return how the C makes real numbers of a tensor's elements: its zero point, scale and sign, or 0 for floats."""
    if tensor.dtype == "float32":
        return "{0, 0.0f, false}"
    is_signed = "true" if tensor.dtype == "int8" else "false"
    return f"{{{tensor.zero_point[0]}, {float_literal(float(np.float32(tensor.scale[0])))}, {is_signed}}}"


OPERATORS = (
    CustomOperator(
        name="TFLite_Detection_PostProcess", outputs=_outputs, reference=_reference, code=_code, refuses=_refuses
    ),
)
