"""Blocks of documents that hold figures: views of the files in `benchmarks/results`, nothing computed elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure.bit_blocks import fewer_bits
from benchmarks.measure.published import read_published
from benchmarks.measure.records import Row, read_records
from benchmarks.measure.tables import table
from benchmarks.measure.tflite_table import files_table, operators_table
from benchmarks.measure.transformer_blocks import transformers

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results"
NAMES = {
    "digits": "the digits of the tutorials",
    "ds_cnn": "DS-CNN, keyword spotting",
    "resnet8": "ResNet-8",
    "mobilenet_v1_025_96": "MobileNetV1 0.25, 96 x 96",
    "mobilenet_v2_035_144": "MobileNetV2 0.35, 144 x 144",
    "mobilenet_v2_100_224": "MobileNetV2 1.0, 224 x 224",
    "mcunet_320k": "MCUNet-320K, 176 x 176",
    "mlp_64_4096": "Perceptron 64-4096-64",
    "ffn_16_128_512": "Transformer's feed-forward, 16 tokens, 128-512-128",
    "gated_unet_16": "U-Net",
    "gated_dense_block_8": "Dense block",
}
PROCESSORS = {"cortex_m4": "Cortex-M4", "cortex_m55": "Cortex-M55"}
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
            _name(network), _count(found["whole_bytes"]), _count(found["least_bytes"]),
            _count(found.get("patches", {}).get("least_bytes")), _count(found["streamed"]["least_bytes"]),
        )
        for network, found in _in_order(_result("fit")["networks"])
    ]  # fmt: skip
    return table(("network", "whole", "least by rows", "least in patches", "least by rows, streamed"), rows)


def budgets() -> str:
    """Executed instructions of packages that were run within less, and times those of the whole."""
    rows: list[tuple[str, ...]] = []
    for network, found in _in_order(_result("fit")["networks"]):
        executed = {int(num_bytes): count for num_bytes, count in found.get("instructions", {}).items()}
        whole = executed.pop(found["whole_bytes"], None) or _whole(network)
        ways = [("by rows", executed), ("in patches", found.get("patches", {}).get("instructions", {}))]
        ways.append(("by rows, streamed", {found["streamed"]["verified_bytes"]: found["streamed"]["instructions"]}))
        for way, counts in ways:
            rows += [
                (_name(network), way, _count(int(num_bytes)), _count(count), f"{count / whole:.3f}")
                for num_bytes, count in counts.items()
            ]
    return table(("network", "way", "arena", "instructions", "times those of the whole"), rows)


def ways() -> str:
    """Bytes that each way comes to, of networks whose results wait long for their readers."""
    found = _result("ways")["networks"]
    methods = ("whole", "split", "recompute", "split and recompute")
    rows = []
    for network, one in found.items():
        whole, nearest = (one["packages"][name]["instructions"] for name in ("whole", "nearest"))
        rows.append((_name(network), *(_count(one["least_bytes"][m]) for m in methods), _count(whole), _count(nearest)))
    return table(("network", *methods, "instructions, whole", "instructions, least"), rows)


def monotonic() -> str:
    """Costs within every budget between the least and the whole."""
    found = _result("monotonic")
    rows = [
        (
            _name(network, dtype=True), _count(one["nearest_bytes"]), _count(one["whole_bytes"]),
            _count(one["num_budgets"]), _count(len(one["steps"])), _count(len(one["dearer"])),
        )
        for network, one in found["networks"].items()
    ]  # fmt: skip
    heads = ("network", "least", "whole", "budgets tried", "different results", "dearer than a smaller budget")
    return table(heads, rows)


def guide_costs() -> str:
    """Estimates of the kernels and of the learned guide against executed instructions."""
    corpus, costs = _result("guide_corpus"), _result("guide")["costs"]
    rows = [
        (
            f"{PROCESSORS[group.split()[0]]}, {_dtype(group.split()[1])}", _count(one["steps"]),
            *(f"{one[key]:.4f}" for key in ("modelled_spearman", "learned_spearman")),
            *(f"{one[key]:.3f}" for key in ("modelled_error_bits", "learned_error_bits")),
        )
        for group, one in costs.items() if group != "commit" and len(group.split()) == 2
    ]  # fmt: skip
    heads = (
        "processor, type", "steps", "rank correlation: own estimate", "learned", "mean error in bits: own estimate",
        "learned",
    )  # fmt: skip
    return f"Trained on {len(corpus['steps']):,} kernels of random networks:\n\n{table(heads, rows)}"


def guide_plans() -> str:
    """The search for recomputation without the guide, with it, and both."""
    names = {"without": "without", "with": "with", "both": "the cheaper of both, which is taken"}
    rows = [
        (
            names[name], f"{one['solved']} of {one['problems']}", f"{one['added_percent']:.2f} %",
            _count(one["evaluated"]),
        )
        for name, one in _result("guide")["plans"].items() if name != "commit"
    ]  # fmt: skip
    return table(("guide", "solved", "added duration, of what all solve", "sequences evaluated"), rows)


def hierarchy() -> str:
    """Predicted cycles in one memory and in all."""
    found = _result("hierarchy")
    rows = []
    for key, one in found["networks"].items():
        board, network, *limits = key.split(":")
        less = [f"{int(limit.partition('=')[2]) // 1024} KiB of {limit.partition('=')[0]}" for limit in limits]
        moved = ", ".join(f"{m['source']} to {m['target']} {m['bytes']:,}" for m in one["moved_counted"])
        rows.append(
            (
                ", ".join([f"`{board}`", *less]), _name(network, dtype=True),
                *(_count(one[k]) for k in ("predicted_cycles_one_memory", "predicted_cycles")),
                f"{one['times_as_fast']:.2f}", moved,
            )
        )  # fmt: skip
    above = max(problem["above_bound"] for size in found["graphs"].values() for problem in size["problems"])
    heads = (
        "board", "network", "cycles, one memory (predicted)", "all memories (predicted)", "times as fast",
        "bytes moved in a run, counted",
    )  # fmt: skip
    sizes = list(found["graphs"])
    bound = f"of {sizes[0]} to {sizes[-1]} operators the plans are at most {100 * above:.1f} % above a bound"
    return f"{table(heads, rows)}\nOn random graphs {bound} that ortools proves.\n"


def streams() -> str:
    """Models that run all day: a run of each, and what its whole window costs."""
    rows = []
    for name, case in _result("streams")["cases"].items():
        for platform in ("cortex_m4", "cortex_m55"):
            one = case[platform]
            window = one.get("window", {})
            rows.append(
                (
                    name if platform == "cortex_m4" else "", f"`{platform}`", _count(one.get("instructions")),
                    _count(one.get("ram_bytes")), _count(one.get("state_bytes")), _count(window.get("instructions")),
                    _count(window.get("ram_bytes")),
                )
            )  # fmt: skip
    heads = ("model", "board", "instructions a run", "RAM, B", "of it states", "whole window", "RAM, B")
    runs = {case["compared_runs"] for case in _result("streams")["cases"].values()}
    differing = sum(case["differing_runs"] for case in _result("streams")["cases"].values())
    said = (
        f"Over {min(runs):,} runs of each, {differing or 'none'} differ in a byte from TensorFlow Lite Micro's answer."
    )
    return f"{table(heads, rows)}\n{said}\n"


def tflm_reference() -> str:
    """Models that keep states, beside TensorFlow Lite Micro with its reference kernels."""
    rows = []
    for name, one in _result("tflm_reference")["models"].items():
        ours, theirs = one["ours"], one["tflm"]
        ratio = f"{ours['instructions'] / theirs['instructions']:.3f}"
        counts = (ours["instructions"], theirs["instructions"])
        arenas_bytes = (ours["arena_bytes"], theirs["arena_bytes"])
        rows.append((name, *map(_count, counts), ratio, *map(_count, arenas_bytes)))
    heads = ("model, `cortex_m4`", "instructions a run", "TFLM", "ratio", "arena and states, B", "TFLM's arena, B")
    return f"{table(heads, rows)}\nBoth by GCC with -O3, counted in QEMU; TFLM with its reference kernels.\n"


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
            cells = (_count(by_model.get(model)) for model in MODELS)
            lines.append((f"{what}: {name}" if number == 0 else name, *cells))
    return table(("", *(f"{m.split('_')[0]} {_dtype(m.split('_')[1])}" for m in MODELS)), lines)


def two_cores() -> str:
    """Executed instructions of a run shared by two cores, and of the faster one alone; placements beside bounds."""
    rows = [
        (
            f"`{board}`", _name(network, dtype=True), _count(found["makespan_instructions"]),
            _count(found["single_processor_instructions"]), f"{found['times_as_fast']:.2f}", _count(found["signals"]),
        )
        for key, found in _result("two_cores")["networks"].items()
        for board, network in [key.split(":")]
    ]  # fmt: skip
    sizes = _result("placement_bound")
    graphs = [graph for size in sizes.values() for graph in size["problems"]]
    above = [graph["above_bound"] for graph in graphs]
    least, *_, most = sizes
    heads = ("platform", "network", "two cores", "one core", "times as fast", "signals")
    return (
        f"{table(heads, rows)}\n"
        f"Of {len(graphs)} random graphs of {least} to {most} operators {sum(one <= 0.05 for one in above)} are placed "
        "within 5 % of the bound that is proved with\n"
        f"ortools: {100 * sum(above) / len(above):.1f} % above it on average, {100 * max(above):.1f} % at most, in "
        f"{max(graph['seconds'] for graph in graphs):.0f} s of a processor or less.\n"
    )


def pipelines() -> str:
    """Executed instructions between successive outputs of a pipeline over two cores, and of each stage."""
    rows = [
        (
            f"`{board}`", _name(network, dtype=True), *(_count(one) for one in found["stage_instructions"].values()),
            _count(found["interval_instructions"]), f"{100 * found['above_stage']:.1f} %",
            _count(found["single_processor_instructions"]), f"{found['times_as_many']:.2f}",
        )
        for key, found in _result("two_cores")["pipelines"].items()
        for board, network in [key.split(":")]
    ]  # fmt: skip
    head = ("stage of cpu0", "stage of cpu1", "between outputs", "above the longer stage", "one core", "times as many")
    return table(("platform", "network", *head), rows)


def sweep() -> str:
    """Seconds of estimates, and how they compare with full builds."""
    found = _result("sweep")
    full, again = found["full"], found["second_run"]
    candidates, platforms = _count(found["candidates"]), [PROCESSORS[one] for one in found["platforms"]]
    rows = [
        (
            f"estimate of one of {candidates} candidates on {' and '.join(platforms)}, mean",
            f"{found['cpu_s']['mean']} s",
        ),
        ("the longest", f"{found['cpu_s']['most']} s"),
        (f"a second sweep over all {_count(found['rows'])}, from the cache", f"{again['cpu_s']} s"),
        ("a full build, run on the board, mean", f"{full['cpu_s']} s"),
        (f"full builds, of {full['built']}, whose RAM is the estimate's", _count(full["ram_equal"])),
        ("those whose flash is", _count(full["flash_equal"])),
        *(
            (f"rank correlation of instructions, {PROCESSORS[one]}", str(full["rank_correlation"][one]))
            for one in found["platforms"]
        ),
        ("a sweep that is killed and taken up again", "the same" if found["same_after_kill"] else "other figures"),
    ]
    return table(("figure", "seconds of CPU, or count"), rows)


def tflite_files() -> str:
    """Files of TensorFlow Lite Micro's repository: how many give its bytes."""
    return files_table(_result("tflite_files"))


def tflite_operators() -> str:
    """Operators by element type, beside TensorFlow Lite Micro."""
    return operators_table(_result("tflite_operators")["rows"])


BLOCKS: Mapping[str, Callable[[], str]] = {
    block.__name__: block
    for block in (
        arenas, budgets, ways, monotonic, guide_costs, guide_plans, hierarchy, streams, tflm_reference, side_by_side,
        two_cores, pipelines, sweep, tflite_files, tflite_operators, fewer_bits,
        transformers,
    )
}  # fmt: skip
"""Name of a block in a document -> its text, which ends with a line break."""


def _result(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def _in_order(networks: Mapping[str, Any]) -> list[tuple[str, Any]]:
    order = list(NAMES)
    return sorted(networks.items(), key=lambda item: order.index(_without_dtype(item[0])))


def _whole(network: str) -> int:
    """Executed instructions of the whole network where the benchmark of fits did not count them."""
    rows = read_records(RESULTS / "side_by_side.json")[network].rows
    return next(row.instructions for row in rows if row.platform == "cortex_m4" and row.instructions)


def _name(network: str, *, dtype: bool = False) -> str:
    name = NAMES[_without_dtype(network)]
    return f"{name}, {_dtype(network.rpartition('_')[2])}" if dtype else name


def _without_dtype(network: str) -> str:
    return re.sub("_(fp32|int8)$", "", network)


def _dtype(short: str) -> str:
    return {"fp32": "float32"}.get(short, short)


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
