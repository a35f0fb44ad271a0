"""ONNX NonMaxSuppression: for each batch and class, the boxes with the best scores that overlap no better box.

Boxes float32[B, N, 4], scores float32[B, C, N] -> int64[B * C * min(max_output_boxes_per_class, N), 3]: rows of batch,
class and box in onnxruntime's order, the best score of a class first, and the lower index first among equal scores.
ONNX returns only the selected rows; here the rows after the last selected row are -1. Overlaps are computed as in
onnxruntime, in float32: a box without an area suppresses nothing. A NaN score is never selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import numpy as np

from codegen_c.custom.contract import Array, CustomCall, CustomCode, CustomOperator, CustomTensor

NAME = "ai.onnx.NonMaxSuppression"
_HEADER = "tvm_ext_nms.h"
_LIMITS = ("max_output_boxes_per_class", "iou_threshold", "score_threshold")
_PARAMETERS = ("boxes", "scores", "most", "iou_threshold", "score_threshold")
_MOST, _IOU, _SCORE = 2, 3, 4


def _given(call: CustomCall, index: int) -> CustomTensor | None:
    return call.inputs[index] if index < len(call.inputs) else None


def _limit(call: CustomCall, index: int) -> np.generic | None:
    """Return the value of a constant limit, or None if it is omitted."""
    tensor = _given(call, index)
    return None if tensor is None or tensor.constant is None else tensor.constant.reshape(-1)[0]


def _most(call: CustomCall) -> int:
    """Return the most boxes that one class may select."""
    limit = _limit(call, _MOST)
    return 0 if limit is None else min(max(int(limit), 0), call.present[0].shape[1])


def _iou(call: CustomCall) -> np.float32:
    limit = _limit(call, _IOU)
    return np.float32(0 if limit is None else limit)


def _is_centred(call: CustomCall) -> bool:
    return bool(call.options.get("center_point_box", 0))


def _outputs(call: CustomCall) -> Sequence[CustomTensor]:
    batches, classes, _ = call.present[1].shape
    return [CustomTensor(shape=(batches * classes * _most(call), 3), dtype="int64")]


def _refuses(call: CustomCall) -> str | None:
    """Return the reason why a call is not supported, or None."""
    boxes, scores = _given(call, 0), _given(call, 1)
    if boxes is None or scores is None or {boxes.dtype, scores.dtype} != {"float32"}:
        return f"its inputs are {', '.join(map(str, call.present))}; they must be boxes and scores in float32"
    fits = len(boxes.shape) == len(scores.shape) == 3 and boxes.shape[2] == 4
    if not fits or (boxes.shape[0], boxes.shape[1]) != (scores.shape[0], scores.shape[2]):
        return f"the shapes of boxes {list(boxes.shape)} and scores {list(scores.shape)} do not match"
    for name, tensor in zip(_LIMITS, call.inputs[_MOST:], strict=False):
        if tensor is not None and (tensor.constant is None or tensor.constant.size != 1):
            return (
                f"its {name} {tensor.name!r} is not one constant number; make it one, or, if it is an input of the "
                f"model, fix its value (--bind {tensor.name}=VALUE)"
            )
    if call.options.get("center_point_box", 0) not in (0, 1):
        return f"center_point_box is {call.options['center_point_box']}; it must be 0 or 1"
    if not 0 <= _iou(call) <= 1:
        return f"its iou_threshold is {_iou(call)}; it must be in [0, 1]"
    if _most(call) == 0:
        return (
            "it never selects a box, because its max_output_boxes_per_class is omitted or not positive, or there are "
            "no boxes. Remove it from the model"
        )
    return None


def _reference(call: CustomCall, inputs: Sequence[Array | None]) -> Sequence[Array]:
    boxes, scores = inputs[0], inputs[1]
    assert boxes is not None and scores is not None, "_refuses checks this"
    (result,) = _outputs(call)
    rows = np.full(result.shape, -1, np.int64)
    found = [(b, k, i) for b, k in np.ndindex(scores.shape[:2]) for i in _selected(call, boxes[b], scores[b, k])]
    rows[: len(found)] = np.array(found, np.int64).reshape(-1, 3)
    return [rows]


def _selected(call: CustomCall, boxes: Array, scores: Array) -> list[int]:
    """Return the indices of the selected boxes of one class, the best score first."""
    edges, least = _edges(boxes, _is_centred(call)), _limit(call, _SCORE)
    counts = ~np.isnan(scores) if least is None else scores > least
    order = np.argsort(-scores, kind="stable")
    left, found = order[counts[order]], list[int]()
    while left.size and len(found) < _most(call):
        best, left = left[0], left[1:]
        found.append(int(best))
        left = left[~_overlaps(edges[best], edges[left], _iou(call))]
    return found


def _edges(boxes: Array, is_centred: bool) -> Array:
    """Return the lower and upper x and y of each box, float32[N, 4]."""
    if is_centred:
        halves = boxes[:, 2:] / np.float32(2)
        return np.concatenate([boxes[:, :2] - halves, boxes[:, :2] + halves], 1)
    first, second = boxes[:, 1::-1], boxes[:, :1:-1]
    swaps = first >= second
    return np.concatenate([np.where(swaps, second, first), np.where(swaps, first, second)], 1)


def _overlaps(one: Array, others: Array, most_overlap: np.float32) -> Array:
    """Return True for each box whose intersection over union with `one` exceeds a limit."""
    begins = np.where(one[:2] < others[:, :2], others[:, :2], one[:2])
    ends = np.where(others[:, 2:] < one[2:], others[:, 2:], one[2:])
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        area = (ends - begins)[:, 0] * (ends - begins)[:, 1]
        area_one, areas = ((box[..., 2] - box[..., 0]) * (box[..., 3] - box[..., 1]) for box in (one, others))
        together = area_one + areas - area
        apart = (ends <= begins).any(1) | (area <= 0) | (area_one <= 0) | (areas <= 0) | (together <= 0)
        return ~apart & (area / together > most_overlap)


def _code(call: CustomCall) -> CustomCode:
    batches, classes, boxes = call.present[1].shape
    most = _most(call)
    numbers = [batches, classes, boxes, most, batches * classes * most, "true" if _is_centred(call) else "false"]
    names = [name for name, tensor in zip(_PARAMETERS, call.inputs, strict=False) if tensor is not None]
    overlap = "iou_threshold[0]" if "iou_threshold" in names else "0.0f"
    least = "score_threshold" if "score_threshold" in names else "NULL"
    body = [
        "(void)most;",
        f"static const tvm_ext_nms shape = {{{', '.join(map(str, numbers))}}};",
        f"tvm_ext_nms_rows(boxes, scores, {overlap}, {least}, selected, scratch, &shape);",
    ]
    text = (files("codegen_c.custom.detection") / "runtime" / _HEADER).read_text(encoding="utf-8")
    return CustomCode(
        inputs=tuple(names),
        outputs=("selected",),
        body="\n".join(body),
        headers={_HEADER: text},
        scratch_bytes=boxes,
        instructions=batches * classes * boxes * (8 + 45 * most),
    )


OPERATORS = (CustomOperator(name=NAME, outputs=_outputs, reference=_reference, code=_code, refuses=_refuses),)
