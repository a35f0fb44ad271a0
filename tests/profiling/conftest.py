"""The Cortex-M4 with its FPU."""

from __future__ import annotations

import pytest

from tvm_ext.core.platform import Platform


@pytest.fixture
def cortex_m4() -> Platform:
    return Platform.load("cortex_m4")
