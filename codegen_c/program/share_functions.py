"""Kernels for operands with some stored rows. Layers that differ only in their ring buffers share a function.

The numbers that differ between ring buffers are parameters of a shared function.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from codegen_c.kernels.contract import CFunction, Implementation, Kept, Parameter, StoredRows
from codegen_c.program.steps import KernelCall

Make = Callable[[StoredRows], Implementation]
Call = tuple[KernelCall, StoredRows, Implementation]
"""A call, the stored rows of its operands, and its kernel with the numbers of the ring buffers as constants."""


def with_rings(calls: Sequence[tuple[KernelCall, StoredRows]]) -> dict[str, KernelCall]:
    """Return the calls, by name, with kernels for operands of which only some rows are stored."""
    alike: dict[CFunction, list[Call]] = {}
    for call, stored in calls:
        constant = _keeping(call)(stored)
        general = with_parameters(_keeping(call), stored, ring_numbers(stored))
        in_body = general.function.helpers == constant.function.helpers  # helpers cannot read the parameters
        alike.setdefault((general if in_body else constant).function, []).append((call, stored, constant))
    return {call.name: call for group in alike.values() for call in _sharing(group)}


def _sharing(group: Sequence[Call]) -> list[KernelCall]:
    """Return calls whose functions differ only in numbers of their ring buffers; they share a function if possible."""
    numbers = [ring_numbers(stored) for _, stored, _ in group]
    differing = [name for name in numbers[0] if len({values.get(name) for values in numbers}) > 1]
    (first, stored, _), *_ = group
    passed = parameters_of(_keeping(first), stored, differing) if differing else []
    if not passed:
        return [_made(call, constant, stored) for call, stored, constant in group]
    return [
        replace(
            _made(call, with_parameters(_keeping(call), stored, passed), stored),
            rings=tuple(values[name] for name in passed),
        )
        for (call, stored, _), values in zip(group, numbers, strict=True)
    ]  # fmt: skip


def _made(call: KernelCall, implementation: Implementation, stored: StoredRows) -> KernelCall:
    """Return a call with a kernel for some stored rows. The kernel can be implemented again for other rows."""
    assert has_constants_of(implementation, call.implementation), f"{implementation.kernel}: other constants by rows"
    return replace(
        call, implementation=replace(implementation, keeping=call.implementation.keeping), stored=stored, rings=()
    )


def has_constants_of(implementation: Implementation, other: Implementation) -> bool:
    """Return True if two implementations of an operator read the same constants, of the same element types."""
    pairs = zip_longest(implementation.constants, other.constants, fillvalue=("", np.empty(0, np.void)))
    return all(
        role == name and mine.dtype == theirs.dtype and np.array_equal(mine, theirs)
        for (role, mine), (name, theirs) in pairs
    )


def parameters_of(make: Make, stored: StoredRows, names: Collection[str]) -> list[str]:
    """Return the numbers of the ring buffers that can be parameters: the body depends on them, and no helper does."""
    plain = make(stored).function
    found = {name: make(_named(stored, [name])).function for name in names}
    if any(function.helpers != plain.helpers for function in found.values()):
        return []
    return [name for name, function in found.items() if function != plain]


def with_parameters(make: Make, stored: StoredRows, passed: Collection[str]) -> Implementation:
    """Return a kernel for some stored rows with the numbers `passed` (see `ring_numbers`) as its last parameters."""
    made = make(_named(stored, passed))
    parameters = tuple(Parameter(name=name, ctype="int32_t", role="ring") for name in passed)
    return replace(made, function=replace(made.function, parameters=(*made.function.parameters, *parameters)))


def _keeping(call: KernelCall) -> Make:
    again = call.implementation.keeping
    assert again is not None, "a selected kernel can be implemented again"
    return again


def ring_numbers(stored: StoredRows) -> dict[str, int]:
    """Return the numbers of the ring buffers, by the names of the parameters."""
    found: dict[str, int] = {}
    for operand, kept in _operands(stored).items():
        found |= {f"{operand}_ring": kept.stored, f"{operand}_shift": kept.shift} if kept else {}
    return found


def _named(stored: StoredRows, passed: Collection[str]) -> StoredRows:
    """Return the same stored rows, with the numbers `passed` as parameters."""
    named = {
        operand: replace(
            kept,
            stored_name=f"{operand}_ring" if f"{operand}_ring" in passed else "",
            shift_name=f"{operand}_shift" if f"{operand}_shift" in passed else "",
        )
        if kept
        else None
        for operand, kept in _operands(stored).items()
    }
    output = named.pop("output")
    return replace(stored, inputs=tuple(named.values()), output=output)


def _operands(stored: StoredRows) -> dict[str, Kept | None]:
    names = [f"input{index}" if index else "input" for index in range(len(stored.inputs))]
    return {**dict(zip(names, stored.inputs, strict=True)), "output": stored.output}
