"""Scores of predictions against what is true: of classes, and of real numbers. Plain data and numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tvm_ext.core.errors import BadInput

Task = Literal["classification", "regression"]


@dataclass(frozen=True, kw_only=True)
class ClassificationScores:
    """Counts of a classification: confusion[true][predicted], each class by its index, named by `class_names`."""

    confusion: tuple[tuple[int, ...], ...]
    class_names: tuple[str, ...]

    @property
    def num_samples(self) -> int:
        return sum(self.support)

    @property
    def accuracy(self) -> float:
        """Fraction of samples whose class was predicted."""
        return sum(self.confusion[index][index] for index in range(len(self.confusion))) / self.num_samples

    @property
    def support(self) -> tuple[int, ...]:
        """Samples of each class."""
        return tuple(sum(row) for row in self.confusion)

    @property
    def recall(self) -> tuple[float | None, ...]:
        """For each class, the fraction of its samples that were predicted as it; None for a class without samples."""
        return tuple(_ratio(row[index], sum(row)) for index, row in enumerate(self.confusion))

    @property
    def precision(self) -> tuple[float | None, ...]:
        """For each class, the fraction of predictions of it that are true; None for a class never predicted."""
        columns = [*zip(*self.confusion, strict=True)]
        return tuple(_ratio(column[index], sum(column)) for index, column in enumerate(columns))

    def to_json(self) -> dict[str, Any]:
        return {
            "task": "classification", "accuracy": self.accuracy, "class_names": list(self.class_names),
            "precision": list(self.precision), "recall": list(self.recall), "support": list(self.support),
            "confusion": [list(row) for row in self.confusion],
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RegressionScores:
    """Errors of real numbers, over all elements of all samples.

    mae: mean absolute error. rmse: root of the mean squared error. r2: coefficient of determination, 1 minus the
    squared error by the squared deviation from the mean over samples, of each element; None where that deviation is 0.
    """

    num_samples: int
    mae: float
    rmse: float
    r2: float | None

    def to_json(self) -> dict[str, Any]:
        return {"task": "regression", "mae": self.mae, "rmse": self.rmse, "r2": self.r2}


Scores = ClassificationScores | RegressionScores


def task_of(targets: np.ndarray, predicted: np.ndarray) -> Task:
    """Classification where there is one integer per sample and several elements of an output, else regression.

    targets: of N samples; predicted: T[N, elements].
    """
    is_label = targets.dtype.kind in "iub" and targets.size == len(predicted)
    return "classification" if is_label and predicted.shape[1] > 1 else "regression"


def classification_scores(
    targets: np.ndarray, predicted: np.ndarray, class_names: tuple[str, ...] | None = None
) -> ClassificationScores:
    """Scores of the largest element of each row of T[N, classes]; the first of several equal ones.

    targets: N integers, indices of classes. Raises BadInput.
    """
    count, classes = predicted.shape
    if targets.dtype.kind not in "iub" or targets.size != count:
        raise BadInput(
            f"y is {targets.dtype}{list(targets.shape)}; {count} integers, one class for each sample, are needed."
        )
    if classes < 2:
        raise BadInput("y holds classes, and the output has one element: it tells none apart. Give task='regression'.")
    labels = targets.reshape(-1).astype(np.int64)
    if labels.min() < 0 or labels.max() >= classes:
        raise BadInput(
            f"y holds classes {labels.min()} to {labels.max()}; the output has {classes}, 0 to {classes - 1}."
        )
    names = class_names or tuple(map(str, range(classes)))
    if len(names) != classes:
        raise BadInput(f"class_names: {len(names)} names are given; the output has {classes} classes.")
    counts = np.bincount(labels * classes + predicted.argmax(axis=1), minlength=classes * classes)
    rows = counts.reshape(classes, classes).tolist()
    return ClassificationScores(confusion=tuple(tuple(row) for row in rows), class_names=names)


def regression_scores(targets: np.ndarray, predicted: np.ndarray) -> RegressionScores:
    """Errors of the rows of T[N, elements]. targets: as many numbers, N first. Raises BadInput."""
    if targets.dtype.kind not in "fiub" or targets.size != predicted.size:
        raise BadInput(
            f"y is {targets.dtype}{list(targets.shape)}; {predicted.shape[1]} numbers for each of {len(predicted)} "
            "samples are needed, or one integer each, its class."
        )
    wanted = targets.reshape(predicted.shape).astype(np.float64)
    if not np.isfinite(wanted).all():
        raise BadInput("y holds NaN or infinity; leave these samples out.")
    errors = predicted.astype(np.float64) - wanted
    deviation = float(((wanted - wanted.mean(axis=0)) ** 2).sum())
    return RegressionScores(
        num_samples=len(predicted), mae=float(np.abs(errors).mean()), rmse=float(np.sqrt((errors**2).mean())),
        r2=1 - float((errors**2).sum()) / deviation if deviation else None,
    )  # fmt: skip


def scores_of(
    task: Task, targets: np.ndarray, predicted: np.ndarray, class_names: tuple[str, ...] | None = None
) -> Scores:
    """Scores of a task. Raises BadInput."""
    if task == "classification":
        return classification_scores(targets, predicted, class_names)
    if class_names is not None:
        raise BadInput("class_names are given, and y holds no classes; leave them out, or give integers.")
    return regression_scores(targets, predicted)


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
