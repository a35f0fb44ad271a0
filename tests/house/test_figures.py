"""Figures of the documents are those of `benchmarks/results`, and each of these says the commit that made it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks import tables
from benchmarks.measure.blocks import BLOCKS
from benchmarks.measure.commit import commits_in, stamped, unstamped, write_result

ROOT = Path(__file__).parents[2]
RESULTS = [
    *sorted((ROOT / "benchmarks" / "results").glob("*.json")),
    ROOT / "benchmarks" / "conformance" / "totals.json",
]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LIMITS = {"10,000"}
"""Numbers that are no figures: the README names them as limits of what is accepted."""


def git(*arguments: str) -> str | None:
    """Output of git in this tree; None where it refuses, or there is none."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return None if done.returncode else done.stdout.strip()


def test_the_readme_holds_what_the_results_say() -> None:
    assert tables.updated(README) == README, "run python benchmarks/tables.py"
    assert set(re.findall(r"<!-- begin: (\w+) -->", README)) == set(BLOCKS)


def test_a_figure_edited_by_hand_is_noticed() -> None:
    (first,) = re.findall(r"\| ResNet-8 \| (\d+,\d+) \| \d+,\d+ \| \d+,\d+ \|", README)
    assert tables.updated(README.replace(first, "1,000")) == README


def test_no_figure_stands_outside_of_the_blocks() -> None:
    assert set(re.findall(r"(?<![\w.])\d{1,3}(?:,\d{3})+", tables.without_blocks(README))) <= LIMITS
    assert "ResNet-8 |" in README and "ResNet-8 |" not in tables.without_blocks(README)


@pytest.mark.parametrize("damaged", ["<!-- begin: arenas -->\n", "<!-- begin: nothing -->\n<!-- end: nothing -->\n"])
def test_blocks_that_do_not_end_or_are_unknown(damaged: str) -> None:
    with pytest.raises(ValueError, match=r"blocks begin .* there are arenas, budgets"):
        tables.updated(damaged)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_each_figure_says_the_commit_that_made_it(path: Path) -> None:
    result = json.loads(path.read_text(encoding="utf-8"))
    assert unstamped(result) == []
    assert all(re.fullmatch("[0-9a-f]{12}", commit) for commit in commits_in(result))


def test_those_commits_are_in_the_history() -> None:
    if git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("no git, or a clone without its history")
    named = {commit for path in RESULTS for commit in commits_in(json.loads(path.read_text(encoding="utf-8")))}
    assert [commit for commit in sorted(named) if git("merge-base", "--is-ancestor", commit, "HEAD") is None] == []


def test_a_result_without_a_commit_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    with pytest.raises(ValueError, match=r"new\.json: no commit says what made networks/b/bytes, graphs"):
        write_result(path, {"networks": {"a": stamped({"bytes": 1}), "b": {"bytes": 2}}, "graphs": 3})
    write_result(path, {"networks": {"a": stamped({"bytes": 1})}})
    assert json.loads(path.read_text())["networks"]["a"]["bytes"] == 1
