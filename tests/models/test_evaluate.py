"""Scores of a package on data: by scikit-learn's definitions, beside the float file, on both, as a command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tvm_ext
from tests.report.reports import parsed, words
from tests.support.onnx_models import NODE, model_of, saved
from tests.support.peers import peer
from tvm_ext.command_line.main import app
from tvm_ext.core.errors import BadInput, BadOptions
from tvm_ext.evaluation.evaluation import (
    ClassificationScores,
    PackageEvaluation,
    RegressionScores,
    classification_scores,
    regression_scores,
    task_of,
)
from tvm_ext.packages.package import Package

RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((40, 4)).astype(np.float32)
MATRIX = RANDOM.standard_normal((4, 3)).astype(np.float32)
WANTED = X @ MATRIX
CLASSES = np.where(np.arange(40) % 8, WANTED.argmax(axis=1), 0)
"""Mostly what the float model says."""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """A classifier of three classes, quantized; its float file lies beside it."""
    folder = tmp_path_factory.mktemp("evaluated")
    nodes = [NODE("MatMul", ["image", "w"], ["y"], name="h")]
    path = saved(model_of(nodes, {"image": (1, 4)}, ["y"], {"w": MATRIX}), folder)
    return tvm_ext.build(
        path, "cortex_m4", folder / "package", verify=(), quantize="int8", calibration={"image": X}, name="net"
    )


def test_scores_are_those_of_scikit_learn() -> None:
    metrics = peer("sklearn.metrics")
    targets, predicted = RANDOM.integers(0, 4, 200), RANDOM.standard_normal((200, 5))
    scores = classification_scores(targets, predicted)
    chosen = predicted.argmax(axis=1)
    every = [0, 1, 2, 3, 4]
    assert scores.accuracy == pytest.approx(metrics.accuracy_score(targets, chosen))
    np.testing.assert_array_equal(scores.confusion, metrics.confusion_matrix(targets, chosen, labels=every))
    precision, recall, _, support = metrics.precision_recall_fscore_support(
        targets, chosen, labels=every, zero_division=np.nan
    )
    assert scores.recall == pytest.approx([*recall[:4], None]) and scores.support == (*support,)
    assert scores.precision == pytest.approx([*precision])
    real = predicted + RANDOM.standard_normal((200, 5))
    errors = regression_scores(real, predicted)
    assert errors.mae == pytest.approx(metrics.mean_absolute_error(real, predicted))
    assert errors.rmse == pytest.approx(metrics.root_mean_squared_error(real.ravel(), predicted.ravel()))
    assert errors.r2 == pytest.approx(metrics.r2_score(real, predicted, multioutput="variance_weighted"))
    assert regression_scores(np.ones((3, 1)), np.zeros((3, 1))).r2 is None


def test_what_y_says() -> None:
    several, one = np.zeros((4, 3)), np.zeros((4, 1))
    assert task_of(np.arange(4), several) == task_of(np.arange(4)[:, None], several) == "classification"
    assert task_of(np.arange(4.0), several) == task_of(np.arange(4), one) == "regression"
    assert task_of(np.zeros((4, 3), int), several) == "regression"


@pytest.mark.board
def test_a_classifier_beside_its_float_file(package: Package) -> None:
    found = package.evaluate(X, CLASSES, class_names=("cat", "dog", "<b>cow"))
    assert isinstance(found.scores, ClassificationScores) and found.reference is not None
    predicted = package.run(X)["y"].argmax(axis=1)
    assert found.scores.accuracy == pytest.approx((predicted == CLASSES).mean())
    known = found.reference
    assert known.runtime == "onnxruntime" and isinstance(known.scores, ClassificationScores)
    assert known.scores.accuracy == pytest.approx((WANTED.argmax(axis=1) == CLASSES).mean())
    assert known.agreement == pytest.approx((WANTED.argmax(axis=1) == predicted).mean())
    text = str(found)
    assert text.startswith("net on cortex_m4 (host), 40 samples, output y\n") and "confusion: true in rows" in text
    html = parsed(f"<div>{found._repr_html_()}</div>")
    assert "<b>cow" in words(html) and not html.findall(".//td/b")
    on_board = package.evaluate(X, CLASSES, "qemu", class_names=("cat", "dog", "<b>cow"), reference=False)
    assert on_board == replace(found, on="qemu", reference=None, no_reference="was not requested")


def test_a_regression_and_integers(package: Package) -> None:
    found = package.evaluate(X, WANTED)
    assert isinstance(found.scores, RegressionScores) and found.reference is not None
    assert isinstance(found.reference.scores, RegressionScores) and found.reference.agreement is None
    assert 1e-4 < found.scores.rmse < 0.1 and found.scores.r2 is not None and found.scores.r2 > 0.99
    assert found.reference.scores.rmse < 1e-5
    port = package.interface.inputs[0]
    assert port.quantization is not None
    steps = np.clip(np.rint(X / np.float32(port.quantization.scale)) + port.quantization.zero_point, -128, 127)
    integers = package.evaluate(steps.astype(np.int8), WANTED)
    assert integers.scores == found.scores, "integers in, the same scores of real numbers"
    assert "RMSE" in str(found) and "file's RMSE" in str(found)


def test_a_file_that_is_not_at_hand(package: Package, tmp_path: Path) -> None:
    moved = package.save(tmp_path / "moved")
    found = moved.evaluate(X, CLASSES)
    assert found.reference is None and "neither in the working folder nor beside the package" in found.no_reference
    file = package.folder.parent / str(package.report["model"]["source"])
    assert moved.evaluate(X, CLASSES, reference=file).reference is not None
    other = tmp_path / "other.onnx"
    other.write_bytes(b"\x08\x01")
    with pytest.raises(BadInput, match=r"other\.onnx is not the file that .* was compiled from"):
        moved.evaluate(X, CLASSES, reference=other)


@pytest.mark.parametrize(
    ("y", "more", "message"),
    [
        (CLASSES[:5], {}, r"y is int64\[5\]; x holds 40 samples; y needs a row for each"),
        (CLASSES + 1, {}, "y holds classes 1 to 3; the output has 3 classes, 0 to 2"),
        (
            WANTED,
            {"task": "classification"},
            r"y is float32\[40, 3\]; a classification needs 40 integers, a class per sample",
        ),
        (WANTED[:, :2], {}, r"y is float32\[40, 2\]; a regression needs 3 numbers for each of 40 samples"),
        (WANTED * np.nan, {}, "y holds NaN or infinity"),
        (CLASSES, {"class_names": ("a", "b")}, "class_names holds 2 names, and the output has 3 classes"),
        (WANTED, {"class_names": ("a", "b", "c")}, "class_names only belong to a classification"),
        (CLASSES, {"output": "z"}, "output = 'z': net has no output of this name; its outputs are y"),
    ],
    ids=lambda one: "" if isinstance(one, np.ndarray) else None,
)
def test_mistakes(package: Package, y: np.ndarray, more: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        package.evaluate(X, y, reference=False, **more)  # type: ignore[arg-type]


def test_mistakes_that_need_no_run() -> None:
    with pytest.raises(BadInput, match="a classification needs an output of several elements"):
        classification_scores(np.zeros(4, int), np.zeros((4, 1)))


def test_an_unknown_task(package: Package) -> None:
    with pytest.raises(BadOptions, match="task = 'ranking': give 'classification', 'regression', or None"):
        package.evaluate(X, CLASSES, task="ranking")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["x", "image"])
def test_the_command(package: Package, tmp_path: Path, name: str) -> None:
    np.savez(tmp_path / "data.npz", y=CLASSES, **{name: X})
    arguments = ["evaluate", str(package.folder), "--data", str(tmp_path / "data.npz")]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == json.loads(json.dumps(package.evaluate(X, CLASSES).to_json()))
    if name == "x":
        assert "accuracy" in CliRunner().invoke(app, arguments).stdout
    np.savez(tmp_path / "data.npz", **{name: X})
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1 and "array y of true classes or values is missing" in result.output


def test_a_file_of_objects_is_not_read(package: Package, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.array([print], dtype=object), y=CLASSES)
    result = CliRunner().invoke(app, ["evaluate", str(package.folder), "--data", str(tmp_path / "data.npz")])
    assert result.exit_code == 1 and "pickled objects are not read" in result.output


def test_many_classes_are_not_printed() -> None:
    scores = classification_scores(np.arange(30), np.eye(30))
    found = PackageEvaluation(
        model="m", platform="p", on="host", output="y", scores=scores, reference=None, no_reference="none"
    )
    assert "30 classes, more than 20" in str(found) and "confusion" not in found._repr_html_()
