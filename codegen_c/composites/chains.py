"""Take a fused operator apart: its operands, its main operator, and the operators that follow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from codegen_c.composites.graph import Call, CallOperand, Composite, NoMatch
from codegen_c.composites.scalar_calls import ProgramBuilder
from codegen_c.operators.kinds import Quantization, Rounding, TensorType
from tvm_ext.core.decisions.composites import QuantizedRounding

INTEGERS = ("int8", "uint8", "int16", "uint16")


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantizedConstant:
    """A constant that a chain dequantizes: integers, float32[n] scales, zero points that broadcast to the integers.

    axis: axis of the integers along which there are several scales.
    """

    data: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray
    axis: int

    @property
    def steps(self) -> np.ndarray:
        """Distances from the zero point in units of the scale, int64."""
        return self.data.astype(np.int64) - self.zero_point

    @property
    def real(self) -> np.ndarray:
        """Real values of the integers, float64 in the same shape."""
        scales = [1] * self.data.ndim
        if self.scale.size > 1:
            scales[self.axis] = self.scale.size
        return self.steps * self.scale.astype(np.float64).reshape(scales)


@dataclass(frozen=True, kw_only=True, eq=False)
class Dequantized:
    """Dequantized values of a composite.

    inputs: types of the composite's inputs. parameters: index of the parameter by variable. constants: constant by
    variable.
    """

    inputs: tuple[TensorType, ...]
    parameters: dict[Any, int]
    constants: dict[Any, QuantizedConstant]


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantizedChain:
    """A QDQ composite taken apart: typed inputs, float calls in order, and the output's type with its clamp."""

    composite: Composite
    inputs: tuple[TensorType, ...]
    output: TensorType
    body: tuple[Call, ...]
    low: int
    high: int
    rounding: Rounding
    parameters: dict[Any, int]
    constants: dict[Any, QuantizedConstant]

    def parameter(self, value: CallOperand) -> int | None:
        """Return the index of the composite's parameter from which a float operand was dequantized."""
        return self.parameters.get(value.var)


def quantized_chain(composite: Composite) -> QuantizedChain | NoMatch:
    """Return the chain of a composite, or the reason why integers cannot compute it."""
    if len(composite.calls) < 2 or composite.calls[-1].name != "quantize" or len(composite.outputs) != 1:
        return NoMatch("is not a chain from dequantize to quantize")
    sources, output = dequantized(composite), quantized_output(composite)
    if isinstance(sources, NoMatch):
        return sources
    if isinstance(output, NoMatch):
        return output
    if not all(is_quantized(kind) for kind in (*sources.inputs, output)):
        return NoMatch("its inputs and result are not all integers of 8 or 16 bits with a positive scale")
    body = [call for call in composite.calls[:-1] if call.name != "dequantize"]
    rounding = _rounding(composite, (*sources.inputs, output))
    low, high = _clamp(body, output, rounding)
    return QuantizedChain(
        composite=composite, inputs=sources.inputs, output=output, body=tuple(body), low=low, high=high,
        rounding=rounding, parameters=sources.parameters, constants=sources.constants,
    )  # fmt: skip


def dequantized(composite: Composite) -> Dequantized | NoMatch:
    """Return what a composite dequantizes, or the reason why it is not tensors of one scale and constants."""
    inputs: list[TensorType] = list(composite.inputs)
    parameters: dict[Any, int] = {}
    constants: dict[Any, QuantizedConstant] = {}
    for call in composite.calls:
        if call.name != "dequantize":
            continue
        data, scale, zero_point = (*call.operands, *(CallOperand(),) * 3)[:3]
        if scale.array is None or zero_point.array is None:
            return NoMatch("a scale or zero point is not constant")
        if data.array is not None:
            constants[call.var] = _constant(call, data.array, scale.array, zero_point.array)
            continue
        if data.parameter is None or scale.array.size != 1:
            return NoMatch("an activation has a scale for each channel")
        quantization = Quantization(scale=float(scale.array.reshape(-1)[0]), zero_point=_one(zero_point.array))
        inputs[data.parameter] = replace(inputs[data.parameter], quantization=quantization)
        parameters[call.var] = data.parameter
    return Dequantized(inputs=tuple(inputs), parameters=parameters, constants=constants)


def quantized_output(composite: Composite) -> TensorType | NoMatch:
    """Return the type of the result that the last call quantizes."""
    last = composite.calls[-1]
    scale, zero_point = last.operands[1].array, last.operands[2].array
    if scale is None or zero_point is None or scale.size != 1:
        return NoMatch("its result has a scale for each channel")
    quantization = Quantization(scale=float(scale.reshape(-1)[0]), zero_point=_one(zero_point))
    return replace(composite.outputs[0], quantization=quantization)


def is_quantized(kind: TensorType) -> bool:
    """Return True for integers of 8 or 16 bits with a positive scale."""
    return kind.dtype in INTEGERS and kind.quantization is not None and _usable(kind.quantization)


def rounding_of(composite: Composite) -> Rounding:
    """Return the rounding that the model's format defines."""
    meaning = QuantizedRounding.read(composite.function).meaning
    known: tuple[Rounding, ...] = ("tflite", "litert")
    return next((rounding for rounding in known if rounding == meaning), "onnx")


# Operators that LiteRT's default kernels (XNNPACK) compute on int8 and uint8. All others run on kernels that round as
# TensorFlow Lite Micro's do: among them average pools, softmax and products of activations.
_IN_XNNPACK = (
    "nn.conv2d", "nn.conv2d_transpose", "matmul", "add", "subtract", "multiply", "mean", "sum", "nn.leakyrelu",
)  # fmt: skip


def _rounding(composite: Composite, tensors: tuple[TensorType, ...]) -> Rounding:
    """Return the rounding of a chain. "litert" becomes "tflite" where LiteRT's default kernels do not compute it."""
    rounding = rounding_of(composite)
    if rounding != "litert":
        return rounding
    types = {tensor.dtype for tensor in tensors}
    in_bytes = types in ({"int8"}, {"uint8"})
    body = [call.name for call in composite.calls if call.name not in ("quantize", "dequantize")]
    is_product = "matmul" in body and len(composite.inputs) > 1
    return "litert" if in_bytes and not is_product and (not body or body[0] in _IN_XNNPACK) else "tflite"


def _constant(call: Call, data: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> QuantizedConstant:
    """Return the constant of a dequantize. Several zero points are along its axis, like the scales."""
    axis, shape = int(call.attrs.axis) % max(data.ndim, 1), [1] * data.ndim
    if zero_point.size > 1:
        shape[axis] = zero_point.size
    zero_points = zero_point.astype(np.int64).reshape(shape)
    return QuantizedConstant(data=data, scale=scale.reshape(-1), zero_point=zero_points, axis=axis)


def _one(zero_point: np.ndarray) -> int:
    """Return the zero point that all channels share, or an impossible value if they differ."""
    values = np.unique(zero_point)
    return int(values[0]) if values.size == 1 else 1 << 30


def _usable(quantization: Quantization) -> bool:
    return 0.0 < quantization.scale < np.inf and abs(quantization.zero_point) < 1 << 16


def _clamp(body: list[Call], output: TensorType, rounding: Rounding) -> tuple[int, int]:
    """Return the integer bounds of the output: its type's range, narrowed by relu and clip at the end of the chain.

    Bounds commute with quantize, because both are monotonic. The calls that set the bounds are removed from `body`.
    """
    info, quantization = np.iinfo(output.dtype), output.quantization
    assert quantization is not None
    low, high = int(info.min), int(info.max)
    while len(body) > 1 and body[-1].name in ("nn.relu", "clip"):
        call = body.pop()
        below, above = (0.0, np.inf) if call.name == "nn.relu" else _bounds(call.operands[1:])
        low = max(low, _quantized(below, quantization, low, rounding))
        high = min(high, _quantized(above, quantization, high, rounding))
    return low, max(low, high)


def _bounds(operands: tuple[CallOperand, ...]) -> tuple[float, float]:
    low, high = (float(value.array) for value in operands if value.array is not None)
    return low, high


def _quantized(real: float, quantization: Quantization, otherwise: int, rounding: Rounding) -> int:
    if not np.isfinite(real):
        return otherwise
    steps = np.float32(real) / np.float32(quantization.scale)
    whole = np.round(steps) if rounding != "tflite" else np.copysign(np.floor(np.abs(steps) + 0.5), steps)
    return int(whole) + quantization.zero_point


def chain_of(builder: ProgramBuilder, calls: tuple[Call, ...], output: TensorType) -> NoMatch | None:
    """Append calls to a program. Return NoMatch if a call is not computed element by element."""
    channels = output.shape[-1] if output.shape else 1
    for call in calls:
        if failed := builder.add(call, channels):
            return failed
    return None


def after_anchor(
    composite: Composite, anchor: Call, *, takes_bias: bool, num_operands: int = 1
) -> tuple[ProgramBuilder, np.ndarray] | NoMatch:
    """Return the program of the operators after the anchor, and the bias of the first addition if the kernel takes one.

    num_operands: number of the anchor's first operands that are activations; these are the first inputs.
    """
    output, rest = anchor.type or composite.outputs[0], composite.calls[1:]
    if not output.shape:
        return NoMatch("gives a single number")
    channels = output.shape[-1]
    builder = ProgramBuilder()
    builder.inputs += [operand.parameter or 0 for operand in anchor.operands[:num_operands]]
    builder.element(anchor.var)
    bias = np.zeros(channels, dtype=np.float32)
    if takes_bias and rest and rest[0].name == "add":
        arrays = [value.array for value in rest[0].operands if value.array is not None]
        if len(arrays) == 1 and arrays[0].shape[-1:] == (channels,) and arrays[0].size == channels:
            bias = np.ascontiguousarray(arrays[0].reshape(-1))
            builder.element(rest[0].var)
            rest = rest[1:]
    failed = chain_of(builder, rest, output)
    return failed or (builder, bias)


def inputs_of(composite: Composite, builder: ProgramBuilder) -> tuple[TensorType, ...]:
    """Return the types of the inputs that a program and its anchor read."""
    return tuple(composite.inputs[index] for index in builder.inputs)
