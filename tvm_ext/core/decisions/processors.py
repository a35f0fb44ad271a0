"""Decisions about processors: which one runs a composite, and what came of choosing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm_ext.core.decisions.decision import Decision, attribute, json_attribute


@dataclass(frozen=True, kw_only=True)
class OperatorProcessor(Decision):
    """The platform's processor that runs a composite, by its name; empty for the platform's first one."""

    processor: str = attribute("processor", "")


def _as_is(value: Any) -> Any:
    return value


@dataclass(frozen=True, kw_only=True)
class ProcessorPlacement(Decision):
    """Outcome of placing the operators of `main` on processors, as report.json has it; None where that was not done."""

    report: Mapping[str, Any] | None = json_attribute("processor_placement", None, read=_as_is)
