"""Blocks of docs/targets.md and docs/wasm.md: networks on every target, and on WebAssembly beside another runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.measure.block_parts import result
from benchmarks.measure.tables import table

_KINDS_OF_LINES = ("description", "kernels", "headers", "machine", "platform")


def target_instructions() -> str:
    """Executed instructions of each network on each platform, as its machine counts them."""
    networks = result("targets")["networks"]
    return _by_platform(lambda one: "-" if one["instructions"] is None else f"{one['instructions']:,}", networks)


def target_cycles() -> str:
    """Return a table of the estimated cycles of each network on each platform whose core has a table of cycles."""
    networks = result("targets")["networks"]
    found = {
        network: {name: one for name, one in platforms.items() if one.get("estimated_cycles") is not None}
        for network, platforms in networks.items()
    }
    return _by_platform(lambda one: f"{one['estimated_cycles']:,}", found)


def target_bytes() -> str:
    """RAM and flash of each network on each platform."""
    networks = result("targets")["networks"]
    return _by_platform(lambda one: f"{one['ram_bytes']:,} / {one['flash_bytes']:,}", networks)


def target_networks() -> str:
    """Multiply-accumulates of each network."""
    networks = result("targets")["networks"]
    rows = [(name, f"{next(iter(platforms.values()))['macs']:,}") for name, platforms in networks.items()]
    return table(("network, int8", "multiply-accumulates"), rows)


def target_lines() -> str:
    """Return a table of the lines of each target and the lines that changed outside of its folders."""
    rows: list[tuple[str, ...]] = []
    for name, one in result("target_lines")["targets"].items():
        files = len(one["outside_files"])
        own = (f"{one[kind]:,}" if one[kind] else "-" for kind in _KINDS_OF_LINES)
        changed = f"{one['outside_added']:,} / {one['outside_removed']:,} in {files}" if files else "none"
        rows.append((name, *own, changed))
    heads = (
        "target", "description", "kernels", "C headers", "start-up code", "platform",
        "outside: added / removed lines in files",
    )  # fmt: skip
    return table(heads, rows)


def wasm_times() -> str:
    """Fuel of each network without and with vectors, and its time in node beside LiteRT.js and onnxruntime-web."""
    rows: list[tuple[str, ...]] = []
    for network, one in result("wasm_times")["networks"].items():
        theirs, litert = one["onnxruntime_web_microseconds"], one.get("litert_microseconds")
        rows.append(
            (
                f"`{network}`", f"{one['plain_fuel']:,}", f"{one['fuel']:,}", f"{one['module_bytes']:,}",
                f"{one['microseconds']:,.0f}", "-" if litert is None else f"{litert:,.0f}",
                "-" if litert is None else f"{one['litert_ratio']:.2f}", "-" if theirs is None else f"{theirs:,.0f}",
                "-" if theirs is None else f"{one['ratio']:.2f}",
            )
        )  # fmt: skip
    heads = (
        "network", "fuel, plain C", "fuel, SIMD128", "module, B", "µs in node", "LiteRT.js, µs", "ratio",
        "onnxruntime-web, µs", "ratio",
    )  # fmt: skip
    return table(heads, rows)


def _by_platform(cell: Callable[[dict[str, Any]], str], networks: Mapping[str, Mapping[str, dict[str, Any]]]) -> str:
    platforms = dict.fromkeys(name for found in networks.values() for name in found)
    rows = [
        (f"`{platform}`", *(cell(found[platform]) if platform in found else "-" for found in networks.values()))
        for platform in platforms
    ]
    return table(("platform", *networks), rows)
