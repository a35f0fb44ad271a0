"""Packages of every kind, built once for all processes of a test run."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.support.kinds import built_kind
from tvm_ext import Package, Platform


@pytest.fixture(scope="session")
def kind(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Package]:
    """The package of a kind by its name."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    return lambda name: built_kind(name, shared / "kinds")


@pytest.fixture
def cortex_m4() -> Platform:
    return Platform.load("cortex_m4")
