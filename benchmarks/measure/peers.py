"""Peers that run models on the host: the call of one inference, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import onnxruntime as ort

from benchmarks.measure.model import Model


def installed(distribution: str) -> str | None:
    """Version of a package, None where it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def onnxruntime_call(model: Model) -> Callable[[], object]:
    """One thread, every graph optimisation, the plain Python call."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(model.proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, model.sample)


def litert_call(model: Model) -> Callable[[], object]:
    """LiteRT with XNNPACK, one thread, on the model's TFLite file; a random input of that file's own type."""
    from ai_edge_litert.interpreter import Interpreter  # in the extra `bench` only

    interpreter: Any = Interpreter(model_path=str(model.tflite), num_threads=1)
    interpreter.allocate_tensors()
    (spec,) = interpreter.get_input_details()
    random = np.random.default_rng(0)
    interpreter.set_tensor(spec["index"], random.integers(-128, 128, spec["shape"]).astype(spec["dtype"]))
    return interpreter.invoke
