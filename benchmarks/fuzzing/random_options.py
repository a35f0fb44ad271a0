"""Random options and platforms for a model: what users may ask, and often what fits just barely."""

from __future__ import annotations

import io
import random
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import numpy as np

from benchmarks.fuzzing.specimen import ModelSpecimen
from benchmarks.fuzzing.toml_text import toml_text
from tvm_ext.core.platform import Platform

PLATFORMS = (
    "host",
    "host",
    "cortex_m4",
    "cortex_m55",
    "cortex_m7",
    "cortex_m33",
    "always_on",
    "always_on",
    "cortex_m7_psram",
    "cortex_m0plus",
    "cortex_m85",
    "riscv32",
    "riscv32_zve32f",
    "riscv32_zve32x",
    "raspberry_pi_4",
    "hexagon_v66",
    "xtensa_lx106",
    "wasm",
)
_CHECKS = (
    ("size", 0.12),
    ("clang", 0.15),
    ("optimized", 0.1),
    ("sanitizers", 0.15),
    ("ways", 0.12),
    ("plain", 0.15),
    ("poison", 0.25),
    ("package", 0.15),
    ("board", 0.1),
)
Specs = Mapping[str, tuple[tuple[int, ...], str]]


def with_options(model: bytes, suffix: str, inputs: Specs, rng: random.Random) -> ModelSpecimen:
    """A valid model with options that go together. inputs: shape and type by name, as far as they are known."""
    options: dict[str, Any] = {"verify": ()}
    platform: str | bytes = rng.choice(PLATFORMS)
    if rng.random() < 0.25:
        platform = random_platform(rng)
    options["io"] = rng.choices(("arena", "caller", "stream"), (6, 2, 2))[0]
    options["optimize"] = rng.choices(("balanced", "speed", "size"), (2, 1, 1))[0]
    options["least_scratch"] = rng.random() < 0.1
    options["memories"] = rng.choices(("all", "default"), (3, 1))[0]
    calibration = None
    if inputs and all(dtype == "float32" for _, dtype in inputs.values()) and rng.random() < 0.12:
        options["quantize"] = rng.choice(("int8", "int8", "auto"))
        options["io_type"] = rng.choice(("int8", "float32"))
        options["activations"] = rng.choices(("int8", "mixed", "int16"), (4, 1, 1))[0]
        if options["activations"] != "int16":
            options["weights"] = rng.choices(("int8", "mixed", "int4"), (4, 1, 1))[0]
        calibration = calibration_file(inputs, rng)
    if options["io"] == "arena" and inputs and rng.random() < 0.12:
        options["pin"] = {name: 16 * rng.randrange(0, 600) for name in rng.sample(list(inputs), 1)}
    if options["io"] == "arena" and inputs and rng.random() < 0.12:
        options["keep"] = tuple(rng.sample(list(inputs), 1))
    ram_part = rng.choice((None, None, None, 1.0, 0.9, 0.7, 0.5, rng.random()))
    checks = tuple(name for name, chance in _CHECKS if rng.random() < chance)
    if ram_part is not None:
        checks = ("unsplit", *checks)
    return ModelSpecimen(
        model=model, suffix=suffix, platform=platform, options=options, ram_part=ram_part, calibration=calibration,
        is_valid=True, checks=checks,
    )  # fmt: skip


def calibration_file(inputs: Specs, rng: random.Random) -> bytes:
    """An .npz file of three samples of normally distributed values for each input."""
    random = np.random.default_rng(rng.randrange(1 << 30))
    file = io.BytesIO()
    np.savez(
        file, **{name: random.standard_normal((3, *shape)).astype(dtype) for name, (shape, dtype) in inputs.items()}
    )
    return file.getvalue()


def shipped(name: str) -> dict[str, Any]:
    """The content of a shipped platform's file."""
    return tomllib.loads((files("tvm_ext") / "platforms" / f"{name}.toml").read_text(encoding="utf-8"))


def random_platform(rng: random.Random) -> bytes:
    """A valid platform: a shipped one with other sizes and speeds, perhaps a memory and its DMA more."""
    content = shipped(rng.choice(Platform.shipped()))
    content.pop("board", None)
    content["name"] = "random_board"
    rams = [memory for memory in content["memories"] if memory["kind"] == "ram"]
    for memory in rams:
        memory["capacity_bytes"] = int(2 ** rng.uniform(12, 20))
    for part in (*content["memories"], *content["links"]):
        part["latency_cycles"] = rng.choice((0, 0, 1, 8, 100, 2000))
    for link in content["links"]:
        link["bytes_per_cycle"] = rng.choice((0.1, 0.5, 1, 4, 8, 16))
    if rng.random() < 0.5:
        extra = {
            "name": "extra",
            "kind": "ram",
            "capacity_bytes": int(2 ** rng.uniform(6, 16)),
            "read_bytes_per_cycle": rng.choice((1, 8, 32)),
            "write_bytes_per_cycle": rng.choice((1, 8, 32)),
        }
        content["memories"].append(extra)
        content["links"].append({"source": content["processors"][0]["name"], "target": "extra", "bytes_per_cycle": 8})
        for other in rng.sample(content["memories"][:-1], rng.randrange(0, len(content["memories"]))):
            content["links"].append(
                {"source": other["name"], "target": "extra", "bytes_per_cycle": 2, "latency_cycles": 16,
                 "dma": rng.random() < 0.7}
            )  # fmt: skip
            if other["kind"] == "ram" and rng.random() < 0.7:
                content["links"].append({"source": "extra", "target": other["name"], "bytes_per_cycle": 2})
    return toml_text(content).encode()
