"""Objectives of sharing a model among processors, and criteria that keep operators together."""

from __future__ import annotations

from typing import Literal, get_args

Objective = Literal["makespan", "energy", "throughput"]
"""Time from the first start to the last end, energy of a run, or time between successive inputs of a pipeline."""

Grouping = Literal["none", "support", "branches", "volume"]
"""Operators that stay together: none; all that the same processors can run; whole branches; what fits fast memory."""

OBJECTIVES: tuple[str, ...] = get_args(Objective)
GROUPINGS: tuple[str, ...] = get_args(Grouping)
