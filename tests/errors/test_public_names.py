"""`import tvm_ext` gives the documented names, lazily, whatever else was imported before."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tvm_ext


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("name", tvm_ext.__all__)
def test_public_name(name: str) -> None:
    result = python(f"import tvm_ext; value = tvm_ext.{name}; print(type(value).__name__)")
    assert result.returncode == 0, result.stderr
    assert (result.stdout.strip() == "module") == (name == "errors")


def test_submodules_do_not_hide_functions() -> None:
    result = python("import tvm_ext.load, tvm_ext.tvm_compile; import tvm_ext; assert callable(tvm_ext.load)")
    assert result.returncode == 0, result.stderr


def test_describing_a_platform_does_not_import_tvm() -> None:
    result = python("import sys, tvm_ext; tvm_ext.Platform.load('host'); sys.exit('tvm' in sys.modules)")
    assert result.returncode == 0, result.stderr


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'compile'"):
        _ = tvm_ext.compile
