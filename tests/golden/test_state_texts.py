"""Texts about what runs keep: README, tables of the report, blocks of the memory map."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import tvm_ext
from tests.support.onnx_models import saved
from tests.support.state_models import delays, frames
from tests.support.tflite_runners import saved_tflite
from tests.support.tflite_state_models import over_time
from tvm_ext import BuildOptions, Package, Platform
from tvm_ext.report.read_report import read_report
from tvm_ext.report.tables import report_tables


@pytest.fixture(scope="module")
def hop(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """Windows of 12 frames, one of them new."""
    folder = tmp_path_factory.mktemp("hop")
    options = BuildOptions(new_frames={"frames": 1}, time_axis={"frames": 1}, verify=(), name="net")
    return tvm_ext.build(saved_tflite(over_time(), folder), "host", folder / "package", options)


def retaining(folder: Path) -> Platform:
    """A platform with a small memory that is kept in deep sleep."""
    values = json.loads(Platform.load("host").to_json())
    ram = next(memory for memory in values["memories"] if memory["name"] == values["activations"])
    values["memories"].append({**ram, "name": "backup", "capacity_bytes": 4096, "retained": True})
    values["links"].append({**next(x for x in values["links"] if x["target"] == ram["name"]), "target": "backup"})
    return Platform.from_json(json.dumps(values))


def readme(package: Package) -> str:
    return " ".join((package.folder / "README.md").read_text(encoding="utf-8").split())


def test_the_readme_tells_of_states(tmp_path: Path) -> None:
    module = tvm_ext.load(saved(delays(), tmp_path), states={"z1": "z1.next", "z2": "z2.next"})
    package = tvm_ext.build(module, retaining(tmp_path), tmp_path / "p", BuildOptions(verify=(), name="net"))
    text = readme(package)
    assert "## State A run keeps 68 B for the next run. Call `net_reset()` once before the first run" in text
    assert "without a reset, a run returns `net_not_reset`" in text
    assert "| `z2` | float32[1, 8] | 32 | | `z1` | float32[1, 8] | 32 |" in text
    assert "(void)memcpy(saved, net_state_place(), net_state_bytes);" in text
    assert "(void)memcpy(net_state_place(), saved, net_state_bytes);" in text
    assert "The state lies in `backup`, which retains its contents in deep sleep" in text
    assert "`net_state.c`" in text and "not_ready" not in text


def test_the_readme_tells_of_hops(hop: Package) -> None:
    text = readme(hop)
    assert "Each run takes only the new part of the window" in text
    assert "The first 11 runs after a reset (`net_warm_up_runs`) return `net_not_ready`" in text
    assert "The state lies in `ram`, which the platform file does not declare as retained" in text


def test_states_of_instances_lie_in_their_contexts(tmp_path: Path) -> None:
    options = BuildOptions(verify=(), name="net", context="caller")
    module = tvm_ext.load(saved(delays(), tmp_path), states={"z1": "z1.next", "z2": "z2.next"})
    text = readme(tvm_ext.build(module, "host", tmp_path / "p", options))
    assert "(void)memcpy(saved, net_state_place(&context), net_state_bytes);" in text
    assert "Call `net_reset(&context)` once" in text and "The state lies in the context." in text


def test_no_state_no_word_of_it(tmp_path: Path) -> None:
    module = tvm_ext.load(saved(frames(), tmp_path))
    package = tvm_ext.build(module, "host", tmp_path / "p", BuildOptions(verify=(), name="net"))
    assert "## State" not in readme(package) and "net_state" not in readme(package)
    assert (
        "Kept from run to run" not in printed(package)
        and "state, in" not in (package.folder / "report.html").read_text()
    )


def test_the_report_has_a_line_for_each_state(hop: Package) -> None:
    text = printed(hop)
    head = text.index("Kept from run to run")
    for state in hop.report["states"]:
        (line,) = (line for line in text[head:].splitlines() if line.strip("│ ").startswith(state["name"]))
        assert f"int8[{','.join(map(str, state['shape']))}]" in line and f" {state['num_bytes']} " in line
        assert f"ram, state+{state['offset']}" in line
    marks = hop.report["state_bytes"] - sum(state["num_bytes"] for state in hop.report["states"])
    assert marks > 0 and f"{marks} │" in text[head:] and "pushes 1 rows into a ring" in text[head:]


def printed(package: Package) -> str:
    console = Console(file=StringIO(), width=200)
    console.print(*report_tables(read_report(package.folder)))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_memory_map_shows_states_as_blocks_of_their_own(hop: Package) -> None:
    page = ElementTree.fromstring((hop.folder / "report.html").read_text().removeprefix("<!DOCTYPE html>\n"))
    assert "state, in ram" in [heading.text for heading in page.iterfind(".//h3")]
    (picture,) = (svg for svg in page.iterfind(".//svg[@class='map']") if "state" in svg.attrib["aria-label"])
    marks = {(mark.findtext("title") or "").split("\n")[0]: mark for mark in picture.findall("g[@class='mark']")}
    shown = {name: mark for name, mark in marks.items() if kind_of(mark) == "box state"}
    for state in hop.report["states"]:
        mark = shown[f"{state['c_name']} ({state['name']})"]
        facts, box = (mark.findtext("title") or "").split("\n"), mark.find("rect")
        assert f"{state['num_bytes']:,} B at offset {state['offset']:,}" in " ".join(facts) and "in every step" in facts
        assert box is not None
        assert float(box.attrib["x"]) == 0 and float(box.attrib["width"]) == pytest.approx(900)
    assert any("steps" in (mark.findtext("title") or "") for name, mark in marks.items() if name not in shown)
    (other,) = (svg for svg in page.iterfind(".//svg[@class='map']") if svg is not picture)
    assert "box state" not in [kind_of(mark) for mark in other.findall("g[@class='mark']")]


def kind_of(mark: ElementTree.Element) -> str:
    """Class of a tensor's rectangle, which tells its kind."""
    return mark.find("rect").attrib["class"]
