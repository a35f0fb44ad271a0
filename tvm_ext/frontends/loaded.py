"""Result of every reader of a format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import tvm

from tvm_ext.core.decisions.models import PortScales
from tvm_ext.core.model_nodes import ModelNode, ModelState


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """A module whose `main` is one pure, static dataflow block, and the model's names of what it takes and returns.

    sha256: of everything the model was read from. rounding: what the format means by quantized arithmetic, one
    rounding of an exact result (`onnx`), or TensorFlow Lite's own (`tflite`).
    input_demands: least and largest value of inputs of which operators of the file demand a range.
    nodes: operators of the file, in order; empty where the module's own calls are all there is.
    bound: inputs of the file that were given their values for good, and are no inputs any more.
    states: what runs leave to the next one: the last parameters of `main` and, in the same order, its last results,
    which stand in no list of names.
    repeated: outputs that the file lists more than once: name of the further one -> the file's own name.
    scales: of quantized inputs and outputs, where the file declares them beside the operators.
    filled: rows of tensors, by name, that end with rows of -1, where the file's model has as many as data select.
    """

    mod: tvm.IRModule
    sha256: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    rounding: Literal["onnx", "tflite"] = "onnx"
    input_demands: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, "tuple[float, float]"])
    nodes: tuple[ModelNode, ...] = ()
    bound: Mapping[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    states: tuple[ModelState, ...] = ()
    repeated: Mapping[str, str] = field(default_factory=dict[str, str])
    scales: PortScales = field(default_factory=PortScales)
    filled: Mapping[str, int] = field(default_factory=dict[str, int])


def distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names in order; one that came before gets `.1`, `.2` at its end, whichever is no name yet."""
    found: list[str] = []
    for name in names:
        index, candidate = 0, name
        while candidate in found or (index and candidate in names):
            index += 1
            candidate = f"{name}.{index}"
        found.append(candidate)
    return tuple(found)


def with_distinct_outputs(loaded: Loaded) -> Loaded:
    """The model with a name of its own for each output: a file is free to list one more than once."""
    names = distinct_names(loaded.output_names)
    repeated = {name: own for name, own in zip(names, loaded.output_names, strict=True) if name != own}
    if not repeated:
        return loaded
    declared = loaded.scales.outputs or {}
    again = {name: declared[own] for name, own in repeated.items() if own in declared}
    scales = replace(loaded.scales, outputs={**declared, **again} or None)
    return replace(loaded, output_names=names, repeated=repeated, scales=scales)
