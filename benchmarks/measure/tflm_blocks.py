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


def tflm_tiny() -> str:
    """MLPerf Tiny's files on both boards."""
    return _table(TINY)


def tflm_streams() -> str:
    """Files that keep states, on both boards."""
    return _table({name: name for name in STREAMED})


def tflm() -> str:
    """All files that were measured."""
    files = result("tflm")["files"]
    return _table({name: TINY.get(name, name) for name in files})


def _table(titles: dict[str, str]) -> str:
    files = result("tflm")["files"]
    rows = [
        (board if number == 0 else "", title, *_cells(files[name][platform]))
        for platform, board in PLATFORMS.items()
        for number, (name, title) in enumerate((n, t) for n, t in titles.items() if platform in files.get(n, {}))
    ]
    heads = (
        "board", "file", "instructions", "TFLM", "TFLM / tvm_ext", "RAM, B", "TFLM", "flash, B", "for size", "TFLM",
    )  # fmt: skip
    return f"{table(heads, rows)}\n{_said(files[name] for name in titles if name in files)}\n"


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    ours, small, theirs = one["speed"], one["size"], one["tflm"]
    ratio = "-"
    if "instructions" in ours and "instructions" in theirs:
        ratio = f"{theirs['instructions'] / ours['instructions']:.2f}"
    keys = ((ours, "instructions"), (theirs, "instructions"))
    bytes_of = ((ours, "arena_bytes"), (theirs, "arena_bytes"), (ours, "flash_bytes"), (small, "flash_bytes"),
                (theirs, "flash_bytes"))  # fmt: skip
    return (*(_cell(*key) for key in keys), ratio, *(_cell(*key) for key in bytes_of))


def _cell(measured: dict[str, Any], key: str) -> str:
    return grouped(measured[key]) if key in measured else "refused"


def _said(files: Iterable[dict[str, Any]]) -> str:
    peers = {tuple(one[platform]["peer"].items()) for one in files for platform in PLATFORMS if platform in one}
    commits = "; ".join(", ".join(f"{name.replace('_', '-')} {commit}" for name, commit in peer) for peer in peers)
    return (
        f"TFLM is {commits}. Its runtime and wrappers are compiled with -O3, CMSIS-NN with -Ofast and for speed, and "
        "only the operators of the file are registered. RAM is arenas, for TFLM without its static variables. Flash is "
        "constants and code, for TFLM with the model file; both exclude the C library. The column *for size* is flash "
        "with `--optimize size`."
    )
