"""Import If, Loop and Scan: an If as its taken branch or as both branches, a Loop or Scan as a repeated step.

Short loops, and loops whose body cannot run in C as a step, are unrolled here; `looped.py` repeats the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from tvm import relax

from relay_passes.dataflow import array_of, constant, static_shape
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.emitter import Emitter
from tvm_ext.frontends.loops import DATA_DEPENDENT, Emit, NotRepeated
from tvm_ext.frontends.onnx.looped import Isolate, repeat_loop, repeat_scan
from tvm_ext.frontends.onnx.sequences import holds_sequence
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.shapes import ModelNotice

# Function that imports a body: the body, values of its inputs, prefix for the labels of its nodes, and True if a
# condition that is unknown at import decides whether the results are used.
Run = Callable[[onnx.GraphProto, Sequence[relax.Expr], str, bool], list[relax.Expr]]
Inputs = Sequence["relax.Expr | None"]


@dataclass(frozen=True, kw_only=True)
class BodyImport:
    """What the import of a graph offers to operators with bodies."""

    run: Run
    isolate: Isolate
    emit: Emit
    limits: Limits


_MAX_PASSES = 1024
# Operators that read or write at indices from the given input. A condition may guard them against wrong indices.
_PLACES = dict.fromkeys("Gather GatherElements GatherND Scatter ScatterElements ScatterND MaxUnpool".split(), 1)
_PLACES |= {"ReverseSequence": 1, "MaxRoiPool": 1, "RoiAlign": 2, "TensorScatter": 2}


def expected_passes(node: onnx.NodeProto, inputs: Inputs) -> int | None:
    """Return the number of iterations of a Loop or Scan, or None if it is not known before the first iteration."""
    if node.op_type == "Loop":
        most = None if inputs[0] is None else array_of(inputs[0])
        return None if most is None or not _goes_on(_graph(node, "body")) else max(0, int(most.reshape(-1)[0]))
    if node.op_type == "Scan" and inputs and isinstance(inputs[-1], relax.Expr):
        axes = next((list(a.ints) for a in node.attribute if a.name == "scan_input_axes"), []) or [0]
        shape = static_shape(inputs[-1])
        return shape[axes[-1]] if -len(shape) <= axes[-1] < len(shape) else None
    return None


def _goes_on(body: onnx.GraphProto) -> bool:
    """Return True if the body of a Loop returns its condition unchanged or as a constant."""
    made = {name: inner for inner in body.node for name in inner.output}
    name = body.output[0].name
    while name in made and made[name].op_type == "Identity":
        name = made.pop(name).input[0]
    return name == body.input[1].name or (name in made and made[name].op_type == "Constant")


def may_fail(node: onnx.NodeProto, inputs: Sequence[object]) -> bool:
    """Return True for a node with indices from data, which may be out of range if its branch is not taken."""
    index = _PLACES.get(node.op_type)
    return index is not None and index < len(inputs) and isinstance(inputs[index], relax.Var)


def take_branch(node: onnx.NodeProto, inputs: Inputs, opset: int, label: str, tools: BodyImport) -> list[relax.Expr]:
    """Import the branch that a constant condition takes, or both branches with a choice of results. Raises Refused."""
    run, emit = tools.run, tools.emit
    (condition,) = (_given(value) for value in inputs)
    known = array_of(condition)
    if known is not None:
        return run(_graph(node, "then_branch" if known.all() else "else_branch"), [], label, False)
    return _both_branches(node, condition, label, run=run, emit=emit)


def _both_branches(
    node: onnx.NodeProto, condition: relax.Expr, label: str, *, run: Run, emit: Emit
) -> list[relax.Expr]:
    """Import both branches and choose their results by the condition. Raises Refused, also if a branch may fail."""
    yes, no = _graph(node, "then_branch"), _graph(node, "else_branch")
    try:
        pairs = list(zip(run(yes, [], f"{label}/then", True), run(no, [], f"{label}/else", True), strict=True))
    except Refused as error:
        raise Refused(f"{DATA_DEPENDENT}, and not both branches can be compiled ({error})") from None
    return [_chosen(condition, one, other, emit) for one, other in pairs]


def _chosen(condition: relax.Expr, one: relax.Expr, other: relax.Expr, emit: Emit) -> relax.Expr:
    """Return `one` where the condition holds, otherwise `other`. Raises Refused for different types or shapes."""
    if holds_sequence([one, other]):
        raise Refused(f"{DATA_DEPENDENT}, which would give one of two sequences")
    types = [f"{value.ty.dtype}{list(static_shape(value))}" for value in (one, other)]
    if types[0] != types[1]:
        raise Refused(f"{DATA_DEPENDENT}, which would give {types[0]} or {types[1]}")
    test = emit(lambda bb: Emitter(bb).reshaped(condition, ()))[0]
    return emit(lambda bb: Emitter(bb).where(test, one, other))[0]


def _both(before: relax.Expr, condition: relax.Expr, emit: Emit) -> relax.Expr:
    """Return the conjunction of two conditions."""
    known = array_of(condition)
    if known is not None:
        return before if known.all() else condition
    first, second = (emit(lambda bb, one=one: Emitter(bb).reshaped(one, ()))[0] for one in (before, condition))
    return emit(lambda bb: Emitter(bb).logical_and(first, second))[0]


def _may_be(condition: relax.Expr) -> bool:
    """Return True unless the condition is known to be false."""
    known = array_of(condition)
    return known is None or bool(known.all())


def _check_open(*, is_bounded: bool, is_scanned: bool) -> None:
    """Raise Refused for a Loop that ends by data if it has scanned outputs or no largest number of iterations."""
    if is_scanned:
        raise Refused(f"{DATA_DEPENDENT}: its scanned outputs have an element for each iteration that runs")
    if not is_bounded:
        raise Refused(f"{DATA_DEPENDENT}, and the Loop has no largest number of iterations (its first input)")


def import_loop(node: onnx.NodeProto, inputs: Inputs, opset: int, label: str, tools: BodyImport) -> list[relax.Expr]:
    """Import a Loop as a step that runs in a loop in C, or unroll it. Raises Refused."""
    if holds_sequence(inputs):
        return _unrolled_loop(node, inputs, label, tools, "its state is a sequence")
    try:
        return repeat_loop(node, inputs, label, isolate=tools.isolate, emit=tools.emit, limits=tools.limits)
    except NotRepeated as reason:
        return _unrolled_loop(node, inputs, label, tools, str(reason))


def _unrolled_loop(
    node: onnx.NodeProto, inputs: Inputs, label: str, tools: BodyImport, reason: str
) -> list[relax.Expr]:
    """Unroll a Loop, whose inputs are the largest number of iterations, the condition and the state. Raises Refused.

    If the condition depends on data, all iterations up to the largest number are computed, and the new state of an
    iteration is used only as long as the condition holds. That number must be known, without scanned outputs.
    reason: why no step runs in a loop.
    """
    run, emit = tools.run, tools.emit
    body = _graph(node, "body")
    most = _MAX_PASSES + 1 if inputs[0] is None else int(_known(inputs[0]).reshape(-1)[0])
    goes_on: relax.Expr = constant(np.array(True)) if inputs[1] is None else inputs[1]
    state = [value for value in inputs[2:] if value is not None]
    scanned: list[list[relax.Expr]] = [[] for _ in range(len(body.output) - 1 - len(state))]
    if _may_be(goes_on) and (expected_passes(node, inputs) or 0) > _MAX_PASSES:
        raise Refused(f"more than {_MAX_PASSES} iterations are not unrolled, and no step runs in a loop: {reason}")
    index, is_open = 0, False
    while _may_be(goes_on) and index < most:
        is_open = array_of(goes_on) is None
        if is_open:
            _check_open(is_bounded=inputs[0] is not None, is_scanned=bool(scanned))
        if index == _MAX_PASSES:
            raise Refused(f"more than {_MAX_PASSES} iterations are not unrolled, and no step runs in a loop: {reason}")
        given = [constant(np.array(index, "int64")), constant(np.array(True)), *state]
        condition, *rest = run(body, given, f"{label}/{index}", is_open)
        after, elements = rest[: len(state)], rest[len(state) :]
        if is_open:
            after = [_chosen(goes_on, *pair, emit) for pair in zip(after, state, strict=True)]
            condition = _both(goes_on, condition, emit)
        state, goes_on, index = after, condition, index + 1
        for sequence, element in zip(scanned, elements, strict=True):
            sequence.append(element)
    if is_open:
        notice = f"{label}: all {index} iterations are computed in each run, because no step runs in a loop: {reason}."
        warnings.warn(notice, ModelNotice, stacklevel=2)
    return [*state, *(_stacked(sequence, 0, emit) for sequence in scanned)]


def import_scan(node: onnx.NodeProto, inputs: Inputs, opset: int, label: str, tools: BodyImport) -> list[relax.Expr]:
    """Import a Scan as a step that runs in a loop in C, or unroll it. Raises Refused."""
    if opset < 9:
        raise Refused("Scan of opset 8, which has a batch axis; export with opset 9 or newer")
    try:
        return repeat_scan(node, inputs, label, isolate=tools.isolate, emit=tools.emit)
    except NotRepeated as reason:
        return _unrolled_scan(node, inputs, label, tools, str(reason))


def _unrolled_scan(
    node: onnx.NodeProto, inputs: Inputs, label: str, tools: BodyImport, reason: str
) -> list[relax.Expr]:
    """Unroll a Scan over axes of static extent. Its inputs are the state and the scanned tensors. Raises Refused.

    reason: why no step runs in a loop.
    """
    run, emit = tools.run, tools.emit
    body, attr = _graph(node, "body"), {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    num_scanned = int(attr["num_scan_inputs"])
    num_state = len(inputs) - num_scanned
    state, sources = [_given(value) for value in inputs[:num_state]], [_given(value) for value in inputs[num_state:]]
    axes = attr.get("scan_input_axes") or [0] * num_scanned
    backward = attr.get("scan_input_directions") or [0] * num_scanned
    axes = [axis % len(static_shape(source)) for axis, source in zip(axes, sources, strict=True)]
    lengths = {static_shape(source)[axis] for source, axis in zip(sources, axes, strict=True)}
    if len(lengths) != 1 or max(lengths) > _MAX_PASSES:
        said = f"at most {_MAX_PASSES} iterations are unrolled, and no step runs in a loop: {reason}"
        raise Refused(f"scans of {sorted(lengths)} elements; all must have one length, and {said}")
    (length,) = lengths
    num_results = len(body.output) - num_state
    scanned: list[list[relax.Expr]] = [[] for _ in range(num_results)]
    for index in range(length):
        places = [length - 1 - index if reverse else index for reverse in backward]
        elements = [
            _element(source, axis, place, emit) for source, axis, place in zip(sources, axes, places, strict=True)
        ]
        results = run(body, [*state, *elements], f"{label}/{index}", False)
        state = results[:num_state]
        for sequence, element in zip(scanned, results[num_state:], strict=True):
            sequence.append(element)
    out_axes = attr.get("scan_output_axes") or [0] * num_results
    out_backward = attr.get("scan_output_directions") or [0] * num_results
    ordered = [s[::-1] if reverse else s for s, reverse in zip(scanned, out_backward, strict=True)]
    return [*state, *(_stacked(sequence, axis, emit) for sequence, axis in zip(ordered, out_axes, strict=True))]


def _graph(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    return next(attribute.g for attribute in node.attribute if attribute.name == name)


def _known(value: relax.Expr | None) -> np.ndarray:
    array = None if value is None else array_of(value)
    if array is None:
        raise Refused(DATA_DEPENDENT)
    return array


def _given(value: relax.Expr | None) -> relax.Expr:
    if value is None:
        raise Refused("a required input is missing")
    return value


def _element(source: relax.Expr, axis: int, place: int, emit: Emit) -> relax.Expr:
    shape = static_shape(source)
    kept = [extent for index, extent in enumerate(shape) if index != axis]

    def build(bb: relax.BlockBuilder) -> relax.Expr:
        emitter = Emitter(bb)
        return emitter.reshaped(emitter.slice(source, axis, place, place + 1), kept)

    return emit(build)[0]


def _stacked(sequence: list[relax.Expr], axis: int, emit: Emit) -> relax.Expr:
    if not sequence:
        raise Refused("a scan of no elements has no known shape")
    rank = len(static_shape(sequence[0])) + 1
    return emit(lambda bb: Emitter(bb).stack(sequence, axis=axis % rank))[0]


CONTROL_FLOW = {"If": take_branch, "Loop": import_loop, "Scan": import_scan}
"""Operators with bodies, and the function that imports each of them."""
