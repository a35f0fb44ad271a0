"""Contract of a custom operator: the types of its results, a numpy reference, and its C. Plain data.

A model's file only names a custom operator and gives its options; no code from the file is executed. All code that runs
at compile time belongs to the `CustomOperator` that the user installed or registered.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

import numpy as np

from codegen_c.c_text.text import TYPES_OF_C

Array = np.ndarray[Any, Any]
OptionValue = bool | int | float | str | bytes | tuple[int, ...] | tuple[float, ...] | None

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[a-z][a-z0-9_]*\.h")


@dataclass(frozen=True, kw_only=True, eq=False)
class CustomTensor:
    """A tensor of a call.

    scale, zero_point: one number, or one per index of an axis; empty for a tensor that is not quantized. name: in the
    model; empty for results. constant: its elements if it is a constant, else None.
    """

    shape: tuple[int, ...]
    dtype: str
    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()
    name: str = ""
    constant: Array | None = None

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, kw_only=True, eq=False)
class CustomCall:
    """A call of a custom operator in a model.

    inputs: None for an optional input that is omitted. outputs: as the file declares them; empty for an ONNX file,
    which does not. options: by name; for a TensorFlow Lite file the flexbuffer map of custom options, for an ONNX file
    the node's attributes. raw_options: bytes of the custom options, for other encodings.
    """

    operator: str
    inputs: tuple[CustomTensor | None, ...]
    outputs: tuple[CustomTensor, ...]
    options: Mapping[str, OptionValue] = field(default_factory=dict[str, OptionValue])
    raw_options: bytes = b""

    @property
    def present(self) -> tuple[CustomTensor, ...]:
        """Inputs that are not omitted."""
        return tuple(tensor for tensor in self.inputs if tensor is not None)


@dataclass(frozen=True, kw_only=True, eq=False)
class CustomState:
    """A value that an operator keeps between runs. initial: its elements before the first run."""

    name: str
    initial: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class CustomCode:
    """A call as C11: the body of a function, and what the body uses.

    inputs, outputs: names of its parameters, `const T *` and `T *`, in the order of the call's present inputs and of
    its results. A state `s` adds the parameters `const T *s` and `T *s_next`; a table adds a parameter with its name.
    Tensors are whole and contiguous, and never overlap. helpers: functions before it; `$` in them and in the body
    stands for the function's own name. headers: text by name of headers that are copied into the package and included;
    their functions are `static inline`. includes: standard headers. tables: constants that the C reads, computed at
    compile time. scratch_bytes: size of a parameter `uint8_t *scratch`, aligned to 8 B. macs, instructions: of one
    call, modelled.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: str
    helpers: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    includes: tuple[str, ...] = ()
    tables: Mapping[str, Array] = field(default_factory=dict[str, Array])
    scratch_bytes: int = 0
    macs: int = 0
    instructions: int = 0

    def problem(self, call: CustomCall, results: int, states: Sequence[CustomState]) -> str | None:
        """Return the reason why the C cannot be used, or None."""
        names = [*self.inputs, *self.outputs, *self.tables]
        names += [name for state in states for name in (state.name, f"{state.name}_next")]
        wrong = [name for name in names if not _WORD.fullmatch(name)] or [n for n in names if names.count(n) > 1]
        if wrong:
            return f"its C has a parameter {wrong[0]!r}, which is not a C identifier or occurs twice"
        if len(self.inputs) != len(call.present) or len(self.outputs) != results:
            return (
                f"its C takes {len(self.inputs)} inputs and returns {len(self.outputs)} results; the call has "
                f"{len(call.present)} and {results}"
            )
        for name, table in self.tables.items():
            if str(table.dtype) not in TYPES_OF_C:
                return f"its table {name!r} is of type {table.dtype}; C11 has {', '.join(TYPES_OF_C)}"
        wrong = [name for name in self.headers if not _HEADER.fullmatch(name)]
        return f"its header {wrong[0]!r} must have a name like my_operator.h" if wrong else None

    def to_json(self) -> dict[str, Any]:
        """Return the code as JSON, without the elements of tables."""
        return {
            "inputs": self.inputs, "outputs": self.outputs, "body": self.body, "helpers": self.helpers,
            "headers": dict(self.headers), "includes": self.includes, "tables": list(self.tables),
            "scratch_bytes": self.scratch_bytes, "macs": self.macs, "instructions": self.instructions,
        }  # fmt: skip

    @classmethod
    def from_json(cls, values: Mapping[str, Any], tables: Sequence[Array]) -> Self:
        """Return the code from JSON and the elements of its tables."""
        changed: dict[str, Any] = {name: tuple(values[name]) for name in ("inputs", "outputs", "includes")}
        changed["tables"] = dict(zip(values["tables"], tables, strict=True))
        return cls(**{**values, **changed})


def _no_states(_: CustomCall) -> Sequence[CustomState]:
    return ()


def _takes_all(_: CustomCall) -> str | None:
    return None


@dataclass(frozen=True, kw_only=True, eq=False)
class CustomOperator:
    """A custom operator of a user. name: a TensorFlow Lite file's custom code, or `domain.type` of an ONNX node.

    outputs: types of the results. reference: numpy function of the call and its inputs (None for omitted inputs) and
    states; returns the results and then the next states. code: the same in C. states: values that it keeps between
    runs. refuses: the reason why a call is not supported, as a message for the user, or None.
    """

    name: str
    outputs: Callable[[CustomCall], Sequence[CustomTensor]]
    reference: Callable[[CustomCall, Sequence[Array | None]], Sequence[Array]]
    code: Callable[[CustomCall], CustomCode]
    states: Callable[[CustomCall], Sequence[CustomState]] = _no_states
    refuses: Callable[[CustomCall], str | None] = _takes_all


def call_to_json(call: CustomCall) -> dict[str, Any]:
    """Return the call as JSON, without the elements of its constants."""
    return {
        "operator": call.operator,
        "inputs": [tensor and _tensor_to_json(tensor) for tensor in call.inputs],
        "outputs": [_tensor_to_json(tensor) for tensor in call.outputs],
        "options": {name: _option_to_json(value) for name, value in call.options.items()},
        "raw_options": base64.b64encode(call.raw_options).decode("ascii"),
    }


def call_from_json(values: Mapping[str, Any], inputs: Sequence[Array]) -> CustomCall:
    """Return the call from JSON. inputs: arrays of its present inputs; only those of constants are used."""
    arrays = iter(inputs)
    found: list[CustomTensor | None] = []
    for entry in values["inputs"]:
        array = next(arrays) if entry else None
        found.append(_tensor_from_json(entry, array) if entry else None)
    return CustomCall(
        operator=values["operator"],
        inputs=tuple(found),
        outputs=tuple(_tensor_from_json(entry, None) for entry in values["outputs"]),
        options={name: _option_from_json(value) for name, value in values["options"].items()},
        raw_options=base64.b64decode(values["raw_options"]),
    )


def _tensor_to_json(tensor: CustomTensor) -> dict[str, Any]:
    return {
        "shape": tensor.shape, "dtype": tensor.dtype, "scale": tensor.scale, "zero_point": tensor.zero_point,
        "name": tensor.name, "is_constant": tensor.constant is not None,
    }  # fmt: skip


def _tensor_from_json(values: Mapping[str, Any], array: Array | None) -> CustomTensor:
    tensor = CustomTensor(
        shape=tuple(values["shape"]), dtype=values["dtype"], scale=tuple(values["scale"]),
        zero_point=tuple(values["zero_point"]), name=values["name"],
    )  # fmt: skip
    return replace(tensor, constant=array) if values["is_constant"] else tensor


def _option_to_json(value: OptionValue) -> Any:
    return {"bytes": base64.b64encode(value).decode("ascii")} if isinstance(value, bytes) else value


def _option_from_json(value: Any) -> OptionValue:
    if isinstance(value, dict):
        return base64.b64decode(str(cast("dict[str, Any]", value)["bytes"]))
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value
