"""The shipped platforms that have a board. Tests that run one carry the mark `board`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tvm_ext.core.files.kept_files import FOLDER
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


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of figures of the module's own, empty when it begins."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv(FOLDER, str(folder))
        yield folder
