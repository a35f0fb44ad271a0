"""Packages named `kws`, which the smoke tests of docs/packages.md are about: for this machine and for a board."""

from __future__ import annotations

from pathlib import Path

import pytest

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext import BuildOptions


@pytest.fixture(scope="session")
def kws(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a package for the host."""
    return _built("host", tmp_path_factory.mktemp("forms"))


@pytest.fixture(scope="session")
def board_kws(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a package for a board."""
    return _built("nucleo-f446re", tmp_path_factory.mktemp("board_forms"))


def _built(platform: str, folder: Path) -> Path:
    model = saved(SMALL_MODELS["branches"](), folder, "kws")
    return tvm_ext.build(tvm_ext.load(model), platform, folder / "kws_package", BuildOptions(verify=())).folder
