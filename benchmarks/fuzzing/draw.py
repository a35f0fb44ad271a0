"""Cases: kind and specimen as a pure function of seed and index."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import onnx

from benchmarks.fuzzing import random_smith
from benchmarks.fuzzing.mutate_archive import mutate_archive
from benchmarks.fuzzing.mutate_bytes import mutate_bytes
from benchmarks.fuzzing.mutate_command import (
    damaged_bundle,
    damaged_package,
    damaged_platform,
    damaged_sweep,
    random_command,
)
from benchmarks.fuzzing.mutate_onnx import mutate_onnx
from benchmarks.fuzzing.mutate_tflite import mutate_model, mutate_tables, written
from benchmarks.fuzzing.random_onnx import random_onnx
from benchmarks.fuzzing.random_options import with_options
from benchmarks.fuzzing.random_pressed import random_pressed
from benchmarks.fuzzing.random_qdq import quantized
from benchmarks.fuzzing.random_tflite import random_tflite
from benchmarks.fuzzing.seeds import Seeds
from benchmarks.fuzzing.specimen import ModelSpecimen, Specimen
from tvm_ext.verification.reference_runtimes.onnxruntime_runtime import onnx_outputs


def kind_of(seed: int, index: int) -> str:
    """The kind alone, for less than making the specimen costs."""
    rng = random.Random(f"{seed}/{index}")
    return rng.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]


def draw(seed: int, index: int, seeds: Seeds) -> Specimen | None:
    """The specimen of a case; None where what it needs is not installed, or no valid model came out."""
    rng = random.Random(f"{seed}/{index}")
    kind = rng.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
    return KINDS[kind][1](rng, seeds)


Rng = random.Random


def _damaged(model: bytes, suffix: str, rng: Rng) -> ModelSpecimen:
    """A damaged model on the host; of those that compile one in five is built and asked about."""
    checks = rng.choices((("none",), (), ("sanitizers",), ("package",)), (12, 4, 1, 1))[0]
    return ModelSpecimen(model=model, suffix=suffix, options={"verify": ()}, checks=checks)


def _onnx_bytes(rng: Rng, seeds: Seeds) -> Specimen:
    model = rng.choice(rng.choice((seeds.onnx_models, seeds.onnx_nodes))).SerializeToString()
    other = rng.choice(seeds.onnx_nodes).SerializeToString()
    return _damaged(mutate_bytes(model, rng, other), ".onnx", rng)


def _onnx_fields(rng: Rng, seeds: Seeds) -> Specimen:
    model = rng.choice(rng.choice((seeds.onnx_models, seeds.onnx_nodes)))
    return _damaged(mutate_onnx(model, rng).SerializeToString(), ".onnx", rng)


def _tflite_bytes(rng: Rng, seeds: Seeds) -> Specimen:
    data = rng.choice(seeds.tflite).data()
    return _damaged(mutate_bytes(data, rng, rng.choice(seeds.tflite).data()), ".tflite", rng)


def _tflite_fields(rng: Rng, seeds: Seeds) -> Specimen | None:
    model = rng.choice(seeds.tflite)
    data = mutate_tables(model.data(), rng) if rng.random() < 0.35 else written(mutate_model(model, rng))
    return None if data is None else _damaged(data, ".tflite", rng)


def _torch_archive(rng: Rng, seeds: Seeds) -> Specimen | None:
    return _damaged(mutate_archive(rng.choice(seeds.torch), rng), ".pt2", rng) if seeds.torch else None


def _platform(rng: Rng, seeds: Seeds) -> Specimen:
    return replace(_damaged(seeds.tiny, ".onnx", rng), platform=damaged_platform(rng), checks=("none",))


def _calibration(rng: Rng, seeds: Seeds) -> Specimen:
    data = mutate_archive(seeds.calibration, rng)
    options = {"verify": (), "quantize": "int8"}
    return ModelSpecimen(model=seeds.tiny, options=options, calibration=data, checks=("none",))


def _command(rng: Rng, seeds: Seeds) -> Specimen:
    return random_command(seeds.tiny, seeds.calibration, rng)


def _package(rng: Rng, seeds: Seeds) -> Specimen:
    return damaged_package(seeds.package, rng)


def _bundle(rng: Rng, seeds: Seeds) -> Specimen:
    return damaged_bundle(seeds.tiny, seeds.calibration, rng)


def _sweep(rng: Rng, seeds: Seeds) -> Specimen:
    return damaged_sweep(seeds.tiny, seeds.calibration, rng)


def _valid(model: onnx.ModelProto, rng: Rng) -> Specimen | None:
    try:
        onnx_outputs(model, [])
    except Exception:  # what onnxruntime does not take has no reference
        return None
    names = {
        value.name: (tuple(d.dim_value for d in value.type.tensor_type.shape.dim),
                     onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name)
        for value in model.graph.input
    }  # fmt: skip
    return with_options(model.SerializeToString(), ".onnx", names, rng)


def _float(rng: Rng, seeds: Seeds) -> Specimen | None:
    return _valid(random_onnx(rng.randrange(1 << 30), rng.choice((1, 3, 6, 10, 16))), rng)


def _int8(rng: Rng, seeds: Seeds) -> Specimen | None:
    seed = rng.randrange(1 << 30)
    model = quantized(random_onnx(seed, rng.choice((1, 3, 6, 10))), seed)
    return None if model is None else _valid(model, rng)


def _pressed(rng: Rng, seeds: Seeds) -> Specimen | None:
    seed = rng.randrange(1 << 30)
    model = random_pressed(seed)
    if model is not None and rng.random() < 0.65:
        model = quantized(model, seed)
    return None if model is None else _valid(model, rng)


def _tflite(rng: Rng, seeds: Seeds) -> Specimen:
    model = random_tflite(rng.randrange(1 << 30), rng.choice((1, 3, 6, 10)))
    names = {
        model.writer.tensors[i].name: (model.writer.tensors[i].shape, model.writer.tensors[i].dtype)
        for i in model.writer.inputs
    }
    return with_options(model.data(), ".tflite", names, rng)


def _smith(rng: Rng, seeds: Seeds) -> Specimen | None:
    model = _first_of(random_smith.smith_onnx, rng, (2, 4, 8, 12))
    return None if model is None else _valid(onnx.load_from_string(model), rng)


def _smith_torch(rng: Rng, seeds: Seeds) -> Specimen | None:
    model = _first_of(random_smith.smith_torch, rng, (2, 4, 8))
    return None if model is None else with_options(model, ".pt2", {}, rng)


def _first_of(make: Callable[[int, int], bytes | None], rng: Rng, sizes: tuple[int, ...]) -> bytes | None:
    """NNSmith's first model that can be used, of a few; None where it is not installed."""
    if not random_smith.is_installed():
        return None
    found = (make(rng.randrange(1 << 30), rng.choice(sizes)) for _ in range(6))
    return next((model for model in found if model is not None), None)


KINDS: dict[str, tuple[float, Callable[[Rng, Seeds], Specimen | None]]] = {
    "onnx bytes": (12, _onnx_bytes),
    "onnx fields": (28, _onnx_fields),
    "tflite bytes": (6, _tflite_bytes),
    "tflite fields": (12, _tflite_fields),
    "pt2 archive": (14, _torch_archive),
    "platform file": (6, _platform),
    "calibration file": (3, _calibration),
    "bundle file": (5, _bundle),
    "sweep file": (4, _sweep),
    "command line": (4, _command),
    "package": (3, _package),
    "valid float": (8, _float),
    "valid int8": (5, _int8),
    "valid tflite": (6, _tflite),
    "valid pressed": (8, _pressed),
    "valid nnsmith": (4, _smith),
    "valid nnsmith pt2": (1, _smith_torch),
}
"""Kind of specimen -> its weight in the draw, and the function that makes one."""
