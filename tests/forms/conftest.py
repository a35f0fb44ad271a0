"""A package named `kws`, which the smoke tests of docs/packages.md are about."""

from __future__ import annotations

from pathlib import Path

import pytest

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext import BuildOptions


@pytest.fixture(scope="session")
def kws(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a package for the host."""
    folder = tmp_path_factory.mktemp("forms")
    model = saved(SMALL_MODELS["branches"](), folder, "kws")
    return tvm_ext.build(tvm_ext.load(model), "host", folder / "kws_package", BuildOptions(verify=())).folder
