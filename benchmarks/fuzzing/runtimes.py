"""Runtimes of the formats themselves, asked what a file means: onnxruntime, TensorFlow Lite Micro, LiteRT, PyTorch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import numpy as np

from benchmarks.fuzzing.forked import Limits, apart
from tvm_ext.core.limits import Limits as FileLimits

Arrays = Mapping[str, np.ndarray]
DISTURBANCE = 2.0**-18
"""Relative change of float inputs: where an output jumps at that, two right answers differ."""
_LIMITS = Limits(cpu_s=30, wall_s=900.0)
_OF_SUFFIX = {
    ".onnx": (("onnxruntime_runtime", "onnxruntime"),),
    ".tflite": (("tflite_micro_runtime", "TensorFlow Lite Micro"), ("litert_runtime", "LiteRT")),
    ".pt2": (("torch_runtime", "PyTorch"),),
}
_NOT_TAKEN = ("ModuleNotFoundError", "NOT_IMPLEMENTED", "Didn't find op for builtin opcode")
"""Words in errors that are the runtime's own limits, and say nothing of the file."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Outputs by name, and again for inputs that were moved a little.

    refusal: why the runtime does not take the file. is_exact: integers must be the same to the bit.
    """

    runtime: str
    refusal: str = ""
    outputs: Arrays = field(default_factory=dict)
    disturbed: Arrays = field(default_factory=dict)
    is_exact: bool = False

    @property
    def is_finite(self) -> bool:
        return all(bool(np.isfinite(np.asarray(x, np.float64)).all()) for x in self.outputs.values())


def answers(path: Path, inputs: Arrays) -> Iterator[Answer]:
    """Answer of each runtime of the format, or the reason why it refuses; none where none is installed.

    They crash on files that are not what they should be, so each has a process of its own.
    """
    for module, name in _OF_SUFFIX[path.suffix]:
        end = apart(_testify, module, path, [inputs, disturbed(inputs)], limits=_LIMITS)
        if end.is_done:
            first, second = end.value
            yield Answer(runtime=name, outputs=first, disturbed=second, is_exact=path.suffix != ".onnx")
        elif not any(word in end.said for word in _NOT_TAKEN):
            said = end.said.strip().splitlines()[-1:] or [f"ended by signal {end.signal}"]
            yield Answer(runtime=name, refusal=said[0][:500])


def disturbed(inputs: Arrays) -> dict[str, np.ndarray]:
    """Float inputs a little larger."""
    return {
        name: np.asarray(x * np.asarray(1 + DISTURBANCE, x.dtype), x.dtype) if x.dtype.kind == "f" else x
        for name, x in inputs.items()
    }


def _testify(module: str, path: Path, samples: list[Arrays]) -> list[Arrays]:
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    run_reference = import_module(f"tvm_ext.verification.reference_runtimes.{module}").run_reference
    return run_reference(str(path), sha256, FileLimits().to_json(), samples, [])["outputs"]
