"""Seeds of mutations: small valid files of every format, all made here."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import helper

import tvm_ext
from benchmarks.fuzzing.random_onnx import random_onnx
from benchmarks.fuzzing.random_qdq import quantized
from benchmarks.fuzzing.random_tflite import TfliteModel, random_tflite
from benchmarks.fuzzing.specimen import CommandSpecimen
from tests.support.onnx_models import SMALL_MODELS, model_of
from tvm_ext.core.options import BuildOptions

NUM_RANDOM = 40
LARGEST_BYTES = 20_000


@dataclass(frozen=True, kw_only=True)
class Seeds:
    """Valid files. onnx_nodes: ONNX's own examples of one operator each. package: a run of one, and its files."""

    onnx_models: tuple[onnx.ModelProto, ...]
    onnx_nodes: tuple[onnx.ModelProto, ...]
    tflite: tuple[TfliteModel, ...]
    torch: tuple[bytes, ...]
    tiny: bytes
    calibration: bytes
    package: CommandSpecimen


def make_seeds() -> Seeds:
    """All seeds, made in some seconds; the same each time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        floats = [random_onnx(seed, 4) for seed in range(NUM_RANDOM)]
        integers = [quantized(model, seed) for seed, model in enumerate(floats)]
        models = [*(make() for make in SMALL_MODELS.values()), *floats, *(model for model in integers if model)]
        lite = [random_tflite(seed, 3) for seed in range(NUM_RANDOM)]
        tiny = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (1, 4)}, ["y"])
        return Seeds(
            onnx_models=tuple(model for model in models if model.ByteSize() < LARGEST_BYTES),
            onnx_nodes=_node_models(),
            tflite=tuple(model for model in lite if len(model.data()) < LARGEST_BYTES),
            torch=_torch_files() if find_spec("torch") else (),
            tiny=tiny.SerializeToString(),
            calibration=_arrays({"x": np.ones((3, 1, 4), np.float32)}),
            package=_package(tiny),
        )  # fmt: skip


def _node_models() -> tuple[onnx.ModelProto, ...]:
    """ONNX's examples of its operators, small ones."""
    from onnx.backend.test.loader import load_node_model_tests

    with np.errstate(all="ignore"):
        cases = sorted(load_node_model_tests(), key=lambda case: case.name)
    return tuple(case.model for case in cases if case.model is not None and case.model.ByteSize() < LARGEST_BYTES)


def _torch_files() -> tuple[bytes, ...]:
    import torch

    nn = torch.nn
    torch.manual_seed(0)
    networks = [
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)), (1, 1, 4, 4)),
        (nn.Sequential(nn.Linear(4, 4), nn.Softmax(dim=1)), (1, 4)),
        (nn.Sequential(nn.BatchNorm2d(2), nn.MaxPool2d(2)), (1, 2, 4, 4)),
    ]
    return tuple(_exported(network.eval(), torch.zeros(shape)) for network, shape in networks)


def _exported(network: object, example: object) -> bytes:
    import torch

    with TemporaryDirectory(prefix="fuzz_") as name:
        path = Path(name) / "model.pt2"
        torch.export.save(torch.export.export(network, (example,)), path)
        return path.read_bytes()


def _package(model: onnx.ModelProto) -> CommandSpecimen:
    """`run package`, with the package's sources, its reports and inputs."""
    with TemporaryDirectory(prefix="fuzz_") as name:
        path = Path(name) / "tiny.onnx"
        onnx.save(model, path)
        folder = Path(name) / "package"
        tvm_ext.build(tvm_ext.load(path), "host", folder, BuildOptions(verify=()))
        kept = (".c", ".h", ".json")
        files = {f"package/{file.name}": file.read_bytes() for file in sorted(folder.iterdir()) if file.suffix in kept}
    arguments = ("run", "package", "--inputs", "in.npz", "--outputs", "out.npz")
    return CommandSpecimen(arguments=arguments, files={**files, "in.npz": _arrays({"x": np.ones((1, 4), np.float32)})})


def _arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()
