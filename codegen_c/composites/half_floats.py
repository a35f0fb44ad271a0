"""Composites of float16: operators of float32 between casts, of which the first and the last are the tensors' type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from codegen_c.composites.floats import float_operator
from codegen_c.composites.graph import Call, CallOperand, Composite, NoMatch
from codegen_c.operators.half_floats import HALF_FORMS, HalfCast
from codegen_c.operators.kinds import Operator, TensorType

HALF, FLOAT = "float16", "float32"
Match = tuple[Operator, tuple[int, ...]]


def half_operator(composite: Composite) -> Match | NoMatch:
    """The operator of a composite of float16 tensors with one output, and which its inputs are; or of a single cast."""
    kinds = [kind.dtype for kind in (*composite.inputs, *composite.outputs)]
    if _is_cast(composite.calls) and sorted(kinds) == [HALF, FLOAT]:
        return HalfCast(inputs=composite.inputs, outputs=composite.outputs), (0,)
    if set(kinds) != {HALF} or len(composite.outputs) != 1 or not composite.calls:
        return NoMatch("is not float16 with one output")
    if not _narrows(composite.calls[-1]):
        return NoMatch("its last operator gives no float32 that is rounded")
    found = float_operator(_between_casts(composite))
    if isinstance(found, NoMatch):
        return found
    operator, arguments = found
    form = HALF_FORMS.get(type(operator))
    if form is None:
        return NoMatch("has no kernel of float16")
    members = {field.name: getattr(operator, field.name) for field in fields(operator)}
    members |= {"inputs": _typed(operator.inputs, HALF), "outputs": _typed(operator.outputs, HALF)}
    return form(**members), arguments


def _between_casts(composite: Composite) -> Composite:
    """The composite as one of float32: casts of its parameters and of its result left out."""
    widened = {
        call.var: call.operands[0]
        for call in composite.calls
        if call.name == "astype" and call.operands[0].parameter is not None
    }

    def operand(value: CallOperand) -> CallOperand:
        return widened.get(value.var, value) if value.var is not None else value

    kept = [call for call in composite.calls[:-1] if call.var not in widened]
    calls = tuple(replace(call, operands=tuple(map(operand, call.operands))) for call in kept)
    return replace(
        composite, inputs=_typed(composite.inputs, FLOAT), outputs=_typed(composite.outputs, FLOAT), calls=calls
    )


def _is_cast(calls: Sequence[Call]) -> bool:
    return len(calls) == 1 and calls[0].name == "astype" and calls[0].operands[0].parameter is not None


def _narrows(call: Call) -> bool:
    return call.name == "astype" and call.type is not None and call.type.dtype == HALF


def _typed(kinds: Sequence[TensorType], dtype: str) -> tuple[TensorType, ...]:
    return tuple(replace(kind, dtype=dtype) for kind in kinds)
