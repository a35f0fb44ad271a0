"""Packages of every kind, small: element type, processor, io, split, patches, memories, TVM's operators, states.

What is said of "the generated C" (findings of analyzers, stack bounds, coverage, the map from nodes to lines) is
tested over these.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tvm_ext
from benchmarks.networks.graph import Graph
from benchmarks.networks.quantize import quantized
from tests.support.analyzers import MODEL
from tests.support.audio_cases import side_by_side
from tests.support.four_bits import small_weights
from tests.support.image_networks import image_network
from tests.support.memory_problems import always_on
from tests.support.onnx_models import SMALL_MODELS, pixel_and_vector, saved
from tests.support.random_models import random_model
from tests.support.state_models import gate
from tests.support.tflite_models import ds_cnn, resnet, words
from tests.support.tflite_runners import saved_tflite
from tests.support.tflite_state_models import over_time, streaming_layer
from tests.support.transformer_models import encoder_block
from tvm_ext import BuildOptions, Package
from tvm_ext.core.platform import Platform

Source = Callable[[Path], Path]
"""Writes a model's file into a folder."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One package: the model's file, the platform, what its build may decide, and pairs that are states."""

    source: Source
    platform: Platform
    options: BuildOptions
    states: Mapping[str, str] | None = None


def _onnx(make: Callable[[], onnx.ModelProto], *, int8: bool = False) -> Source:
    return lambda folder: saved(quantized(_with_plain_ports(make())) if int8 else make(), folder, "net")


def _with_plain_ports(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its only input called `input` and its only output `output`, as `quantized` wants them."""
    ports = {model.graph.input[0].name: "input", model.graph.output[0].name: "output"}
    model.graph.input[0].name, model.graph.output[0].name = "input", "output"
    for node in model.graph.node:
        node.input[:] = [ports.get(name, name) for name in node.input]
        node.output[:] = [ports.get(name, name) for name in node.output]
    return model


def _small(name: str, *, int8: bool = False) -> Source:
    return _onnx(SMALL_MODELS[name], int8=int8)


def image(seed: int, *, int8: bool = False, aspect: int = 1) -> Source:
    return _onnx(lambda: image_network(seed, aspect=aspect), int8=int8)


def _tflite(make: Callable[..., bytes], **options: Any) -> Source:
    return lambda folder: saved_tflite(make(**{"int8": True, **options}), folder, "net")


def _tiles() -> onnx.ModelProto:
    """Windows that Winograd's tiles compute, of 3 by 3, 1 by 3 and 5 by 1."""
    graph = Graph("net", (1, 10, 10, 16), padding="same")
    x = graph.channels_first("input")
    for kernel in (3, (1, 3), (5, 1)):
        x = graph.conv(x, 16, kernel, activation="relu")
    return graph.model(graph.dense(graph.global_pool(x), 3))


_attention = _onnx(lambda: encoder_block(8, 16, 2), int8=True)
_float_attention = _onnx(lambda: encoder_block(7, 18, 2))
DEFAULT = BuildOptions()
CALLER, STREAM = replace(DEFAULT, io="caller"), replace(DEFAULT, io="stream")
BEGINS = np.arange(32, dtype=np.int8).reshape(1, 4, 1, 8)
"""Elements of a variable before the first run; not all alike, so that a table holds them."""
ONE_MEMORY = replace(DEFAULT, memories="default")

KINDS: dict[str, Kind] = {
    "float_host": Kind(source=_small("branches"), platform=Platform.load("host"), options=DEFAULT),
    "float_m4": Kind(source=_small("branches"), platform=Platform.load("cortex_m4"), options=CALLER),
    "int8_host": Kind(source=_small("branches", int8=True), platform=Platform.load("host"), options=DEFAULT),
    "int8_dsp": Kind(source=_small("branches", int8=True), platform=Platform.load("cortex_m4"), options=DEFAULT),
    "tiles_dsp": Kind(
        source=lambda folder: saved(quantized(_tiles()), folder, "net"),
        platform=Platform.load("cortex_m4"),
        options=replace(DEFAULT, optimize="speed"),
    ),
    "int8_helium": Kind(source=_small("branches", int8=True), platform=Platform.load("cortex_m55"), options=DEFAULT),
    "stream": Kind(
        source=_small("image_in_and_out"), platform=Platform.load("cortex_m4"), options=replace(STREAM, ram=1600)
    ),
    "split": Kind(
        source=image(0, int8=True), platform=Platform.load("cortex_m55"), options=replace(ONE_MEMORY, ram=1100)
    ),
    "patches": Kind(source=image(14, aspect=6), platform=Platform.load("host"), options=replace(DEFAULT, ram=21000)),
    "dma": Kind(source=_onnx(lambda: random_model(1, num_layers=9)), platform=always_on(4096), options=DEFAULT),
    "tir": Kind(source=_small("reduces_and_normalises"), platform=Platform.load("cortex_m7"), options=DEFAULT),
    "tir_moves": Kind(source=_small("moves_data"), platform=Platform.load("host"), options=CALLER),
    "tflite_m33": Kind(source=_tflite(ds_cnn), platform=Platform.load("cortex_m33"), options=DEFAULT),
    "tflite_host": Kind(source=_tflite(resnet), platform=Platform.load("host"), options=STREAM),
    "words": Kind(source=_tflite(lambda int8: words()), platform=Platform.load("cortex_m4"), options=DEFAULT),
    "states": Kind(
        source=_onnx(gate),
        platform=Platform.load("cortex_m4"),
        options=replace(CALLER, context="caller", relocatable_image=True),
        states={"h": "hn"},
    ),
    "states_begun": Kind(
        source=_tflite(streaming_layer, begins=BEGINS), platform=Platform.load("cortex_m4"), options=STREAM
    ),
    "hop": Kind(
        source=_tflite(lambda int8: over_time()),
        platform=Platform.load("cortex_m55"),
        options=replace(DEFAULT, new_frames={"frames": 1}, time_axis={"frames": 1}),
    ),
    "four_bits": Kind(
        source=_onnx(small_weights), platform=Platform.load("cortex_m4"), options=replace(DEFAULT, weights="mixed")
    ),
    "attention_dsp": Kind(source=_attention, platform=Platform.load("cortex_m4"), options=DEFAULT),
    "attention_helium": Kind(source=_attention, platform=Platform.load("cortex_m55"), options=DEFAULT),
    "attention_m4": Kind(source=_float_attention, platform=Platform.load("cortex_m4"), options=DEFAULT),
    "attention_m55": Kind(source=_float_attention, platform=Platform.load("cortex_m55"), options=DEFAULT),
    "audio": Kind(source=lambda folder: side_by_side(folder)[0], platform=Platform.load("cortex_m4"), options=DEFAULT),
    "int8_rvv": Kind(source=_small("branches", int8=True), platform=Platform.load("riscv32_zve32x"), options=DEFAULT),
    "single_dsp": Kind(source=_onnx(pixel_and_vector, int8=True), platform=Platform.load("cortex_m7"), options=DEFAULT),
}


OFTEN = (
    "float_host", "int8_dsp", "tiles_dsp", "int8_helium", "stream", "patches", "dma", "tir", "tflite_m33", "words",
    "states", "hop", "four_bits", "attention_m55", "int8_rvv",
)  # fmt: skip
"""Kinds that every run of the tests builds. Together they have each target, form of interface and kind of layer."""


def needs_board(name: str) -> bool:
    return KINDS[name].platform.board is not None


def needs_riscv(name: str) -> bool:
    return KINDS[name].platform.toolchain.prefix.startswith("riscv")


def built_kind(name: str, folder: Path) -> Package:
    """The package of one kind, verified; built below `folder` by whichever process asks first."""
    kind, place = KINDS[name], folder / name
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "package").exists():
            module = tvm_ext.load(kind.source(place), states=kind.states)
            tvm_ext.build(module, kind.platform, place / "package", replace(kind.options, name=MODEL))
    return Package.load(place / "package")
