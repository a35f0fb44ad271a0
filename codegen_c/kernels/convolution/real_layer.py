"""A layer of integers whose sums become real numbers: an integer kernel's sums of some rows, finished in floats.

int8 or uint8 activations, int8 weights, sums in int32: of whichever integer kernel takes the fewest instructions. Rows
of sums go to scratch; each becomes float32(sum) * scale + bias, two roundings, then what follows element by element
runs, and the result may be quantized. Rows are those of an image, or vectors.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.initializer import structure
from codegen_c.c_text.text import C_TYPES, block, float_literal, times
from codegen_c.kernels.contract import CFunction, Implementation, Kept, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.elementwise import convert_quantized
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.finish import Finish
from codegen_c.kernels.shared.lanes import SCALAR
from codegen_c.kernels.shared.layer import apart, image, one_image
from codegen_c.kernels.shared.requantize import quantization, signed
from codegen_c.kernels.shared.window import ROW_PARAMETERS, slot, spatial
from codegen_c.operators.kinds import Array, Convert, QConv2d, TensorType
from codegen_c.operators.real_layer import RealLayer
from codegen_c.operators.scalar import Operand
from tvm_ext.core.alignment import aligned

CONVERT = "tvm_ext_convert_layer"
PIXELS_AT_ONCE = 12
"""Pixels from which on the sums of an image's rows are computed in one call: kernels take two or three at a time."""
ELEMENT_INSTRUCTIONS = 10
QUANTIZE_INSTRUCTIONS = 12


def sums_have_a_kernel(operator: RealLayer, target: Target) -> bool:
    """an integer kernel must take its products: bytes, weights of 8 bits around zero, sums of 32 bits"""
    return isinstance(select(operator.layer, target), Implementation)


def is_one_image(operator: RealLayer, target: Target) -> bool:
    """images must come one by one"""
    return not isinstance(operator.layer, QConv2d) or operator.output.shape[0] == 1


def residuals_are_known(operator: RealLayer, target: Target) -> bool:
    """what follows its sums must read float32 or quantized tensors of the shape of its result"""
    others = operator.inputs[1:]
    typed = all(other.dtype == "float32" or other.quantization for other in others)
    return typed and all(other.shape == operator.output.shape for other in others)


def reference(operator: RealLayer, inputs: list[Array]) -> list[Array]:
    """The operator in numpy, bit for bit where `finish` is."""
    layer, output = operator.layer, operator.output
    (sums,) = qconv2d.reference(layer, inputs) if isinstance(layer, QConv2d) else qdense.reference(layer, inputs)
    real = sums.astype(np.float32) * operator.scale + operator.bias
    residuals = [_real(tensor, array) for tensor, array in zip(operator.inputs[1:], inputs[1:], strict=True)]
    result = operator.finish.run(real, [real, *residuals]).reshape(output.shape)
    return [result] if output.dtype == "float32" else convert_quantized.reference(_quantize(operator), [result])


def _real(tensor: TensorType, array: Array) -> Array:
    if tensor.dtype == "float32":
        return array
    known = quantization(tensor)
    return (array.astype(np.int32) - known.zero_point).astype(np.float32) * np.float32(known.scale)


def _quantize(operator: RealLayer) -> Convert:
    """The end of a layer whose result is quantized."""
    output = operator.output
    return Convert(
        inputs=(TensorType(shape=output.shape, dtype="float32"),), outputs=(output,),
        quantization=quantization(output), rounding=operator.rounding,
    )  # fmt: skip


def implement(operator: RealLayer, target: Target, stored: StoredRows) -> Implementation:
    finish, output = Finish(program=operator.finish), operator.output
    count = output.num_elements // operator.layer.output.num_elements
    sums, at_once = _sums(operator, target, stored)
    row = operator.layer.output.num_elements // (output.shape[1] if _is_image(operator) else 1)
    sums_bytes = aligned(4 * row * at_once)
    extra = 5 * len(operator.inputs[1:]) + (0 if output.dtype == "float32" else QUANTIZE_INSTRUCTIONS)
    function = _function(operator, sums, stored, finish, row=row, at_once=at_once, sums_bytes=sums_bytes)
    return Implementation(
        kernel=f"{sums.kernel}_real",
        function=function,
        reference=lambda inputs: reference(operator, inputs),
        constants=(*sums.constants, ("scale", operator.scale), ("offset", operator.bias), *finish.constants()),
        scratch_bytes=sums_bytes + sums.scratch_bytes,
        macs=sums.macs * count,
        instructions=sums.instructions * count
        + output.num_elements * (ELEMENT_INSTRUCTIONS + extra + operator.finish.num_instructions),
        passes=sums.passes,
        accumulation=sums.accumulation,
        spatial=spatial(operator.layer.window, operator.inputs[0], output, len(operator.inputs) - 1)
        if isinstance(operator.layer, QConv2d)
        else None,
        in_place=tuple(
            i for i, t in enumerate(operator.inputs) if i and (t.shape, t.dtype) == (output.shape, output.dtype)
        ),
        pitched=_is_image(operator),
    )


def _is_image(operator: RealLayer) -> bool:
    return isinstance(operator.layer, QConv2d)


def _sums(operator: RealLayer, target: Target, stored: StoredRows) -> tuple[Implementation, int]:
    """The integer kernel whose result is a ring buffer of rows of sums, and how many of them."""
    chosen, shape = select(operator.layer, target), operator.output.shape
    assert isinstance(chosen, Implementation) and chosen.keeping is not None, "constraints have selected one"
    if not _is_image(operator):
        return chosen, 1
    rows = min(shape[1], -(-PIXELS_AT_ONCE // shape[2]))
    return chosen.keeping(StoredRows(inputs=stored.inputs[:1], output=Kept(stored=rows), at_once=rows)), rows


def _function(
    operator: RealLayer, sums: Implementation, stored: StoredRows, finish: Finish, *, row: int, at_once: int,
    sums_bytes: int,
) -> CFunction:  # fmt: skip
    """The loops over rows. row: elements of one."""
    kept = [p for p in sums.function.parameters if p.role == "constant"]
    others = operator.inputs[1:]
    constants = (
        Parameter(name="scale", ctype="float", role="constant"),
        Parameter(name="offset", ctype="float", role="constant"),
        *finish.constant_parameters(),
    )
    parameters = (
        sums.function.parameters[0],
        *(Parameter(name=f"input{i}", ctype=C_TYPES[t.dtype], role="input") for i, t in enumerate(others, start=1)),
        Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
        *kept,
        *constants,
        Parameter(name="scratch", ctype="uint8_t", role="scratch"),
        *(ROW_PARAMETERS if _is_image(operator) else ()),
    )
    is_quantized = operator.output.dtype != "float32"
    result = [*_result(operator), ""] if is_quantized else []
    return CFunction(
        parameters=parameters,
        body="\n".join(_body(operator, sums, stored, finish, row=row, at_once=at_once, sums_bytes=sums_bytes)),
        helpers="\n".join([sums.function.helpers, _sums_function(sums), finish.helper(SCALAR), *result]),
        includes=(*sums.function.includes, *(("tvm_ext_convert.h", "tvm_ext_layer.h") if is_quantized else ())),
    )


def _result(operator: RealLayer) -> list[str]:
    """Definition of `$_result`, the quantization of the result as tvm_ext_convert.h takes it."""
    kinds = {"input": TensorType(shape=operator.output.shape, dtype="float32"), "output": operator.output}
    images = {name: image(one_image(kind)) for name, kind in kinds.items()}
    scale = float_literal(quantization(operator.output).scale)
    rounds = {"rounds_away": True} if operator.rounding == "tflite" else {}
    first, *lines = structure(CONVERT, "$_result", {**images, "scale": scale, **rounds})
    return [f"static {first}", *lines]


def _sums_function(sums: Implementation) -> str:
    """Definition of `$_sums`, the integer kernel with its sums in place of an output.

    Not inlined: there GCC 12 at -O3 loads sums from `restrict` scratch before they are stored.
    """
    return apart("$_sums", [p.declaration() for p in sums.function.parameters], sums.function.body.splitlines())


def _body(
    operator: RealLayer, sums: Implementation, stored: StoredRows, finish: Finish, *, row: int, at_once: int,
    sums_bytes: int,
) -> list[str]:  # fmt: skip
    by_rows = _is_image(operator)
    vectors = operator.output.num_elements // operator.output.shape[-1]
    first, last = ("row_begin", "row_end") if by_rows else ("0", str(vectors))
    depth = 0 if by_rows else operator.layer.weight.shape[1]
    places = {
        "input": f"&input[{times('h', depth)}]" if depth else "input", "output": "sums",
        "scratch": f"&scratch[{sums_bytes}]", "row_begin": "h", "row_end": "end",
    }  # fmt: skip
    arguments = ", ".join(places.get(p.name, p.name) for p in sums.function.parameters)
    end = f"const int32_t end = h + {at_once} < {last} ? h + {at_once} : {last};"
    return [
        "int32_t *const sums = (int32_t *)(void *)scratch;",
        f"for (int32_t h = {first}; h < {last}; h += {at_once}) {{",
        block([
            end,
            f"$_sums({arguments});",
            "for (int32_t y = h; y < end; ++y) {",
            block(_finished_row(operator, stored, finish, row=row, at_once=at_once)),
            "}",
        ]),
        "}",
    ]  # fmt: skip


def _finished_row(operator: RealLayer, stored: StoredRows, finish: Finish, *, row: int, at_once: int) -> list[str]:
    """Elements of row y of the result from its sums."""
    channels = operator.output.shape[-1]
    pitch = stored.pitch or channels
    by_slot = f"(y % {at_once})" if at_once > 1 else "0"
    used = [index for index, _ in enumerate(operator.inputs) if index]

    def operand(o: Operand) -> str:
        if o.kind == "channel":
            return f"channel{o.index}[k]"
        tensor, element = operator.inputs[o.index], f"x{o.index}[i + k]"
        if tensor.dtype == "float32":
            return element
        known = quantization(tensor)
        return f"(float)({element}{signed(-known.zero_point)}) * {float_literal(known.scale)}"

    value = finish.call("value", operand)
    element = value if operator.output.dtype == "float32" else (
        f"({C_TYPES[operator.output.dtype]})tvm_ext_quantized(&$_result, {value})"
    )  # fmt: skip
    return [
        f"const int32_t *const sum = &sums[{times(by_slot, row)}];",
        *(
            f"const {C_TYPES[operator.inputs[i].dtype]} *const x{i} = "
            f"&input{i}[{times(slot('y', stored.input(i)), row)}];"
            for i in used
        ),
        f"{C_TYPES[operator.output.dtype]} *const z = "
        f"&output[{times(slot('y', stored.output), row // channels * pitch)}];",
        f"for (int32_t i = 0; i < {row}; i += {channels}) {{",
        block([
            f"for (int32_t k = 0; k < {channels}; ++k) {{",
            block([
                "const float product = (float)sum[i + k] * scale[k];",
                "const float value = product + offset[k];",
                f"z[{'i' if pitch == channels else f'i / {channels} * {pitch}'} + k] = {element};",
            ]),
            "}",
        ]),
        "}",
    ]  # fmt: skip


KERNEL = Kernel(
    name="real_layer",
    operator=RealLayer,
    implement=implement,
    constraints=(is_one_image, residuals_are_known, sums_have_a_kernel),
)
