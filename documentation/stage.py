"""Copy the pages of the site to a folder, for any site generator that reads mkdocs.yml.

    python documentation/stage.py [FOLDER] [--without-demos]

The subfolder `pages` of FOLDER (default: build/) receives the pages of docs/, the tutorials and the documents of the
project, with links changed to places in the site. FOLDER/mkdocs.yml is mkdocs.yml with folders replaced by their pages.
A page directly in docs/ that mkdocs.yml does not name is listed at the entry `topics`. The front page gets networks
that run in the browser (documentation/demos.py), if clang for WebAssembly is there. This step needs no hook or plugin
of the site generator, so the generator can be replaced.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from documentation.demos import with_demos, write_demos  # noqa: E402
from documentation.links import links, with_links  # noqa: E402
from documentation.tutorial_page import tutorial_page  # noqa: E402

PROJECT_PAGES = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/results/side_by_side.md",
    "benchmarks/conformance/RESULTS.md",
    "benchmarks/conformance/LIGHT.md",
)
_TUTORIAL = re.compile(r"tutorials/\d\d_\w+\.py")
_PICTURE = re.compile(r"^!\[(?P<text>[^\]]*)\]\((?:\.\./)*(?P<path>pictures/\w+\.svg)\)$", re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build")
    parser.add_argument("--without-demos", action="store_true", help="compile no network for the front page")
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    pages = folder / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    documents = _documents()
    written = [] if options.without_demos else write_demos(pages / "demos")
    documents["docs/index.md"] = with_demos(documents["docs/index.md"], written)
    for path, text in documents.items():
        place = _place(path)
        _write(pages / place, _with_pictures(with_links(text, path, place, _place_of)))
    linked = {name for path, text in documents.items() for name in links(text, path)}
    beside = [name for name in sorted(linked | set(_tutorials())) if name not in documents or name.endswith(".py")]
    for name in beside:
        if (ROOT / name).is_file():
            _write(pages / "source" / name, (ROOT / name).read_bytes())
    for path in (ROOT / "docs" / "style.css", *(ROOT / "docs").glob("pictures/*.png")):
        _write(pages / path.relative_to(ROOT / "docs"), path.read_bytes())
    configuration = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    _write(folder / "mkdocs.yml", yaml.safe_dump(_filled(configuration), sort_keys=False))
    return 0


def _documents() -> dict[str, str]:
    """Return the text of all pages by their path in the repository."""
    paths = [*(path for path in sorted((ROOT / "docs").rglob("*.md"))), *(ROOT / name for name in PROJECT_PAGES)]
    found = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    return found | {name: tutorial_page((ROOT / name).read_text(encoding="utf-8"), name) for name in _tutorials()}


def _tutorials() -> list[str]:
    names = (f"tutorials/{path.name}" for path in sorted((ROOT / "tutorials").glob("*.py")))
    return [name for name in names if _TUTORIAL.fullmatch(name)]


def _place(path: str) -> str:
    """Return the place in the site of a document of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path.removesuffix(".py") + ".md" if _TUTORIAL.fullmatch(path) else f"project/{path}"


def _place_of(path: str) -> str | None:
    """Return the place in the site of any file of the repository; None for a file that is not in the site."""
    if path == "README.md":
        return "index.md"
    if path in PROJECT_PAGES or path.startswith("docs/") or _TUTORIAL.fullmatch(path):
        return _place(path)
    name = path.removeprefix("source/")
    return f"source/{name}" if (ROOT / name).is_file() else None


def _with_pictures(text: str) -> str:
    """Return the page with its pictures inlined, so that they take the colours of the page."""
    return _PICTURE.sub(_inlined, text)


def _inlined(found: re.Match[str]) -> str:
    drawing = (ROOT / "docs" / found["path"]).read_text(encoding="utf-8")
    return f"<figure>\n{drawing.strip()}\n</figure>"


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def _filled(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with absolute paths, and with the folders of the navigation as lists of pages."""
    nav = configuration["nav"]
    named = {name for entry in nav for name in _pages(entry)}
    lists = {
        "topics": sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name not in named),
        "tutorials": [_place(name) for name in _tutorials()],
        "project": [_place(name) for name in PROJECT_PAGES],
    }
    options = configuration["plugins"][-1]["mkdocstrings"]["handlers"]["python"]
    options["paths"] = [str(ROOT)]
    options["options"]["extensions"] = [str(ROOT / path) for path in options["options"]["extensions"]]
    return {
        **configuration,
        "docs_dir": "pages",
        "site_dir": "site",
        "nav": _written_out(nav, lists),
    }


def _written_out(entry: Any, lists: Mapping[str, Sequence[str]]) -> Any:
    """Return a part of the navigation with the names of folders replaced by their pages."""
    if isinstance(entry, dict):
        return {title: _written_out(value, lists) for title, value in entry.items()}
    if not isinstance(entry, list):
        return lists.get(entry, entry)
    return [
        one
        for value in entry
        for one in (lists[value] if isinstance(value, str) and value in lists else [_written_out(value, lists)])
    ]


def _pages(entry: Any) -> list[str]:
    """Return the pages that an entry of the navigation names, also in nested lists and tables."""
    if isinstance(entry, dict):
        return [name for value in entry.values() for name in _pages(value)]
    return [name for value in entry for name in _pages(value)] if isinstance(entry, list) else [entry]


if __name__ == "__main__":
    sys.exit(main())
