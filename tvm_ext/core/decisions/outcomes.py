"""Outcomes of searches over the whole model, as attributes of `main`."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_ext.core.decisions.decision import Decision, attribute


@dataclass(frozen=True, kw_only=True)
class SchedulePeak(Decision):
    """Live bytes at the peak of the order. proved: no order has fewer; None where that is not known."""

    peak_bytes: int | None = attribute("schedule_peak_bytes", None, read=int)
    proved: bool | None = attribute("schedule_proved", None, read=bool)


@dataclass(frozen=True, kw_only=True)
class SplitCost(Decision):
    """Live bytes at the peak of a model split by rows, and modelled instructions that calls and asking for rows add."""

    peak_bytes: int | None = attribute("split_peak_bytes", None, read=int)
    instructions: int | None = attribute("split_instructions", None, read=int)


@dataclass(frozen=True, kw_only=True)
class Recomputed(Decision):
    """Operators that run again, and the modelled instructions of that; None where none were looked for.

    at_least: instructions that no repeats go below within the budget in that order; None where no bound is known.
    """

    operators: int | None = attribute("rematerialized_operators", None, read=int)
    instructions: int | None = attribute("rematerialized_instructions", None, read=int)
    at_least: int | None = attribute("rematerialized_at_least", None, read=int)


@dataclass(frozen=True, kw_only=True)
class OperatorsInStrips(Decision):
    """Operators that run for some columns at a time."""

    count: int = attribute("patched_operators", 0, read=int)


@dataclass(frozen=True, kw_only=True)
class PredictedTime(Decision):
    """Predicted cycles of one run, and those with everything in the default memory.

    to_fit: no gain was looked for, the default memory alone seemed too small.
    """

    cycles: int | None = attribute("predicted_cycles", None, read=int)
    cycles_at_home: int | None = attribute("predicted_cycles_at_home", None, read=int)
    to_fit: bool = attribute("moved_to_fit", False, read=bool)


@dataclass(frozen=True, kw_only=True)
class AttentionInParts(Decision):
    """Parts of attention that run one after the other, of as many heads each; 1 where all heads run together."""

    parts: int = attribute("attention_parts", 1, read=int)
