"""Tests that `make test-changed` chooses: those that a change concerns, and all of them where none is known."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "changed_tests.py"


@pytest.fixture(scope="module")
def changed_tests() -> ModuleType:
    spec = importlib.util.spec_from_file_location("changed_tests", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("codegen_c/arena/validate_order.py", "tests/arena/test_parallel_programs.py"),  # by the map of mutations
        ("relay_passes/simplify/fold_pads.py", "tests/passes/test_fold_pads.py"),  # by its import
        ("tests/support/recompute_problems.py", "tests/passes/test_recompute_annealing.py"),  # a helper's user
        ("tests/passes/test_fold_pads.py", "tests/passes/test_fold_pads.py"),
        ("codegen_c/runtime/tvm_ext_layer.h", "tests/kernels"),
        ("tvm_ext/boards/nucleo_h743zi.toml", "tests/boards/test_shipped_boards.py"),
        ("docs/start.md", "tests/house"),
        ("Makefile", "tests/house"),
    ],
)
def test_tests_of_a_file(changed_tests: ModuleType, path: str, expected: str) -> None:
    found = changed_tests.chosen_tests([path])
    assert expected in found and found != ["tests"]
    assert {"tests/house", "tests/golden"} <= {*found}


def test_a_file_without_known_tests_runs_all(changed_tests: ModuleType) -> None:
    assert changed_tests.chosen_tests(["docs/start.md", "tvm_ext/made_up.py"]) == ["tests"]


def test_a_folder_stands_for_its_files(changed_tests: ModuleType) -> None:
    found = changed_tests.chosen_tests(["codegen_c/runtime/tvm_ext_layer.h", "tests/kernels/test_registry.py"])
    assert "tests/kernels" in found and "tests/kernels/test_registry.py" not in found


def test_every_chosen_path_is_there(changed_tests: ModuleType) -> None:
    root = SCRIPT.parents[1]
    patterns = {test for tests in changed_tests.BY_PATTERN.values() for test in tests}
    assert all((root / test).exists() for test in {*patterns, *changed_tests.ALWAYS})
