"""Checks and conversions that operators of the signal library share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files

from codegen_c.custom.contract import CustomCall, CustomTensor

_RUNTIME = files("codegen_c.custom.audio") / "runtime"


def header(name: str) -> dict[str, str]:
    """A header of the signal library, by its name."""
    return {name: (_RUNTIME / name).read_text(encoding="utf-8")}


def number(call: CustomCall, name: str, default: int | None = None) -> int:
    """A whole number among the options. Raises ValueError where it is missing and has no default."""
    value = call.options.get(name, default)
    if not isinstance(value, int):
        raise ValueError(f"option {name!r} is {value!r}; a whole number is needed")
    return int(value)


def tensor(call: CustomCall, index: int) -> CustomTensor:
    """An input that must be there. Raises ValueError."""
    found = call.inputs[index] if index < len(call.inputs) else None
    if found is None:
        raise ValueError(f"input {index} is left out")
    return found


def elements(found: CustomTensor) -> int:
    total = 1
    for extent in found.shape:
        total *= extent
    return total


def of_types(inputs: Sequence[str], outputs: Sequence[str]) -> Callable[[CustomCall], str | None]:
    """A check that a call has tensors of just these types."""

    def refuses(call: CustomCall) -> str | None:
        found = [item.dtype for item in call.present], [item.dtype for item in call.outputs]
        if found == (list(inputs), list(outputs)) and len(call.present) == len(call.inputs):
            return None
        wanted = f"{', '.join(inputs)} to {', '.join(outputs)}"
        return f"its tensors are {', '.join(found[0])} to {', '.join(found[1])}; {wanted} is needed"

    return refuses


def first_of(*checks: Callable[[CustomCall], str | None]) -> Callable[[CustomCall], str | None]:
    """Checks one after the other; the reason of the first that fails."""

    def refuses(call: CustomCall) -> str | None:
        return next((reason for check in checks if (reason := check(call))), None)

    return refuses
