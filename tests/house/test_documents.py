"""Pages of the site: those made from the code are current, tutorials become pages, links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tvm_ext
from documentation import errors_catalogue, platform_keys
from documentation.docstring_lists import with_lists
from documentation.links import links, with_links
from documentation.markdown import documented
from documentation.report_keys import described, undescribed
from documentation.tutorial_page import tutorial_page
from documentation.write import PAGES

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
REPORTS = sorted((ROOT / "tests" / "golden" / "expected").glob("*/report.json"))


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.slow
def test_pages_made_from_the_code_are_current(name: str) -> None:
    if name.endswith("supported_operators.md"):
        pytest.importorskip("torch", reason="the table of PyTorch's operators is made with it")
    assert (ROOT / name).read_text(encoding="utf-8") == PAGES[name](), "run python documentation/write.py"


def test_each_public_name_stands_on_the_page_of_python() -> None:
    text = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    shown = {line.rpartition(".")[2] for line in text.splitlines() if line.startswith("::: ")}
    assert shown == {*tvm_ext.__all__, *tvm_ext.custom.__all__} - {"custom", "errors"}


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.parent.name)
def test_each_key_of_a_report_is_described(path: Path) -> None:
    report = json.loads(path.read_text(encoding="utf-8"))
    assert undescribed(report) == set(), "say what they mean in documentation/report_keys.toml"
    assert undescribed({**report, "made_up": [{"inner": 1}]}) == {"made_up", "made_up[].inner"}


def test_keys_stand_below_keys() -> None:
    """A key that is described has its table described, too."""
    keys = described()
    above = {re.sub(r"(\[\]|\.[^.]*)$", "", key.replace("[].", ".")) for key in keys if "." in key}
    assert {key for key in above if key not in {known.replace("[]", "") for known in keys}} == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    """In the repository, where pages are read as they lie there; the site has its own check."""
    name = str(path.relative_to(ROOT))
    assert [target for target in links(path.read_text(encoding="utf-8"), name) if not (ROOT / target).is_file()] == []


def test_links_as_the_site_has_them() -> None:
    text = "[a](../tutorials/x.py#end) [b](https://example.org) [c](fit.md) [d](missing.md) `[e](#here)`"
    places = {"tutorials/x.py": "tutorials/x.md", "docs/fit.md": "fit.md"}
    there = with_links(text, "docs/page.md", "page.md", places.get)
    assert there == "[a](tutorials/x.md#end) [b](https://example.org) [c](fit.md) [d](missing.md) `[e](#here)`"


def test_a_tutorial_as_a_page() -> None:
    script = "# %% [markdown]\n# # Title\n#\n# Words, and\n#     code\n\n# %%\nprint(1)\n"
    page = tutorial_page(script, "tutorials/01_x.py")
    assert page.startswith("# Title\n\n") and "\nWords, and\n    code\n\n```python\nprint(1)\n```" in page
    with pytest.raises(ValueError, match="a tutorial begins with a cell"):
        tutorial_page("import os\n" + script, "tutorials/01_x.py")


def test_entries_of_docstrings_as_lists() -> None:
    text = "What it does.\n\nlevel, depth: how much\nof it. rest: none\nRaises BadModel."
    assert with_lists(text) == "What it does.\n\n- `level`, `depth`: how much\nof it. rest: none\n\nRaises BadModel."
    assert with_lists("name: text") == "- `name`: text"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 335
    for command in ("    make demo\n", "    make test\n"):
        assert command in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_site_is_built_strictly(tmp_path: Path) -> None:
    """One link that leads nowhere fails it, and nothing else is said of all these pages."""
    pytest.importorskip("mkdocs", reason="the extra docs brings it")
    subprocess.run([sys.executable, "documentation/stage.py", tmp_path, "--without-demos"], cwd=ROOT, check=True)
    with (tmp_path / "pages" / "start.md").open("a", encoding="utf-8") as start:
        start.write("\n[nowhere](nowhere.md)\n")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", tmp_path / "mkdocs.yml"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, env=environment, capture_output=True, text=True)
    (warning,) = (line for line in done.stderr.splitlines() if "WARNING" in line)
    assert done.returncode == 1 and "start.md" in warning and "nowhere.md" in warning
    page = (tmp_path / "site" / "reference" / "python.html").read_text(encoding="utf-8")
    assert "Compile a model into a package" in page
    assert "<svg" in (tmp_path / "site" / "how_it_works.html").read_text(encoding="utf-8")


def test_pages_that_would_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="has no docstring, and stands on a page"):
        documented(object.__new__(type("Bare", (), {"__doc__": None})))
    monkeypatch.setattr(tvm_ext.errors.BadPlatform, "way_out", "")
    with pytest.raises(ValueError, match=r"BadPlatform: say in .* what a user does about it"):
        errors_catalogue.errors_page()
    monkeypatch.setattr(platform_keys, "_PLACES", {})
    with pytest.raises(ValueError, match=r"PlatformTables, .*: say in .* where a file has them"):
        platform_keys.platform_keys_page()
