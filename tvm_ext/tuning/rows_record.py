"""Rows per call that were measured, as the report has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_ext.tuning.remembered import RunFigures


@dataclass(frozen=True, kw_only=True)
class RowsTried:
    """Another number of rows per call of one sequence. run: of the whole model; None where that was not measured."""

    rows: int
    arena_bytes: int | None = None
    run: RunFigures | None = None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "rows_per_call": self.rows, **figures_json(self.run), "arena_bytes": self.arena_bytes,
            "not_measured": self.reason or None,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TunedRows:
    """A sequence of layers, rows per call as modelled and as taken, and others that were tried."""

    sequence: str
    layers: tuple[str, ...]
    modelled: int
    chosen: int
    tried: tuple[RowsTried, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "sequence": self.sequence, "layers": list(self.layers), "modelled": self.modelled, "chosen": self.chosen,
            "candidates": [one.to_json() for one in self.tried],
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RowsTuning:
    """Sequences whose rows were measured. before, after: a whole run by the modelled rows, and by the chosen ones.

    arena_bytes: by the modelled ones. passed: why none were measured; empty where there is no sequence, either.
    """

    sequences: tuple[TunedRows, ...] = ()
    arena_bytes: int | None = None
    before: RunFigures | None = None
    after: RunFigures | None = None
    passed: str = ""

    def to_json(self) -> dict[str, Any] | None:
        """`tuning.rows` of the report; None of a model without sequences."""
        if not self.sequences and not self.passed:
            return None
        return {
            "not_measured": self.passed or None,
            "arena_bytes": self.arena_bytes,
            "before": figures_json(self.before),
            "after": figures_json(self.after),
            "sequences": [one.to_json() for one in self.sequences],
        }


def figures_json(run: RunFigures | None) -> dict[str, Any]:
    """Instructions and estimated cycles of a run, None where it was not measured."""
    cycles = run.cycles if run else None
    return {
        "instructions": run.instructions if run else None,
        "estimated_cycles": round(cycles) if cycles is not None else None,
    }
