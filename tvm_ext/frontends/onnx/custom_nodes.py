"""Nodes of an ONNX file that neither a converter nor the file defines, and for which the user provides an operator.

The operator's name is the node's domain and type, `my.domain.Envelope`, and its options are the node's attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import onnx
from tvm import relax

from codegen_c.c_text.text import TYPES_OF_C
from codegen_c.custom.contract import CustomCall, CustomOperator, CustomTensor, OptionValue
from codegen_c.custom.registry import custom_operator
from relay_passes.dataflow import array_of, static_shape
from tvm_ext.core.model_nodes import ModelState
from tvm_ext.frontends.custom_calls import asked, custom_expr, listed, outputs_of, states_of
from tvm_ext.frontends.onnx.fold_node import all_constant
from tvm_ext.frontends.onnx.refusals import operator_of
from tvm_ext.frontends.refusals import Refused

# Builds calls under a label, and returns the variables of their results.
Emit = Callable[[Callable[[relax.BlockBuilder], relax.Expr], str], list[relax.Expr]]

_KINDS = onnx.AttributeProto
_OPTIONS = frozenset([_KINDS.INT, _KINDS.FLOAT, _KINDS.STRING, _KINDS.INTS, _KINDS.FLOATS])


@dataclass(frozen=True, kw_only=True, eq=False)
class KeptByNode:
    """A state of a node: its parameter of `main`, and its next value."""

    state: ModelState
    param: relax.Var
    written: relax.Expr


def is_brought(node: onnx.NodeProto) -> bool:
    """Return True where the user provides an operator for the node."""
    return custom_operator(operator_of(node)) is not None


class CustomNodes:
    """Translates such nodes, and collects their states.

    taken: names that no state can have.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self.kept: list[KeptByNode] = []
        self._taken = set(taken)

    def results(
        self, node: onnx.NodeProto, inputs: Sequence[relax.Expr | None], label: str, emit: Emit, *, is_repeated: bool
    ) -> list[relax.Expr]:
        """Return the node's results.

        is_repeated: whether it may run more or less than once in a run.
        Raises Refused.
        """
        operator = custom_operator(operator_of(node))
        assert operator is not None, "somebody brought it"
        call = _call(operator, node, inputs)
        states = states_of(operator, call)
        if states and is_repeated:
            raise Refused("it keeps a state, and stands in a loop, or in a branch that a run may not take")
        kept = [ModelState(name=self._free(f"{label}.{state.name}"), initial=state.initial) for state in states]
        params = [_parameter(state) for state in kept]
        present = [value for value in inputs if value is not None]
        values = emit(lambda _: custom_expr(operator, call, present, params), label)
        count = len(call.outputs)
        self.kept += [
            KeptByNode(state=state, param=param, written=value)
            for state, param, value in zip(kept, params, values[count:], strict=True)
        ]
        return values[:count]

    def _free(self, name: str) -> str:
        """Return the name, or name.1, name.2 ... where it is taken, and reserve it."""
        candidate, number = name, 0
        while candidate in self._taken:
            number += 1
            candidate = f"{name}.{number}"
        self._taken.add(candidate)
        return candidate


def _call(operator: CustomOperator, node: onnx.NodeProto, inputs: Sequence[relax.Expr | None]) -> CustomCall:
    """Return the node as a call of the operator. Raises Refused."""
    if all_constant(inputs) or not any(value is not None for value in inputs):
        raise Refused("all its inputs are constants")
    given = zip(node.input, inputs, strict=True)
    call = CustomCall(
        operator=operator.name,
        inputs=tuple(None if value is None else _tensor(name, value) for name, value in given),
        outputs=(),
        options={attribute.name: _option(attribute) for attribute in node.attribute},
    )
    reason = asked(operator, "refuses", partial(operator.refuses, call))
    if reason:
        raise Refused(reason)
    made = outputs_of(operator, call)
    if len(made) != len(node.output):
        raise Refused(f"it has {len(node.output)} outputs in the file; by the operator's definition: {listed(made)}")
    return replace(call, outputs=tuple(made))


def _tensor(name: str, value: relax.Expr) -> CustomTensor:
    dtype = str(value.ty.dtype)
    if dtype not in TYPES_OF_C:
        raise Refused(f"its tensor {name!r} is of type {dtype}; C11 has {', '.join(TYPES_OF_C)}")
    return CustomTensor(shape=static_shape(value), dtype=dtype, name=name, constant=array_of(value))


def _option(attribute: onnx.AttributeProto) -> OptionValue:
    if attribute.type not in _OPTIONS:
        kind = _KINDS.AttributeType.Name(attribute.type)
        raise Refused(
            f"its attribute {attribute.name!r} is of kind {kind}; options are numbers, lists of numbers and texts. "
            "Hand it in as an input"
        )
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return tuple(value) if attribute.type in (_KINDS.INTS, _KINDS.FLOATS) else value


def _parameter(state: ModelState) -> relax.Var:
    return relax.Var(state.name, relax.TensorType(state.initial.shape, str(state.initial.dtype)))
