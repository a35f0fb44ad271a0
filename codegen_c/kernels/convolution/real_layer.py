"""An integer layer whose sums become real numbers: an integer kernel computes sums of some rows, floats finish them.

int8 or uint8 activations, int8 weights, sums in int32 of the integer kernel with the fewest instructions. Rows of sums
go to scratch; each sum becomes float32(sum) * scale + bias with two roundings, then the element-wise operators run, and
the result may be quantized. Rows are those of an image, or vectors. float32 activations are first quantized to int8 by
their own range (`shared/own_range.py`); of an image, all rows are, so no row can be computed before the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import C_TYPES, float_literal, loop, structure, times
from codegen_c.kernels.contract import CFunction, Implementation, Kept, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.elementwise import convert_quantized
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.lanes import SCALAR, Finish
from codegen_c.kernels.shared.layer import apart, image, one_image
from codegen_c.kernels.shared.own_range import INCLUDES, OwnRangeText, steps_of, without_padding
from codegen_c.kernels.shared.requantize import quantization, signed
from codegen_c.kernels.shared.window import ROW_PARAMETERS, slot, spatial
from codegen_c.operators.kinds import Array, Convert, QConv2d, QDense, RealLayer, TensorType
from codegen_c.operators.scalar import Operand
from tvm_ext.core.alignment import aligned

CONVERT = "tvm_ext_convert_layer"
PIXELS_AT_ONCE = 12
"""Pixels from which the sums of an image's rows are computed in one call: kernels compute two or three at a time."""
ELEMENT_INSTRUCTIONS = 10
QUANTIZE_INSTRUCTIONS = 12


def sums_have_a_kernel(operator: RealLayer, target: Target) -> bool:
    """an integer kernel must accept its products: bytes, weights of 8 bits around zero, sums of 32 bits"""
    return isinstance(select(_summed(operator), target), Implementation)


def is_one_image(operator: RealLayer, target: Target) -> bool:
    """the batch size must be 1"""
    return not isinstance(operator.layer, QConv2d) or operator.output.shape[0] == 1


def residuals_are_known(operator: RealLayer, target: Target) -> bool:
    """element-wise operators after its sums must read float32 or quantized tensors of the result's shape"""
    others = operator.inputs[1:]
    typed = all(other.dtype == "float32" or other.quantization for other in others)
    return typed and all(other.shape == operator.output.shape for other in others)


def reference(operator: RealLayer, inputs: list[Array]) -> list[Array]:
    """The operator in numpy, bit for bit where `finish` is."""
    layer, output, rule = operator.layer, operator.output, operator.own_steps
    steps, scale = steps_of(rule, inputs[0]) if rule else (inputs[0], np.float32(1))
    (sums,) = qconv2d.reference(layer, [steps]) if isinstance(layer, QConv2d) else qdense.reference(layer, [steps])
    real = sums.astype(np.float32) * operator.scale * scale if rule and rule.scale_last else (
        sums.astype(np.float32) * (operator.scale * scale)
    )  # fmt: skip
    real += operator.bias
    residuals = [_real(tensor, array) for tensor, array in zip(operator.inputs[1:], inputs[1:], strict=True)]
    result = operator.finish.run(real, [real, *residuals]).reshape(output.shape)
    return [result] if output.dtype == "float32" else convert_quantized.reference(_quantize(operator), [result])


def _real(tensor: TensorType, array: Array) -> Array:
    if tensor.dtype == "float32":
        return array
    known = quantization(tensor)
    return (array.astype(np.int32) - known.zero_point).astype(np.float32) * np.float32(known.scale)


def _quantize(operator: RealLayer) -> Convert:
    """Return the final quantization of a layer whose result is quantized."""
    output = operator.output
    return Convert(
        inputs=(TensorType(shape=output.shape, dtype="float32"),), outputs=(output,),
        quantization=quantization(output), rounding=operator.rounding,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """Parts of a layer: the kernel of its sums, its epilogue, and the quantization before it.

    row: sums of a row. at_once: rows of sums that scratch holds; the quantized input of an own range lies after them.
    """

    operator: RealLayer
    sums: Implementation
    finish: Finish
    own: OwnRangeText | None
    row: int
    at_once: int

    @property
    def sums_bytes(self) -> int:
        return aligned(4 * self.row * self.at_once)

    @property
    def scratch_bytes(self) -> int:
        """Bytes before the scratch of the sums' kernel."""
        return self.sums_bytes + (self.own.scratch_bytes if self.own else 0)


def implement(operator: RealLayer, target: Target, stored: StoredRows) -> Implementation:
    finish, output, own = Finish(program=operator.finish), operator.output, OwnRangeText.of(operator)
    count = output.num_elements // operator.layer.output.num_elements
    sums, at_once = _sums(operator, target, stored)
    row = operator.layer.output.num_elements // (output.shape[1] if _is_image(operator) else 1)
    parts = _Parts(operator=operator, sums=sums, finish=finish, own=own, row=row, at_once=at_once)
    extra = 5 * len(operator.inputs[1:]) + (0 if output.dtype == "float32" else QUANTIZE_INSTRUCTIONS)
    own_sums = own.constants() if own else ()
    return Implementation(
        kernel=f"{sums.kernel}_real",
        function=_function(parts, stored),
        reference=lambda inputs: reference(operator, inputs),
        constants=(
            *sums.constants, ("scale", operator.scale), ("offset", operator.bias), *own_sums, *finish.constants(),
        ),
        scratch_bytes=parts.scratch_bytes + sums.scratch_bytes,
        macs=sums.macs * count,
        instructions=sums.instructions * count
        + output.num_elements * (ELEMENT_INSTRUCTIONS + extra + operator.finish.num_instructions)
        + (own.instructions if own else 0),
        passes=sums.passes,
        accumulation=sums.accumulation,
        spatial=spatial(operator.layer.window, operator.inputs[0], output, len(operator.inputs) - 1)
        if isinstance(operator.layer, QConv2d) and own is None
        else None,
        in_place=tuple(
            i for i, t in enumerate(operator.inputs) if i and (t.shape, t.dtype) == (output.shape, output.dtype)
        ),
        pitched=_is_image(operator),
        row_pitched=_is_image(operator),
        rounds_input=own is not None,
    )  # fmt: skip


def _is_image(operator: RealLayer) -> bool:
    return isinstance(operator.layer, QConv2d)


def _summed(operator: RealLayer) -> QConv2d | QDense:
    """Return the layer whose kernel computes the sums; the steps of a range include their padding."""
    layer = operator.layer
    return without_padding(layer) if operator.own_steps and isinstance(layer, QConv2d) else layer


def _sums(operator: RealLayer, target: Target, stored: StoredRows) -> tuple[Implementation, int]:
    """Return the integer kernel whose result is a ring buffer of rows of sums, and the number of these rows."""
    chosen, shape = select(_summed(operator), target), operator.output.shape
    assert isinstance(chosen, Implementation) and chosen.keeping is not None, "constraints have selected one"
    if not _is_image(operator):
        return chosen, 1
    rows = min(shape[1], -(-PIXELS_AT_ONCE // shape[2]))
    return chosen.keeping(StoredRows(inputs=stored.inputs[:1], output=Kept(stored=rows), at_once=rows)), rows


def _function(parts: _Parts, stored: StoredRows) -> CFunction:
    """Return the loops over rows."""
    operator, sums, own = parts.operator, parts.sums, parts.own
    kept = [p for p in sums.function.parameters if p.role == "constant"]
    constants = (
        Parameter(name="scale", ctype="float", role="constant"),
        Parameter(name="offset", ctype="float", role="constant"),
        *(own.parameters() if own else ()),
        *parts.finish.constant_parameters(),
    )
    parameters = (
        *(
            Parameter(name=f"input{i or ''}", ctype=C_TYPES[t.dtype], role="input")
            for i, t in enumerate(operator.inputs)
        ),
        Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
        *kept,
        *constants,
        Parameter(name="scratch", ctype="uint8_t", role="scratch"),
        *(ROW_PARAMETERS if _is_image(operator) and own is None else ()),
    )
    is_quantized = operator.output.dtype != "float32"
    result = [*_result(operator), ""] if is_quantized else []
    headers = (*(("tvm_ext_convert.h", "tvm_ext_layer.h") if is_quantized else ()), *(INCLUDES if own else ()))
    return CFunction(
        parameters=parameters,
        body="\n".join(_body(parts, stored)),
        helpers="\n".join([sums.function.helpers, _sums_function(sums), parts.finish.helper(SCALAR), *result]),
        includes=(*sums.function.includes, *headers),
    )


def _result(operator: RealLayer) -> list[str]:
    """Return the definition of `$_result`, the quantization of the result for tvm_ext_convert.h."""
    kinds = {"input": TensorType(shape=operator.output.shape, dtype="float32"), "output": operator.output}
    images = {name: image(one_image(kind)) for name, kind in kinds.items()}
    scale = convert_quantized.scale_members(_quantize(operator))
    first, *lines = structure(CONVERT, "$_result", {**images, **scale})
    return [f"static {first}", *lines]


def _sums_function(sums: Implementation) -> str:
    """Return the definition of `$_sums`, the integer kernel with its sums as its output.

    It is not inlined: inlined, GCC 12 at -O3 loaded sums from scratch, which was `restrict` then, before they were
    stored.
    """
    return apart("$_sums", [p.declaration() for p in sums.function.parameters], sums.function.body.splitlines())


def _body(parts: _Parts, stored: StoredRows) -> list[str]:
    operator, own, at_once = parts.operator, parts.own, parts.at_once
    by_rows, shape = _is_image(operator), operator.output.shape
    vectors = operator.output.num_elements // shape[-1]
    first, last = (0, shape[1] if by_rows else vectors) if own or not by_rows else ("row_begin", "row_end")
    depth = 0 if by_rows or (own and own.rule.by_vector) else operator.layer.weight.shape[1]
    source = "steps" if own else "input"
    places = {
        "input": f"&{source}[{times('h', depth)}]" if depth else source, "output": "sums",
        "scratch": f"&scratch[{parts.scratch_bytes}]", "row_begin": "h", "row_end": "end",
    }  # fmt: skip
    arguments = ", ".join(places.get(p.name, p.name) for p in parts.sums.function.parameters)
    if at_once == 1:
        end, rows = "h + 1", _finished_row(parts, stored, "h")
    else:
        end = f"h + {at_once} < {last} ? h + {at_once} : {last}"
        rows = loop("y", "end", _finished_row(parts, stored, "y"), begin="h")
    names_end = at_once > 1 or any(p.name == "row_end" for p in parts.sums.function.parameters)
    steps = [f"int8_t *const steps = (int8_t *)(void *)&scratch[{parts.sums_bytes}];"] if own else []
    return [
        "int32_t *const sums = (int32_t *)(void *)scratch;",
        *steps,
        *(own.begin() if own and not own.rule.by_vector else []),
        *loop("h", last, [
            *([f"const int32_t end = {end};"] if names_end else []),
            *(own.begin("h") if own and own.rule.by_vector else []),
            f"$_sums({arguments});",
            *rows,
        ], begin=first, step=at_once),
    ]  # fmt: skip


def _finished_row(parts: _Parts, stored: StoredRows, y: str) -> list[str]:
    """Return the code that computes the elements of a row of the result from its sums. y: C name of the row's index."""
    operator, row, at_once = parts.operator, parts.row, parts.at_once
    channels = operator.output.shape[-1]
    pitch = stored.pitch or channels
    by_slot = f"({y} % {at_once})" if at_once > 1 else "0"
    used = [index for index, _ in enumerate(operator.inputs) if index]

    def operand(o: Operand) -> str:
        if o.kind == "channel":
            return f"channel{o.index}[k]"
        tensor, element = operator.inputs[o.index], f"x{o.index}[i + k]"
        if tensor.dtype == "float32":
            return element
        known = quantization(tensor)
        return f"(float)({element}{signed(-known.zero_point)}) * {float_literal(known.scale)}"

    value = parts.finish.call("value", operand)
    element = value if operator.output.dtype == "float32" else (
        f"({C_TYPES[operator.output.dtype]})tvm_ext_quantized(&$_result, {value})"
    )  # fmt: skip
    return [
        f"const int32_t *const sum = &sums[{times(by_slot, row)}];",
        *(
            f"const {C_TYPES[operator.inputs[i].dtype]} *const x{i} = "
            f"&input{i}[{times(slot(y, stored.input(i)), row)}];"
            for i in used
        ),
        f"{C_TYPES[operator.output.dtype]} *const z = "
        f"&output[{times(slot(y, stored.output), stored.row_pitch or row // channels * pitch)}];",
        *loop("i", row, loop("k", channels, [
                f"const float product = {parts.own.product() if parts.own else '(float)sum[i + k] * scale[k]'};",
                "const float value = product + offset[k];",
                f"z[{'i' if pitch == channels else f'i / {channels} * {pitch}'} + k] = {element};",
        ]), step=channels),
    ]  # fmt: skip


KERNEL = Kernel(
    name="real_layer",
    title="Integer layer with a float result: an integer kernel computes sums of a few rows, floats finish them",
    operator=RealLayer,
    implement=implement,
    constraints=(is_one_image, residuals_are_known, sums_have_a_kernel),
)
