"""Blocks of documents on several processors, and on sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.measure.block_parts import PROCESSORS, grouped, network_name, result
from benchmarks.measure.tables import table

_PREDICTED = ("cycles, predicted", "speedup in cycles")


def two_cores() -> str:
    """Executed instructions of a run shared by two cores, and of the faster one alone; placements beside bounds."""
    rows = [
        (
            f"`{board}`", network_name(network, dtype=True), grouped(found["makespan_instructions"]),
            grouped(found["single_processor_instructions"]), f"{found['times_as_fast']:.2f}",
            *_predicted(found["predicted"], "makespan_cycles"), grouped(found["signals"]),
        )
        for key, found in result("two_cores")["networks"].items()
        for board, network in [key.split(":")]
    ]  # fmt: skip
    sizes = result("placement_bound")
    graphs = [graph for size in sizes.values() for graph in size["problems"]]
    above = [graph["above_bound"] for graph in graphs]
    least, *_, most = sizes
    heads = ("platform", "network", "two cores", "one core", "speedup", *_PREDICTED, "signals")
    return (
        f"{table(heads, rows)}\n"
        f"Of {len(graphs)} random graphs of {least} to {most} operators, {sum(one <= 0.05 for one in above)} have a "
        "placement within 5 % of a bound that ortools proves:\n"
        f"{100 * sum(above) / len(above):.1f} % above it on average, and {100 * max(above):.1f} % at most. A search "
        f"takes at most {max(graph['seconds'] for graph in graphs):.0f} s of processor time.\n"
    )


def two_cores_memory() -> str:
    """Bytes of networks on two equal cores and on one, and predicted cycles."""
    found = result("two_cores_memory")["networks"]
    rows = [
        (
            network_name(name, dtype=True), *_by_rows(one, ""), *_by_rows(one, "single_"),
            f"{one['times_the_bytes']:.2f}", grouped(one["makespan_cycles"]), f"{one['times_as_fast']:.2f}",
        )
        for name, one in found.items()
    ]  # fmt: skip
    heads = (
        "network", "two cores, whole layers", "two cores, bytes", "one core, whole layers", "one core, bytes", "ratio",
        "cycles, predicted", "speedup in cycles",
    )  # fmt: skip
    times, speedups = (sorted(one[key] for one in found.values()) for key in ("times_the_bytes", "times_as_fast"))
    return (
        f"{table(heads, rows)}\n"
        f"Of {len(found)} networks, {sum(one <= 1.25 for one in times)} need at most 1.25 times the bytes, and "
        f"{sum(one >= 1.8 for one in speedups)} are at least 1.8 times as fast.\n"
        f"The median is {_median(times):.2f} times the bytes and {_median(speedups):.2f} times the speed.\n"
    )


def _by_rows(found: Mapping[str, Any], cores: str) -> tuple[str, str]:
    """Return the bytes of whole layers and of a build, in which sequences run by rows where the result says so."""
    in_rows = " by rows" if found[f"{cores}method"] == "split" else ""
    return grouped(found[f"{cores}whole_arena_bytes"]), f"{grouped(found[f'{cores}arena_bytes'])}{in_rows}"


def _median(values: Sequence[float]) -> float:
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def pipelines() -> str:
    """Executed instructions between successive outputs of a pipeline over two cores, and of each stage."""
    rows = [
        (
            f"`{board}`", network_name(network, dtype=True),
            *(grouped(one) for one in found["stage_instructions"].values()),
            grouped(found["interval_instructions"]), f"{100 * found['above_stage']:.1f} %",
            grouped(found["single_processor_instructions"]), f"{found['times_as_many']:.2f}",
            *_predicted(found["predicted"], "interval_cycles"),
        )
        for key, found in result("two_cores")["pipelines"].items()
        for board, network in [key.split(":")]
    ]  # fmt: skip
    head = ("stage of cpu0", "stage of cpu1", "between outputs", "above the longer stage", "one core", "speedup")
    return table(("platform", "network", *head, *_PREDICTED), rows)


_ROUNDS = {
    "independent": "keyword spotting and an image classifier, both int8",
    "parameters": "a network that finds gains for a filter",
    "parameters_ahead": "the same, with the gains of the round before",
    "dtln": "DTLN, which removes noise from speech",
    "dtln_ahead": "DTLN, the second network a frame later",
}


def bundle_rounds() -> str:
    """Executed instructions and predicted cycles of rounds on two cores, and on one."""
    rows = [
        (
            _ROUNDS[name], grouped(two["makespan_instructions"]), grouped(one["makespan_instructions"]),
            f"{found['times_as_fast']:.2f}", grouped(two["makespan_cycles"]), f"{found['times_as_fast_in_cycles']:.2f}",
            grouped(two["signals"]), grouped(one["ram_bytes"]), grouped(two["ram_bytes"]),
        )
        for key, found in result("bundle_rounds").items()
        for name in [key.split(":")[1]]
        for one, two in [(found["one_core"], found["two_cores"])]
    ]  # fmt: skip
    heads = ("round", "two cores", "one core", "speedup", *_PREDICTED, "signals", "RAM, one core", "RAM, two cores")
    return table(heads, rows)


def _predicted(placement: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Predicted cycles of a placement, and how many times as many one core takes."""
    cycles, alone = placement[key], placement["single_processor"]["makespan_cycles"]
    return grouped(cycles), f"{alone / cycles:.2f}"


def jobs() -> str:
    """Seconds of builds with one and two services, of changed models, and the costs of sweeps."""
    found = result("jobs")
    names = {
        "layers": "a network of 80 layers, verified on host and board", "budget": "the same, in half of its RAM",
        "tune": "the same, kernels measured", "bundle": "the same and ResNet-8 in a bundle",
    }  # fmt: skip
    rows: list[Sequence[str]] = []
    for key, name in ((key, name) for key, name in names.items() if key in found):
        runs = found[key]["runs"]
        rows.append((
            name, f"{runs['1']['free_s']} s", f"{runs['2']['free_s']} s", f"{found[key]['ratios']['2']:.2f}",
            f"{runs['1']['cpu_s']} s, {runs['2']['cpu_s']} s",
        ))  # fmt: skip
    changed, travel, many = found["changed"], found["travel"], found["many"]
    mebibytes = [f"{travel[key] / (1 << 20):.1f} MiB" for key in ("models_bytes", "sent_bytes")]
    others = [
        ("the package without verification, first build", f"{changed['first_cpu_s']} s of CPU"),
        ("the same again", f"{changed['again_cpu_s']} s of CPU"),
        ("the same with other weights in the largest layer", f"{changed['one_layer_cpu_s']} s of CPU"),
        (f"models of {travel['candidates']} candidates, {mebibytes[0]}, sent to two processes", mebibytes[1]),
        *(
            (f"memory of a sweep of {grouped(int(count))} candidates", f"{one['mib']} MiB")
            for count, one in many.items()
        ),
    ]  # fmt: skip
    heads = ("build", "1 service", "2 services", "ratio", "CPU with 1 and 2")
    return f"{table(heads, rows)}\n{table(('other measurement', 'value'), others)}"


def sweep() -> str:
    """Seconds of estimates, and how they compare with full builds."""
    found = result("sweep")
    full, again = found["full"], found["second_run"]
    candidates, platforms = grouped(found["candidates"]), [PROCESSORS[one] for one in found["platforms"]]
    rows = [
        (
            f"estimate of one of {candidates} candidates on {' and '.join(platforms)}, mean",
            f"{found['cpu_s']['mean']} s",
        ),
        ("the same, maximum", f"{found['cpu_s']['most']} s"),
        (f"a second sweep over all {grouped(found['rows'])}, from the cache", f"{again['cpu_s']} s"),
        ("a full build, run on the board, mean", f"{full['cpu_s']} s"),
        (f"full builds, of {full['built']}, whose RAM equals the estimate", grouped(full["ram_equal"])),
        ("full builds whose flash equals the estimate", grouped(full["flash_equal"])),
        *(
            (f"rank correlation of instructions, {PROCESSORS[one]}", str(full["rank_correlation"][one]))
            for one in found["platforms"]
        ),
        ("a sweep that is killed and continued", "the same rows" if found["same_after_kill"] else "other rows"),
    ]
    return table(("measurement", "seconds of CPU, or count"), rows)
