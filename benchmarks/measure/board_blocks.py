"""Block of documents on boards and models: a view of `benchmarks/results/boards.json` and of peers' figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.measure.block_parts import RESULTS, result
from benchmarks.measure.published import read_published
from benchmarks.measure.records import Row, read_records
from benchmarks.measure.tables import table

OURS = "tvm_ext"
MODELS = {"kws_int8": "DS-CNN", "resnet_int8": "ResNet-8", "digits": "digits"}


def boards() -> str:
    """Cost of each network on each board, beside the peer that executes the fewest instructions there."""
    rows = [
        ("" if number else MODELS[model], f"`{platform}`", *_own(one), _peer(model, platform, one["instructions"]))
        for model, platforms in result("boards")["models"].items()
        for number, (platform, one) in enumerate(platforms.items())
    ]
    heads = (
        "network, int8", "platform", "instructions", "per multiply-add", "flash, B", "RAM, B",
        "other tool with the fewest instructions",
    )  # fmt: skip
    return table(heads, rows)


def _own(one: dict[str, Any]) -> tuple[str, ...]:
    flash, ram = one["weights_bytes"] + one["code_bytes"], one["arena_bytes"] + one["stack_bytes"]
    return f"{one['instructions']:,}", f"{one['instructions_per_mac']:.2f}", f"{flash:,}", f"{ram:,}"


def _peer(model: str, platform: str, own: int) -> str:
    counts = [
        (row.instructions, row.system if row.source == "measured" else f"{row.system} (published)")
        for row in _peers(model)
        if row.platform == platform and row.instructions is not None
    ]
    if not counts:
        return "-"
    fewest, system = min(counts)
    return f"{system}: {fewest:,} ({fewest / own:.2f} times)"


def _peers(model: str) -> Iterator[Row]:
    record = read_records(RESULTS / "side_by_side.json").get(model)
    yield from (row for row in record.rows if not row.system.startswith(OURS)) if record else ()
    for platform, one in result("kernel_libraries")["models"].get(model, {}).items():
        yield Row(system=one["library"], platform=platform, instructions=one["instructions"])
    for platform, one in result("tflm")["files"].get(model, {}).items():
        yield Row(system="TFLM with CMSIS-NN", platform=platform, instructions=one["tflm"].get("instructions"))
    yield from (one.row for one in read_published(RESULTS.parent / "published.toml") if one.model == model)
