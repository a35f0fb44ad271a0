"""Registry of custom operators: those in this folder, those of entry points, and those that the user's code registers.

An entry point of the group `tvm_ext.operators` names a `CustomOperator`, such as `my_operators:SCALE`. A model's file
contains only the name of an operator; the code for a name is chosen here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import walk_packages

from codegen_c.custom.contract import Array, CustomOperator, call_from_json
from tvm_ext.core.errors import BadOptions, VerificationFailed

GROUP = "tvm_ext.operators"
_HERE = "codegen_c.custom"
_registered: dict[str, CustomOperator] = {}


def register_operator(operator: CustomOperator) -> CustomOperator:
    """Register an operator in this process and return it. It replaces a registered operator of the same name.

    The registry is state of the process, like TVM's own registry of functions. Raises BadOptions if an installed
    operator has the name.
    """
    source = _installed().get(operator.name)
    if source is not None:
        raise BadOptions(
            f"operator {operator.name!r} is already installed by {source[0]}; register yours under another name, or "
            "uninstall that package."
        )
    _registered[operator.name] = operator
    return operator


def custom_operator(name: str) -> CustomOperator | None:
    """Return the operator with a name, or None if there is none."""
    installed = _installed().get(name)
    return installed[1] if installed is not None else _registered.get(name)


def run_reference(name: str, call: str, arrays: Sequence[Array]) -> list[Array]:
    """Return the results of an operator's reference, followed by its next states.

    call: as `call_to_json` writes it, as text. arrays: present inputs, then states. Raises VerificationFailed if the
    operator is not registered in this process, or if its results have other types than declared.
    """
    operator = custom_operator(name)
    if operator is None:
        raise VerificationFailed(
            f"custom operator {name!r} is not registered in this process, so it has no reference; register it before "
            f"(tvm_ext.custom.register_operator), or install it under the entry point group {GROUP!r}."
        )
    use = call_from_json(json.loads(call), arrays)
    given = iter(arrays)
    inputs: list[Array | None] = [None if tensor is None else next(given) for tensor in use.inputs]
    found = [np_array for np_array in operator.reference(use, [*inputs, *given])]
    states = operator.states(use)
    wanted = [*((t.shape, t.dtype) for t in operator.outputs(use)),
              *((s.initial.shape, str(s.initial.dtype)) for s in states)]  # fmt: skip
    given_types = [(array.shape, str(array.dtype)) for array in found]
    if given_types != wanted:
        raise VerificationFailed(
            f"the reference of custom operator {name!r} returned {_listed(given_types)}; its results and states are "
            f"declared as {_listed(wanted)}."
        )
    return found


@cache
def _installed() -> Mapping[str, tuple[str, CustomOperator]]:
    """Return the installed operators by name, each with its module or entry point. A duplicate name is an error."""
    found: dict[str, tuple[str, CustomOperator]] = {}
    places = [(info.name, "OPERATORS") for info in walk_packages(import_module(_HERE).__path__, f"{_HERE}.")]
    shipped = [(name, getattr(import_module(name), attribute, ())) for name, attribute in places]
    brought = [(point.value, (point.load(),)) for point in sorted(entry_points(group=GROUP), key=lambda p: p.value)]
    for place, operators in (*shipped, *brought):
        for operator in operators:
            if not isinstance(operator, CustomOperator):
                raise ImportError(f"entry point {place!r} of group {GROUP!r} is not a tvm_ext.custom.CustomOperator")
            if operator.name in found:
                raise ImportError(f"operator {operator.name!r} is defined in {found[operator.name][0]} and {place}")
            found[operator.name] = (place, operator)
    return found


def _listed(types: Sequence[tuple[tuple[int, ...], str]]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for shape, dtype in types) or "nothing"
