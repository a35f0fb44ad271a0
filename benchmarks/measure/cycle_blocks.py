"""Blocks of documents on cycles and on modelled instructions: views of results, nothing computed elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.measure.block_parts import PROCESSORS, grouped, network_name, result
from benchmarks.measure.tables import table
from benchmarks.placement_times import BOUNDS

_CLASSES = {
    "loads": ("load", "load_double", "load_multiple"),
    "stores": ("store", "store_double", "store_multiple"),
    "products": ("multiply", "multiply_long"),
    "branches": ("branch",),
}


def published_cycles() -> str:
    """Estimated cycles of published C against those that its authors measured."""
    found = result("published_cycles")
    rows = [
        (
            row["model"], grouped(row["instructions"]), grouped(row["estimated_cycles"]),
            grouped(row["published_cycles"]), f"{row['ratio']:.2f}",
        )
        for row in found["rows"]
    ]  # fmt: skip
    source = found["source"]
    said = f"Published: {source['repository']}, {source['submission']}, on {source['board']}."
    return f"{table(('network', 'instructions', 'cycles, estimated', 'published', 'ratio'), rows)}\n{said}\n"


def profile_kws() -> str:
    """Estimated cycles of keyword spotting on a Cortex-M4, by layer."""
    found = result("profile_kws_int8_cortex_m4")
    rows: list[tuple[str, ...]] = []
    for layer in [*found["layers"], {"name": "total", "kernel": "", **found}]:
        by_class = layer.get("cycles_by_class", {})
        shares = [sum(by_class.get(kind, 0) for kind in kinds) for kinds in _CLASSES.values()]
        rows.append(
            (
                layer["name"], layer["kernel"] or "", grouped(layer["instructions"]),
                grouped(layer["estimated_cycles"]), *(grouped(share) if by_class else "" for share in shares),
                f"{layer['estimated_ms']:.2f}",
            )
        )  # fmt: skip
    heads = ("layer", "kernel", "instructions", "cycles, estimated", *(f"of them {name}" for name in _CLASSES))
    return table((*heads, f"ms at {found['clock_hz'] // 10**6} MHz"), rows)


def tune() -> str:
    """Whole runs by modelled and by measured kernels."""
    rows: list[tuple[str, ...]] = []
    for platform, networks in result("tune")["networks"].items():
        for number, (network, one) in enumerate(networks.items()):
            heads = (PROCESSORS[platform] if not number else "", network_name(network, dtype=True))
            rows.append((*heads, *(_tuned_row(one) if "skipped" not in one else ("does not fit", *[""] * 7))))
    heads = (
        "processor",
        "network",
        "layers, candidates",
        "other kernel or block",
        "instructions",
        "tuned",
        "cycles, estimated",
    )
    return table((*heads, "tuned", "change", "arena, B"), rows)


def _tuned_row(one: dict[str, Any]) -> tuple[str, ...]:
    plain, tuned = one["plain"], one["tuned"]
    change = tuned["estimated_cycles"] / plain["estimated_cycles"] - 1
    arenas = [grouped(figures["arena_bytes"]) for figures in (plain, tuned)]
    return (
        f"{one['layers']}, {one['ways']}", str(one["changed_layers"]), grouped(plain["instructions"]),
        grouped(tuned["instructions"]), grouped(plain["estimated_cycles"]), grouped(tuned["estimated_cycles"]),
        f"{100 * change:+.1f} %", " -> ".join(dict.fromkeys(arenas)),
    )  # fmt: skip


def modelled() -> str:
    """Modelled against executed instructions of every step of networks."""
    found = result("modelled")
    rows: list[tuple[str, ...]] = []
    for platform, networks in found["networks"].items():
        for number, (network, one) in enumerate(networks.items()):
            heads = (PROCESSORS[platform] if not number else "", _within(network))
            rows.append((*heads, *(_modelled_row(one) if "skipped" not in one else ("does not fit", *[""] * 6))))
        rows.append(("", "total", *_modelled_row(found["totals"][platform])))
    heads = (
        "processor",
        "network",
        "steps",
        "within 1.25",
        "within 2",
        "modelled",
        "executed",
        "ratio",
        "largest deviation",
    )
    return table(heads, rows)


def modelled_files() -> str:
    """Modelled against executed instructions of every step of model files, split into rows and not."""
    rows: list[tuple[str, ...]] = []
    for platform, files in result("modelled").get("files", {}).items():
        for number, (name, one) in enumerate(files.items()):
            heads = (PROCESSORS[platform] if not number else "", name)
            rows.append((*heads, *(_file_row(one) if "skipped" not in one else ("does not fit", *[""] * 6))))
    heads = ("processor", "file", "arena, B", "steps", "within 1.15", "modelled", "executed", "ratio")
    return table((*heads, "largest deviation"), rows)


def _file_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    _, _, _, *counts = _modelled_row(one)
    return (grouped(one["arena_bytes"]), str(one["num_steps"]), f"{one['within 1.15']:.1%}", *counts)


def _within(network: str) -> str:
    """A network's name, and the budget that cuts it into rows."""
    name, _, ram = network.partition(" within ")
    return network_name(name, dtype=True) + (f" within {int(ram):,} B" if ram else "")


def _modelled_row(one: dict[str, Any]) -> tuple[str, ...]:
    farthest = one["worst"][0]
    return (
        str(one["num_steps"]), f"{one['within 1.25']:.1%}", f"{one['within 2']:.1%}", f"{one['modelled']:,}",
        f"{one['executed']:,}", f"{one['modelled'] / one['executed']:.2f}",
        f"{farthest['kernel']} {farthest['ratio']:.2f}",
    )  # fmt: skip


def placement_times() -> str:
    """Predicted against estimated cycles of steps, before kernels' times were fitted and with them."""
    found = result("placement_times")
    rows: list[tuple[str, ...]] = []
    for platform, now in found["after"]["totals"].items():
        before = found["before"]["totals"][platform]
        for group in (name for name, one in now.items() if one["num_networks"]):
            cells = (cell for totals in (before, now) for cell in _predicted_cells(totals[group]))
            title = f"`{platform}`" if group == "all" else ""
            rows.append((title, group, grouped(now[group]["num_networks"]), *cells))
    heads = ("within 1.25", "within 2", "rank correlation", "predicted / estimated")
    columns = [
        f"{when}: {head}" if not place else head for when in ("before", "now") for place, head in enumerate(heads)
    ]
    return table(("platform", "networks", "number", *columns), rows)


def _predicted_cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    shares = (f"{one[f'within {bound:g}']:.1%}" for bound in BOUNDS)
    return (*shares, f"{one['rank correlation']:.3f}", f"{one['predicted'] / one['estimated']:.2f}")
