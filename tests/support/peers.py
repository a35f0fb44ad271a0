"""Runtimes and libraries beside this project that tests compare with: absent ones skip, or fail where they must be."""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

import pytest

_EXTRAS = {
    "ai_edge_litert": "reference",
    "tflite_micro": "reference",
    "torch": "torch",
    "sklearn": "train",
    "ethosu": "vela",
}


def peer(name: str) -> ModuleType:
    """A module that may not be installed. Skips the test then, or fails where TVM_EXT_REQUIRE_REFERENCES=1 wants it."""
    reason = f"{name} is not installed (extra: {_EXTRAS[name.split('.')[0]]})"
    if os.environ.get("TVM_EXT_REQUIRE_REFERENCES") == "1":
        return import_module(name)
    return pytest.importorskip(name, reason=reason)


def tool(name: str) -> ModuleType:
    """A module of a quantizer, which CI does not install. Skips the test where it is absent."""
    extra = "keras" if name == "tensorflow" else "quantizers"
    return pytest.importorskip(name, reason=f"{name} is not installed (extra: {extra})", exc_type=ImportError)
