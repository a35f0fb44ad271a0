"""Outcome of evaluating a package on data of the user's: scores, also of the model as its file has it. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_ext.core.printable import printable_lines
from tvm_ext.core.rich_display import facts_html, rows_html
from tvm_ext.evaluation.scores import ClassificationScores, Scores

_MOST_CLASSES = 20
"""Classes whose confusion is shown; all of them are in `confusion`."""


@dataclass(frozen=True, kw_only=True)
class ReferenceScores:
    """Scores of the model's file on the same data. runtime: that ran it.

    agreement: fraction of samples to which the package and the file give the same class; None of a regression.
    """

    runtime: str
    scores: Scores
    agreement: float | None


@dataclass(frozen=True, kw_only=True)
class PackageEvaluation:
    """Scores of a package on data.

    on: where its C ran. output: the model's name of the output that was judged. reference: None where the model's file
    was not run, for the reason `no_reference`.
    """

    model: str
    platform: str
    on: str
    output: str
    scores: Scores
    reference: ReferenceScores | None
    no_reference: str

    def to_json(self) -> dict[str, Any]:
        """The evaluation as `tvm-ext evaluate --json` prints it."""
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
            return [*facts, ("the file", self.no_reference)]
        facts += [(f"the file's {name}", f"{value} ({known.runtime})") for name, value in _headline(known.scores)]
        return facts if known.agreement is None else [*facts, ("same class", f"{known.agreement:.2%}")]

    def _classes(self) -> list[tuple[str, float | None, float | None, int]]:
        scores = self.scores
        assert isinstance(scores, ClassificationScores), "there are classes"
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
