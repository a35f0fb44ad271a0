"""Custom operators of a TensorFlow Lite file, and their options (flexbuffers).

The file provides only a name, tensors and options. All functions that run here belong to the `CustomOperator`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from flatbuffers import flexbuffers
from tvm import relax

from codegen_c.c_text.text import TYPES_OF_C
from codegen_c.custom.contract import CustomCall, CustomOperator, CustomTensor, OptionValue
from codegen_c.custom.registry import custom_operator
from relay_passes.dataflow import array_of, static_shape
from tvm_ext.core.model_nodes import ModelState, next_name
from tvm_ext.frontends.custom_calls import HOW_TO_BRING, asked, custom_expr, listed, outputs_of, states_of
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.read_file import TfliteFile, TfliteNode, TfliteTensor
from tvm_ext.frontends.tflite.resources import Variable
from tvm_ext.frontends.tflite.variable_tensors import IN_BRANCH, free_name

_MISSING = f"a custom operator; its meaning is not in the file. Bring it as {HOW_TO_BRING}"


def refusal_of_custom(file: TfliteFile, node: TfliteNode) -> str | None:
    """Return why a custom operator cannot be compiled, or None where the user provides it and it takes the call."""
    operator = custom_operator(node.operator)
    if operator is None:
        return _MISSING
    tensors = [file.tensors[index] for index in (*node.inputs, *node.outputs) if index >= 0]
    wrong = next((tensor for tensor in tensors if tensor.dtype not in TYPES_OF_C), None)
    if wrong is not None:
        return f"its tensor {wrong.name!r} is of type {wrong.type_name}; C11 has {', '.join(TYPES_OF_C)}"
    if -1 in node.outputs or not node.outputs:
        return "an output is left out"
    if all(index < 0 or file.tensors[index].data is not None for index in node.inputs):
        return "all its inputs are constants"
    try:
        call = _declared_call(file, node)
        unranked = [file.tensors[index].is_unranked for index in node.outputs]
        reason = asked(operator, "refuses", partial(operator.refuses, call)) or _mismatch(operator, call, unranked)
        if states_of(operator, call) and node.is_guarded:
            return reason or IN_BRANCH
        return reason
    except Refused as error:
        return str(error)


def custom_states_opened(file: TfliteFile) -> tuple[TfliteFile, tuple[Variable, ...]]:
    """Return the file with states of custom operators as inputs and outputs. Refused operators are unchanged."""
    tensors, variables = list(file.tensors), list[Variable]()
    nodes: list[TfliteNode] = []
    for node in file.nodes:
        operator = custom_operator(node.operator) if node.is_custom else None
        if operator is None or refusal_of_custom(file, node):
            nodes.append(node)
            continue
        read: list[int] = []
        for state in states_of(operator, _declared_call(file, node)):
            kept = ModelState(name=free_name(f"{node.label}.{state.name}", tensors), initial=state.initial)
            read.append(len(tensors))
            tensors.append(_of_state(kept.name, state.initial))
            tensors.append(_of_state(free_name(next_name(kept.name), tensors), state.initial))
            variables.append(Variable(state=kept, read=read[-1], written=read[-1] + 1))
        written = [index + 1 for index in read]
        nodes.append(
            replace(node, inputs=(*node.inputs, *read), outputs=(*node.outputs, *written), num_states=len(read))
        )
    return replace(file, tensors=tuple(tensors), nodes=tuple(nodes)), tuple(variables)


def convert(file: TfliteFile, node: TfliteNode, values: Mapping[int, relax.Expr]) -> relax.Expr:
    """Return a call that computes the operator's outputs, followed by the next values of its states. Raises Refused."""
    operator = custom_operator(node.operator)
    assert operator is not None, "refused before"
    inputs, states = node.inputs, ()
    if node.num_states:
        inputs, states = inputs[: -node.num_states], inputs[-node.num_states :]
    call = _with_shapes(_declared_call(file, node), [values[index] for index in inputs if index >= 0])
    made = outputs_of(operator, call)
    if [tensor.dtype for tensor in made] != [tensor.dtype for tensor in call.outputs]:
        raise Refused(f"its outputs are {listed(call.outputs)} in the file, {listed(made)} for these inputs")
    call = replace(
        call, outputs=tuple(replace(was, shape=now.shape) for was, now in zip(call.outputs, made, strict=True))
    )
    present = [values[index] for index in inputs if index >= 0]
    return custom_expr(operator, call, present, [values[index] for index in states])


def _declared_call(file: TfliteFile, node: TfliteNode) -> CustomCall:
    """Return the call as in the file, without its states. Raises Refused for options that cannot be read."""
    raw = bytes(node.table.CustomOptionsAsNumpy()) if node.table.CustomOptionsLength() else b""
    num_inputs, num_outputs = (len(indices) - node.num_states for indices in (node.inputs, node.outputs))
    return CustomCall(
        operator=node.operator,
        inputs=tuple(None if index < 0 else _tensor(file.tensors[index]) for index in node.inputs[:num_inputs]),
        outputs=tuple(_tensor(file.tensors[index]) for index in node.outputs[:num_outputs]),
        options=custom_options(raw),
        raw_options=raw,
    )


def _of_state(name: str, initial: np.ndarray) -> TfliteTensor:
    return TfliteTensor(
        name=name, dtype=str(initial.dtype), type_name=str(initial.dtype), shape=initial.shape, dims=initial.shape,
        data=None, scales=None, is_variable=False, is_sparse=False,
    )  # fmt: skip


def _tensor(tensor: TfliteTensor) -> CustomTensor:
    scales = tensor.scales
    return CustomTensor(
        shape=tensor.shape, dtype=str(tensor.dtype), name=tensor.name, constant=tensor.data,
        scale=() if scales is None else tuple(float(number) for number in scales.scale),
        zero_point=() if scales is None else tuple(int(number) for number in scales.zero_point),
    )  # fmt: skip


def _with_shapes(call: CustomCall, given: Sequence[relax.Expr]) -> CustomCall:
    """Return the call for the shapes and constants that its inputs have by now."""
    values = iter(given)

    def known(tensor: CustomTensor | None) -> CustomTensor | None:
        if tensor is None:
            return None
        value = next(values)
        return replace(tensor, shape=static_shape(value), constant=array_of(value))

    return replace(call, inputs=tuple(known(tensor) for tensor in call.inputs))


def _mismatch(operator: CustomOperator, call: CustomCall, unranked: Sequence[bool]) -> str | None:
    """Return why the operator's results differ from the file's declaration, or None.

    unranked: whether the file leaves the shape of an output to the operator.
    """
    made = outputs_of(operator, call)
    declared = call.outputs
    if len(made) == len(declared):
        shapes = [now.shape if free else was.shape for was, now, free in zip(declared, made, unranked, strict=False)]
        declared = tuple(replace(was, shape=shape) for was, shape in zip(declared, shapes, strict=True))
    found, wanted = listed(made), listed(declared)
    return None if found == wanted else f"its outputs are {wanted} in the file, {found} by the operator's definition"


_MOST_BYTES = 1 << 16
# Exceptions of the flatbuffers library for offsets that lead nowhere.
_DAMAGE = (struct.error, ValueError, TypeError, IndexError, OverflowError, AttributeError, AssertionError, KeyError)


def custom_options(raw: bytes) -> dict[str, OptionValue]:
    """Return numbers, texts and vectors of numbers by name. Raises Refused for damaged bytes.

    Empty where the bytes are no map. Other content of a map (nested maps, vectors of texts) is ignored; it remains in
    the raw bytes.
    """
    if not raw:
        return {}
    if len(raw) > _MOST_BYTES:
        raise Refused(f"its options take {len(raw)} B; at most {_MOST_BYTES} are read")
    try:
        root = flexbuffers.GetRoot(bytearray(raw))
        if not root.IsMap:
            return {}
        found, keys, values = root.AsMap, root.AsMap.Keys, root.AsMap.Values
        if len(found) > len(raw):
            raise ValueError(f"{len(found)} options in {len(raw)} B")
        named = {str(keys[index].AsKey): values[index] for index in range(len(found))}
        return {name: _value(ref, len(raw)) for name, ref in named.items() if _is_read(ref)}
    except _DAMAGE as error:
        raise Refused(f"its options cannot be read: {error}") from None


def _is_read(ref: flexbuffers.Ref) -> bool:
    kinds = (ref.IsNull, ref.IsBool, ref.IsInt, ref.IsFloat, ref.IsString, ref.IsBlob)
    return any(kinds) or _is_numbers(ref)


def _is_numbers(ref: flexbuffers.Ref) -> bool:
    """Return True for a vector whose elements are numbers of one type."""
    return bool(ref.IsTypedVector or ref.IsFixedTypedVector)


def _value(ref: flexbuffers.Ref, most: int) -> OptionValue:
    if ref.IsNull:
        return None
    if ref.IsBool:
        return bool(ref.AsBool)
    if ref.IsInt:
        return int(ref.AsInt)
    if ref.IsFloat:
        return float(ref.AsFloat)
    if ref.IsString:
        return str(ref.AsString)
    if ref.IsBlob:
        return bytes(ref.AsBlob)
    vector = ref.AsTypedVector if ref.IsTypedVector else ref.AsFixedTypedVector
    if len(vector) > most:
        raise ValueError(f"a vector of {len(vector)} elements in {most} B")
    return tuple(element.AsFloat if element.IsFloat else element.AsInt for element in vector)
