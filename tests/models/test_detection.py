"""TFLite_Detection_PostProcess against TensorFlow Lite Micro's: its reference call by call, its C in packages.

LiteRT alone takes bytes.
"""

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
from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_runners import litert, saved_tflite
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


def test_a_file_may_leave_the_shapes_to_it(tmp_path: Path) -> None:
    """As the converter of TensorFlow's detection API does; LiteRT verifies the build."""
    net = TfliteWriter()
    given = [net.input("encodings", (1, BOXES, 4)), net.input("classes_in", (1, BOXES, CLASSES + 1))]
    results = [net.tensor(name, ()) for name, _ in SHAPES]
    anchors = net.constant("anchors", ANCHORS)
    net.operator("TFLite_Detection_PostProcess", [*given, anchors], results, custom=options(**OPTIONS))
    path = saved(net, results, tmp_path, "detection")
    package = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out", BuildOptions(verify=("host",)))
    assert package.report["verify"]["host"]["passed"]
    sample = dict(zip(("encodings", "classes_in"), drawn(np.random.default_rng(5)), strict=True))
    with package.session() as session:
        found = session.run(sample)
    assert [(name, found[name].shape) for name in found] == SHAPES


@pytest.mark.parametrize(
    ("read", "reference"),
    [(None, "TensorFlow Lite Micro"), (3, "TensorFlow Lite Micro"), (0, "TVM with the CustomOperator's own reference")],
)
def test_the_number_of_boxes_need_not_be_an_output(read: int | None, reference: str, tmp_path: Path) -> None:
    """The model leaves it out, or an operator reads it. Runtimes leave rows after the last box unwritten.

    read: the result that another operator reads. Runtimes judge no model in which that is a result with such rows.
    """
    net, results = file_of()
    outputs = results[:3]
    if read is not None:
        twice = net.tensor("twice", SHAPES[read][1])
        net.operator("ADD", [results[read]] * 2, [twice])
        outputs = [twice, *(result for result in outputs if result != results[read])]
    path = saved(net, outputs, tmp_path, "detection")
    package = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out", BuildOptions(verify=("host",)))
    verified = package.report["verify"]["host"]
    assert verified["passed"] and verified["reference"].startswith(reference)


def as_signed(array: Array) -> Array:
    return (array.astype(np.int16) - 128).astype(np.int8) if array.dtype == np.uint8 else array


CODES, PROBABILITIES, UNITS = (Quantized(scale=s, zero_point=z) for s, z in ((0.07, 121), (0.0041, 3), (1 / 255, 0)))


def of_bytes(*, scores: str, signed: bool = False, **changes: Any) -> bytes:
    """A file with the operator whose encodings and anchors are uint8; signed: all bytes int8, 128 less."""
    net, units = TfliteWriter(), np.round(ANCHORS * 255).astype(np.uint8)
    kind, codes, probabilities, places = "uint8", CODES, PROBABILITIES, UNITS
    if signed:
        less = [Quantized(scale=one.scale, zero_point=one.zero_point - 128) for one in (CODES, PROBABILITIES, UNITS)]
        kind, scores, (codes, probabilities, places), units = "int8", "int8", less, as_signed(units)
    encodings = net.input("encodings", (1, BOXES, 4), kind, codes)
    known = net.input("classes_in", (1, BOXES, CLASSES + 1), scores, None if scores == "float32" else probabilities)
    anchors = net.constant("anchors", units, places)
    results = [net.tensor(name, shape) for name, shape in SHAPES]
    net.operator(
        "TFLite_Detection_PostProcess", [encodings, known, anchors], results, custom=options(**{**OPTIONS, **changes})
    )
    return net.finish(results)


@pytest.mark.parametrize(
    ("scores", "changes", "signed"),
    [
        ("uint8", {}, False),
        ("uint8", {"use_regular_nms": True}, False),
        ("float32", {"nms_score_threshold": 0.5}, False),
        ("uint8", {}, True),
    ],
)
def test_bytes_are_those_of_litert(scores: str, changes: dict[str, Any], signed: bool, tmp_path: Path) -> None:
    """Bit by bit, with scores that are equal and anchors that no class reaches the threshold of.

    LiteRT takes no int8: the results of a file of int8 are those of the file of uint8 with the same real numbers.
    """
    data, random = of_bytes(scores=scores, **changes), np.random.default_rng(4)
    path = saved_tflite(of_bytes(scores=scores, signed=True, **changes) if signed else data, tmp_path)
    package = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out")
    reference = "TVM with the CustomOperator's own reference of TFLite_Detection_PostProcess" if signed else "LiteRT"
    assert package.report["verify"]["host"]["reference"] == reference
    counts = set[int]()
    with package.session() as session:
        for _ in range(30):
            encodings = random.integers(90, 150, (1, BOXES, 4)).astype(np.uint8)
            known = random.integers(0, 12, (1, BOXES, CLASSES + 1)) * 20
            known = known.astype(np.uint8) if scores == "uint8" else (known / 256).astype(np.float32)
            expected = litert(data, [encodings, known])
            given = {"encodings": encodings, "classes_in": known}
            found = session.run({name: as_signed(array) if signed else array for name, array in given.items()})
            count = int(expected[3][0])
            assert found["number"][0] == count
            for (name, _), array in zip(SHAPES[:3], expected, strict=False):
                np.testing.assert_array_equal(found[name][:, :count], array[:, :count])
                assert not found[name][:, count:].any()
            counts.add(count)
    assert max(counts) > 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({2: {"dtype": "float32"}}, "its anchors are float32 and its encodings uint8; LiteRT reads both in one type"),
        ({1: {"scale": ()}}, "its input 'classes_in' is uint8 with 0 scales; one scale is needed"),
        ({1: {"dtype": "int16"}}, "must be encodings, scores and anchors in float32, int8 or uint8. Put a DEQUANTIZE"),
        ({0: {"dtype": "int8"}}, "its anchors are uint8 and its encodings int8; LiteRT reads both in one type"),
    ],
)
def test_bytes_that_it_refuses(changes: dict[int, dict[str, Any]], reason: str) -> None:
    operator = custom_operator("TFLite_Detection_PostProcess")
    assert operator is not None
    shapes = {"encodings": (1, BOXES, 4), "classes_in": (1, BOXES, CLASSES + 1), "anchors": ANCHORS.shape}
    tensors = tuple(
        CustomTensor(**{"shape": shape, "dtype": "uint8", "name": name, "scale": (0.1,), "zero_point": (1,)}
                     | changes.get(place, {}))
        for place, (name, shape) in enumerate(shapes.items())
    )  # fmt: skip
    call = CustomCall(operator=operator.name, inputs=tensors, outputs=(), options=OPTIONS)
    assert reason in str(operator.refuses(call))


@pytest.mark.parametrize(
    ("shapes", "changes", "reason"),
    [
        ([(1, 40, 4), (1, 40, 4)], {}, "they must be encodings, scores and anchors in float32, int8 or uint8"),
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
