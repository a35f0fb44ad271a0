"""TFLite_Detection_PostProcess against TensorFlow Lite Micro's: its reference call by call, its C in packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_ext
from codegen_c.custom.registry import custom_operator
from tests.support.custom_operators import options, saved
from tests.support.peers import peer
from tests.support.sweeps import some_of
from tests.support.tflite_file import TfliteWriter
from tvm_ext import BuildOptions
from tvm_ext.custom import CustomCall, CustomTensor

Array = np.ndarray
BOXES, CLASSES, MOST = 40, 3, 8
OPTIONS: dict[str, Any] = {
    "max_detections": MOST, "max_classes_per_detection": 1, "detections_per_class": 5, "use_regular_nms": False,
    "nms_score_threshold": 0.3, "nms_iou_threshold": 0.4, "num_classes": CLASSES,
    "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
}  # fmt: skip
_random = np.random.default_rng(0)
ANCHORS = np.concatenate([_random.random((BOXES, 2)), 0.1 + 0.4 * _random.random((BOXES, 2))], 1).astype(np.float32)
SHAPES = [("boxes", (1, MOST, 4)), ("classes", (1, MOST)), ("scores", (1, MOST)), ("number", (1,))]


def file_of(background: int = 1, **changes: Any) -> tuple[TfliteWriter, list[int]]:
    net = TfliteWriter()
    given = [net.input("encodings", (1, BOXES, 4)), net.input("classes_in", (1, BOXES, CLASSES + background))]
    results = [net.tensor(name, shape) for name, shape in SHAPES]
    anchors = net.constant("anchors", ANCHORS)
    net.operator("TFLite_Detection_PostProcess", [*given, anchors], results, custom=options(**{**OPTIONS, **changes}))
    return net, results


def drawn(random: np.random.Generator, background: int = 1) -> list[Array]:
    """Boxes near their anchors; scores of few values, so that some are equal."""
    scores = random.integers(0, 12, (1, BOXES, CLASSES + background)) / 16
    return [random.normal(0, 2, (1, BOXES, 4)).astype(np.float32), scores.astype(np.float32)]


def answers(interpreter: Any, inputs: list[Array]) -> list[Array]:
    for place, array in enumerate(inputs):
        interpreter.set_input(array, place)
    interpreter.invoke()
    return [np.array(interpreter.get_output(place)) for place in range(4)]


def assert_same(found: list[Array], expected: list[Array]) -> int:
    """Those that were found, in their order; their number."""
    count = int(expected[3][0])
    assert found[3][0] == count
    for one, other in zip(found[:3], expected[:3], strict=True):
        np.testing.assert_allclose(one[:, :count], other[:, :count], rtol=1e-6, atol=1e-6)
        assert not one[:, count:].any()
    return count


@pytest.mark.parametrize(
    ("background", "changes"),
    [
        (1, {}),
        (0, {"nms_score_threshold": 0.6}),
        (1, {"use_regular_nms": True}),
        (0, {"use_regular_nms": True, "detections_per_class": None}),
        (1, {"nms_score_threshold": 0.99}),
    ],
)
def test_its_reference_is_tflms(background: int, changes: dict[str, Any]) -> None:
    net, results = file_of(background, **changes)
    runtime, random = peer("tflite_micro.python.tflite_micro.runtime"), np.random.default_rng(1)
    interpreter = runtime.Interpreter.from_bytes(net.finish(results), arena_size=1 << 20)
    operator = custom_operator("TFLite_Detection_PostProcess")
    assert operator is not None
    shapes = [(1, BOXES, 4), (1, BOXES, CLASSES + background), ANCHORS.shape]
    tensors = tuple(CustomTensor(shape=shape, dtype="float32") for shape in shapes)
    call = CustomCall(operator=operator.name, inputs=tensors, outputs=(), options={**OPTIONS, **changes})
    assert operator.refuses(call) is None
    counts = set[int]()
    for _ in range(40):
        inputs = drawn(random, background)
        found = list(operator.reference(call, [*inputs, ANCHORS]))
        counts.add(assert_same(found, answers(interpreter, inputs)))
    assert max(counts) > 1 or counts == {0}


@pytest.mark.board
@pytest.mark.parametrize("regular", some_of([True], sweep=[False]))
def test_its_c_is_tflms(regular: bool, tmp_path: Path) -> None:
    net, results = file_of(use_regular_nms=regular)
    runtime, random = peer("tflite_micro.python.tflite_micro.runtime"), np.random.default_rng(2)
    interpreter = runtime.Interpreter.from_bytes(net.finish(results), arena_size=1 << 20)
    path = saved(net, results, tmp_path, "detection")
    package = tvm_ext.build(tvm_ext.load(path), "cortex_m4", tmp_path / "out", BuildOptions(verify=()))
    samples = [dict(zip(("encodings", "classes_in"), drawn(random), strict=True)) for _ in range(10)]
    with package.session() as session:
        on_host = [session.run(sample) for sample in samples]
    for found in (on_host, list(package.run_board(samples).outputs)):
        for one, sample in zip(found, samples, strict=True):
            assert_same([one[name] for name, _ in SHAPES], answers(interpreter, list(sample.values())))


@pytest.mark.parametrize(
    ("shapes", "changes", "reason"),
    [
        ([(1, 40, 4), (1, 40, 4)], {}, "they must be float32 encodings, scores and anchors"),
        ([(1, 40, 4), (1, 39, 4), (40, 4)], {}, "do not belong to the anchors of one image"),
        ([(1, 40, 4), (1, 40, 5), (40, 4)], {}, "3 classes, scores [1, 40, 5] do not fit"),
        ([(1, 40, 4), (1, 40, 4), (40, 3)], {}, "anchors [40, 3], 3 classes"),
        (None, {"max_classes_per_detection": 2}, "it returns several classes for one box"),
        (None, {"nms_iou_threshold": 0.0}, "its nms_iou_threshold is outside of (0, 1]"),
        (None, {"h_scale": 0.0}, "a scale of its encodings is 0"),
    ],
)
def test_calls_that_it_refuses(shapes: list[tuple[int, ...]] | None, changes: dict[str, Any], reason: str) -> None:
    operator = custom_operator("TFLite_Detection_PostProcess")
    assert operator is not None
    tensors = tuple(CustomTensor(shape=shape, dtype="float32") for shape in shapes or [(1, 40, 4), (1, 40, 4), (40, 4)])
    call = CustomCall(operator=operator.name, inputs=tensors, outputs=(), options={**OPTIONS, **changes})
    assert reason in str(operator.refuses(call))


def test_an_option_that_is_no_number() -> None:
    operator = custom_operator("TFLite_Detection_PostProcess")
    assert operator is not None
    with pytest.raises(ValueError, match="option 'max_detections' is None; it must be a number"):
        operator.outputs(CustomCall(operator=operator.name, inputs=(), outputs=()))
