"""Result of evaluating a package on a user's data: accuracy, errors and their scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tvm_ext.core.errors import BadInput
from tvm_ext.core.printable import printable_lines
from tvm_ext.core.rich_display import facts_html, rows_html

_MOST_CLASSES = 20
"""Largest number of classes for which the confusion matrix is printed; `confusion` always holds all classes."""


@dataclass(frozen=True, kw_only=True)
class ReferenceScores:
    """Scores of the model file on the same data. runtime: the reference runtime that ran the file.

    agreement: fraction of samples for which the package and the file predict the same class; None for a regression.
    """

    runtime: str
    scores: Scores
    agreement: float | None


@dataclass(frozen=True, kw_only=True)
class PackageEvaluation:
    """Scores of a package on data.

    on: where the C ran. output: name of the evaluated output in the model. reference: scores of the model file; None
    if it was not run, for the reason in `no_reference`.
    """

    model: str
    platform: str
    on: str
    output: str
    scores: Scores
    reference: ReferenceScores | None
    no_reference: str

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation in the form that `tvm-ext evaluate --json` prints."""
        known = self.reference
        return {
            "model": self.model, "platform": self.platform, "on": self.on, "output": self.output,
            "num_samples": self.scores.num_samples, "scores": self.scores.to_json(),
            "reference": known
            and {"runtime": known.runtime, "agreement": known.agreement, "scores": known.scores.to_json()},
            "no_reference": self.no_reference or None,
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [self._title(), *(f"  {name:<11} {value}" for name, value in self._facts())]
        if isinstance(self.scores, ClassificationScores):
            widths = max(5, *map(len, self.scores.class_names))
            lines += ["", f"  {'class':<{widths}}  precision  recall  samples"]
            lines += [
                f"  {name:<{widths}}  {_figure(precision):>9}  {_figure(recall):>6}  {support:>7,}"
                for name, precision, recall, support in self._classes()
            ]
            lines += ["", *self._confusion_lines(self.scores)]
        return printable_lines("\n".join(lines))

    def _repr_html_(self) -> str:
        shown = facts_html(self._title(), self._facts())
        if isinstance(self.scores, ClassificationScores):
            scores = self.scores
            shown += rows_html("classes", ("class", "precision", "recall", "samples"), self._classes(), most=200)
            if len(scores.class_names) <= _MOST_CLASSES:
                rows = [(name, *row) for name, row in zip(scores.class_names, scores.confusion, strict=True)]
                shown += rows_html("confusion: true in rows, predicted in columns", ("", *scores.class_names), rows)
        return shown

    def _title(self) -> str:
        return f"{self.model} on {self.platform} ({self.on}), {self.scores.num_samples:,} samples, output {self.output}"

    def _facts(self) -> list[tuple[str, str]]:
        known = self.reference
        facts = [(name, value) for name, value in _headline(self.scores)]
        if known is None:
            return [*facts, ("model file", self.no_reference)]
        facts += [(f"file's {name}", f"{value} ({known.runtime})") for name, value in _headline(known.scores)]
        return facts if known.agreement is None else [*facts, ("same class", f"{known.agreement:.2%}")]

    def _classes(self) -> list[tuple[str, float | None, float | None, int]]:
        scores = self.scores
        assert isinstance(scores, ClassificationScores), "only classifications have classes"
        return [*zip(scores.class_names, scores.precision, scores.recall, scores.support, strict=True)]

    @staticmethod
    def _confusion_lines(scores: ClassificationScores) -> list[str]:
        if len(scores.class_names) > _MOST_CLASSES:
            return [f"  confusion: {len(scores.class_names)} classes, more than {_MOST_CLASSES}; see `confusion`"]
        width = max(len(f"{count:,}") for row in scores.confusion for count in row)
        width = max(width, *map(len, scores.class_names))
        head = "".join(f"  {name:>{width}}" for name in scores.class_names)
        rows = [
            f"  {name:<{width}}" + "".join(f"  {count:>{width},}" for count in row)
            for name, row in zip(scores.class_names, scores.confusion, strict=True)
        ]
        return ["  confusion: true in rows, predicted in columns", f"  {'':<{width}}{head}", *rows]


def _headline(scores: Scores) -> list[tuple[str, str]]:
    if isinstance(scores, ClassificationScores):
        return [("accuracy", f"{scores.accuracy:.2%}")]
    return [("MAE", f"{scores.mae:.6g}"), ("RMSE", f"{scores.rmse:.6g}"), ("R2", _figure(scores.r2, 6))]


def _figure(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


Task = Literal["classification", "regression"]


@dataclass(frozen=True, kw_only=True)
class ClassificationScores:
    """Counts of a classification: `confusion[true][predicted]`, by the indices of the classes in `class_names`."""

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
        """Number of samples of each class."""
        return tuple(sum(row) for row in self.confusion)

    @property
    def recall(self) -> tuple[float | None, ...]:
        """For each class, the fraction of its samples predicted correctly; None for a class without samples."""
        return tuple(_ratio(row[index], sum(row)) for index, row in enumerate(self.confusion))

    @property
    def precision(self) -> tuple[float | None, ...]:
        """For each class, the fraction of its predictions that are correct; None for a class never predicted."""
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
    """Errors of a regression, over all elements of all samples.

    mae: mean absolute error. rmse: root of the mean squared error. r2: coefficient of determination, 1 minus the ratio
    of the squared error to the squared deviation from each element's mean over the samples; None if the deviation is 0.
    """

    num_samples: int
    mae: float
    rmse: float
    r2: float | None

    def to_json(self) -> dict[str, Any]:
        return {"task": "regression", "mae": self.mae, "rmse": self.rmse, "r2": self.r2}


Scores = ClassificationScores | RegressionScores


def task_of(targets: np.ndarray, predicted: np.ndarray) -> Task:
    """Return classification for one integer per sample and an output of several elements, otherwise regression.

    targets: true values of N samples. predicted: T[N, elements].
    """
    is_label = targets.dtype.kind in "iub" and targets.size == len(predicted)
    return "classification" if is_label and predicted.shape[1] > 1 else "regression"


def classification_scores(
    targets: np.ndarray, predicted: np.ndarray, class_names: tuple[str, ...] | None = None
) -> ClassificationScores:
    """Return the scores of predictions T[N, classes]: the predicted class is the first largest element of a row.

    targets: N integers, the indices of the true classes. Raises BadInput.
    """
    count, classes = predicted.shape
    if targets.dtype.kind not in "iub" or targets.size != count:
        raise BadInput(
            f"y is {targets.dtype}{list(targets.shape)}; a classification needs {count} integers, a class per sample."
        )
    if classes < 2:
        raise BadInput("a classification needs an output of several elements; this one has 1. Give task='regression'.")
    labels = targets.reshape(-1).astype(np.int64)
    if labels.min() < 0 or labels.max() >= classes:
        raise BadInput(
            f"y holds classes {labels.min()} to {labels.max()}; the output has {classes} classes, 0 to {classes - 1}."
        )
    names = class_names or tuple(map(str, range(classes)))
    if len(names) != classes:
        raise BadInput(f"class_names holds {len(names)} names, and the output has {classes} classes; name each class.")
    counts = np.bincount(labels * classes + predicted.argmax(axis=1), minlength=classes * classes)
    rows = counts.reshape(classes, classes).tolist()
    return ClassificationScores(confusion=tuple(tuple(row) for row in rows), class_names=names)


def regression_scores(targets: np.ndarray, predicted: np.ndarray) -> RegressionScores:
    """Return the errors of predictions T[N, elements]. targets: as many true values, N first. Raises BadInput."""
    if targets.dtype.kind not in "fiub" or targets.size != predicted.size:
        raise BadInput(
            f"y is {targets.dtype}{list(targets.shape)}; a regression needs {predicted.shape[1]} numbers for each of "
            f"{len(predicted)} samples, a classification one integer for each sample."
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
    """Return the scores of a task. Raises BadInput."""
    if task == "classification":
        return classification_scores(targets, predicted, class_names)
    if class_names is not None:
        raise BadInput("class_names only belong to a classification; leave them out, or give integer classes as y.")
    return regression_scores(targets, predicted)


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
