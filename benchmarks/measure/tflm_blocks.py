"""Blocks of documents on TensorFlow Lite Micro with CMSIS-NN: views of `benchmarks/results/tflm.json`.

Every row is one .tflite file on one board, our package and the interpreter measured in one run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.measure.block_parts import grouped, result
from benchmarks.measure.tables import table

TINY = {
    "kws_int8": "keyword spotting (DS-CNN)",
    "vww_96_int8": "visual wake words (MobileNetV1 0.25)",
    "resnet_int8": "image classification (ResNet-8)",
    "ad01_int8": "anomaly detection (autoencoder)",
}
"""MLPerf Tiny's int8 files."""
STREAMED = ("okay_nabu_v2", "vad_v2", "hey_jarvis_v1", "hey_jarvis_v2")
"""Files that keep states between runs."""
PLATFORMS = {"cortex_m4": "Cortex-M4", "cortex_m55": "Cortex-M55"}
COUNTS = ("instructions", "cycles")
LOSSES = {"instructions": "instructions", "cycles": "cycles", "arena_bytes": "RAM", "flash_bytes": "flash"}


def tflm_tiny() -> str:
    """MLPerf Tiny's files on both boards."""
    return _table(TINY)


def tflm_streams() -> str:
    """Files that keep states, on both boards."""
    return _table({name: name for name in STREAMED})


def tflm() -> str:
    """All files that were measured, with the least advantage and every measurement in which TFLM takes less."""
    files = result("tflm")["files"]
    return f"{_table({name: TINY.get(name, name) for name in files})}\n{_compared(files)}\n"


def _table(titles: dict[str, str]) -> str:
    files = result("tflm")["files"]
    rows = [
        (board if number == 0 else "", title, *_cells(one))
        for platform, board in PLATFORMS.items()
        for number, (title, one) in enumerate(
            (title, files[name][platform]) for name, title in titles.items() if platform in files.get(name, {})
        )
    ]
    heads = (
        "board", "file", "instructions", "TFLM", "TFLM / tvm_ext", "cycles, estimated", "TFLM", "TFLM / tvm_ext",
        "RAM, B", "TFLM", "flash, B", "for size", "TFLM",
    )  # fmt: skip
    return f"{table(heads, rows)}\n{_said(files[name] for name in titles if name in files)}\n"


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    ours, small, theirs = _ours(one), one["size"], one["tflm"]
    counts = (
        cell for key in COUNTS for cell in (_cell(ours, key), _cell(theirs, key), _cell_of_ratio(theirs, ours, key))
    )
    bytes_of = ((ours, "arena_bytes"), (theirs, "arena_bytes"), (ours, "flash_bytes"), (small, "flash_bytes"),
                (theirs, "flash_bytes"))  # fmt: skip
    return (*counts, *(_cell(*key) for key in bytes_of))


def _ours(one: dict[str, Any]) -> dict[str, Any]:
    """Return the package by default options; older results have a package by --optimize speed and no cycles."""
    return one.get("default") or one["speed"]


def _cell(measured: dict[str, Any], key: str) -> str:
    if key in measured:
        return grouped(measured[key])
    return "refused" if "skipped" in measured else "-"


def _cell_of_ratio(theirs: dict[str, Any], ours: dict[str, Any], key: str) -> str:
    return f"{theirs[key] / ours[key]:.2f}" if key in ours and key in theirs else "-"


def _compared(files: dict[str, Any]) -> str:
    """Sentences with the least ratio of cycles on each board, and the measurements in which TFLM takes less."""
    measured = [
        (name, platform, _ours(one), one["tflm"])
        for name, platforms in files.items()
        for platform, one in platforms.items()
        if "cycles" in _ours(one) and "cycles" in one["tflm"]
    ]
    said: list[str] = []
    for platform, board in PLATFORMS.items():
        ratios = [(theirs["cycles"] / ours["cycles"], name) for name, on, ours, theirs in measured if on == platform]
        if ratios:
            least, name = min(ratios)
            said.append(f"On the {board}, the least ratio of cycles in {len(ratios)} files is {least:.2f} ({name}).")
    lost = [
        f"{LOSSES[key]} of {name} on the {PLATFORMS[platform]}"
        for name, platform, ours, theirs in measured
        for key in LOSSES
        if ours[key] > theirs[key]
    ]
    return " ".join([*said, f"TFLM takes less in: {', '.join(lost)}." if lost else "TFLM takes less in none of them."])


def _said(files: Iterable[dict[str, Any]]) -> str:
    peers = {tuple(one[platform]["peer"].items()) for one in files for platform in PLATFORMS if platform in one}
    commits = "; ".join(", ".join(f"{name.replace('_', '-')} {commit}" for name, commit in peer) for peer in peers)
    return (
        f"TFLM is {commits}. Its runtime and wrappers are compiled with -O3, CMSIS-NN with -Ofast and for speed, and "
        "only the operators of the file are registered. Cycles are estimated from the executed instructions of both "
        "programs by the table of the core, without waits of memories. RAM is arenas, for TFLM without its static "
        "variables. Flash is constants and code, for TFLM with the model file; both exclude the C library. The column "
        "*for size* is flash with `--optimize size`. Rows without cycles are older, with `--optimize speed`."
    )
