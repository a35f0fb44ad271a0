"""Facts about a call of an operator that the user brought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm_ext.core.decisions.decision import Decision, attribute, json_attribute


def _strings(values: Any) -> tuple[str, ...]:
    return tuple(str(value) for value in values)


def _as_is(value: Any) -> Any:
    return value


@dataclass(frozen=True, kw_only=True)
class CustomUse(Decision):
    """A call of a custom operator: its name, the call as the file has it, and the C for it.

    call, code: as `codegen_c/custom/contract.py` writes them. states: names of what it keeps. num_tables: of the call's
    arguments, the last ones are tables that the C reads, and those before them the states.
    """

    operator: str = attribute("custom_operator", "")
    call: str = attribute("custom_call", "")
    code: Mapping[str, Any] | None = json_attribute("custom_code", None, read=_as_is)
    states: tuple[str, ...] = attribute("custom_states", (), read=_strings, write=list)
    num_tables: int = attribute("custom_tables", 0, read=int)
