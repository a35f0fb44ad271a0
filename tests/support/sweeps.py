"""Parameters of tests that `make test` runs, and more of them for `make sweep`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some_of(always: Iterable[Any], *, sweep: Iterable[Any]) -> list[Any]:
    """Parameters; those of `sweep` run only where the marker `sweep` is asked for: they take long and vary little."""
    return [*always, *map(_in_sweep, sweep)]


def some_rows(always: Iterable[Any], *, sweep: Iterable[Any]) -> list[Any]:
    """The same for parameters of several names: each is a tuple of their values."""
    return [*always, *(_in_sweep(row if isinstance(row, _PARAMETER) else pytest.param(*row)) for row in sweep)]


_PARAMETER = type(pytest.param())


def _in_sweep(value: Any) -> Any:
    """Return the parameter with the marker. value: a parameter that may have markers of its own."""
    given = value if isinstance(value, _PARAMETER) else pytest.param(value)
    return pytest.param(*given.values, marks=(*given.marks, pytest.mark.sweep), id=given.id)
