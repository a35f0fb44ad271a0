"""Blocks of documents on what each technique of the compiler saves, and on layers that read one tensor."""

from __future__ import annotations

from benchmarks.measure.block_parts import PROCESSORS, grouped, network_name, result
from benchmarks.measure.tables import table

_BUILDS = {
    "layers": "80 layers",
    "budget": "80 layers in half of their RAM",
    "tune": "80 layers, kernels measured",
    "bundle": "80 layers and ResNet-8 in a bundle",
}
_ROUNDS = {
    "parameters": "a network that finds gains for a filter",
    "parameters_ahead": "the same, with the gains of the round before",
    "dtln_ahead": "DTLN, the second network a frame later",
}
_WINDOWS = {
    "gates": "WaveNet, gates of two taps",
    "wide_heads": "SSD, heads of 3 x 3 taps",
    "narrow_heads": "SSD, heads of 1 x 1",
    "inception": "inception blocks",
    "cross_stage": "cross-stage blocks of YOLO",
    "attention_16": "transformer, 16 wide",
    "attention_64": "encoder block, 64 wide",
}
"""Networks of `benchmarks/shared_windows.py`, in int8."""


def ideas() -> str:
    """Each technique, on networks without it and with it."""
    memories = [*_memories(), *_tiles()]
    rows = [*_shared_compilation(), *_rounds(), *_cores(), *memories, *_plans(), *_smallest(), *_windows()]
    return table(("technique", "network", "measure", "without", "with", "without / with"), rows)


def _row(idea: str, experiment: str, measure: str, before: float, after: float) -> tuple[str, ...]:
    texts = [f"{one:.1f}" if isinstance(one, float) else grouped(one) for one in (before, after)]
    return (idea, experiment, measure, *texts, f"{before / after:.2f}")


def _shared_compilation() -> list[tuple[str, ...]]:
    found, idea = result("jobs"), "[parts of a build on two services](compile_time.md)"
    rows: list[tuple[str, ...]] = []
    for what, name in _BUILDS.items():
        runs = found[what]["runs"]
        for measure, key in (("seconds on free cores", "free_s"), ("CPU seconds", "cpu_s")):
            rows.append(_row(idea, name, measure, runs["1"][key], runs["2"][key]))
    return rows


def _rounds() -> list[tuple[str, ...]]:
    found, idea = result("bundle_rounds"), "[models of a bundle on two cores](bundles.md)"
    return [
        _row(idea, name, "instructions", *(one[key]["makespan_instructions"] for key in ("one_core", "two_cores")))
        for key, name in _ROUNDS.items()
        for one in [found[f"dual_m33_equal:{key}"]]
    ]


def _cores() -> list[tuple[str, ...]]:
    found, idea = result("two_cores_memory")["networks"], "[rows of layers on two cores](processors.md)"
    middle = sorted(found, key=lambda name: found[name]["times_as_fast"])[len(found) // 2]
    one, name = found[middle], f"{_network(middle)}, the median of {len(found)} networks by speed"
    cycles = _row(idea, name, "predicted cycles", one["single_processor_cycles"], one["makespan_cycles"])
    middle = sorted(found, key=lambda name: found[name]["times_the_bytes"])[len(found) // 2]
    one, name = found[middle], f"{_network(middle)}, the median by memory"
    return [cycles, _row(idea, name, "bytes of the arena", one["single_arena_bytes"], one["arena_bytes"])]


def _memories() -> list[tuple[str, ...]]:
    idea, rows = "[several memories, prefetched](memories.md)", list[tuple[str, ...]]()
    for key, one in result("hierarchy")["networks"].items():
        platform, network, *limits = key.split(":")
        if not limits:
            cycles = one["predicted_cycles_one_memory"], one["predicted_cycles"]
            rows.append(_row(idea, f"{_network(network)}, `{platform}`", "predicted cycles", *cycles))
    return rows


def _tiles() -> list[tuple[str, ...]]:
    """Return the rows of networks that tiles change by 1 % or more: predictions differ by less in their own right."""
    idea, rows = "[weights in tiles](memories.md)", list[tuple[str, ...]]()
    for key, one in result("hierarchy")["networks"].items():
        platform, network, *limits = key.split(":")
        before, after = one["predicted_cycles_without_tiles"], one["predicted_cycles"]
        if after < 0.99 * before:
            place = f"`{platform}`" + "".join(f", {limit.replace('=', ' of ')} B" for limit in limits)
            rows.append(_row(idea, f"{_network(network)}, {place}", "predicted cycles", before, after))
    return rows


def _plans() -> list[tuple[str, ...]]:
    idea, rows = "[layers row by row where they cost little](fitting.md)", list[tuple[str, ...]]()
    for key, one in result("default_plans").items():
        platform, network = key.split(":")
        whole, default = one["whole"], one["default"]
        if platform == "cortex_m4" and whole["method"] != default["method"]:
            name = _network(network)
            rows.append(_row(idea, name, "bytes of the arena", whole["arena_bytes"], default["arena_bytes"]))
            counts = whole["executed_instructions"], default["executed_instructions"]
            rows.append(_row(idea, name, "instructions", *counts))
    return rows


def _smallest() -> list[tuple[str, ...]]:
    found = result("ways")["networks"]
    return [
        _row(
            "[splits and recomputation](fitting.md), the smallest plan", _network(network), "bytes of the arena",
            one["least_bytes"]["whole"], min(one["least_bytes"].values()),
        )
        for network, one in found.items()
        if network.endswith("int8")
    ]  # fmt: skip


def _windows() -> list[tuple[str, ...]]:
    found, forms = result("shared_windows"), ("alone", "joined")
    idea = "[one call for layers that read the same windows](how_it_works.md)"
    return [
        _row(
            idea, f"{_WINDOWS[key]}, int8", "instructions", *(one["cortex_m4"][form]["instructions"] for form in forms)
        )
        for key, one in found.items()
    ]


def _network(name: str) -> str:
    return network_name(name, dtype=True)


def shared_windows() -> str:
    """Instructions, flash and arena of networks with joined layers, beside those with each layer in a call alone."""
    rows: list[tuple[str, ...]] = []
    for network, measured in result("shared_windows").items():
        for number, (platform, processor) in enumerate(PROCESSORS.items()):
            alone, joined = measured[platform]["alone"], measured[platform]["joined"]
            flash = [one["weights_bytes"] + one["code_bytes"] for one in (alone, joined)]
            rows.append(
                (
                    "" if number else _WINDOWS[network], processor, str(alone["calls"] - joined["calls"]),
                    *(grouped(one["instructions"]) for one in (alone, joined)),
                    f"{100 * (1 - joined['instructions'] / alone['instructions']):.1f}", *map(grouped, flash),
                    *(grouped(one["arena_bytes"]) for one in (alone, joined)),
                )
            )  # fmt: skip
    heads = (
        "network, int8", "processor", "fewer calls", "instructions", "joined", "saved, %", "flash, B", "joined",
        "arena, B", "joined",
    )  # fmt: skip
    return table(heads, rows)
