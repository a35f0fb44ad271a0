"""Checks and conversions that the operators of the signal library share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files

from codegen_c.custom.contract import CustomCall, CustomTensor

_RUNTIME = files("codegen_c.custom.audio") / "runtime"


def header(name: str) -> dict[str, str]:
    """Return a header of the signal library by its name."""
    return {name: (_RUNTIME / name).read_text(encoding="utf-8")}


def number(call: CustomCall, name: str, default: int | None = None) -> int:
    """Return an integer option. Raises ValueError if it is missing and has no default."""
    value = call.options.get(name, default)
    if not isinstance(value, int):
        raise ValueError(f"option {name!r} is {value!r}; it must be an integer")
    return int(value)


def tensor(call: CustomCall, index: int) -> CustomTensor:
    """Return a required input. Raises ValueError if it is omitted."""
    found = call.inputs[index] if index < len(call.inputs) else None
    if found is None:
        raise ValueError(f"input {index} is missing")
    return found


def elements(found: CustomTensor) -> int:
    """Return the number of elements of a tensor."""
    total = 1
    for extent in found.shape:
        total *= extent
    return total


def of_types(inputs: Sequence[str], outputs: Sequence[str]) -> Callable[[CustomCall], str | None]:
    """Return a check that the tensors of a call have exactly these types."""

    def refuses(call: CustomCall) -> str | None:
        found = [item.dtype for item in call.present], [item.dtype for item in call.outputs]
        if found == (list(inputs), list(outputs)) and len(call.present) == len(call.inputs):
            return None
        wanted = f"{', '.join(inputs)} to {', '.join(outputs)}"
        return f"its tensors are {', '.join(found[0])} to {', '.join(found[1])}; {wanted} is needed"

    return refuses


def first_of(*checks: Callable[[CustomCall], str | None]) -> Callable[[CustomCall], str | None]:
    """Return a check that applies several checks in order and returns the first reason."""

    def refuses(call: CustomCall) -> str | None:
        return next((reason for check in checks if (reason := check(call))), None)

    return refuses
