"""The accelerator interface: the arguments of the driver's functions for each form of layer, and their calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, isfinite

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, float_literal
from codegen_c.kernels.contract import Array, CFunction, Implementation, Parameter, Target
from codegen_c.kernels.shared.layer import shapes, sliding_window
from codegen_c.kernels.shared.requantize import Requantize, quantization
from codegen_c.kernels.user_functions import DriverCall
from codegen_c.operators.kinds import Operator, TensorType, Window
from codegen_c.operators.scalar import Operand, ScalarProgram
from tvm_ext.core.platform import OffloadOperator

# Arguments of the functions that start layers: a structure, inputs, constants, the output, by kind and elements.

_WEIGHTS = (("weights", "int8_t"), ("bias", "int32_t"))
_FACTORS = (("multipliers", "int32_t"), ("shifts", "int32_t"))
_FLOATS = (("weights", "float"), ("bias", "float"))


@dataclass(frozen=True, kw_only=True)
class LayerForm:
    """The form in which a driver takes a layer.

    struct: of the layer in C. inputs: names. constants: names and C types.
    """

    struct: str
    inputs: tuple[str, ...] = ("input",)
    constants: tuple[tuple[str, str], ...] = ()


FORMS = {
    "conv2d": LayerForm(struct="tvm_ext_offload_conv2d", constants=(*_WEIGHTS, *_FACTORS)),
    "depthwise": LayerForm(struct="tvm_ext_offload_conv2d", constants=(*_WEIGHTS, *_FACTORS)),
    "dense": LayerForm(struct="tvm_ext_offload_dense", constants=(*_WEIGHTS, *_FACTORS)),
    "max_pool": LayerForm(struct="tvm_ext_offload_pool"),
    "average_pool": LayerForm(struct="tvm_ext_offload_pool", constants=_FACTORS),
    "add": LayerForm(struct="tvm_ext_offload_add", inputs=("first", "second")),
    "conv2d_f32": LayerForm(struct="tvm_ext_offload_conv2d_f32", constants=_FLOATS),
    "depthwise_f32": LayerForm(struct="tvm_ext_offload_conv2d_f32", constants=_FLOATS),
    "dense_f32": LayerForm(struct="tvm_ext_offload_dense_f32", constants=_FLOATS),
    "max_pool_f32": LayerForm(struct="tvm_ext_offload_pool_f32"),
    "average_pool_f32": LayerForm(struct="tvm_ext_offload_pool_f32"),
    "add_f32": LayerForm(struct="tvm_ext_offload_add_f32", inputs=("first", "second")),
}
"""Forms by kind; float forms have the suffix `_f32` and functions of their own."""


def form_name(entry: OffloadOperator) -> str:
    """Return the name of the form in which an entry of a driver takes its layers."""
    return f"{entry.kind}_f32" if entry.takes_floats else entry.kind


# Layers in the form of a driver: the platform's entry that supports the layer, its cost, and the call.
#
# Weights are in the model's layout, not packed for any kernel of ours. Float layers have only two bounds after their
# sums, such as those of a ReLU.

OFFLOAD_HEADER = "tvm_ext_offload.h"
FIXED_POINT_BITS = 31


def entry_of(kind: str, operator: Operator, target: Target, window: Window | None = None) -> OffloadOperator | None:
    """Return the first entry of the driver that supports an operator; None without one."""
    offload = target.processor.offload
    entries = offload.operators if offload else ()
    return next((entry for entry in entries if entry.kind == kind and _takes(entry, operator, window)), None)


def _takes(entry: OffloadOperator, operator: Operator, window: Window | None) -> bool:
    types, shape = {tensor.dtype for tensor in (*operator.inputs, *operator.outputs)}, operator.output.shape
    fits = len(shape) == len(entry.most_shape) and all(
        n <= most for n, most in zip(shape, entry.most_shape, strict=True)
    )
    kernel = window.kernel if window else (1, 1)
    known = not _rounds(operator) or getattr(operator, "rounding", "onnx") in entry.roundings
    return (
        fits and known and len(types) == 1 and types <= {*entry.types}
        and all(n <= most for n, most in zip(kernel, entry.most_kernel, strict=True))
    )  # fmt: skip


def _rounds(operator: Operator) -> bool:
    """Return True if results are rounded to integers."""
    return operator.output.dtype != "float32" and getattr(operator, "method", "") != "max"


def started(
    name: str,
    operator: Operator,
    target: Target,
    entry: OffloadOperator | None,
    layer: Mapping[str, Value],
    constants: Sequence[tuple[str, Array]] = (),
    *,
    reference: Callable[[list[Array]], list[Array]],
    macs: int = 0,
    taken: int | None = None,
) -> Implementation:
    """Return the kernel that passes a layer to the driver.

    layer: members of its structure. constants: those of the layer's form, under its names. taken: elements that count
    as products in the platform's cost, if there are no products.
    """
    offload = target.processor.offload
    assert offload is not None and entry is not None, "constraints hold"
    form, given = FORMS[form_name(entry)], dict(constants)
    handed = [role if role in given else "NULL" for role, _ in form.constants]
    names = [*form.inputs, *handed, "output"]
    parameters = [
        *(
            Parameter(name=n, ctype=C_TYPES[t.dtype], role="input")
            for n, t in zip(form.inputs, operator.inputs, strict=True)
        ),
        Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
        *(Parameter(name=role, ctype=C_TYPES[str(array.dtype)], role="constant") for role, array in constants),
    ]
    return Implementation(
        kernel=name,
        function=CFunction(
            parameters=tuple(parameters),
            body=f"{entry.start}(&$_layer, {', '.join(names)});",
            helpers=shapes(form.struct, layer),
            includes=(OFFLOAD_HEADER,),
        ),
        reference=reference,
        constants=tuple(constants),
        macs=macs,
        instructions=cycles(entry, operator, constants, macs if taken is None else taken),
        accumulation="the driver's",
        exact=not entry.takes_floats,
        integers_only=True,  # the C only passes pointers
        driver=DriverCall(processor=target.processor.name, header=offload.header, wait=offload.wait),
    )


def cycles(entry: OffloadOperator, operator: Operator, constants: Sequence[tuple[str, Array]], taken: int) -> int:
    """Return the accelerator's cycles by the platform's figures: per call, per product and per byte read or written.

    taken: products, or the elements that count as products.
    """
    moved = sum(_num_bytes(tensor) for tensor in (*operator.inputs, *operator.outputs))
    moved += sum(array.nbytes for _, array in constants)
    return ceil(entry.cycles_per_call + entry.cycles_per_mac * taken + entry.cycles_per_byte * moved)


def _num_bytes(tensor: TensorType) -> int:
    return tensor.num_elements * np.dtype(tensor.dtype).itemsize


def factors(finish: Requantize, channels: int) -> tuple[tuple[str, Array], ...]:
    """Return `multipliers` and `shifts`, one for each channel: a sum times multiplier * 2^(shift - 31)."""
    multipliers = np.broadcast_to(finish.mantissa, channels)
    shifts = FIXED_POINT_BITS - np.broadcast_to(finish.shift, channels).astype(np.int32)
    return ("multipliers", np.ascontiguousarray(multipliers)), ("shifts", np.ascontiguousarray(shifts))


def scales(source: TensorType, finish: Requantize) -> dict[str, Value]:
    """Return the members that describe how elements are read and written."""
    return {
        "input_zero_point": quantization(source).zero_point,
        "output_zero_point": quantization(finish.output).zero_point,
        "low": finish.low, "high": finish.high,
        "is_unsigned": source.dtype == "uint8", "rounds_twice": finish.rounding == "tflite",
    }  # fmt: skip


def window_members(operator: Operator, window: Window) -> dict[str, Value]:
    """Return a `tvm_ext_offload_window`: input and output images [N, H, W, C], and the window that slides over them."""
    images, rows, columns, channels = operator.inputs[0].shape
    _, output_rows, output_columns, output_channels = operator.output.shape
    members = sliding_window(window)
    return {
        "images": images, "input_rows": rows, "input_columns": columns, "input_channels": channels,
        "output_rows": output_rows, "output_columns": output_columns, "output_channels": output_channels,
        "kernel_rows": members.pop("rows"), "kernel_columns": members.pop("columns"), **members,
    }  # fmt: skip


def bounds(program: ScalarProgram, first: int = 0) -> tuple[float, float] | None:
    """Return the least and the greatest result of a program that only clamps from instruction `first` on.

    Returns None for other programs.
    """
    low, high = -inf, inf
    for index, one in enumerate(program.instructions[first:], start=first):
        match one.operands:
            case (Operand(kind="value", index=before), Operand(kind="number", number=number)) if before == index:
                pass
            case _:
                return None
        if one.function not in ("maximum", "minimum") or not low <= number <= high:
            return None
        low, high = (number, high) if one.function == "maximum" else (low, number)
    return low, high


def bound_members(found: tuple[float, float] | None) -> dict[str, Value]:
    """Return the members `low` and `high` of a float layer."""
    assert found is not None, "constraints hold"
    low, high = (float_literal(bound) if isfinite(bound) else "INFINITY" for bound in found)
    return {"low": f"-{low}" if low == "INFINITY" else low, "high": high}
