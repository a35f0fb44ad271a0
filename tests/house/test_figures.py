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
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in tables.DOCUMENTS}
OWN_WORDS = {
    "docs/limits.md": {"10,000"},
    "docs/operators.md": {"16,384"},
    "docs/sweep.md": {"100,000"},
}
"""Numbers that are no figures: pages name them as limits of what is accepted."""
MEASURED = [name for name, text in TEXTS.items() if name == "README.md" or "<!-- begin: " in text]


def git(*arguments: str) -> str | None:
    """Output of git in this tree; None where it refuses, or there is none."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return None if done.returncode else done.stdout.strip()


@pytest.mark.parametrize("name", MEASURED)
def test_documents_hold_what_the_results_say(name: str) -> None:
    assert tables.updated(TEXTS[name]) == TEXTS[name], "run python benchmarks/tables.py"


def test_each_block_stands_somewhere() -> None:
    """In the pages of docs/: the README repeats two of them."""
    standing = {found for text in TEXTS.values() for found in re.findall(r"<!-- begin: (\w+) -->", text)}
    assert standing == set(BLOCKS)
    assert re.findall(r"<!-- begin: (\w+) -->", TEXTS["README.md"]) == ["tflm_tiny", "side_by_side"]


def test_a_figure_edited_by_hand_is_noticed() -> None:
    page = TEXTS["docs/fitting.md"]
    (first,) = re.findall(r"\| ResNet-8 \| (\d+,\d+) \| \d+,\d+ \| \d+,\d+ \|", page)
    assert tables.updated(page.replace(first, "1,000")) == page


@pytest.mark.parametrize("name", MEASURED)
def test_no_figure_stands_outside_of_the_blocks(name: str) -> None:
    own_words = tables.without_blocks(TEXTS[name])
    assert set(re.findall(r"(?<![\w.])\d{1,3}(?:,\d{3})+", own_words)) <= OWN_WORDS.get(name, set())


def test_blocks_are_told_from_words() -> None:
    page = TEXTS["docs/fitting.md"]
    assert "ResNet-8 |" in page and "ResNet-8 |" not in tables.without_blocks(page)


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
