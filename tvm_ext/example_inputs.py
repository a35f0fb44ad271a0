"""Example inputs of a torch.nn.Module: it is exported on them, and calibrated where there is no other data."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm

from tvm_ext.calibration import Source
from tvm_ext.core.options import BuildOptions
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.load import ModelSource, load

Examples = Sequence[object] | object
"""Arrays or tensors, one per argument of `forward`, or a single one."""


def opened_model(source: ModelSource, example_inputs: Examples | None) -> tvm.IRModule:
    """The model, loaded unless it is a module that `load` made. Raises as `load` does."""
    if isinstance(source, tvm.IRModule) and example_inputs is None:
        return source
    return load(source, example_inputs=example_inputs)


def calibration_by_examples(
    mod: tvm.IRModule, options: BuildOptions, calibration: Source | None, example_inputs: Examples | None
) -> Source | None:
    """Calibration data; where a model is quantized and nothing else is given, the example inputs and a ModelNotice."""
    if calibration is not None or options.quantize == "none" or example_inputs is None:
        return calibration
    warnings.warn(
        f"quantize = {options.quantize!r} without calibration: ranges are those of example_inputs alone, one sample; "
        "give some hundred that the model will see as calibration.",
        ModelNotice, stacklevel=3,
    )  # fmt: skip
    given = example_inputs if isinstance(example_inputs, list | tuple) else (example_inputs,)
    return [{param.name: _array(one) for param, one in zip(mod["main"].params, given, strict=False)}]


def _array(value: Any) -> np.ndarray:
    return np.asarray(value.detach() if hasattr(value, "detach") else value)
