"""The text of a page that runs a package: names of the model stay text, and what cannot run is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from documentation.demos import with_demos, write_demos
from tests.golden.models import float_network
from tests.report.reports import parsed, words
from tests.support.packages import Packages
from tvm_ext import BuildOptions, Package
from tvm_ext.browser import webassembly
from tvm_ext.browser.page import demo_page
from tvm_ext.browser.webassembly import BrowserModule
from tvm_ext.command_line.main import app
from tvm_ext.core.errors import BadInput, BadPackage, MissingTool, RunFailed

HOSTILE = "</script><!--<script>alert(1)//\"'&\u2028{{ 7 * 7 }}"


@pytest.fixture(scope="module")
def small(packages: Packages) -> Package:
    return packages.small(
        "float_network", float_network, options=BuildOptions(verify=("host",), labels=("a", "b", "c"))
    )


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages whose module is empty: nothing is compiled."""
    monkeypatch.setattr(
        "tvm_ext.browser.page.webassembly", lambda package: BrowserModule(code=b"\0asm", memories=("ram",))
    )


@pytest.mark.usefixtures("without_compiler")
def test_hostile_names_stay_text(small: Package) -> None:
    report = json.loads(json.dumps(small.report))
    for step in report["steps"]:
        step["name"], step["kernel"] = step["name"] + HOSTILE, step["kernel"] + HOSTILE
    report["model"]["source"] = report["platform"] = HOSTILE
    report["options"]["labels"] = [HOSTILE]
    report["verify"]["host"]["reference"] += HOSTILE
    page = demo_page(replace(small, report=report))
    document = parsed(page.partition('<script id="machine">')[0] + "</body></html>")
    assert HOSTILE.replace("\u2028", r"\u2028") in words(document)
    assert page.count("<script") == page.count("</script") == 3
    (data,) = [one.text or "" for one in document.iterfind(".//script")]
    assert json.loads(data)["steps"][0]["name"].startswith(small.report["steps"][0]["name"] + "</script>")


@pytest.mark.usefixtures("without_compiler")
def test_a_page_loads_nothing_and_runs_only_its_own_script(small: Package) -> None:
    page = demo_page(small)
    assert not re.search(r"""(src|href)\s*=\s*["']?(?!#)""", page.partition("<script")[0])
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    allowed = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert {allowed.pop(name) for name in ("default-src", "base-uri", "form-action")} == {"'none'"}
    assert re.fullmatch(r"'sha256-[^' ]+'", allowed.pop("style-src"))
    assert re.fullmatch(r"'sha256-[^' ]+' 'sha256-[^' ]+' 'wasm-unsafe-eval'", allowed.pop("script-src"))
    assert allowed.pop("worker-src") == "blob:", "the page makes the worker of its own script"
    assert not allowed


@pytest.mark.usefixtures("without_compiler")
@pytest.mark.parametrize("key", ["arenas", "platform", "verify", "memories"])
def test_a_damaged_report_is_refused(small: Package, key: str) -> None:
    report = {name: value for name, value in small.report.items() if name != key}
    if key == "memories":
        report = {**small.report, "steps": [{**small.report["steps"][0], "outputs": [{}]}, *small.report["steps"][1:]]}
    with pytest.raises(BadPackage, match=r"report\.json: is damaged"):
        demo_page(replace(small, report=report))


def test_without_clang(small: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webassembly, "installed", lambda name: None)
    with pytest.raises(MissingTool, match="apt install clang-19 lld-19 wasi-libc"):
        demo_page(small)


@pytest.mark.parametrize(
    ("changed", "words_of_error"),
    [
        ({"bundle": {"name": "b", "models": ["m"]}}, "model of a bundle. Compile it as a single package"),
        ({"processors": [{"name": "a"}, {"name": "b"}]}, "several processors share a run"),
        ({"processors": [{"name": "a"}, {"name": "b", "driver": "b.h"}]}, "an accelerator computes some of its layers"),
    ],
)
def test_what_a_page_cannot_run(small: Package, changed: dict[str, object], words_of_error: str) -> None:
    with pytest.raises(RunFailed, match=words_of_error):
        demo_page(replace(small, report={**small.report, **changed}))


def test_arenas_whose_names_are_no_identifiers(small: Package) -> None:
    arenas = [{**small.report["arenas"][0], "memory": "ram; int x"}]
    with pytest.raises(BadPackage, match="arenas have no names"):
        demo_page(replace(small, report={**small.report, "arenas": arenas}))


@pytest.mark.usefixtures("without_compiler")
def test_the_command_replaces_only_pages(small: Package, tmp_path: Path) -> None:
    page, other = tmp_path / "page.html", tmp_path / "notes.txt"
    other.write_text("mine")
    for _ in range(2):
        done = CliRunner().invoke(app, ["demo", str(small.folder), str(page)])
        assert done.exit_code == 0, done.output
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    refused = CliRunner().invoke(app, ["demo", str(small.folder), str(other)])
    assert refused.exit_code != 0
    assert "exists and is not an HTML page" in refused.output
    assert other.read_text() == "mine"


def test_the_front_page_without_clang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The site is made without a compiler for WebAssembly; a sentence stands in place of the networks."""

    def missing(package: object, samples: object) -> str:
        raise MissingTool("no clang")

    monkeypatch.setattr("documentation.demos.demo_page", missing)
    monkeypatch.setattr("documentation.demos.tvm_ext.build", lambda *arguments: None)
    assert write_demos(tmp_path / "demos") == []
    assert not (tmp_path / "demos").exists()
    page = with_demos("before\n\n<!-- demos -->\n\nafter", [])
    assert "made with clang" in page and "iframe" not in page and page.endswith("after")
    assert (Path(__file__).parents[2] / "docs" / "index.md").read_text(encoding="utf-8").count("<!-- demos -->") == 1


def test_too_many_samples(small: Package) -> None:
    with pytest.raises(BadInput, match=r"samples: 60000 samples are 17280000 B, and a page takes at most"):
        demo_page(small, {"image:0": np.zeros((60_000, 2, 6, 6), np.float32)})
