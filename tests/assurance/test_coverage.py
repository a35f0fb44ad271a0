"""The self-test covers every statement of the C of every kind of package, and the report says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kinds import KINDS, MODEL, OFTEN, needs_board, needs_riscv
from tvm_ext import Package
from tvm_ext.assurance.coverage import MOST_MACS, covered_lines, selftest_coverage

NAMES = [
    pytest.param(
        name,
        marks=[
            *([pytest.mark.board] if needs_board(name) else []),
            *([pytest.mark.riscv_board] if needs_riscv(name) else []),
            *([] if name in OFTEN else [pytest.mark.sweep]),
        ],
    )
    for name in KINDS
]


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_is_covered(name: str, kind: Callable[[str], Package]) -> None:
    coverage = kind(name).report["selftest_coverage"]
    assert coverage["reason"] is None and coverage["missed"] == {}
    assert coverage["statements"] == coverage["covered"] > 20


def test_a_statement_that_never_runs_is_named(kind: Callable[[str], Package], tmp_path: Path) -> None:
    package = kind("float_host")
    for path in package.folder.glob("*.[ch]"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    source = tmp_path / f"{MODEL}.c"
    lines = source.read_text().splitlines()
    at = lines.index(f"    return {MODEL}_ok;")
    source.write_text("\n".join([*lines[:at], "    if (ram == NULL) {", "        return 7;", "    }", *lines[at:], ""]))
    before = package.report["selftest_coverage"]["statements"]
    coverage = selftest_coverage(tmp_path, MODEL, macs=1)
    assert dict(coverage.missed) == {f"{MODEL}.c": (at + 2,)}
    assert (coverage.statements, coverage.covered) == (before + 2, before + 1)


def test_a_self_test_that_fails_gives_no_figure(kind: Callable[[str], Package], tmp_path: Path) -> None:
    package = kind("float_host")
    for path in package.folder.glob("*.[ch]"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    source = tmp_path / f"{MODEL}.c"
    source.write_text(source.read_text().replace(f"    return {MODEL}_ok;", f"    return ({MODEL}_status)3;"))
    coverage = selftest_coverage(tmp_path, MODEL, macs=1)
    assert coverage.statements is None and "on the host failed (exit 1)" in str(coverage.reason)


def test_large_models_and_other_compilers_are_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "multiply-accumulates" in str(selftest_coverage(tmp_path, MODEL, macs=MOST_MACS + 1).reason)
    monkeypatch.setenv("CC", "true")
    assert "gcov" in str(selftest_coverage(tmp_path, MODEL, macs=1).reason)


def test_lines_of_several_instances_and_of_shared_files() -> None:
    def file(name: str, *counts: int) -> dict:
        return {"file": name, "lines": [{"line_number": n, "count": c} for n, c in enumerate(counts, 1)]}

    records = [
        {"files": [file("net.c", 1, 0, 0), file("tvm_ext_x.h", 0, 5), file("/usr/include/math.h", 0)]},
        {"files": [file("./net.c", 0, 2, 0)]},
    ]
    coverage = covered_lines(records)
    assert (coverage.statements, coverage.covered) == (3, 2)
    assert (coverage.missed, coverage.missed_shared) == ({"net.c": (3,)}, {"tvm_ext_x.h": (1,)})
