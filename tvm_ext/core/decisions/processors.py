"""Decisions about processors: which one runs a composite."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_ext.core.decisions.decision import Decision, attribute


@dataclass(frozen=True, kw_only=True)
class OperatorProcessor(Decision):
    """The platform's processor that runs a composite, by its name; empty for the platform's first one."""

    processor: str = attribute("processor", "")
