"""Import a Loop or Scan of ONNX as one step that a function repeats, instead of unrolled iterations.

A Loop ends after its number of iterations, or when its condition is false. The values that an iteration passes to the
next one are states; scanned tensors are sequences, whose scanned axis becomes the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import onnx
from tvm import relax

from relay_passes.dataflow import array_of, constant, static_shape
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.emitter import Emitter
from tvm_ext.frontends.loops import (
    DATA_DEPENDENT,
    MOST_UNROLLED,
    Emit,
    LoopBody,
    LoopCondition,
    LoopState,
    NotRepeated,
    bound_of,
    ending_of,
    is_short,
    repeat,
)
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.statements import Statements

# Function that imports a body by itself, and returns its statements and results: the body, the values of its inputs,
# and a prefix for the labels of its nodes. Raises NotRepeated.
Isolate = Callable[[onnx.GraphProto, Sequence[relax.Expr], str], tuple[Statements, list[relax.Expr]]]
Inputs = Sequence["relax.Expr | None"]

_STACKED = f"{DATA_DEPENDENT}: its scanned outputs have an element for each iteration that runs"


def repeat_loop(
    node: onnx.NodeProto, inputs: Inputs, label: str, *, isolate: Isolate, emit: Emit, limits: Limits
) -> list[relax.Expr]:
    """Import a Loop as a repeated step. Raises NotRepeated if it should be unrolled, and Refused."""
    most, first = _number(inputs[0]), constant(np.array(True)) if inputs[1] is None else inputs[1]
    if most == 0 or not _may_be(first):
        raise NotRepeated("it does not run")
    body, condition = _body_of_loop(node, inputs[2:], label, isolate)
    if not _may_be(condition):
        raise NotRepeated("it ends after its first iteration")
    if inputs[0] is not None and most is None:
        if body.stacked:
            raise Refused(_STACKED)
        first, condition = _counted(body, inputs[0], first, condition, emit, label)
    ending = ending_of(body, condition)
    is_known = array_of(first) is not None and (array_of(condition) is not None or (ending and ending.is_exact))
    ends = [number for number in (most, ending.most if ending else None) if number is not None]
    if is_known:
        if not ends:
            raise NotRepeated("it has no end")
        if is_short(body, min(ends)):
            raise NotRepeated("it is short")
        found = repeat(body, min(ends), emit)
    else:
        if body.stacked:
            raise Refused(_STACKED)
        bound = bound_of(ends, limits, label, "the Loop has no largest number of iterations (its first input)")
        again = _inside(body, label, lambda emitter: emitter.reshaped(condition, ()))
        begin = emit(lambda bb: Emitter(bb).reshaped(first, ()))[0]
        found = repeat(replace(body, condition=LoopCondition(first=begin, again=again)), bound, emit)
    return [*(state for state in found.states if state is not None), *found.stacked]


def _body_of_loop(node: onnx.NodeProto, given: Inputs, label: str, isolate: Isolate) -> tuple[LoopBody, relax.Expr]:
    """Return the body of a Loop, and its condition for another iteration."""
    index = relax.Var("index", relax.TensorType((), "int64"))
    before = [value for value in given if value is not None]
    variables = [relax.Var(f"state{place}", value.ty) for place, value in enumerate(before)]
    statements, (condition, *results) = isolate(_graph(node), [index, constant(np.array(True)), *variables], label)
    states = _states(variables, before, results)
    body = LoopBody(statements=statements, states=states, stacked=tuple(results[len(states) :]), index=index)
    return body, condition


def _counted(
    body: LoopBody, number: relax.Expr, first: relax.Expr, condition: relax.Expr, emit: Emit, label: str
) -> tuple[relax.Expr, relax.Expr]:
    """Return both conditions of a Loop whose number of iterations is not known: it runs while its counter is less."""
    limit = emit(lambda bb: Emitter(bb).reshaped(number, ()))[0]
    zero, one = (constant(np.array(number, "int64")) for number in (0, 1))
    after = _inside(body, label, lambda emitter: emitter.add(body.index, one))
    runs = emit(lambda bb: Emitter(bb).less(zero, limit))[0]
    goes_on = _inside(body, label, lambda emitter: emitter.less(after, limit))
    if array_of(first) is None:
        runs = emit(lambda bb: Emitter(bb).logical_and(Emitter(bb).reshaped(first, ()), runs))[0]
    if array_of(condition) is None:
        scalar = _inside(body, label, lambda emitter: emitter.reshaped(condition, ()))
        goes_on = _inside(body, label, lambda emitter: emitter.logical_and(scalar, goes_on))
    return runs, goes_on


def repeat_scan(node: onnx.NodeProto, inputs: Inputs, label: str, *, isolate: Isolate, emit: Emit) -> list[relax.Expr]:
    """Import a Scan of opset 9 or newer as a repeated step. Raises NotRepeated if it should be unrolled."""
    attr = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    num_scanned = int(attr["num_scan_inputs"])
    given = [value for value in inputs if value is not None]
    before, sources = given[:-num_scanned], given[-num_scanned:]
    axes = attr.get("scan_input_axes") or [0] * num_scanned
    axes = [axis % len(static_shape(source)) for axis, source in zip(axes, sources, strict=True)]
    lengths = {static_shape(source)[axis] for source, axis in zip(sources, axes, strict=True)}
    if len(given) != len(inputs) or len(lengths) != 1 or max(lengths) <= MOST_UNROLLED:
        raise NotRepeated("it is short")
    (length,) = lengths
    backward = list(attr.get("scan_input_directions") or [0] * num_scanned)
    is_backward = sum(backward) * 2 > num_scanned
    variables = [relax.Var(f"state{place}", value.ty) for place, value in enumerate(before)]
    elements = [
        relax.Var(f"element{place}", relax.TensorType(_without(static_shape(source), axis), str(source.ty.dtype)))
        for place, (source, axis) in enumerate(zip(sources, axes, strict=True))
    ]
    statements, results = isolate(_graph(node), [*variables, *elements], label)
    states = _states(variables, before, results)
    body = LoopBody(statements=statements, states=states, stacked=tuple(results[len(states) :]))
    if is_short(body, length):
        raise NotRepeated("it is short")
    sequences = [
        emit(lambda bb, one=one: _ordered(Emitter(bb), *one))[0]
        for one in zip(sources, axes, (bool(reverse) is not is_backward for reverse in backward), strict=True)
    ]
    found = repeat(
        replace(body, elements=tuple(zip(elements, sequences, strict=True))), length, emit, is_backward=is_backward
    )
    out_axes = attr.get("scan_output_axes") or [0] * len(found.stacked)
    out_backward = attr.get("scan_output_directions") or [0] * len(found.stacked)
    stacked = [
        emit(lambda bb, one=one: _placed(Emitter(bb), *one))[0]
        for one in zip(
            found.stacked, out_axes, (bool(reverse) is not is_backward for reverse in out_backward), strict=True
        )
    ]
    return [*(state for state in found.states if state is not None), *stacked]


def _ordered(emit: Emitter, source: relax.Expr, axis: int, is_reversed: bool) -> relax.Expr:
    """Return a scanned tensor with the scanned axis first, in the order in which the loop reads it."""
    rank = len(static_shape(source))
    moved = emit.transposed(source, [axis, *(other for other in range(rank) if other != axis)])
    return emit.reversed(moved, 0) if is_reversed else moved


def _placed(emit: Emitter, stacked: relax.Expr, axis: int, is_reversed: bool) -> relax.Expr:
    """Return the stacked elements along the axis and in the order of the Scan's output."""
    rank = len(static_shape(stacked))
    others = list(range(1, rank))
    turned = emit.reversed(stacked, 0) if is_reversed else stacked
    return emit.transposed(turned, [*others[: axis % rank], 0, *others[axis % rank :]])


def _states(
    variables: Sequence[relax.Var], before: Sequence[relax.Expr], results: Sequence[relax.Expr]
) -> tuple[LoopState, ...]:
    """Return the states of a loop. Raises NotRepeated if an iteration changes the shape or type of one."""
    found: list[LoopState] = []
    for variable, value, after in zip(variables, before, results[: len(variables)], strict=True):
        types = [f"{one.ty.dtype}{list(static_shape(one))}" for one in (variable, after)]
        if types[0] != types[1]:
            raise NotRepeated(f"an iteration changes {types[0]} to {types[1]}")
        found.append(LoopState(variable=variable, before=value, after=after))
    return tuple(found)


def _inside(body: LoopBody, label: str, build: Callable[[Emitter], relax.Expr]) -> relax.Expr:
    """Return the result of a statement that is added to the body."""
    (value,) = body.statements.collect(lambda bb: build(Emitter(bb)), operator=label, tensor=label)
    return value


def _number(value: relax.Expr | None) -> int | None:
    array = None if value is None else array_of(value)
    return None if array is None else max(0, int(array.reshape(-1)[0]))


def _may_be(condition: relax.Expr) -> bool:
    """Return True unless the condition is known to be false."""
    known = array_of(condition)
    return known is None or bool(known.all())


def _without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return tuple(extent for index, extent in enumerate(shape) if index != axis)


def _graph(node: onnx.NodeProto) -> onnx.GraphProto:
    return next(attribute.g for attribute in node.attribute if attribute.name == "body")
