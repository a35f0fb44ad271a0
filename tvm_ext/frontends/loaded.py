"""The result of every reader of a format."""

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
    """A module whose `main` is a pure, static dataflow block, with the model's names of its inputs and outputs.

    sha256: of everything the model was read from. rounding: the format's semantics of quantized arithmetic, a single
    rounding of an exact result (`onnx`), or that of TensorFlow Lite Micro (`tflite`) or of LiteRT (`litert`).
    input_demands: the range that operators of the file demand of inputs, as least and largest value.
    nodes: operators of the file, in order; empty where the module's own calls are the only operators.
    bound: inputs of the file whose values are fixed, and which are no longer inputs.
    states: states that runs keep: the last parameters of `main` and, in the same order, its last results, which are not
    listed among the names.
    repeated: outputs that the file lists more than once: the file's own name by the name of each repetition.
    scales: of quantized inputs and outputs, where the file declares them beside the operators.
    filled: axis of rows and number of rows of tensors that end with rows of -1, by name, where data decide how many
        rows the file's model returns. unlike: tensors whose rows after those mean nothing.
    lines: lines of a TVMScript file, by the names of the variables that they bind.
    signature: name of the signature of a TensorFlow Lite file that was chosen.
    """

    mod: tvm.IRModule
    sha256: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    rounding: Literal["onnx", "tflite", "litert"] = "onnx"
    input_demands: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, "tuple[float, float]"])
    nodes: tuple[ModelNode, ...] = ()
    bound: Mapping[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    states: tuple[ModelState, ...] = ()
    repeated: Mapping[str, str] = field(default_factory=dict[str, str])
    scales: PortScales = field(default_factory=PortScales)
    filled: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    unlike: tuple[str, ...] = ()
    lines: Mapping[str, str] = field(default_factory=dict[str, str])
    signature: str = ""


def distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names in order. A repeated name gets `.1`, `.2` appended, whichever is free."""
    found: list[str] = []
    for name in names:
        index, candidate = 0, name
        while candidate in found or (index and candidate in names):
            index += 1
            candidate = f"{name}.{index}"
        found.append(candidate)
    return tuple(found)


def with_distinct_outputs(loaded: Loaded) -> Loaded:
    """Return the model with a distinct name for each output, because a file may list an output more than once."""
    names = distinct_names(loaded.output_names)
    repeated = {name: own for name, own in zip(names, loaded.output_names, strict=True) if name != own}
    if not repeated:
        return loaded
    declared = loaded.scales.outputs or {}
    again = {name: declared[own] for name, own in repeated.items() if own in declared}
    scales = replace(loaded.scales, outputs={**declared, **again} or None)
    return replace(loaded, output_names=names, repeated=repeated, scales=scales)
