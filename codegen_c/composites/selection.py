"""Find the parameters of a fused operator that it needs for only one value of a condition."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from codegen_c.composites.graph import CallOperand, Composite
from codegen_c.program.steps import Selection

_VIEWS = ("reshape", "squeeze", "expand_dims")


def selection_of(function: relax.Function, arguments: Sequence[int]) -> Selection | None:
    """Return the selection that a fused operator makes by a bool of one element; None if it makes no selection.

    arguments: for each operator input, the number of the composite's parameter. A parameter is selected only if `where`
    reads it directly: an operator in between would compute with elements of a branch that was not taken.
    """
    composite = Composite.read(function)
    shown = {call.var: call.operands[0] for call in composite.calls if call.name in _VIEWS}

    def parameter(operand: CallOperand) -> int | None:
        while operand.var in shown:
            operand = shown[operand.var]
        return operand.parameter

    selects = [call for call in composite.calls if call.name == "where"]
    conditions = [parameter(call.operands[0]) for call in selects]
    condition = next((index for index in conditions if index is not None), None)
    if condition is None or composite.inputs[condition].num_elements != 1 or arguments.count(condition) != 1:
        return None
    uses: dict[int, set[bool | None]] = {}
    """Uses of each parameter: True or False for a side of a `where` by the condition, None for any other use."""
    for call in composite.calls:
        if call.name in _VIEWS:
            continue
        is_selecting = call.name == "where" and parameter(call.operands[0]) == condition
        sides = (None, True, False) if is_selecting else (None,) * len(call.operands)
        for operand, side in zip(call.operands, sides, strict=True):
            index = parameter(operand)
            if index is not None:
                uses.setdefault(index, set()).add(side)
    body = function.body.body
    for result in body.fields if isinstance(body, relax.Tuple) else [body]:
        index = parameter(CallOperand(var=result, parameter=None)) if isinstance(result, relax.Var) else None
        if index is not None:
            uses.setdefault(index, set()).add(None)
    when = {
        side: frozenset(
            position
            for position, index in enumerate(arguments)
            # A byte that was never written may be neither 0 nor 1, which is not a valid bool.
            if uses.get(index) == {side} and composite.inputs[index].dtype != "bool"
        )
        for side in (True, False)
    }
    return Selection(condition=arguments.index(condition), when=when) if any(when.values()) else None
