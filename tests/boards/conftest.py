"""The shipped platforms that have a board. Tests that run one carry the mark `board`."""

from __future__ import annotations

import pytest

from tvm_ext.core.platform import Platform


@pytest.fixture(params=["cortex_m4", "cortex_m55"])
def board(request: pytest.FixtureRequest) -> Platform:
    """Each shipped platform with a board."""
    return Platform.load(request.param)


@pytest.fixture
def cortex_m4() -> Platform:
    return Platform.load("cortex_m4")


@pytest.fixture
def host() -> Platform:
    return Platform.load("host")
