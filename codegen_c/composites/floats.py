"""Lower float fused operators, including float16 operators that compute in float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from codegen_c.composites.chains import INTEGERS, after_anchor, chain_of, inputs_of, rounding_of
from codegen_c.composites.graph import Call, CallOperand, Composite, NoMatch
from codegen_c.composites.interpolation import image_taps
from codegen_c.composites.movement import movement_operator
from codegen_c.composites.normalization import float_normalize
from codegen_c.composites.products import float_product
from codegen_c.composites.scalar_calls import RULES, ProgramBuilder
from codegen_c.operators.kinds import (
    HALF_FORMS,
    Conv2d,
    Conv2dTranspose,
    Convert,
    Dense,
    Elementwise,
    HalfCast,
    Interpolate,
    Operator,
    Pool2d,
    Quantization,
    Softmax,
    TensorType,
    Window,
)

Match = tuple[Operator, tuple[int, ...]]


def float_operator(composite: Composite) -> Match | NoMatch:
    """Return the operator of a float32 composite with one output, or of a data movement of any type, and its inputs.

    The inputs are indices of the composite's parameters.
    """
    moved = movement_operator(composite)
    if not isinstance(moved, NoMatch):
        return moved
    converted = _conversion(composite)
    if converted is not None:
        return converted
    types = [*composite.inputs, *composite.outputs]
    if len(composite.outputs) != 1 or not composite.calls or any(t.dtype != "float32" for t in types):
        return NoMatch("is not float32 with one output")
    anchor = composite.calls[0]
    if anchor.name in RULES:
        return _elementwise(composite)
    make = _ANCHORS.get(anchor.name)
    takes_constants = anchor.name == "matmul"
    if make is None or not anchor.operands or (anchor.operands[0].parameter is None and not takes_constants):
        return NoMatch(f"{anchor.name} has no kernel of its own")
    return make(composite, anchor)


def _conversion(composite: Composite) -> Match | None:
    """Return the operator of a single quantize or dequantize with one scale and zero point."""
    call = composite.calls[0] if len(composite.calls) == 1 else None
    if call is None or call.name not in ("quantize", "dequantize") or len(composite.outputs) != 1:
        return None
    if not composite.inputs:  # constant weights that were not folded
        return None
    data, *parameters = call.operands
    arrays = [value.array for value in parameters]
    source, output = composite.inputs[0], composite.outputs[0]
    integer = output if call.name == "quantize" else source
    if data.parameter != 0 or integer.dtype not in INTEGERS or len(arrays) != 2:
        return None
    if (source if integer is output else output).dtype != "float32":
        return None
    scale, zero = arrays
    if scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return None
    quantization = Quantization(scale=float(scale.reshape(-1)[0]), zero_point=int(zero.reshape(-1)[0]))
    known = replace(integer, quantization=quantization)
    inputs, outputs = ((source,), (known,)) if integer is output else ((known,), (output,))
    rounding = rounding_of(composite)
    if rounding == "litert" and integer.dtype not in ("int8", "uint8"):
        rounding = "tflite"
    return Convert(inputs=inputs, outputs=outputs, quantization=quantization, rounding=rounding), (0,)


def _elementwise(composite: Composite) -> Match | NoMatch:
    builder, output = ProgramBuilder(), composite.outputs[0]
    failed = chain_of(builder, composite.calls, output)
    if failed:
        return failed
    inputs = tuple(composite.inputs[i] for i in builder.inputs)
    if not inputs:
        return NoMatch("reads no input")
    return Elementwise(inputs=inputs, outputs=composite.outputs, finish=builder.program()), tuple(builder.inputs)


def window_of(attrs: Any, kernel: tuple[int, ...]) -> Window | NoMatch:
    """Return the window of a convolution or pooling over two axes."""
    padding = tuple(int(p) for p in attrs.padding)
    if len(padding) == 2:
        padding = (*padding, *padding)
    strides, dilation = tuple(map(int, attrs.strides)), tuple(map(int, attrs.dilation))
    if len(kernel) != 2 or len(padding) != 4 or len(strides) != 2 or len(dilation) != 2 or min(padding) < 0:
        return NoMatch("its window is not two-dimensional")
    return Window(kernel=kernel, strides=strides, padding=padding, dilation=dilation)  # type: ignore[arg-type]


def _conv2d(composite: Composite, anchor: Call) -> Match | NoMatch:
    """Return a convolution, or a transposed convolution, with constant weights in NHWC layout."""
    attrs, weight = anchor.attrs, anchor.operands[1].array
    make = Conv2dTranspose if anchor.name == "nn.conv2d_transpose" else Conv2d
    if attrs.data_layout != "NHWC" or attrs.kernel_layout != "OHWI" or weight is None:
        return NoMatch("its layout is not NHWC with constant weights")
    if make is Conv2dTranspose and (int(attrs.groups) > 1 or max(map(int, attrs.dilation)) > 1):
        return NoMatch("it is transposed, and has groups or dilation")
    window, after = window_of(attrs, weight.shape[1:3]), after_anchor(composite, anchor, takes_bias=True)
    if isinstance(window, NoMatch) or isinstance(after, NoMatch):
        return window if isinstance(window, NoMatch) else after  # type: ignore[return-value]
    builder, bias = after
    operator = make(
        inputs=inputs_of(composite, builder), outputs=composite.outputs, weight=weight, bias=bias, window=window,
        groups=int(attrs.groups), finish=builder.program(),
    )  # fmt: skip
    return operator, tuple(builder.inputs)


def _dense(composite: Composite, anchor: Call) -> Match | NoMatch:
    """Return a dense layer with constant weights, or a product of two activations."""
    weight = anchor.operands[1].array
    if weight is None:
        return float_product(composite, anchor)
    if anchor.operands[0].parameter is None:
        return NoMatch("its operands are constants")
    if weight.ndim != 2 or len(composite.inputs[0].shape) < 2:
        return NoMatch("its second operand is not a constant matrix")
    after = after_anchor(composite, anchor, takes_bias=True)
    if isinstance(after, NoMatch):
        return after
    builder, bias = after
    operator = Dense(
        inputs=inputs_of(composite, builder), outputs=composite.outputs, weight=np.ascontiguousarray(weight.T),
        bias=bias, finish=builder.program(),
    )  # fmt: skip
    return operator, tuple(builder.inputs)


def _pool2d(composite: Composite, anchor: Call) -> Match | NoMatch:
    """Return a pooling in NHWC layout."""
    attrs = anchor.attrs
    if attrs.layout != "NHWC":
        return NoMatch("its layout is not NHWC")
    include, method = bool(attrs.count_include_pad), "max" if anchor.name == "nn.max_pool2d" else "average"
    window = window_of(attrs, tuple(map(int, attrs.pool_size)))
    if not isinstance(window, NoMatch):
        window = reaching(window, composite.inputs[0], anchor.type, counts_padding=include and method == "average")
    return _pool(composite, anchor, window, include)


def reaching(
    window: Window, source: TensorType, output: TensorType | None, *, counts_padding: bool
) -> Window | NoMatch:
    """Return the window with as much padding at the end as its last position needs.

    If output sizes are rounded up, the last position may exceed the declared padding.
    """
    assert output is not None, "a pool has one result"
    padding = list(window.padding)
    for axis in (0, 1):
        last = (output.shape[1 + axis] - 1) * window.strides[axis] - padding[axis]
        beyond = last + (window.kernel[axis] - 1) * window.dilation[axis] + 1 - source.shape[1 + axis]
        if beyond > padding[axis + 2] and counts_padding:
            return NoMatch("it counts padding that its rounded-up size adds")
        padding[axis + 2] = max(padding[axis + 2], beyond)
    return replace(window, padding=tuple(padding))


def _mean(composite: Composite, anchor: Call) -> Match | NoMatch:
    """Return a mean over rows and columns as an average pool over the whole image."""
    shape = composite.inputs[0].shape
    if len(shape) != 4 or sorted(int(axis) % 4 for axis in anchor.attrs.axis or ()) != [1, 2]:
        return NoMatch("is not a mean over rows and columns")
    return _pool(composite, anchor, Window(kernel=(shape[1], shape[2])), False)


def _pool(composite: Composite, anchor: Call, window: Window | NoMatch, count_include_pad: bool) -> Match | NoMatch:
    after = after_anchor(composite, anchor, takes_bias=False)
    if isinstance(window, NoMatch) or isinstance(after, NoMatch):
        return window if isinstance(window, NoMatch) else after  # type: ignore[return-value]
    output = composite.outputs[0]
    if len(output.shape) == 2:  # a mean that dropped its axes
        output = TensorType(shape=(output.shape[0], 1, 1, output.shape[1]), dtype=output.dtype)
    operator = Pool2d(
        inputs=inputs_of(composite, after[0]), outputs=(output,), window=window,
        method="max" if anchor.name == "nn.max_pool2d" else "average",
        count_include_pad=count_include_pad, finish=after[0].program(),
    )  # fmt: skip
    return operator, tuple(after[0].inputs)


def _interpolate(composite: Composite, anchor: Call) -> Match | NoMatch:
    """Return an interpolation of an image from take, multiply and add."""
    if len(composite.inputs) != 1 or composite.calls[-1].name != "add":
        return NoMatch("is not a sum of weighted elements of one activation")
    source, output = composite.inputs[0], composite.outputs[0]
    shapes = (source.shape, output.shape)
    found = image_taps(composite.calls, composite.function.params[0], shapes, composite.calls[-1].var)
    if isinstance(found, NoMatch):
        return found
    operator = Interpolate(
        inputs=(replace(source, shape=found.before),), outputs=(replace(output, shape=found.after),), rows=found.rows,
        columns=found.columns,
    )  # fmt: skip
    return operator, (0,)


def _softmax(composite: Composite, anchor: Call) -> Match | NoMatch:
    rank = len(composite.inputs[0].shape)
    if len(composite.calls) != 1 or rank == 0 or int(anchor.attrs.axis) % rank != rank - 1:
        return NoMatch("is not a softmax over the last axis")
    log = anchor.name == "nn.log_softmax"
    return Softmax(inputs=composite.inputs, outputs=composite.outputs, log=log), (0,)


_ANCHORS = {
    "take": _interpolate,
    "nn.conv2d": _conv2d,
    "nn.conv2d_transpose": _conv2d,
    "matmul": _dense,
    "einsum": float_product,
    "nn.layer_norm": float_normalize,
    "nn.rms_norm": float_normalize,
    "nn.max_pool2d": _pool2d,
    "nn.avg_pool2d": _pool2d,
    "mean": _mean,
    "nn.softmax": _softmax,
    "nn.log_softmax": _softmax,
}


HALF, FLOAT = "float16", "float32"


def half_operator(composite: Composite) -> Match | NoMatch:
    """Return the operator of a float16 composite with one output, or of a single cast, and its inputs' indices."""
    kinds = [kind.dtype for kind in (*composite.inputs, *composite.outputs)]
    if _is_cast(composite.calls) and sorted(kinds) == [HALF, FLOAT]:
        return HalfCast(inputs=composite.inputs, outputs=composite.outputs), (0,)
    if set(kinds) != {HALF} or len(composite.outputs) != 1 or not composite.calls:
        return NoMatch("is not float16 with one output")
    if not _narrows(composite.calls[-1]):
        return NoMatch("its last operator does not round a float32 result to float16")
    found = float_operator(_between_casts(composite))
    if isinstance(found, NoMatch):
        return found
    operator, arguments = found
    form = HALF_FORMS.get(type(operator))
    if form is None:
        return NoMatch("has no float16 kernel")
    members = {field.name: getattr(operator, field.name) for field in fields(operator)}
    members |= {"inputs": _typed(operator.inputs, HALF), "outputs": _typed(operator.outputs, HALF)}
    return form(**members), arguments


def _between_casts(composite: Composite) -> Composite:
    """Return the composite in float32, without the casts of its parameters and of its result."""
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
