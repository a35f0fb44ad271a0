"""The benchmark's tables are views of its JSON, and its targets can fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.measure.published import read_published
from benchmarks.measure.records import Record, Row, read_records, reason_of, state_of, write_records
from benchmarks.measure.tables import markdown
from benchmarks.measure.targets import targets

OURS = Row(system="tvm_ext", platform="cortex_m4", instructions=9_000_000, ram_bytes=64_000, max_error=1e-7)
RECORD = Record(
    model="kws_fp32",
    macs=2_656_768,
    state="0",
    commit="0",
    rows=(
        OURS,
        replace(OURS, platform="cortex_m55", instructions=4_000_000),
        Row(system="tvm_ext", platform="host", callgrind_ir=1_000_000, wall_us=90.0),
        Row(system="onnxruntime 1", platform="host", wall_us=45.0),
        Row(system="other", platform="cortex_m4", skipped="not | installed"),
    ),
)


@pytest.fixture
def published(repository: Path):
    return read_published(repository / "benchmarks" / "published.toml")


def test_records_read_back(tmp_path: Path) -> None:
    write_records(tmp_path / "r.json", {"kws_fp32": RECORD})
    assert read_records(tmp_path / "r.json") == {"kws_fp32": RECORD}
    assert "null" not in (tmp_path / "r.json").read_text()
    assert read_records(tmp_path / "absent.json") == {}


def test_targets_hold_and_fail(published) -> None:
    assert [held for *_, held in targets({"kws_fp32": RECORD}, published)] == ["yes"] * 4
    slow = tuple(
        replace(row, instructions=row.instructions and 11 * row.instructions, callgrind_ir=row.callgrind_ir and 10**8)
        for row in RECORD.rows
    )
    late = tuple(replace(row, wall_us=1000.0) if row.callgrind_ir else row for row in slow)
    assert [held for *_, held in targets({"k": replace(RECORD, rows=late)}, published)] == [
        "**no**", "**no**", "yes", "**no**"
    ]  # fmt: skip


def test_other_networks_are_judged_per_multiply_add(published) -> None:
    """onnx2c's least per multiply-add, over its float networks; half of it is the limit."""
    least = min(
        p.row.instructions / p.macs
        for p in published
        if p.row.system == "onnx2c" and p.row.platform == "cortex_m4" and p.model.endswith("_fp32")
    )
    for factor, held in ((0.99, "yes"), (1.01, "**no**")):
        row = replace(OURS, instructions=int(factor * least / 2 * 1_000_000))
        record = Record(model="other_fp32", macs=1_000_000, state="0", commit="0", rows=(row,))
        assert [held for *_, held in targets({"other_fp32": record}, published)] == [held]


def test_the_table_names_sources_and_reasons(published) -> None:
    text = markdown({"kws_fp32": RECORD}, published)
    assert "| kws_fp32 | **tvm_ext** | 9,000,000 | 3.39 | 64,000 |" in text
    assert "| kws_fp32 | onnx2c \\* | 19,817,000 |" in text
    assert "not \\| installed" in text
    for source in {p.row.source for p in published}:
        assert source in text


def test_reasons_are_one_line_without_paths() -> None:
    said = "gcc failed (exit 1) in /tmp/a_1/b:\nIn file included from x.c:\n/tmp/a_1/x.h:3: error: no such thing\nmore"
    assert reason_of(ValueError(said)) == "ValueError: x.h:3: error: no such thing"
    assert reason_of(ValueError("too large")) == "ValueError: too large"


def test_a_changed_source_is_another_state(tmp_path: Path) -> None:
    (tmp_path / "codegen_c").mkdir()
    states = []
    for text in ("a", "b"):
        (tmp_path / "codegen_c" / "x.py").write_text(text)
        states += [state_of(tmp_path, b"model"), state_of(tmp_path, b"another")]
    assert len(set(states)) == 4


def test_the_stored_table_shows_the_stored_figures(repository: Path, published) -> None:
    results = repository / "benchmarks" / "results"
    records = read_records(results / "side_by_side.json")
    assert (results / "side_by_side.md").read_text(encoding="utf-8") == markdown(records, published)
