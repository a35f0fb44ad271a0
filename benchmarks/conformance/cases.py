"""The cases of the ONNX backend suite: node, simple, pytorch-operator, pytorch-converted."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests, load_node_model_tests

Mode = Literal["as-is", "baked"]
MODES: tuple[Mode, ...] = ("as-is", "baked")
_STORED_KINDS = ("simple", "pytorch-operator", "pytorch-converted")
# The suite's own tolerance, and at least this; of 16-bit floats two steps, which its own rounding is off as well.
MIN_RTOL, MIN_ATOL = 1e-3, 1e-5
NARROW_RTOL = {"float16": 2.0**-9, "bfloat16": 2.0**-6}
_FIRST_IR_WITHOUT_INITIALIZERS_AS_INPUTS = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A model with inputs and the outputs they must give.

    data_sets: pairs of inputs (for the graph's inputs that are not initializers, in order; None where the suite gives
    no tensor) and expected outputs, in the graph's order.
    """

    kind: str
    name: str
    mode: Mode
    model: onnx.ModelProto
    data_sets: tuple[tuple[tuple[np.ndarray | None, ...], tuple[np.ndarray | None, ...]], ...]
    rtol: float
    atol: float

    @property
    def key(self) -> str:
        return f"{self.mode}/{self.kind}/{self.name}"

    @property
    def content(self) -> str:
        """Digest of the model, its data and its tolerance."""
        digest = hashlib.sha256(self.model.SerializeToString(deterministic=True))
        digest.update(f"{self.rtol} {self.atol}".encode())
        for inputs, outputs in self.data_sets:
            for array in (*inputs, *outputs):
                plain = array is not None and array.dtype != object
                digest.update(array.tobytes() if plain else repr(array).encode())
        return digest.hexdigest()

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """Inputs that a run has to be given: those without an initializer."""
        constants = {tensor.name for tensor in self.model.graph.initializer}
        return [value for value in self.model.graph.input if value.name not in constants]


def load_cases(modes: Sequence[Mode]) -> list[Case]:
    """All cases in these modes, sorted by key. `baked`: inputs but the first are initializers of the first data set's.

    Making them takes five seconds: the suite computes its own data.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it divides by zero on purpose
        cases = [_case(test) for test in load_node_model_tests()]
        cases += [_case(test) for kind in _STORED_KINDS for test in load_model_tests(kind=kind)]
    found = [_baked(case) if mode == "baked" else case for mode in modes for case in cases]
    return sorted(found, key=lambda case: case.key)


def _case(test: TestCase) -> Case:
    model = test.model or onnx.load(Path(test.model_dir) / "model.onnx")
    pairs = test.data_sets if test.data_sets is not None else _stored(Path(test.model_dir), model)
    return Case(
        kind=test.kind, name=test.name, mode="as-is", model=model,
        data_sets=tuple((_arrays(inputs), _arrays(outputs)) for inputs, outputs in pairs),
        rtol=max(test.rtol, MIN_RTOL), atol=max(test.atol, MIN_ATOL),
    )  # fmt: skip


def _arrays(values: Sequence[object]) -> tuple[np.ndarray | None, ...]:
    return tuple(_array(value) for value in values)


def _array(value: object) -> np.ndarray | None:
    """The array of a value; None for sequences, optionals and sparse tensors."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.ndarray | np.generic | float | int | bool) else None


def _stored(folder: Path, model: onnx.ModelProto) -> Iterator[tuple[list[object], list[object]]]:
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    for data in sorted(folder.glob("test_data_set_*")):
        yield _read(data, "input", inputs), _read(data, "output", model.graph.output)


def _read(folder: Path, prefix: str, values: Sequence[onnx.ValueInfoProto]) -> list[object]:
    found: list[object] = []
    for index, value in enumerate(values):
        if not value.type.HasField("tensor_type"):
            found.append(None)
            continue
        tensor = onnx.TensorProto()
        tensor.ParseFromString((folder / f"{prefix}_{index}.pb").read_bytes())
        found.append(tensor)
    return found


def _baked(case: Case) -> Case:
    """The case with all inputs but the first moved into the model; as it is where one of them is no tensor."""
    rest, inputs = case.inputs[1:], case.data_sets[0][0]
    if any(array is None for array in inputs[1:]):
        return replace(case, mode="baked")
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    if model.ir_version >= _FIRST_IR_WITHOUT_INITIALIZERS_AS_INPUTS:
        names = {value.name for value in rest}
        kept = [value for value in model.graph.input if value.name not in names]
        del model.graph.input[:]
        model.graph.input.extend(kept)
    for value, array in zip(rest, inputs[1:], strict=False):
        model.graph.initializer.append(numpy_helper.from_array(array, value.name))
    first, outputs = case.data_sets[0]
    data_sets = ((first[:1], outputs),) if rest else case.data_sets
    return replace(case, mode="baked", model=model, data_sets=data_sets)
