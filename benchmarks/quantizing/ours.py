"""Files of quantizers compiled for the host: kernels of their multiply-adds, and what the package computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tvm_ext
from benchmarks.quantizing.tflite_tools import as_integers, as_reals
from tvm_ext import BuildOptions, Package
from tvm_ext.execution.host_model import HostModel

Array = np.ndarray


def built(path: Path, folder: Path) -> Package:
    """A verified package of a model file. Raises UnsupportedModel for a file that is refused."""
    return tvm_ext.build(tvm_ext.load(path), "host", folder, BuildOptions(verify=("host",)))


def macs_by_kernel(report: Mapping[str, Any]) -> Counter[str]:
    """Multiply-adds of each kernel that has any."""
    counts: Counter[str] = Counter()
    for step in report["steps"]:
        counts[step["kernel"]] += step.get("macs") or 0
    return +counts


def integer_share(report: Mapping[str, Any]) -> float:
    """Part of the multiply-adds that integer kernels of our own do."""
    counts = macs_by_kernel(report)
    return sum(count for kernel, count in counts.items() if kernel.startswith("q")) / counts.total()


def run_ours(package: Package, inputs: Array) -> Array:
    """Logits of a package, float32[N, 10], of float32[N, 1, 8, 8]; integer ports are quantized and dequantized here."""
    ((name, source),) = package.inputs.items()
    (target,) = package.outputs.values()
    found = []
    with HostModel(package.folder, package.interface) as model:
        for one in inputs:
            image = as_integers(one.reshape(source.shape), source.dtype, source.scale, source.zero_point)
            (values,) = model.run({name: image}).values()
            found.append(as_reals(values, target.scale, target.zero_point).reshape(1, -1))
    return np.concatenate(found)
