"""memory_map.html: a rectangle per placement, inside the arena, names escaped, nothing fetched from outside."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from codegen_c.arena.memory_plan import MemoryPlan, peak_placements
from codegen_c.arena.plan import plan_memory
from codegen_c.arena.profile import largest_arena, live_profile
from codegen_c.emit.memory_map import HEIGHT, WIDTH, emit_memory_map
from codegen_c.program.program import Program
from tests.arena.programs import call, program
from tests.golden import models
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.load import load
from tvm_ext.pipeline import compile_module
from tvm_ext.report.report import make_report

NAUGHTY = '</title><script>alert("1")</script>&\x00{{ 7 * 7 }}'


def page(text: str) -> ElementTree.Element:
    """The document, which is well-formed XML too."""
    return ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))


def planned(source: str = "a") -> tuple[Program, MemoryPlan]:
    steps = [call("first", "x", "a", scratch_bytes=32), call("second", "a", "b"), call("third", "a b", "y")]
    small = program({"x": 64, "a": 128, "b": 64, "y": 16}, *steps)
    tensors = small.tensors | {"a": replace(small.tensors["a"], source=source)}
    return plan_memory(replace(small, tensors=tensors), activations="ram")


def draw(small: Program, plan: MemoryPlan, model: str = "net") -> str:
    return emit_memory_map(model, small, plan, live_profile(small, plan))


def test_one_rectangle_a_placement_inside_the_arena() -> None:
    small, plan = planned()
    (picture,) = page(draw(small, plan)).iterfind(".//svg[@class='map']")
    boxes = picture.findall("rect")
    assert len(boxes) == len(plan.placements) == 5
    (arena,) = picture.findall("line[@class='arena']")
    for box in boxes:
        x, y, width, height = (float(box.attrib[key]) for key in ("x", "y", "width", "height"))
        assert x >= 0 and x + width <= WIDTH + 0.01
        assert float(arena.attrib["y1"]) - 0.01 <= y and y + height <= HEIGHT + 0.01
    assert sorted(box.attrib["class"] for box in boxes) == [
        "box inner", "box inner", "box input", "box output", "box scratch",
    ]  # fmt: skip
    scale = {box.findtext("title", "").split("\n")[0]: float(box.attrib["height"]) for box in boxes}
    assert scale["a"] == pytest.approx(2 * scale["b"], abs=0.05)


def test_hover_says_what_a_tensor_is() -> None:
    small, plan = planned(source="block1/conv:0")
    titles = [title.text or "" for title in page(draw(small, plan)).iterfind(".//rect/title")]
    (found,) = [title for title in titles if title.startswith("a ")]
    offset = plan.placements["a"].offset
    assert found.split("\n") == [
        "a (block1/conv:0)", "uint8[128]", "made by first", f"128 bytes at offset {offset}", "steps 0 to 2",
    ]  # fmt: skip


def test_the_curve_reaches_the_lower_bound() -> None:
    small, plan = planned()
    (picture,) = page(draw(small, plan)).iterfind(".//svg[@class='map']")
    (curve,), (bound,) = picture.findall("polyline"), picture.findall("line[@class='bound']")
    heights = [float(point.split(",")[1]) for point in curve.attrib["points"].split()]
    assert min(heights) == float(bound.attrib["y1"])


def test_names_of_the_model_are_text_only() -> None:
    small, plan = planned(source=NAUGHTY)
    text = draw(small, plan, model=NAUGHTY)
    assert "<script" not in text and "\x00" not in text and "49" not in re.sub(r"[\d.]+,?[\d.]*", "", text)
    (title,) = page(text).iterfind("./head/title")
    assert title.text == "Memory map of " + NAUGHTY.replace("\x00", "\ufffd")


def test_nothing_is_fetched() -> None:
    text = draw(*planned())
    assert not re.search(r"https?:|\bsrc=|\bhref=|@import|<script", text)
    assert "default-src 'none'" in text


def test_same_bytes_again_and_a_model_without_places() -> None:
    assert draw(*planned()) == draw(*planned())
    small, _ = planned()
    assert "the caller holds all" in emit_memory_map("net", small, MemoryPlan(placements={}, arenas=()), {})


@pytest.mark.parametrize("name", ["float_network", "integer_network", "branching_network"])
@pytest.mark.parametrize("io", ["arena", "caller"])
def test_profile_of_whole_models_agrees_with_the_plan(name: str, io: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(getattr(models, name)(), path)
    mod, options = load(path), BuildOptions(io=io)
    compiled = compile_module(mod, Platform.load("cortex_m4"), options)
    live = live_profile(compiled.program, compiled.plan)
    assert {a.memory: a.lower_bound_bytes for a in compiled.plan.arenas} == {m: max(v) for m, v in live.items()}
    page(emit_memory_map("net", compiled.program, compiled.plan, live))
    report = make_report(
        compiled, options, ModelOrigin.read(mod), code_bytes=None, stack_bytes=None,
        artifacts={"library": None, "elf": None},
        verify={"host": None, "qemu": None},
    )  # fmt: skip
    assert max(step["live_bytes"] for step in report["steps"]) == report["lower_bound_bytes"]
    assert report["schedule"]["proved"] is True and report["schedule"]["peak_bytes"] > 0
    arena = largest_arena(compiled.plan)
    assert arena is not None
    assert report["peak"]["step"] == arena.peak_step
    held = sum(tensor["num_bytes"] for tensor in report["peak"]["tensors"])
    assert held == sum(p.num_bytes for p in peak_placements(compiled.plan, arena)) >= arena.lower_bound_bytes
