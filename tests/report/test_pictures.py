"""Geometry and colours of pictures: no label over another, ticks at round numbers, text that can be read."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import pytest

from tests.report.reports import Document, parsed, report_of
from tvm_ext.estimates.pareto import Point, chosen, pareto_picture
from tvm_ext.report.page.drawing import (
    DARK,
    KINDS,
    LIGHT,
    Rect,
    byte_ticks,
    bytes_text,
    contrast,
    count_text,
    label_in,
    round_ticks,
    shortened,
    spread,
    text_width,
)
from tvm_ext.report.page.graph_picture import layered
from tvm_ext.report.page.page import report_page

SVG = "{http://www.w3.org/2000/svg}"


def area_of(text: Document) -> Rect:
    """Area that a text takes in its picture, upright where it is turned."""
    x, y, width = float(text.attrib["x"]), float(text.attrib["y"]), text_width(text.text or "")
    if "transform" in text.attrib:
        return Rect(x=x - 9, y=y - width, width=11, height=width)
    return Rect(x=x, y=y - 9, width=width, height=11)


def assert_apart(areas: list[Rect]) -> None:
    assert len(areas) > 1
    for one, other in combinations(areas, 2):
        assert not one.meets(other), (one, other)


@pytest.mark.parametrize("name", ["float_network", "integer_network", "branching_network"])
def test_labels_of_a_map_lie_in_their_boxes_and_apart(name: str) -> None:
    page = parsed(report_page(report_of(name)))
    (picture,) = page.iterfind(".//svg[@class='map']")
    labels = picture.findall("g[@class='labels']/text")
    assert_apart([area_of(text) for text in labels])
    boxes = [
        Rect(**{key: float(box.attrib[key]) for key in ("x", "y", "width", "height")})
        for box in picture.iterfind(".//g[@class='mark']/rect")
    ]
    for text in labels:
        area = area_of(text)
        assert any(
            box.x - 1 <= area.x
            and area.right <= box.right + 1
            and box.y - 1 <= area.y
            and area.bottom <= box.bottom + 1
            for box in boxes
        ), text.text
    sides = [area_of(text) for text in picture.iterfind("text") if float(text.attrib["x"]) > 900]
    assert all(not one.meets(other) for one, other in combinations(sides, 2)) and sides


def test_labels_of_crowded_boxes_never_meet() -> None:
    draw = random.Random(3)
    taken: list[Rect] = []
    for index in range(300):
        box = Rect(
            x=draw.uniform(0, 800), y=draw.uniform(0, 350), width=draw.uniform(5, 200), height=draw.uniform(5, 90)
        )
        label = label_in(f"layer_{index}_{'w' * draw.randrange(30)}", box, taken)
        if label:
            assert box.x <= label.area.x and label.area.right <= box.right
            assert box.y <= label.area.y and label.area.bottom <= box.bottom
            taken.append(label.area)
    assert len(taken) > 60
    assert_apart(taken)


def test_texts_are_cut_to_their_width() -> None:
    assert shortened("conv", 100) == "conv" and shortened("convolution", 20) == ""
    cut = shortened("a_long_name_of_a_layer" * 100_000, 90)
    assert cut.endswith("…") and text_width(cut) <= 90 < text_width(cut + "a")


def test_spread_places_keep_their_order_and_distance() -> None:
    places = spread([50.0, 52.0, 10.0, 51.0], 14, 0, 100)
    assert sorted(range(4), key=places.__getitem__) == [2, 0, 3, 1]
    assert all(after - before >= 14 for before, after in pairwise(sorted(places)))
    assert max(spread([99.0, 100.0, 98.0], 14, 0, 100)) <= 100


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_can_be_told_from_what_they_stand_on(colours: dict[str, str]) -> None:
    """Text at 4.5 : 1, lines and areas at 3 : 1, as WCAG 2.2 asks."""
    for text in ("ink", "faint", "good", "bad", "link", "limit", "bound"):
        assert contrast(colours[text], colours["paper"]) >= 4.5, text
    for paper in ("panel", "peak", *KINDS):
        assert contrast(colours["ink"], colours[paper]) >= 4.5, paper
    assert contrast(colours["faint"], colours["panel"]) >= 4.5
    for edge in (*(f"{kind}-edge" for kind in KINDS), "rule", "limit"):
        assert contrast(colours[edge], colours["paper"]) >= 3, edge
    assert sorted(LIGHT) == sorted(DARK)
    assert len({colours[kind] for kind in KINDS} | {colours[f"{kind}-edge"] for kind in KINDS}) == 2 * len(KINDS)


def test_contrast_of_known_pairs() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21) and contrast("#777777", "#ffffff") < 4.5
    assert contrast("#767676", "#ffffff") >= 4.5


def test_ticks_are_round() -> None:
    assert byte_ticks(38_000) == [0, 8_192, 16_384, 24_576, 32_768]
    assert round_ticks(0.93, 4.2) == [1, 2, 3, 4]
    assert round_ticks(7.1e6, 31e6) == [1e7, 1.5e7, 2e7, 2.5e7, 3e7]
    assert [bytes_text(value) for value in (0, 120, 1_536, 3 << 20)] == ["0 B", "120 B", "1.5 KiB", "3 MiB"]
    assert [count_text(value) for value in (12, 1_500, 2_650_000)] == ["12", "1.5 k", "2.65 M"]


def test_layers_of_a_graph_go_down_and_nodes_lie_apart() -> None:
    draw = random.Random(11)
    edges = sorted({tuple(sorted(draw.sample(range(200), 2))) for _ in range(260)} | {(i, i + 1) for i in range(60)})
    layout = layered(200, edges)
    for (source, target), path in zip(edges, layout.edges, strict=True):
        assert path[0] == layout.nodes[source] and path[-1] == layout.nodes[target]
        assert [row for _, row in path] == list(range(layout.nodes[source][1], layout.nodes[target][1] + 1))
    for row in range(layout.rows):
        columns = sorted(column for column, at in layout.nodes if at == row)
        assert all(after - before > 0.999 for before, after in pairwise(columns))
    assert min(column for column, _ in layout.nodes) >= -1e-9
    assert max(column for column, _ in layout.nodes) <= layout.columns - 1 + 1e-9


def test_a_chain_is_straight_and_what_nothing_leads_to_stands_above_its_reader() -> None:
    layout = layered(6, [(0, 1), (1, 2), (2, 3), (4, 3), (5, 2)])
    assert len({round(layout.nodes[node][0], 1) for node in (0, 1)}) == 1
    assert layout.nodes[4][1] == layout.nodes[2][1] and layout.nodes[5][1] == layout.nodes[1][1]
    assert layered(0, []).rows == 0


FRONT = [
    (36_480, 7_812_077, "whole"), (31_872, 7_864_661, "split"), (25_952, 7_865_525, "split"),
    (20_352, 8_958_464, "patches"), (18_880, 11_131_598, "patches"), (16_384, 28_370_148, "split, least scratch"),
    (13_696, 31_318_796, "patches, least scratch"),
]  # fmt: skip
POINTS = [Point(arena_bytes=ram, modelled_instructions=count, method=method) for ram, count, method in FRONT]


def test_the_point_to_choose_has_the_fewest_instructions_within_the_budget() -> None:
    assert chosen(POINTS, 24 << 10) == POINTS[3] and chosen(POINTS, 36_480) == POINTS[0]
    assert chosen(POINTS, 13_695) is None and chosen(POINTS, None) is None


@pytest.mark.parametrize("count", range(1, len(POINTS) + 1))
@pytest.mark.parametrize("budget", [None, 24 << 10, 64 << 10])
def test_labels_of_a_front_lie_apart_and_inside(count: int, budget: int | None) -> None:
    root = parsed(pareto_picture(POINTS[:count], "a <net>", budget))
    dots = root.findall(f"{SVG}circle")
    labels = [area_of(text) for text in root.iterfind(f"{SVG}text[@class='label']")]
    assert len(dots) == len(labels) == count
    for one, other in combinations(labels, 2):
        assert not one.meets(other)
    for dot in dots:
        x, y = float(dot.attrib["cx"]), float(dot.attrib["cy"])
        assert not any(area.meets(Rect(x=x - 4, y=y - 4, width=8, height=8)) for area in labels)
        assert 0 <= x <= 640 and 0 <= y <= 380
    assert all(area.x >= 0 and area.right <= 640 and area.y >= 0 and area.bottom <= 380 for area in labels)
    assert len(root.findall(f"{SVG}line[@class='limit']")) == (0 if budget is None else 1)
    picked = [dot for dot in dots if dot.attrib["class"] == "chosen"]
    assert len(picked) == (1 if chosen(POINTS[:count], budget) else 0)
    every = [text.text for text in root.iterfind(f"{SVG}text")]
    assert "arena, bytes" in every and "instructions of a run, modelled" in every and "a <net>" in every
    assert len(root.findall(f"{SVG}line[@class='grid']")) >= 6
