"""Composites that only put elements elsewhere, of any element type, as Operators."""

from __future__ import annotations

import numpy as np

from codegen_c.composites.graph import Call, Composite, NoMatch
from codegen_c.operators.kinds import Array, Concat, Gather, Operator

INTEGERS = np.int64

LONGEST_AXIS = 1 << 20
"""Places are listed axis by axis; loops of TVM's do without lists where axes are longer."""


def movement_operator(composite: Composite) -> tuple[Operator, tuple[int, ...]] | NoMatch:
    """The Concat or Gather of a composite, and which parameters are its inputs."""
    if len(composite.outputs) != 1 or not composite.calls:
        return NoMatch("has several outputs")
    if composite.calls[0].name == "concat":
        return _concat(composite)
    return _gather(composite)


def _concat(composite: Composite) -> tuple[Operator, tuple[int, ...]] | NoMatch:
    call = composite.calls[0]
    arguments = tuple(value.parameter for value in call.operands if value.parameter is not None)
    if len(composite.calls) > 1 or len(arguments) < len(call.operands):
        return NoMatch("puts a constant beside a tensor, or computes on")
    rank = len(composite.outputs[0].shape)
    axis = int(call.attrs.axis or 0) % max(rank, 1)
    inputs = tuple(composite.inputs[index] for index in arguments)
    return Concat(inputs=inputs, outputs=composite.outputs, axis=axis), arguments


def _gather(composite: Composite) -> tuple[Operator, tuple[int, ...]] | NoMatch:
    """One place after the other: what the first call takes from, the next takes from that."""
    if len(composite.inputs) != 1 or not composite.inputs[0].shape:
        return NoMatch("takes elements from more than one tensor")
    if max(max(tensor.shape, default=1) for tensor in (*composite.inputs, *composite.outputs)) > LONGEST_AXIS:
        return NoMatch(f"has an axis of more than {LONGEST_AXIS} elements")
    places = tuple(np.arange(extent) for extent in composite.inputs[0].shape)
    value, has_value = 0.0, False
    for index, call in enumerate(composite.calls):
        reads_last = call.operands and (
            call.operands[0].parameter == 0 if index == 0 else call.operands[0].var == composite.calls[index - 1].var
        )
        rule = _RULES.get(call.name)
        step = rule(call, tuple(len(axis) for axis in places)) if rule and reads_last else None
        if step is None:
            return NoMatch(f"{call.name} does more than take elements from elsewhere")
        if call.name == "nn.pad":
            if has_value and value != float(call.attrs.pad_value):
                return NoMatch("pads with two values")
            value, has_value = float(call.attrs.pad_value), True
        places = tuple(_after(axis, taken) for axis, taken in zip(places, step, strict=True))
    if any(axis.size == 0 for axis in places) or tuple(map(len, places)) != composite.outputs[0].shape:
        return NoMatch("has no elements")
    return Gather(inputs=composite.inputs, outputs=composite.outputs, places=places, value=value), (0,)


def _after(before: Array, taken: Array) -> Array:
    return np.where(taken < 0, -1, before[np.maximum(taken, 0)])


def _pad(call: Call, shape: tuple[int, ...]) -> tuple[Array, ...] | None:
    width = [int(width) for width in call.attrs.pad_width]
    if str(call.attrs.pad_mode) != "constant" or min(width) < 0 or len(width) != 2 * len(shape):
        return None
    return tuple(
        np.pad(np.arange(extent), (before, after), constant_values=-1)
        for extent, before, after in zip(shape, width[::2], width[1::2], strict=True)
    )


def _take(call: Call, shape: tuple[int, ...]) -> tuple[Array, ...] | None:
    indices = call.operands[1].array if len(call.operands) == 2 else None
    if indices is None or indices.ndim != 1 or call.attrs.axis is None:
        return None
    axis = int(call.attrs.axis) % len(shape)
    if indices.size == 0 or indices.min() < 0 or indices.max() >= shape[axis]:
        return None
    return tuple(indices.astype(INTEGERS) if i == axis else np.arange(extent) for i, extent in enumerate(shape))


def _tile(call: Call, shape: tuple[int, ...]) -> tuple[Array, ...] | None:
    repeats = [int(number) for number in call.attrs.repeats]
    if len(repeats) > len(shape):
        return None
    repeats = [1] * (len(shape) - len(repeats)) + repeats
    return tuple(np.tile(np.arange(extent), number) for extent, number in zip(shape, repeats, strict=True))


def slice_places(call: Call, shape: tuple[int, ...]) -> tuple[Array, ...] | None:
    """Places that a strided_slice takes along each axis; None where they cannot be told.

    Bounds are literal numbers of the call: axes, begins, ends and, where given, strides.
    """
    numbers = [int(value.array) for value in call.operands[1:] if value.array is not None and value.array.ndim == 0]
    if call.type is None or len(numbers) < len(call.operands) - 1 or max(shape, default=1) > LONGEST_AXIS:
        return None
    found: list[tuple[Array, ...]] = []
    for groups in (3, 4):
        size = len(numbers) // groups
        if size == 0 or len(numbers) % groups:
            continue
        bounds = [numbers[i * size : (i + 1) * size] for i in range(groups)]
        places = _sliced(shape, *bounds)
        if places is not None and tuple(map(len, places)) == call.type.shape:
            found.append(places)
    return found[0] if len(found) == 1 else None


def _sliced(
    shape: tuple[int, ...], axes: list[int], begins: list[int], ends: list[int], strides: list[int] | None = None
) -> tuple[Array, ...] | None:
    places = [np.arange(extent) for extent in shape]
    for axis, begin, end, stride in zip(axes, begins, ends, strides or [1] * len(axes), strict=True):
        if stride < 1 or not -len(shape) <= axis < len(shape):
            return None
        places[axis] = places[axis][begin:end:stride]
    return tuple(places)


_RULES = {"nn.pad": _pad, "take": _take, "tile": _tile, "strided_slice": slice_places}
