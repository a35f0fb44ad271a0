"""Blocks of documents that hold figures: views of the files in `benchmarks/results`, nothing computed elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.conformance.reasons import reasons_table
from benchmarks.conformance.tables import suite_table
from benchmarks.fuzzing.tables import mutants
from benchmarks.measure.bit_blocks import fewer_bits, grown_weights
from benchmarks.measure.block_parts import (
    NAMES,
    RESULTS,
    dtype_name,
    grouped,
    network_name,
    result,
    without_dtype,
)
from benchmarks.measure.board_blocks import boards
from benchmarks.measure.cycle_blocks import (
    modelled,
    modelled_files,
    placement_times,
    profile_kws,
    published_cycles,
    tune,
)  # fmt: skip
from benchmarks.measure.half_blocks import half_floats
from benchmarks.measure.idea_blocks import ideas, shared_windows
from benchmarks.measure.operator_blocks import generic_steps, generic_totals, soft_spots
from benchmarks.measure.order_blocks import free_orders, reached_orders
from benchmarks.measure.processor_blocks import bundle_rounds, jobs, pipelines, sweep, two_cores, two_cores_memory
from benchmarks.measure.published import read_published
from benchmarks.measure.quantizer_blocks import int8_forms, quantizers
from benchmarks.measure.real_blocks import given_files, real_files, real_files_refused, real_files_short
from benchmarks.measure.records import Row, read_records
from benchmarks.measure.riscv_blocks import coral_npu, riscv_vectors
from benchmarks.measure.rounding_blocks import rounding_files, rounding_instructions, rounding_not_compared
from benchmarks.measure.search_blocks import recomputation
from benchmarks.measure.tables import table
from benchmarks.measure.target_blocks import (
    target_bytes,
    target_cycles,
    target_instructions,
    target_lines,
    target_networks,
    wasm_times,
)
from benchmarks.measure.tflite_table import files_table, operators_table
from benchmarks.measure.tflm_blocks import tflm, tflm_streams, tflm_tiny
from benchmarks.measure.time_series_blocks import sequence_lengths, time_series
from benchmarks.measure.transformer_blocks import transformers
from benchmarks.measure.verification_blocks import attribute_pairs, package_mutations, torch_networks

ROOT = Path(__file__).resolve().parent.parent.parent
MODELS = ("kws_fp32", "resnet_fp32", "kws_int8", "resnet_int8")
"""Networks of MLPerf Tiny that are compared side by side."""
COUNTS = (
    ("Cortex-M4", "cortex_m4", "instructions"),
    ("Cortex-M55", "cortex_m55", "instructions"),
    ("x86-64-v3, callgrind", "host", "callgrind_ir"),
    ("arena on the Cortex-M4, bytes", "cortex_m4", "ram_bytes"),
)


def arenas() -> str:
    """Bytes that networks need, from the whole to the least."""
    rows = [
        (
            network_name(network), grouped(found["whole_bytes"]), grouped(found["least_bytes"]),
            grouped(found.get("patches", {}).get("least_bytes")), grouped(found["streamed"]["least_bytes"]),
            grouped(found["streamed"].get("patches", {}).get("least_bytes")),
        )
        for network, found in _in_order(result("fit")["networks"])
    ]  # fmt: skip
    heads = (
        "whole",
        "smallest, row by row",
        "smallest, in patches",
        "smallest, row by row, streamed",
        "smallest, in patches, rows read again",
    )
    return table(("network", *heads), rows)


def budgets() -> str:
    """Executed instructions of packages that were run within less, and times those of the whole."""
    rows: list[tuple[str, ...]] = []
    for network, found in _in_order(result("fit")["networks"]):
        executed = {int(num_bytes): count for num_bytes, count in found.get("instructions", {}).items()}
        whole = executed.pop(found["whole_bytes"], None) or _whole(network)
        ways = [("row by row", executed), ("in patches", found.get("patches", {}).get("instructions", {}))]
        ways.append(("row by row, streamed", {found["streamed"]["verified_bytes"]: found["streamed"]["instructions"]}))
        ways.append(("in patches, rows read again", found["streamed"].get("patches", {}).get("instructions", {})))
        for way, counts in ways:
            rows += [
                (network_name(network), way, grouped(int(num_bytes)), grouped(count), f"{count / whole:.3f}")
                for num_bytes, count in counts.items()
            ]
    return table(("network", "method", "arena", "instructions", "relative to whole"), rows)


def ways() -> str:
    """Bytes that each way comes to, of networks whose results wait long for their readers."""
    found = result("ways")["networks"]
    methods = ("whole", "split", "recompute", "split and recompute")
    rows = []
    for network, one in found.items():
        whole, nearest = (one["packages"][name]["instructions"] for name in ("whole", "nearest"))
        rows.append(
            (network_name(network), *(grouped(one["least_bytes"][m]) for m in methods), *map(grouped, (whole, nearest)))
        )
    return table(("network", *methods, "instructions, whole", "instructions, smallest"), rows)


def monotonic() -> str:
    """Costs within every budget between the least and the whole."""
    found = result("monotonic")
    rows = [
        (
            network_name(network, dtype=True), grouped(one["nearest_bytes"]), grouped(one["whole_bytes"]),
            grouped(one["num_budgets"]), grouped(len(one["steps"])), grouped(len(one["dearer"])),
        )
        for network, one in found["networks"].items()
    ]  # fmt: skip
    heads = ("network", "smallest", "whole", "budgets tried", "different results", "costlier than a smaller budget")
    return table(heads, rows)


def hierarchy() -> str:
    """Predicted cycles in one memory and in all."""
    found = result("hierarchy")
    rows = []
    for key, one in found["networks"].items():
        board, network, *limits = key.split(":")
        less = [f"{int(limit.partition('=')[2]) // 1024} KiB of {limit.partition('=')[0]}" for limit in limits]
        moved = ", ".join(f"{m['source']} to {m['target']} {m['bytes']:,}" for m in one["moved_counted"])
        without = one["predicted_cycles_without_tiles"]  # tiles are only taken where they save 1 %
        rows.append(
            (
                ", ".join([f"`{board}`", *less]), network_name(network, dtype=True),
                *(
                    grouped(one[f"predicted_cycles{k}"]) for k in ("_one_memory", "_places_alone")
                ),
                grouped(without) if without > 1.01 * one["predicted_cycles"] else "no tiles",
                grouped(one["predicted_cycles"]),
                f"{one['times_as_fast']:.2f}", moved,
            )
        )  # fmt: skip
    above = max(problem["above_bound"] for size in found["graphs"].values() for problem in size["problems"])
    heads = (
        "board", "network", "cycles, one memory (predicted)", "all memories, whole layers (predicted)",
        "without tiles (predicted)", "all memories (predicted)", "speedup",
        "bytes copied in a run, counted",
    )  # fmt: skip
    sizes = list(found["graphs"])
    bound = f"of {sizes[0]} to {sizes[-1]} operators the plans are at most {100 * above:.1f} % above a bound"
    return f"{table(heads, rows)}\nOn random graphs {bound} that ortools proves.\n"


def default_plans() -> str:
    """RAM of default plans and of whole layers, and what the smaller plan costs."""
    rows = []
    for key, plans in result("default_plans").items():
        board, network = key.split(":")
        whole, default = plans["whole"], plans["default"]
        if default["method"] == "whole":
            continue
        executed = default["executed_instructions"] / whole["executed_instructions"] - 1
        rows.append(
            (
                f"`{board}`", network_name(network, dtype=True), grouped(whole["arena_bytes"]),
                grouped(default["arena_bytes"]), f"{whole['arena_bytes'] / default['arena_bytes']:.2f}",
                f"{100 * executed:+.2f}%", f"{default['code_bytes'] - whole['code_bytes']:+,}",
            )
        )  # fmt: skip
    heads = (
        "board", "network", "whole layers, B", "default, B", "times smaller", "instructions executed", "code, B",
    )  # fmt: skip
    stays = [network_name(key.split(":")[1], dtype=True) for key, p in result("default_plans").items()
             if p["default"]["method"] == "whole"]  # fmt: skip
    return f"{table(heads, rows)}\nWhole layers remain the default of: {'; '.join(dict.fromkeys(stays))}.\n"


def streams() -> str:
    """Models that run all day: a run of each, and what its whole window costs."""
    rows = []
    for name, case in result("streams")["cases"].items():
        for platform in ("cortex_m4", "cortex_m55"):
            one = case[platform]
            window = one.get("window", {})
            rows.append(
                (
                    name if platform == "cortex_m4" else "", f"`{platform}`", grouped(one.get("instructions")),
                    grouped(one.get("ram_bytes")), grouped(one.get("state_bytes")), grouped(window.get("instructions")),
                    grouped(window.get("ram_bytes")),
                )
            )  # fmt: skip
    heads = ("model", "board", "instructions per run", "RAM, B", "states, B", "whole window", "RAM, B")
    runs = {case["compared_runs"] for case in result("streams")["cases"].values()}
    differing = sum(case["differing_runs"] for case in result("streams")["cases"].values())
    said = (
        f"In {min(runs):,} runs of each model, {differing or 'no'} outputs differ from those of TensorFlow Lite Micro."
    )
    return f"{table(heads, rows)}\n{said}\n"


def side_by_side() -> str:
    """Our code beside other compilers', of two networks of MLPerf Tiny."""
    records = read_records(RESULTS / "side_by_side.json")
    published = read_published(ROOT / "benchmarks" / "published.toml")
    rows: list[tuple[Row, str]] = [(row, model) for model in MODELS for row in records[model].rows]
    rows += [(one.row, one.model) for one in published if one.model in MODELS]
    lines = []
    for what, platform, metric in COUNTS:
        counts: dict[str, dict[str, int]] = {}
        for row, model in rows:
            value = getattr(row, metric)
            if row.platform == platform and value is not None:
                name = row.system if row.source == "measured" else f"{row.system} (published)"
                counts.setdefault(name, {})[model] = value
        for number, (name, by_model) in enumerate(counts.items()):
            cells = (grouped(by_model.get(model)) for model in MODELS)
            lines.append((f"{what}: {name}" if number == 0 else name, *cells))
    return table(("", *(f"{m.split('_')[0]} {dtype_name(m.split('_')[1])}" for m in MODELS)), lines)


def tflite_files() -> str:
    """Files of TensorFlow Lite Micro's repository: how many give its bytes."""
    return files_table(result("tflite_files"))


def tflite_operators() -> str:
    """Operators by element type, beside TensorFlow Lite Micro."""
    return operators_table(result("tflite_operators")["rows"])


def onnx_suite() -> str:
    """Cases of ONNX's backend suite by verdict."""
    return suite_table(json.loads((ROOT / "benchmarks" / "conformance" / "totals.json").read_text(encoding="utf-8")))


def onnx_reasons() -> str:
    """Refused cases of ONNX's backend suite by reason."""
    return reasons_table(result("onnx_reasons"))


BLOCKS: Mapping[str, Callable[[], str]] = {
    block.__name__: block
    for block in (
        arenas, budgets, ways, monotonic, hierarchy, default_plans, streams, tflm, tflm_tiny,
        tflm_streams, side_by_side, two_cores, pipelines, jobs, sweep, tflite_files, tflite_operators, onnx_suite,
        onnx_reasons,
        real_files, real_files_refused, real_files_short, given_files,
        mutants, fewer_bits, half_floats, quantizers, int8_forms, transformers, published_cycles, profile_kws, tune,
        modelled,
        modelled_files,
        placement_times, coral_npu, riscv_vectors, wasm_times, boards, grown_weights, generic_totals, generic_steps,
        recomputation,
        target_bytes, target_cycles, target_instructions, target_lines, target_networks,
        free_orders, reached_orders, package_mutations, attribute_pairs, torch_networks, time_series,
        two_cores_memory, sequence_lengths, bundle_rounds,
        soft_spots, shared_windows, ideas, rounding_files, rounding_not_compared, rounding_instructions,
    )
}  # fmt: skip
"""Name of a block in a document -> its text, which ends with a line break."""


def _in_order(networks: Mapping[str, Any]) -> list[tuple[str, Any]]:
    order = list(NAMES)
    return sorted(networks.items(), key=lambda item: order.index(without_dtype(item[0])))


def _whole(network: str) -> int:
    """Executed instructions of the whole network where the benchmark of fits did not count them."""
    rows = read_records(RESULTS / "side_by_side.json")[network].rows
    return next(row.instructions for row in rows if row.platform == "cortex_m4" and row.instructions)
