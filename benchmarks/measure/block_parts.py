"""Parts that blocks of documents share: results, names of networks and processors, numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "results"
NAMES = {
    "digits": "the digits of the tutorials",
    "ds_cnn": "DS-CNN, keyword spotting",
    "resnet8": "ResNet-8",
    "mobilenet_v1_025_96": "MobileNetV1 0.25, 96 x 96",
    "mobilenet_v2_035_144": "MobileNetV2 0.35, 144 x 144",
    "mobilenet_v2_100_224": "MobileNetV2 1.0, 224 x 224",
    "mcunet_320k": "MCUNet-320K, 176 x 176",
    "mcunet_5fps_vww": "MCUNet-5fps, 80 x 80",
    "autoencoder": "Autoencoder",
    "mlp_64_4096": "Perceptron 64-4096-64",
    "ffn_16_128_512": "Transformer's feed-forward, 16 tokens, 128-512-128",
    "gated_unet_16": "U-Net",
    "unet_16": "U-Net without gates",
    "gated_dense_block_8": "Dense block",
    "dense_block_12": "Dense block without gates",
    "words_1d": "Keywords by windows of 1 x 3",
    "factored": "Windows of 3 x 1 and 1 x 3",
    "wide_windows": "Windows of 5 x 5",
    "mobilenet_v2_035_96": "MobileNetV2 0.35, 96 x 96",
    "attention_256_64_4": "Encoder block, 256 tokens",
}
PROCESSORS = {"cortex_m4": "Cortex-M4", "cortex_m55": "Cortex-M55"}


def result(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def network_name(network: str, *, dtype: bool = False) -> str:
    known = without_dtype(network)
    name = f"random layers {known.removeprefix('random_')}" if known.startswith("random_") else NAMES[known]
    return f"{name}, {dtype_name(network.rpartition('_')[2])}" if dtype else name


def without_dtype(network: str) -> str:
    return re.sub("_(fp32|int8)$", "", network)


def dtype_name(short: str) -> str:
    return {"fp32": "float32"}.get(short, short)


def grouped(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
