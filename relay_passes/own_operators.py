"""Relax operators of tvm_ext: `move` copies to another memory, `range_quantize` rounds by the range of the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import tvm
from tvm import relax, te, tirx
from tvm.ir import DictAttrs
from tvm.ir import op as ir_op
from tvm.relax.transform.legalize_ops.common import register_legalize

from relay_passes.dataflow import dict_attrs
from tvm_ext.core.decisions.composites import MoveTarget, OwnRange
from tvm_ext.core.names import MOVE, RANGE_QUANTIZE

Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]


def define_operator(name: str, meaning: str, legalize: Legalize) -> None:
    """Register an operator with TVM.

    meaning: one sentence.
    legalize: turns a call of the operator into a call of a PrimFunc.
    """
    ir_op._ffi_api.RegisterOp(name, meaning)
    operator = ir_op.Op.get(name)
    operator.set_num_inputs(1)
    operator.add_argument("operand", "Tensor", "The tensor that it reads.")
    ir_op.register_op_attr(name, "FPurity", True)
    ir_op.register_op_attr(name, "FInferType", _infer)
    register_legalize(name, legalize)


def call_operator(name: str, operand: relax.Expr, attrs: DictAttrs) -> relax.Call:
    """Return a call of the operator with its operand's type, which has to be known."""
    return relax.Call(ir_op.Op.get(name), [operand], attrs, [], None, operand.ty)


def _infer(call: relax.Call, _builder: relax.BlockBuilder) -> relax.TensorType:
    return relax.TensorType(call.args[0].ty.shape, call.args[0].ty.dtype)


def move(operand: relax.Expr, memory: str, within: int | None = None, processor: str = "") -> relax.Call:
    """Return a call of `move` with its operand's type.

    within: the number of operators after which the copy is awaited.
    processor: the core that copies where no DMA does, empty for the first core.
    """
    attrs = dict_attrs(MoveTarget(memory=memory, within=within, processor=processor))
    return relax.BlockBuilder().normalize(call_operator(MOVE, operand, attrs))


def is_move(expr: relax.Expr) -> bool:
    """Return True for a call of `move`."""
    return isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name == MOVE


def _legalize_move(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return builder.call_te(
        lambda x: te.compute(x.shape, lambda *i: x(*i), name="move"), call.args[0], primfunc_name_hint="move"
    )


define_operator(MOVE, "Its operand, copied to another memory.", _legalize_move)


def range_quantize(operand: relax.Expr, meaning: str, axes: int = 0) -> relax.Call:
    """Return a call of `range_quantize` with its operand's type.

    meaning, axes: as in `OwnRange`.
    """
    return call_operator(RANGE_QUANTIZE, operand, dict_attrs(OwnRange(meaning=meaning, axes=axes)))


def _legalize_range_quantize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    own = OwnRange.read(call)
    compute = partial(_computed, meaning=own.meaning, axes=own.axes)
    return builder.call_te(compute, call.args[0], primfunc_name_hint="range_quantize")


def _computed(x: te.Tensor, *, meaning: str, axes: int) -> te.Tensor:
    rule = _RULES[meaning]
    high, low = (extreme(x, is_max=is_max, axes=axes) for is_max in (True, False))
    scale = te.compute(high.shape, lambda *i: rule.scale(low(*i), high(*i)), "scale")
    zero_point = te.compute(high.shape, lambda *i: rule.zero_point(low(*i), high(*i)), "zero_point")

    def element(*i: tirx.Expr) -> tirx.Expr:
        own = i[:axes]
        steps = rule.steps(x(*i), scale(*own), zero_point(*own), tirx.max(high(*own), -low(*own)))
        limits = (tirx.const(limit, "float32") for limit in rule.limits)
        return (_clipped(steps, *limits) - zero_point(*own)) * scale(*own)

    return te.compute(x.shape, element, "real")


def extreme(x: te.Tensor, *, is_max: bool, axes: int = 0) -> te.Tensor:
    """Return the largest or smallest element, or 0 where 0 lies beyond it. NaN is ignored. axes: as in `OwnRange`."""
    combine = tirx.max if is_max else tirx.min
    reducer = te.comm_reducer(lambda a, b: combine(a, b), lambda dtype: tirx.const(0, dtype), name="widened")
    inner = [te.reduce_axis((0, extent), "k") for extent in x.shape[axes:]]
    if not inner:
        return te.compute(x.shape[:axes], lambda *i: combine(tirx.const(0, x.dtype), x(*i)), "range")
    return te.compute(x.shape[:axes], lambda *i: reducer(x(*i, *inner), axis=inner), "range")


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """The arithmetic of a meaning of `range_quantize`.

    scale, zero_point: float32, computed from the extremes.
    steps: the element in whole steps as float32, computed from the element, the scale, the zero point and the largest
    magnitude, and then clipped to `limits`.
    """

    scale: Callable[[tirx.Expr, tirx.Expr], tirx.Expr]
    zero_point: Callable[[tirx.Expr, tirx.Expr], tirx.Expr]
    steps: Callable[[tirx.Expr, tirx.Expr, tirx.Expr, tirx.Expr], tirx.Expr]
    limits: tuple[int, int]


def onnx_scale(low: tirx.Expr, high: tirx.Expr) -> tirx.Expr:
    return tirx.Select(high == low, _float(1), (high - low) / _float(255))


def onnx_zero_point(low: tirx.Expr, scale: tirx.Expr) -> tirx.Expr:
    """Return a whole number as float32. For an infinite range it is 255, as in onnxruntime."""
    place = (_float(0) - low) / scale
    return tirx.round(tirx.max(tirx.Select(place < _float(255), place, _float(255)), _float(0)))


def _asymmetric_scale(low: tirx.Expr, high: tirx.Expr) -> tirx.Expr:
    return tirx.Select(high == low, _float(1), tirx.Cast("float32", _wide_scale(low, high)))


def _wide_scale(low: tirx.Expr, high: tirx.Expr) -> tirx.Expr:
    return _wide(high - low) / tirx.const(255, "float64")


def _asymmetric_zero_point(low: tirx.Expr, high: tirx.Expr) -> tirx.Expr:
    """Return the zero point in float64, from the end of the range with the smaller rounding error, as TFLite does."""
    least, most = tirx.const(-128, "float64"), tirx.const(127, "float64")
    below, above = _wide(low) / _wide_scale(low, high), _wide(high) / _wide_scale(low, high)
    place = tirx.Select(tirx.abs(least) + tirx.abs(below) < most + tirx.abs(above), least - below, most - above)
    return tirx.Select(high == low, _float(0), tirx.Cast("float32", _away(_clipped(place, least, most))))


def _symmetric_scale(low: tirx.Expr, high: tirx.Expr) -> tirx.Expr:
    return tirx.Select(high == low, _float(1), tirx.max(high, -low) / _float(127))


def _symmetric_steps(x: tirx.Expr, _s: tirx.Expr, _z: tirx.Expr, magnitude: tirx.Expr) -> tirx.Expr:
    return tirx.Select(magnitude > _float(0), _away(x * (_float(127) / magnitude)), _float(0))


def _away(x: tirx.Expr) -> tirx.Expr:
    """Return the nearest whole number. Halves are rounded away from zero."""
    whole, half, none = tirx.trunc(x), tirx.const(0.5, x.ty.dtype), tirx.const(0, x.ty.dtype)
    one = tirx.const(1, x.ty.dtype)
    step = tirx.Select(x - whole >= half, one, tirx.Select(whole - x >= half, -one, none))
    return whole + step


def _clipped(x: tirx.Expr, low: tirx.Expr, high: tirx.Expr) -> tirx.Expr:
    return tirx.min(tirx.max(x, low), high)


def _float(value: float) -> tirx.Expr:
    return tirx.const(value, "float32")


def _wide(x: tirx.Expr) -> tirx.Expr:
    return tirx.Cast("float64", x)


_RULES = {
    "onnx": _Rule(
        scale=onnx_scale, zero_point=lambda low, high: onnx_zero_point(low, onnx_scale(low, high)),
        steps=lambda x, scale, zero, _: tirx.round(x / scale) + zero, limits=(0, 255),
    ),
    "tflite_asymmetric": _Rule(
        scale=_asymmetric_scale, zero_point=_asymmetric_zero_point,
        steps=lambda x, scale, zero, _: _away(x * (_float(1) / scale)) + zero, limits=(-128, 127),
    ),
    "tflite_symmetric": _Rule(
        scale=_symmetric_scale, zero_point=lambda low, high: _float(0), steps=_symmetric_steps, limits=(-127, 127),
    ),
}  # fmt: skip


define_operator(RANGE_QUANTIZE, "Its operand, rounded to 8 bits of its own range.", _legalize_range_quantize)
