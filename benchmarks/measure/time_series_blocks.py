"""Blocks of documents on networks over time: views of `time_series.json` and `sequence_lengths.json` in results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.measure.block_parts import result
from benchmarks.measure.tables import table

_NAMES = {
    "rnnoise_int8": "RNNoise, int8 `.tflite`", "rnnoise_frame": "RNNoise", "rnnoise_clip": "RNNoise, 100 frames",
    "dtln_1": "DTLN, first network", "dtln_2": "DTLN, second network", "dtln_noise": "DTLN, int8 `.tflite` of TFLM",
    "gtcrn_simple": "GTCRN", "hey_lara": "hey_lara, wake word", "keyword_transformer": "keyword transformer",
    "precise_tflite": "precise-lite, WHILE of Keras", "precise_onnx": "precise-lite, Loop of tf2onnx",
    "okay_nabu": "okay_nabu_v2, int8 `.tflite`", "vad_v2": "vad_v2, int8 `.tflite`",
    "str_ww": "str_ww, int8 `.tflite`", "silero_sequence": "Silero VAD, sequence form",
    "keyword_mamba_frame": "selective state space", "keyword_mamba_window": "selective state space, 98 frames",
}  # fmt: skip
_CORES = {"cortex_m4": "Cortex-M4", "cortex_m55": "Cortex-M55"}
_FORMS = {"float": "as it is", "int8": "quantized to int8"}


def time_series() -> str:
    """Bytes, instructions and errors of networks over time, as their files have them and quantized."""
    rows: list[tuple[str, ...]] = []
    for name, measured in result("time_series")["networks"].items():
        forms = [(form, measured[form]) for form in _FORMS if "skipped" not in measured[form]]
        rows += [_row(_NAMES.get(name, name) if not index else "", *pair) for index, pair in enumerate(forms)]
    heads = (
        "network", "form", "instructions", "of them generic, %", "RAM, B", "constants, B", "code, B", "reference",
        "largest error", "SNR, dB",
    )  # fmt: skip
    return table(heads, rows)


def sequence_lengths() -> str:
    """Bytes, compile time and instructions of LSTM and GRU by the number of steps, and int8 relative to float."""
    rows: list[tuple[str, ...]] = []
    for key, measured in result("sequence_lengths").items():
        kind, platform, length = key.split()
        whole, narrow = measured["none"], measured["int8"]
        flash = (f"{one['weights_bytes'] + one['code_bytes']:,}" for one in (whole, narrow))
        rows.append((
            kind.upper(), _CORES[platform], f"{int(length):,}", *flash, f"{whole['instructions']:,}",
            f"{narrow['instructions']:,}", f"{narrow['instructions'] / whole['instructions']:.2f}",
            f"{whole['seconds']:g}", f"{narrow['seconds']:g}",
        ))  # fmt: skip
    heads = (
        "layer", "processor", "steps", "constants and code, float, B", "int8, B", "instructions, float", "int8",
        "relative to float", "compile time, float, s", "int8, s",
    )  # fmt: skip
    return table(heads, rows)


def _row(name: str, form: str, one: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = (f"{one[key]:,}" for key in ("arena_bytes", "weights_bytes", "code_bytes"))
    snr = one["snr_db"]
    return (
        name, _FORMS[form], f"{one['instructions']:,}", f"{one['generic']:g}", *numbers, one["reference"],
        f"{one['max_rel_error']:.1g}", "-" if snr is None else f"{snr:.1f}",
    )  # fmt: skip
