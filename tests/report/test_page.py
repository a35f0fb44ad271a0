"""report.html: well-formed, of one piece, all that a report says in it, names of the model as text and nothing else."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.report.reports import PASSED, Document, parsed, report_of, words
from tvm_ext.command_line.main import app
from tvm_ext.core.errors import BadPackage
from tvm_ext.report.page.drawing import count_text
from tvm_ext.report.page.page import report_page
from tvm_ext.report.summary import summary_line

NAUGHTY = "</title></script><img src=x onerror=alert(1)>\"'&\x00\ud800{{ 7 * 7 }}[bold]"
SHOWN = NAUGHTY.replace("\x00", r"\x00").replace("\ud800", r"\ud800")


def section(page: Document, name: str) -> Document:
    (found,) = page.iterfind(f".//section[@id='m0-{name}']")
    return found


def renamed(value: Any) -> Any:
    """A report in which every text ends in what a page must not take for markup."""
    if isinstance(value, str):
        return value + NAUGHTY
    if isinstance(value, list):
        return [renamed(item) for item in value]
    return {key: renamed(item) for key, item in value.items()} if isinstance(value, dict) else value


def test_every_tensor_lies_in_the_map_at_its_bytes() -> None:
    report = report_of("integer_network")
    boxes = section(parsed(report_page(report)), "map").findall(".//g[@class='mark']/rect")
    assert {box.attrib["data-name"] for box in boxes} == {tensor["c_name"] for tensor in report["tensors"]}
    places = {tensor["c_name"]: tensor for tensor in report["tensors"]}
    scales = set()
    for box in boxes:
        place = places[box.attrib["data-name"]]
        x, y, width, height = (float(box.attrib[key]) for key in ("x", "y", "width", "height"))
        assert x == pytest.approx(900 * place["begin"] / len(report["steps"]), abs=0.02)
        assert x + width == pytest.approx(900 * place["end"] / len(report["steps"]), abs=0.02)
        scales.add((400 - y) / (place["offset"] + place["num_bytes"]))
        assert height == pytest.approx(max(scales) * place["num_bytes"], abs=0.1)
    assert max(scales) - min(scales) < 0.01


def test_sections_say_what_the_report_says() -> None:
    report = report_of("integer_network", ram=2_048)
    page = parsed(report_page(report))
    assert words(page).startswith("integer_network on cortex_m4")
    assert "Verified on the host against onnxruntime" in words(page)
    layers = section(page, "layers")
    for step in report["steps"]:
        (row,) = [row for row in layers.iterfind(".//tbody/tr") if row[0].text == str(step["index"])]
        for figure in ("macs", "modelled_instructions", "predicted_cycles", "live_bytes", "scratch_bytes"):
            assert f"{step[figure]:,}" in [cell.text for cell in row], figure
        assert step["kernel"] in words(row)
    budgets = words(section(page, "budgets"))
    assert f"budget 2,048 B, {2_048 - report['arena_bytes']:,} B free" in budgets
    assert ("proved minimal" if report["arena_bytes"] == report["lower_bound_bytes"] else "above its lower") in budgets
    peak = words(section(page, "map").find(".//text[@class='peak-label']"))
    assert peak == f"peak: step {report['arenas'][0]['peak_step']}, {report['steps'][report['peak']['step']]['name']}"
    bars = section(page, "costs").findall(".//g[@class='row']/rect")
    dearest = max(report["steps"], key=lambda step: step["predicted_cycles"])
    assert float(bars[dearest["index"]].attrib["width"]) == max(float(bar.attrib["width"]) for bar in bars) == 480
    assert "not verified on qemu" not in words(page)  # there is no firmware that could have been


def test_the_graph_has_a_node_for_each_step_and_edges_of_what_it_reads() -> None:
    report = report_of("branching_network")
    graph = section(parsed(report_page(report)), "graph")
    facts = [title.text or "" for title in graph.iterfind(".//g[@class='mark']/title")]
    assert len(facts) == len(report["steps"]) + len(report["inputs"]) + len(report["outputs"])
    for step in report["steps"]:
        assert any(fact.startswith(f"step {step['index']}: {step['name']}\n") for fact in facts)
    read = {(name, step["name"]) for step in report["steps"] for name in step["reads"]}
    assert len(graph.findall(".//path[@class='edge']")) >= len({step for _, step in read}) + len(report["outputs"])


def test_unverified_and_failed_are_said_first() -> None:
    report = report_of("float_network")
    for verify, verdict, colour in (
        ({"host": None, "qemu": None}, "Not verified", "bad"),
        ({"host": {**PASSED, "passed": False}, "qemu": None}, "Verification failed", "bad"),
        ({"host": {**PASSED, "own_reading": "no reference"}, "qemu": None}, "our own reading only", "doubt"),
    ):
        page = parsed(report_page({**report, "verify": verify}))
        (said,) = page.iterfind(f".//header/p[@class='verdict {colour}']")
        assert verdict in words(said)


def test_columns_of_later_versions_appear() -> None:
    report = report_of("float_network")
    for step in report["steps"]:
        step["flash"] = {"weights_bytes": 4_321, "code_bytes": None}
        step["stack_bytes"] = 96
    layers = section(parsed(report_page(report)), "layers")
    headings = [words(heading) for heading in layers.iterfind(".//th")]
    assert headings[-3:] == ["flash weights, B", "flash code, B", "stack, B"]
    assert [cell.text for cell in layers.find(".//tbody/tr")][-3:] == ["4,321", "-", "96"]


def test_reports_of_before_have_a_map_and_no_graph() -> None:
    report = report_of("integer_network")
    del report["tensors"], report["arenas"]
    for step in report["steps"]:
        del step["reads"], step["processor"]
    page = parsed(report_page(report))
    names = {box.attrib["data-name"] for box in section(page, "map").iterfind(".//g[@class='mark']/rect")}
    assert names == {out["c_name"] for step in report["steps"] for out in step["outputs"] if out["memory"]}
    assert "compile the model again" in words(section(page, "graph"))


def test_names_of_the_model_are_text_only() -> None:
    text = report_page(renamed(report_of("integer_network")))
    page = parsed(text)
    assert "<img" not in text and "\x00" not in text and "49" not in words(page.find(".//h1"))
    assert page.findtext(".//title") == f"integer_network{SHOWN} on cortex_m4{SHOWN}"
    assert len(page.findall(".//script")) == 1
    assert not [name for part in page.iter() for name in part.attrib if name.startswith("on") or name == "style"]
    kernels = {step["kernel"] + SHOWN for step in report_of("integer_network")["steps"]}
    assert kernels <= {"".join(cell.itertext()) for cell in section(page, "layers").iterfind(".//td")}


def test_nothing_is_fetched_and_only_our_own_script_runs() -> None:
    text = report_page(report_of("float_network"))
    assert not re.search(r"https?:|\bsrc=|@import|url\((?!#)", text)
    assert {link for link in re.findall(r'href="(.)', text)} == {"#"}
    policy = parsed(text).find(".//meta[@http-equiv='Content-Security-Policy']").attrib["content"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "unsafe" not in policy
    assert report_page(report_of("float_network")) == text


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from paths(item, (*path, key))


def test_damaged_reports_are_refused_or_shown() -> None:
    """Each of many values is replaced by others: there is a page that can be parsed, or a BadPackage."""
    report, draw = report_of("float_network"), random.Random(7)
    every = [path for path in paths(report) if "alternatives" not in path]
    refused = 0
    for path in draw.sample(every, 80):
        for value in (None, -(10**400), "text", [], {}):
            damaged = copy.deepcopy(report)
            holder = damaged
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = value
            try:
                parsed(report_page(damaged))
            except BadPackage:
                refused += 1
    assert refused > 40
    with pytest.raises(BadPackage, match="damaged"):
        report_page({key: value for key, value in report.items() if key != "steps"})


def invoked(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["report", *map(str, arguments)])
    return result.exit_code, result.output


def test_the_command_writes_the_page_beside_the_package_or_where_it_is_told(tmp_path: Path) -> None:
    folder, report = tmp_path / "net", report_of("float_network")
    folder.mkdir()
    (folder / "report.json").write_text(json.dumps(report))
    status, output = invoked(folder, "--html")
    assert status == 0 and "net-report.html" in output.replace("\n", "")
    assert (tmp_path / "net-report.html").read_text() == report_page(report)
    assert sorted(path.name for path in folder.iterdir()) == ["report.json"]
    mine = tmp_path / "mine.html"
    assert invoked(folder, mine, "--html")[0] == invoked(folder, "--html", mine)[0] == 0  # again, over a page
    assert mine.read_text() == report_page(report)
    notes = tmp_path / "notes.txt"
    notes.write_text("my own")
    status, output = invoked(folder, notes, "--html")
    assert status == 1 and "is not an HTML page" in output and notes.read_text() == "my own"
    status, output = invoked(folder, mine)
    assert status == 2 and "a file is only written with --html" in output
    status, output = invoked(folder, tmp_path / "nowhere" / "page.html", "--html")
    assert status == 1 and "cannot be written" in output


def test_a_shared_run_is_compared_with_one_processor_alone_and_sums_are_called_sums() -> None:
    """Elapsed instructions beside those of one processor; what all processors execute is never their peer."""
    report = report_of("integer_network", "dual_m33_equal")
    assert len(report["processors"]) == 2
    modelled = sum(step["modelled_instructions"] for step in report["steps"])
    (tile,) = instruction_tiles(report)
    text = count_text(modelled)
    assert tile == f"instructions, sum {text} modelled {text}, summed over all 2 processors"
    for processor, count in zip(report["processors"], (1_700, 2_400), strict=True):
        processor["instructions"] = count
    report |= {"makespan_instructions": 2_500, "single_processor_instructions": 4_000}
    report["verify"]["qemu"] = {**PASSED, "instructions": 2_500}
    (tile,) = instruction_tiles(report)
    assert tile == (
        f"elapsed instructions {count_text(2_500)} elapsed in QEMU, waits included; one processor alone "
        f"{count_text(4_000)}; sum of all, waits left out, {count_text(4_100)}; modelled {text}, "
        "summed over all 2 processors"
    )
    assert "elapsed instructions 2,500" in summary_line(report)
    totals = words(parsed(report_page(report)))
    assert "elapsed instructions (QEMU; not cycles) 2,500" in totals
    assert "elapsed instructions, one processor alone 4,000" in totals
    alone = report_of("integer_network")
    alone["verify"]["qemu"] = {**PASSED, "instructions": 4_000}
    assert "elapsed" not in summary_line(alone) + words(parsed(report_page(alone)))


def instruction_tiles(report: dict[str, Any]) -> list[str]:
    """Text of the cards at the top of a page that are about instructions."""
    tiles = parsed(report_page(report)).iterfind(".//div[@class='tile']")
    return [text for tile in tiles if "instructions" in (text := words(tile))]
