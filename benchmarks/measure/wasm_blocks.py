"""Block of documents on WebAssembly: a view of `benchmarks/results/wasm_times.json`."""

from __future__ import annotations

from benchmarks.measure.block_parts import result
from benchmarks.measure.tables import table


def wasm_times() -> str:
    """Fuel of each network without and with vectors, and its time in node beside onnxruntime-web."""
    rows: list[tuple[str, ...]] = []
    for network, one in result("wasm_times")["networks"].items():
        theirs = one["onnxruntime_web_microseconds"]
        rows.append(
            (
                f"`{network}`", f"{one['plain_fuel']:,}", f"{one['fuel']:,}", f"{one['module_bytes']:,}",
                f"{one['microseconds']:,.0f}", "-" if theirs is None else f"{theirs:,.0f}",
                "-" if theirs is None else f"{one['ratio']:.2f}",
            )
        )  # fmt: skip
    heads = ("network", "fuel, plain C", "fuel, SIMD128", "module, B", "µs in node", "onnxruntime-web, µs", "ratio")
    return table(heads, rows)
