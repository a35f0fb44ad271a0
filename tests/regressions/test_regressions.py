"""Every script of this folder: the specimen it builds ends as the script says."""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.fuzzing.fuzzer import run_apart

SCRIPTS = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith(("_", "test_")))


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_stays_mended(name: str) -> None:
    script = import_module(f"tests.regressions.{name}")
    missing = [program for program in getattr(script, "NEEDS", ()) if shutil.which(program) is None]
    if missing:
        pytest.skip(f"no {missing[0]}")
    outcome = run_apart(script.specimen())
    assert outcome.kind == script.EXPECTED, f"{outcome.kind}: {outcome.error} {outcome.where}\n{outcome.detail}"
