"""Findings of cppcheck with MISRA's rules, clang-tidy and gcc -fanalyzer in packages of every kind.

Each is in docs/deviations.md with its reason, and that holds nothing that is not found any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.analyzers import ANALYZERS, MODEL, Finding, copied_sources, listed_deviations, programs
from tests.support.kinds import KINDS
from tvm_ext import Package

pytestmark = [pytest.mark.analyzers, pytest.mark.board, pytest.mark.riscv_board]

SOME = ("int8_dsp", "int8_helium", "int8_rvv", "stream", "states")
"""Kinds that are looked at always; all others are left to the sweep, for the tools take twenty seconds for each."""

WHOLE = ("float_m4", "tflite_host", "dma", "stream", "states", "hop")
"""Kinds of which the self-test, the data and the firmware are looked at too; they are much the same in all."""

Findings = dict[str, dict[str, set[Finding]]]
"""Kind -> tool -> findings."""


def findings_of(
    names: Sequence[str], kind: Callable[[str], Package], tmp_path_factory: pytest.TempPathFactory
) -> Findings:
    def analyzed(name: str) -> dict[str, set[Finding]]:
        package = kind(name)
        folder = copied_sources(package, tmp_path_factory.mktemp(name))
        apart = programs(folder, whole=name in WHOLE)
        return {
            tool: {finding for sources in apart for finding in analyze(folder, sources, package)}
            for tool, analyze in ANALYZERS.items()
        }

    with ThreadPoolExecutor(max_workers=2) as pool:
        return dict(zip(names, pool.map(analyzed, names), strict=True))


@pytest.fixture(scope="module")
def findings(kind: Callable[[str], Package], tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return findings_of(SOME, kind, tmp_path_factory)


@pytest.fixture(scope="module")
def all_findings(kind: Callable[[str], Package], tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return findings_of(tuple(KINDS), kind, tmp_path_factory)


@pytest.fixture(scope="module")
def listed(repository: Path) -> dict[Finding, str]:
    return listed_deviations(repository / "docs" / "deviations.md")


def assert_listed(tool: str, findings: Findings, listed: dict[Finding, str]) -> None:
    new = {
        f"{finding.rule} in {finding.file} ({name})"
        for name, by_tool in findings.items()
        for finding in by_tool[tool]
        if finding not in listed
    }
    assert not new, f"fix these, or list them in docs/deviations.md with a reason: {sorted(new)}"


@pytest.mark.parametrize("tool", ANALYZERS)
def test_every_finding_is_listed(tool: str, findings: Findings, listed: dict[Finding, str]) -> None:
    assert_listed(tool, findings, listed)


@pytest.mark.sweep
@pytest.mark.parametrize("tool", ANALYZERS)
def test_every_finding_of_any_kind_is_listed(tool: str, all_findings: Findings, listed: dict[Finding, str]) -> None:
    assert_listed(tool, all_findings, listed)


@pytest.mark.sweep
def test_every_listed_deviation_occurs(all_findings: Findings, listed: dict[Finding, str]) -> None:
    found = {finding for by_tool in all_findings.values() for some in by_tool.values() for finding in some}
    gone = sorted(f"{finding.tool} {finding.rule} in {finding.file}" for finding in set(listed) - found)
    assert not gone, f"remove these from docs/deviations.md, they are found no more: {gone}"
    assert all(len(reason) > 20 for reason in listed.values())


@pytest.mark.parametrize("tool", ANALYZERS)
def test_a_planted_fault_is_found(tool: str, kind: Callable[[str], Package], tmp_path: Path) -> None:
    """A null pointer that is read: none of the tools is blind."""
    package = kind("float_host")
    (tmp_path / f"{MODEL}.c").write_text(
        "#include <stdlib.h>\nint net_planted(void)\n{\n    int *place = NULL;\n    return *place;\n}\n"
    )
    rules = {finding.rule for finding in ANALYZERS[tool](tmp_path, [f"{MODEL}.c"], package)}
    expected = {"cppcheck": "nullPointer", "clang-tidy": "clang-analyzer-core.NullDereference"}
    assert expected.get(tool, "analyzer-null-dereference") in rules
