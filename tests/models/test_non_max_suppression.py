"""ONNX NonMaxSuppression in as many rows as it can give: onnxruntime's rows, then -1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.backend.test.case import node

import tvm_ext
from codegen_c.custom.registry import custom_operator
from relay_passes.dataflow import array_of
from relay_passes.dataflow import outputs as results_of
from tests.support.onnx_models import FLOAT, INT64, NODE, model_of, saved
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.core.decisions.models import FilledRows
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.custom import CustomCall, CustomTensor
from tvm_ext.frontends.load import ModelNotice
from tvm_ext.verification.reference_runtimes.ask import ask

Array = np.ndarray
INT32 = TensorProto.INT32
LIMITS = {"most": np.array([14]), "iou": np.array([0.1], np.float32), "least": np.array([0.2], np.float32)}
NAMES = [
    f"test_nonmaxsuppression_{name}"
    for name in (
        "center_point_box_format", "flipped_coordinates", "identical_boxes", "iou_threshold_boundary",
        "limit_output_size", "single_box", "suppress_by_IOU", "suppress_by_IOU_and_scores", "two_batches",
        "two_classes",
    )
]  # fmt: skip
SHAPE = (2, 3, 60)


def selection(shape: tuple[int, int, int], opset: int = 11, **attributes: int) -> onnx.ModelProto:
    """One operator on boxes of (batches, classes, boxes), its result an output, and as int32 another."""
    batches, _, boxes = shape
    nodes = [
        NODE("NonMaxSuppression", ["boxes", "scores", *LIMITS], ["kept"], name="nms", **attributes),
        NODE("Cast", ["kept"], ["small"], to=INT32),
    ]
    given = {"boxes": (batches, boxes, 4), "scores": shape}
    return model_of(nodes, given, [("kept", INT64), ("small", INT32)], LIMITS, opset=opset)


def drawn(random: np.random.Generator, shape: tuple[int, int, int]) -> dict[str, Array]:
    """Boxes of few places and scores of few values: equal ones, without areas, and with corners the wrong way round."""
    batches, _, boxes = shape
    return {
        "boxes": (random.integers(0, 9, (batches, boxes, 4)) / 8).astype(np.float32),
        "scores": (random.integers(0, 12, shape) / 12).astype(np.float32),
    }


def answers(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, dict(inputs))


def assert_filled(found: Array, expected: Array) -> int:
    """onnxruntime's rows, then -1; their number."""
    np.testing.assert_array_equal(found[: len(expected)], expected)
    assert (found[len(expected) :] == -1).all() and found.dtype == expected.dtype
    return len(expected)


@pytest.fixture(scope="module")
def suite() -> dict[str, Any]:
    """ONNX's own cases by name; importing a file of them makes them."""
    import_module("onnx.backend.test.case.node.nonmaxsuppression")
    return {test.name: test for test in node._NodeTestCases if test.name.startswith("test_nonmaxsuppression_")}


def test_names_are_all_of_the_suite(suite: dict[str, Any]) -> None:
    assert sorted(suite) == NAMES


@pytest.mark.filterwarnings("ignore::tvm_ext.frontends.load.ModelNotice")
@pytest.mark.parametrize("name", some_of(NAMES[::3], sweep=[name for name in NAMES if name not in NAMES[::3]]))
def test_cases_of_onnx(suite: dict[str, Any], name: str, tmp_path: Path) -> None:
    """Limits are inputs there, and bound."""
    case = suite[name]
    inputs, (expected,) = case.data_sets[0]
    values = dict(zip([value.name for value in case.model.graph.input], inputs, strict=True))
    boxes, scores, *limits = values
    mod = tvm_ext.load(saved(case.model, tmp_path), bind={name: values[name] for name in limits})
    package = tvm_ext.build(mod, "host", tmp_path / "out", BuildOptions())
    assert package.report["verify"]["host"]["reference"] == "onnxruntime"
    with package.session() as session:
        (found,) = session.run({boxes: values[boxes], scores: values[scores]}).values()
    bound = min(int(values["max_output_boxes_per_class"][0]), values[boxes].shape[1])
    assert found.shape == (int(np.prod(values[scores].shape[:2])) * bound, 3)
    assert assert_filled(found, expected) > 0


@pytest.mark.parametrize("centred", [0, 1])
def test_its_reference_is_onnxruntimes(centred: int) -> None:
    """Equal scores, boxes without areas, corners in any order, widths below 0."""
    model, random = selection(SHAPE, center_point_box=centred), np.random.default_rng(centred)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    operator = custom_operator("ai.onnx.NonMaxSuppression")
    assert operator is not None
    call = called(options={"center_point_box": centred})
    assert operator.refuses(call) is None
    counts = set[int]()
    for _ in range(40):
        inputs = drawn(random, SHAPE)
        inputs["boxes"][..., 2:] *= random.choice([1, -1])
        (found,) = operator.reference(call, [*inputs.values(), *LIMITS.values()])
        counts.add(assert_filled(found, session.run(["kept"], inputs)[0]))
    assert 15 < min(counts) < max(counts)


@pytest.mark.board
@pytest.mark.filterwarnings("ignore::tvm_ext.frontends.load.ModelNotice")
@pytest.mark.parametrize("centred", some_of([0], sweep=[1]))
def test_its_c_is_onnxruntimes(centred: int, tmp_path: Path) -> None:
    model, random = selection(SHAPE, 10 + centred, center_point_box=centred), np.random.default_rng(2)
    package = tvm_ext.build(tvm_ext.load(saved(model, tmp_path)), "cortex_m4", tmp_path / "out", BuildOptions())
    for target in ("host", "qemu"):
        result = package.report["verify"][target]
        assert result["passed"] and result["reference"] == "onnxruntime" and result["differing"] == 0
    samples = [drawn(random, SHAPE) for _ in range(8)]
    samples[0]["scores"][0, 1] = 0.0  # none of a class in the middle
    samples[1]["scores"][:] = np.nan
    with package.session() as session:
        on_host = [session.run(sample) for sample in samples]
    for found in (on_host, list(package.run_board(samples).outputs)):
        counts = [
            {assert_filled(one[name], expected) for name, expected in zip(one, answers(model, sample), strict=True)}
            for one, sample in zip(found, samples, strict=True)
        ]
        assert counts[1] == {0} and all(len(count) == 1 for count in counts)
        assert 15 < min(map(min, counts[2:])) < 84


def test_limits_that_are_left_out(tmp_path: Path) -> None:
    """Every score counts then, and every overlap; a notice says how many rows there are."""
    node = NODE("NonMaxSuppression", ["boxes", "scores", "most"], ["kept"])
    model = model_of([node], {"boxes": (1, 6, 4), "scores": (1, 1, 6)}, [("kept", INT64)], {"most": np.array([9])})
    with pytest.warns(ModelNotice, match="and -1 in rows behind the last that it selects: kept has 6"):
        mod = tvm_ext.load(saved(model, tmp_path))
    package = tvm_ext.build(mod, "host", tmp_path / "out", BuildOptions())
    assert package.report["verify"]["host"]["reference"] == "onnxruntime"
    inputs = drawn(np.random.default_rng(0), (1, 1, 6))
    inputs["scores"] -= 1
    with package.session() as session:
        assert 0 < assert_filled(session.run(inputs)["kept"], answers(model, inputs)[0]) < 6
        inputs["scores"][0, 0, :5] = np.nan
        np.testing.assert_array_equal(session.run(inputs)["kept"][:2, 2], [5, -1])


@pytest.mark.filterwarnings("ignore::tvm_ext.frontends.load.ModelNotice")
def test_a_reference_gives_what_the_package_gives(tmp_path: Path) -> None:
    """onnxruntime's rows, with -1 behind them; tensors inside the model too."""
    model = selection((1, 2, 8))
    mod = tvm_ext.load(saved(model, tmp_path))
    assert FilledRows.read(mod).rows == {"kept": (0, 16), "small": (0, 16)}
    inputs = drawn(np.random.default_rng(0), (1, 2, 8))
    (expected, _) = answers(model, inputs)
    outputs = ask(mod, [inputs], [], quantized_here=False).outputs[0]
    assert len(expected) < 16 == len(outputs["kept"])
    assert all(assert_filled(found, expected.astype(found.dtype)) for found in outputs.values())
    model.graph.output.pop(0)
    inside = ask(tvm_ext.load(saved(model, tmp_path)), [inputs], ["kept"], quantized_here=False).inner[0]
    np.testing.assert_array_equal(inside["kept"], outputs["kept"])


def reads(
    *nodes: onnx.NodeProto, result: tuple[str, int] = ("y", INT64), more: Mapping[str, Array] | None = None
) -> onnx.ModelProto:
    selecting = NODE("NonMaxSuppression", ["boxes", "scores", *LIMITS], ["kept"])
    given = {"boxes": (1, 8, 4), "scores": (1, 2, 8)}
    return model_of(
        [selecting, *nodes], given, [result, ("kept", INT64)], {**LIMITS, "at": np.array([2]), **(more or {})}
    )


def in_a_branch() -> onnx.ModelProto:
    """The branch reads what stands outside of it."""
    result = helper.make_tensor_value_info("sum", INT64, None)
    branch = helper.make_graph([NODE("Add", ["kept", "kept"], ["sum"])], "g", [], [result])
    model = reads(NODE("If", ["yes"], ["y"], then_branch=branch, else_branch=branch))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "yes"))
    return model


def following() -> onnx.ModelProto:
    """Boxes, classes and scores of the selected rows, as exporters write them; scores of the first eight rows."""
    constants = {
        **LIMITS, "box": np.array([2]), "class": np.array(1), "one": np.array([1]), "zero": np.array([0]),
        "first": np.array([8]), "scale": np.array([2, 3, 2, 3], np.float32), "half": np.array([0.25], np.float32),
        "rows": np.array([-1, 2, 2]), "apart": np.array([2, 2]),
    }  # fmt: skip
    nodes = [
        NODE("NonMaxSuppression", ["boxes", "scores", *LIMITS], ["kept"]),
        NODE("Gather", ["kept", "box"], ["column"], axis=1),
        NODE("Squeeze", ["column", "one"], ["places"]),
        NODE("Gather", ["boxes", "places"], ["found"], axis=1),
        NODE("Squeeze", ["found", "zero"], ["of_one"]),
        NODE("Mul", ["of_one", "scale"], ["scaled"]),
        NODE("Split", ["scaled", "apart"], ["begins", "ends"], axis=1),
        NODE("Sub", ["ends", "begins"], ["sizes"]),
        NODE("Concat", ["begins", "sizes"], ["joined"], axis=-1),
        NODE("Reshape", ["joined", "rows"], ["corners"]),
        NODE("Unsqueeze", ["found", "zero"], ["deeper"]),
        NODE("Transpose", ["deeper"], ["turned"], perm=[3, 1, 2, 0]),
        NODE("Gather", ["kept", "class"], ["classes"], axis=1),
        NODE("Slice", ["kept", "zero", "first", "zero"], ["best_rows"]),
        NODE("GatherND", ["scores", "best_rows"], ["best"]),
        NODE("Add", ["best", "half"], ["best_scores"]),
    ]
    outputs = ["corners", ("classes", INT64), "best_scores", "turned"]
    return model_of(nodes, {"boxes": (1, 12, 4), "scores": (1, 3, 12)}, outputs, constants)


@pytest.mark.filterwarnings("ignore::tvm_ext.frontends.load.ModelNotice")
def test_operators_on_the_rows(tmp_path: Path) -> None:
    """The first rows are onnxruntime's, the others -1, along the axis of rows of each output."""
    model = following()
    mod = tvm_ext.load(saved(model, tmp_path))
    rows = {"corners": (0, 36), "classes": (0, 36), "best_scores": (0, 8), "turned": (2, 36)}
    assert rows.items() <= dict(FilledRows.read(mod).rows or {}).items()
    package = tvm_ext.build(mod, "host", tmp_path / "out", BuildOptions())
    assert package.report["verify"]["host"]["reference"] == "onnxruntime"
    counts = set[int]()
    with package.session() as session:
        for seed in range(12):
            inputs = drawn(np.random.default_rng(seed), (1, 3, 12))
            inputs["scores"] -= np.float32(seed / 12)
            found = session.run(inputs)
            for (name, (axis, _)), expected in zip(rows.items(), answers(model, inputs), strict=True):
                moved = np.moveaxis(found[name], axis, 0), np.moveaxis(expected, axis, 0)
                counts.add(assert_filled(*moved))
    assert 0 in counts and len(counts) > 5


MORE = {"axis": np.array(0), "end": np.array([9]), "zero": np.array([0]), "many": np.zeros((16, 1), np.int64)}


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([NODE("CumSum", ["kept", "axis"], ["y"])], "CumSum 'y' reads its rows and does not work on rows one by one"),
        ([NODE("Shape", ["kept"], ["y"])], "Shape 'y' reads its rows and does not work"),
        ([NODE("Gather", ["kept", "at"], ["y"], axis=0)], "takes rows by their numbers"),
        (
            [NODE("Add", ["kept", "kept"], ["s"]), NODE("Gather", ["boxes", "s"], ["y"], axis=1)],
            "numbers that are comp",
        ),
        ([NODE("Gather", ["boxes", "kept"], ["y"], axis=2)], "its indices may be up to 7, outside of the data"),
        ([NODE("Squeeze", ["kept"], ["y"])], "Squeeze 'y' reads its rows and may remove the axis of rows"),
        (
            [NODE("Div", ["kept", "kept"], ["y"])],
            "divides integers, of which rows after the last selected one may be 0",
        ),
        ([NODE("Slice", ["kept", "at", "end", "zero"], ["y"])], "takes other rows than the first"),
        ([NODE("Concat", ["kept", "kept"], ["y"], axis=0)], "joins them with something that does not have these rows"),
        ([NODE("Add", ["kept", "many"], ["y"])], "joins them with something that does not have these rows"),
        (
            [NODE("Transpose", ["kept"], ["t"]), NODE("Flatten", ["t"], ["y"])],
            "Flatten 'y' reads its rows and does not",
        ),
    ],
)
def test_operators_that_see_other_rows_are_refused(
    nodes: Sequence[onnx.NodeProto], reason: str, tmp_path: Path
) -> None:
    model = reads(*nodes, result=("y", FLOAT if "boxes" in nodes[-1].input else INT64), more=MORE)
    with pytest.raises(UnsupportedModel, match=rf"NonMaxSuppression, once .*as many boxes as it keeps, .*{reason}"):
        tvm_ext.load(saved(model, tmp_path))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (reads(NODE("Cast", ["kept"], ["y"], to=TensorProto.UINT8), result=("y", TensorProto.UINT8)), "without -1"),
        (in_a_branch(), "If 'y' reads its rows"),
    ],
    ids=["cast without -1", "branch"],
)
def test_readers_are_refused(model: onnx.ModelProto, reason: str, tmp_path: Path) -> None:
    way = rf"NonMaxSuppression, once .*as many boxes as it keeps, .*{reason}.* TFLite_Detection_PostProc"
    with pytest.raises(UnsupportedModel, match=way):
        tvm_ext.load(saved(model, tmp_path))


@pytest.mark.filterwarnings("error::tvm_ext.frontends.load.ModelNotice")
def test_constants_have_as_many_rows_as_are_selected(tmp_path: Path) -> None:
    """Those that are known at import may be read."""
    inputs = drawn(np.random.default_rng(0), (1, 2, 8))
    nodes = [
        NODE("NonMaxSuppression", [*inputs, *LIMITS], ["kept"]),
        NODE("Gather", ["kept", "at"], ["y"], axis=1),
        NODE("Neg", ["x"], ["z"]),
    ]
    constants = {**inputs, **LIMITS, "at": np.array([2])}
    model = model_of(nodes, {"x": (1,)}, [("y", INT64), "z"], constants)
    (places, _) = answers(model, {"x": np.zeros(1, np.float32)})
    assert 0 < len(places) < 16
    mod = tvm_ext.load(saved(model, tmp_path))
    np.testing.assert_array_equal(array_of(results_of(mod["main"])[0]), places)


@pytest.mark.filterwarnings("ignore::tvm_ext.frontends.load.ModelNotice")
def test_no_boxes_at_all(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"int64\[0, 3\] has no elements"):
        tvm_ext.build(tvm_ext.load(saved(selection((1, 2, 0)), tmp_path)), "host", tmp_path / "out", BuildOptions())


def called(
    boxes: tuple[int, ...] = (2, 60, 4), scores: tuple[int, ...] = SHAPE, options: Any = None, **limits: Array | None
) -> CustomCall:
    """A call with the limits of the models here, but those that are given."""
    given = [CustomTensor(shape=shape, dtype="float32") for shape in (boxes, scores)]
    constants = {**LIMITS, **limits}
    given += [
        CustomTensor(shape=LIMITS[name].shape, dtype=str(LIMITS[name].dtype), name=name, constant=array)
        for name, array in constants.items()
    ]
    return CustomCall(operator="ai.onnx.NonMaxSuppression", inputs=tuple(given), outputs=(), options=options or {})


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (called(scores=(2, 60)), "the shapes of boxes [2, 60, 4] and scores [2, 60] do not match"),
        (called(boxes=(2, 59, 4)), "boxes [2, 59, 4] and scores [2, 3, 60]"),
        (called(boxes=(2, 60, 5)), "boxes [2, 60, 5] and scores [2, 3, 60]"),
        (called(boxes=(1, 60, 4)), "boxes [1, 60, 4] and scores [2, 3, 60]"),
        (called(iou=None), "its iou_threshold 'iou' is not one constant number; make it one, or, if it is an input"),
        (called(least=np.zeros(2, np.float32)), "its score_threshold 'least' is not one constant number"),
        (called(iou=np.array([1.5], np.float32)), "its iou_threshold is 1.5; it must be in [0, 1]"),
        (called(iou=np.array([np.nan], np.float32)), "its iou_threshold is nan"),
        (called(most=np.array([0])), "its max_output_boxes_per_class is omitted or not positive"),
        (called(most=np.array([-1])), "its max_output_boxes_per_class is omitted or not positive"),
        (called(options={"center_point_box": 2}), "center_point_box is 2; it must be 0 or 1"),
        (replace(called(), inputs=(None, *called().inputs[1:])), "they must be boxes and scores in float32"),
    ],
)
def test_calls_that_it_refuses(call: CustomCall, reason: str) -> None:
    operator = custom_operator(call.operator)
    assert operator is not None and reason in str(operator.refuses(call))
