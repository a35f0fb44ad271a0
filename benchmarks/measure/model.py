"""The models that are measured: the zoo, and networks of MLPerf Tiny where `../shared/models` is there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from benchmarks import zoo
from tvm_ext.verification.input_ranges import random_inputs
from tvm_ext.verification.reference_runtimes.onnxruntime_runtime import onnx_outputs

Sample = dict[str, np.ndarray]
SHARED = ("kws_fp32", "kws_int8", "resnet_fp32", "resnet_int8")


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A model on disk, one sample for it, and onnxruntime's outputs of that sample."""

    name: str
    path: Path
    proto: onnx.ModelProto
    sample: Sample
    expected: Sample

    @property
    def tflite(self) -> Path | None:
        """The same network as TFLite, where there is one."""
        path = self.path.with_suffix(".tflite")
        return path if path.exists() else None

    def error_of(self, outputs: Sample) -> float:
        """Largest difference from onnxruntime: in parts of the largest magnitude, for integers in steps."""
        return max(_difference(outputs[name], wanted) for name, wanted in self.expected.items())


def models(root: Path, folder: Path, wanted: list[str]) -> Iterator[tuple[str, Callable[[], Model]]]:
    """Name and maker of each model, in order; `wanted` names some of them, or is empty for all.

    Networks of the zoo are written to `folder`.
    """
    shared = Path(os.environ.get("TVM_EXT_SHARED", root.parent / "shared")) / "models"
    stored = [name for name in SHARED if (shared / f"{name}.onnx").exists()]
    for name in wanted or [*stored, *zoo.names()]:
        yield name, lambda name=name: _model(name, shared if name in stored else folder)


def _model(name: str, folder: Path) -> Model:
    path = folder / f"{name}.onnx"
    if name not in SHARED:
        onnx.save(zoo.build(name), path)
    proto = onnx.load(path)
    specs = {
        port.name: (
            tuple(dim.dim_value for dim in port.type.tensor_type.shape.dim),
            str(onnx.helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)),
        )
        for port in proto.graph.input
    }
    sample = random_inputs(specs, seed=0)
    return Model(name=name, path=path, proto=proto, sample=sample, expected=onnx_outputs(proto, [sample])[0])


def _difference(found: np.ndarray, wanted: np.ndarray) -> float:
    distance = np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max()
    if wanted.dtype.kind != "f":
        return float(distance)
    return float(f"{distance / np.abs(wanted).max():.2g}")
