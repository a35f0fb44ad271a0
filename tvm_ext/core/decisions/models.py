"""Facts about a loaded model and results of whole-model searches, as attributes of the module and of `main`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tvm_ext.core.changed_inputs import ChangedInput
from tvm_ext.core.decisions.decision import Decision, attribute, json_attribute
from tvm_ext.core.limits import Limits
from tvm_ext.core.model_nodes import (
    ModelNode,
    ModelState,
    nodes_from_json,
    nodes_to_json,
    states_from_json,
    states_to_json,
)


def _names(values: Any) -> tuple[str, ...]:
    return tuple(values)


def _ranges(values: Any) -> dict[str, tuple[float, float]]:
    return {name: (low, high) for name, (low, high) in values.items()}


def _arrays(values: Any) -> dict[str, np.ndarray]:
    return {name: np.array(numbers, dtype) for name, (dtype, numbers) in values.items()}


def _scales(values: Any) -> dict[str, tuple[float, int]]:
    return {name: (scale, zero_point) for name, (scale, zero_point) in values.items()}


def _pairs(values: Any) -> dict[str, tuple[int, int]]:
    return {name: (first, second) for name, (first, second) in values.items()}


def _as_is(value: Any) -> Any:
    return value


@dataclass(frozen=True, kw_only=True)
class ModelOrigin(Decision):
    """The file that a model was read from, and its operators.

    path: empty for a module.
    source_format: `onnx`, `tflite`, `torch`, `tosa` or `relax`.
    name: a C prefix.
    signature: name of the signature of a TensorFlow Lite file that was chosen; empty without a choice.
    rounding: of quantized arithmetic, as in `QuantizedRounding`.
    nodes: the model's operators, in order.
    """

    path: str = attribute("tvm_ext.source_path", "")
    source_format: str = attribute("tvm_ext.source_format", "")
    sha256: str = attribute("tvm_ext.source_sha256", "")
    name: str = attribute("tvm_ext.model_name", "")
    rounding: str = attribute("tvm_ext.rounding", "onnx")
    signature: str = attribute("tvm_ext.signature", "")
    nodes: tuple[ModelNode, ...] = attribute(
        "tvm_ext.nodes", (), read=lambda text: nodes_from_json(str(text)), write=nodes_to_json
    )

    @property
    def is_known(self) -> bool:
        """True for a module that was loaded earlier."""
        return all((self.source_format, self.sha256, self.name))

    @property
    def option(self) -> str:
        """The value of the option `rounding` that this rounding has."""
        return next(name for name, meaning in MEANING_OF_ROUNDING.items() if meaning == self.rounding)


MEANING_OF_ROUNDING = {"tflm": "tflite", "litert": "litert", "once": "onnx"}
"""Rounding of quantized arithmetic, as in `QuantizedRounding`, for each value of the option."""


@dataclass(frozen=True, kw_only=True)
class PortNames(Decision):
    """The model's own names of its inputs and outputs, in order."""

    inputs: tuple[str, ...] = json_attribute("tvm_ext.input_names", (), read=_names)
    outputs: tuple[str, ...] = json_attribute("tvm_ext.output_names", (), read=_names)


@dataclass(frozen=True, kw_only=True)
class RepeatedOutputs(Decision):
    """Outputs that the file lists more than once: the file's own name by the name of each repetition."""

    repeated: Mapping[str, str] | None = json_attribute("tvm_ext.repeated_outputs", None, read=_as_is)


@dataclass(frozen=True, kw_only=True)
class PortScales(Decision):
    """Scale and zero point of quantized inputs and outputs, by the model's own names.

    The reader of a format writes what the file declares, and the pass `NotePortScales` adds what operators imply.
    """

    inputs: Mapping[str, tuple[float, int]] | None = json_attribute("tvm_ext.input_scales", None, read=_scales)
    outputs: Mapping[str, tuple[float, int]] | None = json_attribute("tvm_ext.output_scales", None, read=_scales)


@dataclass(frozen=True, kw_only=True)
class PortLayouts(Decision):
    """Letters of the axes of inputs and outputs that are images or sequences, such as NHWC, by the model's names."""

    inputs: Mapping[str, str] | None = json_attribute("tvm_ext.input_layouts", None, read=_as_is)
    outputs: Mapping[str, str] | None = json_attribute("tvm_ext.output_layouts", None, read=_as_is)


def _changed(values: Any) -> dict[str, ChangedInput]:
    return {name: ChangedInput(**fields) for name, fields in values.items()}


@dataclass(frozen=True, kw_only=True)
class ChangedPorts(Decision):
    """Inputs in another form than the file's, and outputs that are the index of the file's largest element.

    Both are listed by the model's own names. The runtimes of the file use the file's form.
    """

    inputs: Mapping[str, ChangedInput] | None = attribute(
        "tvm_ext.changed_inputs",
        None,
        read=lambda text: _changed(json.loads(str(text))),
        write=lambda values: json.dumps({name: asdict(one) for name, one in values.items()}),
    )
    indexed: tuple[str, ...] = json_attribute("tvm_ext.indexed_outputs", (), read=_names)


@dataclass(frozen=True, kw_only=True)
class LoadLimits(Decision):
    """The sizes beyond which a model is refused, as used when it was loaded."""

    limits: Limits = attribute(
        "tvm_ext.limits", Limits(), read=lambda text: Limits.from_json(str(text)), write=Limits.to_json
    )


@dataclass(frozen=True, kw_only=True)
class InputDemands(Decision):
    """The range that operators of the file demand of inputs, as least and largest value."""

    ranges: Mapping[str, tuple[float, float]] | None = json_attribute("tvm_ext.input_demands", None, read=_ranges)


@dataclass(frozen=True, kw_only=True)
class MemoryScopes(Decision):
    """Memories that a Relax module asks for by the memory scopes of its VDevices.

    ports: memory of inputs and outputs, by the model's own names. constants: memories of constants. others: memories of
    values between operators, which are checked only.
    """

    ports: Mapping[str, str] | None = json_attribute("tvm_ext.port_scopes", None, read=_as_is)
    constants: tuple[str, ...] = json_attribute("tvm_ext.constant_scopes", (), read=_names)
    others: tuple[str, ...] = json_attribute("tvm_ext.other_scopes", (), read=_names)


@dataclass(frozen=True, kw_only=True)
class BoundInputs(Decision):
    """Inputs of the file whose values are fixed. Other runtimes of the file have to be given the same values."""

    values: Mapping[str, np.ndarray] | None = attribute(
        "tvm_ext.bound_inputs",
        None,
        read=lambda text: _arrays(json.loads(str(text))),
        write=lambda values: json.dumps({name: [str(array.dtype), array.tolist()] for name, array in values.items()}),
    )


@dataclass(frozen=True, kw_only=True)
class FilledRows(Decision):
    """Tensors of the file that end in rows of -1, which other runtimes leave out.

    rows: axis of the rows and their number, by name. unlike: tensors inside the model that follow from these, and whose
    rows after the last selected one mean nothing.
    """

    rows: Mapping[str, tuple[int, int]] | None = json_attribute("tvm_ext.filled_rows", None, read=_pairs)
    unlike: tuple[str, ...] = json_attribute("tvm_ext.unlike_rows", (), read=_names)


@dataclass(frozen=True, kw_only=True)
class QuantizationMeasured(Decision):
    """Measurements of the quantization, as in report.json; None for a model that was not quantized here."""

    report: Mapping[str, Any] | None = json_attribute("tvm_ext.quantization", None, read=_as_is)


@dataclass(frozen=True, kw_only=True)
class KeptStates(Decision):
    """The states that runs keep: the last parameters of `main`, and in the same order its last results.

    A run finds the value of a state in the parameter, and leaves its next value as the result. All passes keep this
    order, until `codegen_c/lowering/states.py` gives each state its memory.
    """

    states: tuple[ModelState, ...] = attribute(
        "tvm_ext.states", (), read=lambda text: states_from_json(str(text)), write=states_to_json
    )


@dataclass(frozen=True, kw_only=True)
class LinkedInputs(Decision):
    """The model's own names of inputs that other models of its bundle write to."""

    inputs: tuple[str, ...] = json_attribute("tvm_ext.linked_inputs", (), read=_names)


@dataclass(frozen=True, kw_only=True)
class WarmUp(Decision):
    """Number of runs after a reset whose outputs are not valid yet, because the window of time is not full.

    goes_on: whether outputs depend on all frames since the reset, because states of recurrent layers go on.
    """

    runs: int = attribute("tvm_ext.warm_up_runs", 0, read=int)
    goes_on: bool = attribute("tvm_ext.goes_on", False, read=bool)


@dataclass(frozen=True, kw_only=True)
class HopCost(Decision):
    """Multiply-accumulates of a run that takes only new frames, and of a run that takes the whole window.

    remarks: sentences on what a run computes again although the window only moved on.
    """

    macs: int = attribute("tvm_ext.hop_macs", 0, read=int)
    window_macs: int = attribute("tvm_ext.window_macs", 0, read=int)
    remarks: tuple[str, ...] = json_attribute("tvm_ext.hop_remarks", (), read=_names)


@dataclass(frozen=True, kw_only=True)
class SchedulePeak(Decision):
    """Live bytes at the peak of the order.

    proved: whether no order has fewer; None where that is not known.
    """

    peak_bytes: int | None = attribute("schedule_peak_bytes", None, read=int)
    proved: bool | None = attribute("schedule_proved", None, read=bool)


@dataclass(frozen=True, kw_only=True)
class SplitCost(Decision):
    """Live bytes at the peak of a model split by rows, and the modelled instructions that splitting adds.

    The instructions are those of calls and of deciding which rows are next.
    """

    peak_bytes: int | None = attribute("split_peak_bytes", None, read=int)
    instructions: int | None = attribute("split_instructions", None, read=int)


@dataclass(frozen=True, kw_only=True)
class Recomputed(Decision):
    """The number of operators that are recomputed, and the modelled instructions for that; None without recomputation.

    at_least: no recomputation within the budget in that order takes fewer instructions; None without a bound.
    """

    operators: int | None = attribute("rematerialized_operators", None, read=int)
    instructions: int | None = attribute("rematerialized_instructions", None, read=int)
    at_least: int | None = attribute("rematerialized_at_least", None, read=int)


@dataclass(frozen=True, kw_only=True)
class OperatorsInStrips(Decision):
    """Number of operators that run for some columns at a time."""

    count: int = attribute("patched_operators", 0, read=int)


@dataclass(frozen=True, kw_only=True)
class PredictedTime(Decision):
    """Predicted cycles of a run, and with everything in the default memory.

    to_fit: whether the default memory alone was too small, so that no gain in time was required.
    """

    cycles: int | None = attribute("predicted_cycles", None, read=int)
    cycles_at_home: int | None = attribute("predicted_cycles_at_home", None, read=int)
    to_fit: bool = attribute("moved_to_fit", False, read=bool)


@dataclass(frozen=True, kw_only=True)
class AttentionInParts(Decision):
    """Number of parts of attention that run one after another; 1 where all heads run together.

    All parts have the same number of heads.
    """

    parts: int = attribute("attention_parts", 1, read=int)
