"""Custom operators in a model file, and their reference functions for TVM's runtime.

The file provides only a name, tensors and options. All functions that run here belong to the `CustomOperator`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from codegen_c.c_text.text import TYPES_OF_C
from codegen_c.custom.contract import CustomCall, CustomOperator, CustomState, CustomTensor, call_to_json
from codegen_c.custom.registry import GROUP
from relay_passes.composites import custom_use
from relay_passes.dataflow import bindings, constant, dict_attrs, static_shape
from tvm_ext.core.decisions.composites import CustomUse
from tvm_ext.core.memory_exhausted import check_memory
from tvm_ext.frontends.refusals import Refused, summary

Returned = TypeVar("Returned")

HOW_TO_BRING = (
    "a tvm_ext.custom.CustomOperator, registered by tvm_ext.custom.register_operator or installed under the entry "
    f"point group {GROUP!r} (docs/operators.md)"
)


def custom_expr(
    operator: CustomOperator, call: CustomCall, present: Sequence[relax.Expr], states: Sequence[relax.Expr]
) -> relax.Expr:
    """Return a call that computes the operator's outputs, followed by the next values of its states.

    present: the call's inputs that are not left out.
    Raises Refused.
    """
    kept = states_of(operator, call)
    if [state.initial.shape for state in kept] != [static_shape(state) for state in states]:
        raise Refused("its states have other shapes for these inputs than for those in the file")
    code = asked(operator, "code", partial(operator.code, call))
    if problem := code.problem(call, len(call.outputs), kept):
        raise Refused(problem)
    use = CustomUse(
        operator=operator.name, call=json.dumps(call_to_json(call)), code=code.to_json(),
        states=tuple(state.name for state in kept), num_tables=len(code.tables),
    )  # fmt: skip
    arguments = [*present, *states, *(constant(np.asarray(table)) for table in code.tables.values())]
    types = [relax.TensorType(tensor.shape, tensor.dtype) for tensor in call.outputs]
    types += [relax.TensorType(state.initial.shape, str(state.initial.dtype)) for state in kept]
    plain = relax.call_dps_packed(_symbol_of(use), relax.Tuple(arguments), types if len(types) > 1 else types[0])
    return relax.Call(plain.op, plain.args, dict_attrs(use), plain.ty_args)


def outputs_of(operator: CustomOperator, call: CustomCall) -> list[CustomTensor]:
    """Return the results of a call, as the operator declares them. Raises Refused."""
    return list(asked(operator, "outputs", partial(operator.outputs, call)))


def states_of(operator: CustomOperator, call: CustomCall) -> list[CustomState]:
    """Return the states of a call. Raises Refused."""
    states = list(asked(operator, "states", partial(operator.states, call)))
    wrong = next((state for state in states if str(state.initial.dtype) not in TYPES_OF_C), None)
    if wrong is not None:
        raise Refused(f"its state {wrong.name!r} is of type {wrong.initial.dtype}; C11 has {', '.join(TYPES_OF_C)}")
    return states


def asked(operator: CustomOperator, what: str, function: Callable[[], Returned]) -> Returned:
    """Call a function of the user. Its exceptions become refusals that name it."""
    try:
        return function()
    except Exception as error:  # user code may raise anything
        check_memory(error)
        raise Refused(f"{what} of its CustomOperator {operator.name!r} fails: {summary(error)}") from error


def listed(tensors: Sequence[CustomTensor]) -> str:
    return ", ".join(map(str, tensors)) or "nothing"


def _symbol_of(use: CustomUse) -> str:
    """Return the name of a use's reference for TVM's runtime, from the operator and the arguments of its call."""
    return f"tvm_ext.operator.{use.operator}.{hashlib.sha256(use.call.encode()).hexdigest()[:8]}"


Array = np.ndarray
Running = Callable[[str, str, list[Array]], list[Array]]
"""Computes a reference's results from the operator's name, its call as text, and arrays of its inputs and states."""


def register_references(mod: tvm.IRModule, run: Running) -> None:
    """Register the references of `main`'s custom operators with TVM's runtime in this process, by their symbols.

    A symbol belongs to a single operator and call. An earlier registration is replaced.
    """
    for binding in bindings(mod["main"]):
        use = custom_use(binding.value)
        if use is not None:
            symbol = binding.value.args[0].global_symbol
            tvm_ffi.register_global_func(symbol, partial(_reference, use, run), override=True)


def _reference(use: CustomUse, run: Running, *tensors: tvm.runtime.Tensor) -> None:
    """Run a reference. Its tensors are operands and tables that the C code reads, followed by the results to write."""
    split = len(tensors) - len(json.loads(use.call)["outputs"]) - len(use.states)
    operands = [tensor.numpy() for tensor in tensors[: split - use.num_tables]]
    for target, array in zip(tensors[split:], run(use.operator, use.call, operands), strict=True):
        target.copyfrom(array)
