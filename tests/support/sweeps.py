"""Parameters of tests that `make test` runs, and more of them for `make sweep`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some_of(always: Iterable[Any], *, sweep: Iterable[Any]) -> list[Any]:
    """Parameters; those of `sweep` run only where the marker `sweep` is asked for: they take long and vary little."""
    return [*always, *(pytest.param(value, marks=pytest.mark.sweep) for value in sweep)]
