"""Kernels with Helium for element-wise operators and interpolation of quantized tensors, and transposed bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, prod

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, structure
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Spatial, StoredRows, Target
from codegen_c.kernels.elementwise import qbinary, qdivide, qprelu, qunary
from codegen_c.kernels.movement import permute, qinterpolate
from codegen_c.kernels.shared.common_shift import DOUBLED_BITS
from codegen_c.kernels.shared.layer import image, one_image, shapes, with_rings
from codegen_c.kernels.shared.narrow_sums import narrow_sums
from codegen_c.kernels.shared.requantize import quantization
from codegen_c.kernels.shared.window import ROW_PARAMETERS
from codegen_c.operators.kinds import Array, Extreme, Permute, QBinary, QDivide, QInterpolate, QPrelu, QUnary
from codegen_c.targets.helium.kernels.product import INCLUDES, LAYER_INCLUDES, Rescale

# add, subtract and multiply of two quantized tensors of one shape with Helium: eight elements at a time.
#
# int8 or uint8[...], int8 or uint8[...] -> int8 or uint8[...]. Sums and differences use factors of 32 bits if some give
# every pair of elements its result (narrow_sums.py). Otherwise a sum of factor * element needs more than 32 bits:
# factors are split into a high and a low part of 16 bits, which are summed separately, and the low sum's carry is added
# to the high sum. Its rounding shift then rounds the whole, because the rest of the low sum cannot carry; all pairs are
# tried to find out if any two elements lead to a tie. Rounding "onnx".

LAYER = "tvm_ext_helium_qbinary_layer"
LOW_BITS = 16
MOST_SHIFT = LOW_BITS + 31
AT_ONCE = 8
# Modelled instructions of eight elements, from sums of 32 bits and from others.
NARROW, WIDE = 20, 42
# Least and largest product of two elements minus their zero points.
PRODUCTS = (np.array([-255 * 255]), np.array([255 * 255]))


def adds_where_rounded_twice(operator: QBinary, target: Target) -> bool:
    """of TensorFlow Lite's differences and LiteRT's sums only those that factors of 32 bits represent are supported"""
    if operator.function == "multiply" or operator.rounding == "onnx" or narrow_sums(operator) is not None:
        return True
    return operator.rounding == "tflite" and operator.function == "add"


def factors_in_range(operator: QBinary, target: Target) -> bool:
    """the larger ratio of input to output scale must be from 2^-16 up to 2^14, and products small enough"""
    if operator.function == "multiply":
        return _product(operator).fits(*PRODUCTS)
    if narrow_sums(operator) is not None:
        return True
    if operator.rounding == "tflite":
        return all(shift >= DOUBLED_BITS for _, shift in qbinary.tflite_factors(operator))
    return LOW_BITS < qbinary.common_shift(operator)[2] <= MOST_SHIFT


def _product(operator: QBinary) -> Rescale:
    return Rescale.of(qbinary.product(operator), *PRODUCTS)


def implement(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    operands = (
        *(Parameter(name=f"input{i}", ctype=C_TYPES[t.dtype], role="input") for i, t in enumerate(operator.inputs)),
        Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
    )
    rows = qbinary.rows_of(operator.output, num_inputs=2)
    return Implementation(
        kernel=QBINARY.name,
        function=CFunction(
            parameters=(*operands, *(ROW_PARAMETERS if rows else ())),
            body=_body(stored, by_rows=rows is not None),
            helpers=_shapes(operator, stored, _members(operator)),
            includes=("tvm_ext_helium_qbinary.h", *LAYER_INCLUDES),
        ),
        reference=lambda inputs: qbinary.reference(operator, inputs),
        macs=operator.output.num_elements if operator.function == "multiply" else 0,
        instructions=-(-operator.output.num_elements // AT_ONCE) * (NARROW if narrow_sums(operator) else WIDE),
        spatial=rows,
        in_place=(0, 1),
        exact=True,
        pitched=True,
        row_pitched=rows is not None,
    )


def _shapes(operator: QBinary | QDivide, stored: StoredRows, function: dict[str, Value]) -> str:
    """Return the layer's shapes for tvm_ext_helium_qbinary.h. function: of a `tvm_ext_helium_qbinary`."""
    first, second = (image(one_image(tensor)) for tensor in operator.inputs)
    output = image(one_image(operator.output), stored=stored)
    members: dict[str, Value] = {"first": first, "second": second, "output": output, "function": function}
    return shapes(LAYER, members)


def _members(operator: QBinary) -> dict[str, Value]:
    """Return a `tvm_ext_helium_qbinary`, without constants that the function does not need."""
    first, second = (quantization(tensor).zero_point for tensor in operator.inputs)
    members: dict[str, Value] = {"first_zero_point": first, "second_zero_point": second}
    narrow = narrow_sums(operator)
    limits: dict[str, Value]
    if narrow is not None:
        limits = {"zero_point": 0, "low": operator.low, "high": operator.high}
        return {
            "is_narrow": True, "start": narrow.start, "first_multiplier": narrow.first,
            "second_multiplier": narrow.second, "shift": -narrow.shift, "rescale": limits,
        }  # fmt: skip
    if operator.function == "multiply":
        finish = _product(operator)
        multiplier, shift = (int(array[0]) for array in finish.factors())
        return {"is_product": True, **members, "multiplier": multiplier, "shift": shift, "rescale": finish.members()}
    zero_point = quantization(operator.output).zero_point
    limits = {"zero_point": zero_point, "low": operator.low, "high": operator.high}
    if operator.rounding == "onnx":
        *factors, total = qbinary.common_shift(operator)
        names = ("first_factor", "second_factor")
        members |= {name: f"INT64_C({factor})" for name, factor in zip(names, factors, strict=True)}
        limits |= {"has_ties": qbinary.has_ties(operator)}
        return {**members, "shift": LOW_BITS - total, "rescale": limits}
    *inputs, (mantissa, shift) = qbinary.tflite_factors(operator)
    for name, (multiplier, amount) in zip(("first", "second"), inputs, strict=True):
        members |= {f"{name}_multiplier": multiplier, f"{name}_shift": DOUBLED_BITS - amount}
    # Halves away from zero are halves up except for negative sums, which a fused ReLU clamps.
    rounds_up = shift > DOUBLED_BITS and operator.low >= zero_point
    limits = {"rounds_twice": True, "rounds_up": rounds_up, **limits}
    return {**members, "multiplier": mantissa, "shift": DOUBLED_BITS - shift, "rescale": limits}


def _body(stored: StoredRows, *, by_rows: bool) -> str:
    """Return a call of the loops of tvm_ext_helium_qbinary.h, over the rows of a call or over all rows."""
    rings, layer = with_rings(LAYER, stored, ("first", "second"))
    rows = "row_begin, row_end" if by_rows else "0, 1"
    return "\n".join([*rings, f"tvm_ext_helium_qbinary_rows({layer}, input0, input1, output, {rows});"])


QBINARY = Kernel(
    name="qbinary_helium",
    title="Quantized add, subtract and multiply of tensors of one shape",
    operator=QBinary,
    implement=implement,
    constraints=(adds_where_rounded_twice, *qbinary.QBINARY.constraints, factors_in_range),
)


# The same with broadcasting: runs of elements along which each input is whole or has one element.


def runs_are_long(operator: QBinary | QDivide | Extreme, target: Target) -> bool:
    """along the last axes each input must have all elements of at least four results, or one element"""
    return _runs(operator).length >= LEAST_RUN


LEAST_RUN = 4
RUN_INSTRUCTIONS = 12


@dataclass(frozen=True, kw_only=True)
class _Runs:
    """Runs of `length` elements over the last `axes`. steps: 1 for an input with all elements of a run, else 0."""

    shapes: tuple[tuple[int, ...], ...]
    rows: Spatial | None
    axes: int
    length: int
    steps: tuple[int, int]


def _runs(operator: QBinary | QDivide | Extreme) -> _Runs:
    output = operator.output.shape
    shapes = (*(qbinary.padded(tensor, output) for tensor in operator.inputs), output)
    rows = qbinary.broadcast_rows(operator)
    axes = qbinary.shared_run(shapes, 2 if rows else 0)
    first, second = (int(axes > 0 and shape[-axes:] == output[-axes:]) for shape in shapes[:2])
    length = prod(output[-axes:]) if axes else 1
    return _Runs(shapes=shapes, rows=rows, axes=axes, length=length, steps=(first, second))


def qbroadcast_implement(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    made = replace(qbinary.QBROADCAST.implement(operator, target, stored), kernel=QBROADCAST.name)
    return _in_runs(operator, made, stored, _members(operator), NARROW if narrow_sums(operator) else WIDE)


def _in_runs(
    operator: QBinary | QDivide, made: Implementation, stored: StoredRows, members: dict[str, Value], instructions: int
) -> Implementation:
    """Return a portable implementation with the runs of tvm_ext_helium_qbinary.h in place of its loops.

    members: of a `tvm_ext_helium_qbinary`. instructions: modelled, of eight elements.
    """
    runs, types = _runs(operator), [C_TYPES[tensor.dtype] for tensor in (*operator.inputs, operator.output)]
    table = [parameter.name for parameter in made.function.parameters if parameter.role == "constant"]
    copied = [f"{LAYER} layer = $_layer;", *(f"layer.function.{name} = {name};" for name in table)] if table else []

    def run(first: str, second: str, output: str) -> str:
        given = f"&{first}, {runs.steps[0]}, &{second}, {runs.steps[1]}, &{output}, {runs.length}"
        return f"tvm_ext_helium_qbinary_run(&{'layer' if table else '$_layer'}, {given});"

    by_rows = runs.rows is not None
    loops = qbinary.broadcast_body(runs.shapes, types, stored, run, by_rows=by_rows, run_axes=runs.axes)
    function = replace(
        made.function, body="\n".join([*copied, loops]), helpers=_shapes(operator, StoredRows(), members),
        includes=("tvm_ext_helium_qbinary.h", *LAYER_INCLUDES),
    )  # fmt: skip
    count = operator.output.num_elements // runs.length
    total = count * (-(-runs.length // AT_ONCE) * instructions + RUN_INSTRUCTIONS)
    return replace(made, function=function, instructions=total)


QBROADCAST = Kernel(
    name="qbroadcast_helium",
    title="Quantized add, subtract and multiply with broadcasting",
    operator=QBinary,
    implement=qbroadcast_implement,
    constraints=(adds_where_rounded_twice, *qbinary.QBROADCAST.constraints, factors_in_range, runs_are_long),
)


# Quotients of two quantized tensors with Helium: the table of reciprocals of the portable kernel, gathered.


def qdivide_implement(operator: QDivide, target: Target, stored: StoredRows) -> Implementation:
    made = replace(qdivide.KERNEL.implement(operator, target, stored), kernel=QDIVIDE.name)
    dividend, divisor = operator.inputs
    members: dict[str, Value] = {
        "start": qdivide.start(operator), "first_zero_point": quantization(dividend).zero_point,
        "second_zero_point": int(np.iinfo(divisor.dtype).min), "shift": -qdivide.SHIFT,
        "rescale": {"zero_point": 0, "low": operator.low, "high": operator.high},
    }  # fmt: skip
    return _in_runs(operator, made, stored, members, QUOTIENTS)


QUOTIENTS = 28
"""Modelled instructions of eight quotients."""

QDIVIDE = Kernel(
    name="qdivide_helium",
    title="Quotient of two quantized tensors, by a table of reciprocals",
    operator=QDivide,
    implement=qdivide_implement,
    constraints=(*qdivide.KERNEL.constraints, runs_are_long),
)


# Larger or smaller of two integer tensors with Helium: 16 elements at a time, with broadcasting.
#
# int8[...], int8[...] -> int8[...], or uint8. There is no arithmetic: a network of integers brings both tensors to one
# scale first.

EXTREMES, EXTREMES_RUN = 6, 8
"""Modelled instructions of 16 results, and of a run."""


def are_bytes(operator: Extreme, target: Target) -> bool:
    """elements must be int8 or uint8"""
    return operator.output.dtype in ("int8", "uint8")


def extreme_reference(operator: Extreme, inputs: list[Array]) -> list[Array]:
    """The operator in numpy, bit for bit."""
    return [(np.maximum if operator.is_larger else np.minimum)(inputs[0], inputs[1])]


def extreme_implement(operator: Extreme, target: Target, stored: StoredRows) -> Implementation:
    runs, ctype = _runs(operator), C_TYPES[operator.output.dtype]
    kind = ", ".join("true" if flag else "false" for flag in (operator.is_larger, operator.output.dtype == "uint8"))

    def run(first: str, second: str, output: str) -> str:
        given = f"&{first}, {runs.steps[0]}, &{second}, {runs.steps[1]}, &{output}, {runs.length}"
        return f"tvm_ext_helium_extreme_run({kind}, {given});"

    by_rows, num_runs = runs.rows is not None, operator.output.num_elements // runs.length
    names = ("input0", "input1", "output")
    return Implementation(
        kernel=EXTREME.name,
        function=CFunction(
            parameters=(
                *(Parameter(name=n, ctype=ctype, role="output" if n == "output" else "input") for n in names),
                *(ROW_PARAMETERS if by_rows else ()),
            ),
            body=qbinary.broadcast_body(runs.shapes, [ctype] * 3, stored, run, by_rows=by_rows, run_axes=runs.axes),
            includes=("tvm_ext_helium_qbinary.h", *LAYER_INCLUDES),
        ),
        reference=lambda inputs: extreme_reference(operator, inputs),
        instructions=num_runs * (-(-runs.length // 16) * EXTREMES + EXTREMES_RUN),
        spatial=runs.rows,
        in_place=tuple(index for index, shape in enumerate(runs.shapes[:2]) if shape == runs.shapes[2]),
        exact=True,
    )


EXTREME = Kernel(
    name="extreme_helium",
    title="Larger or smaller of two integer tensors of 8 bits",
    operator=Extreme,
    implement=extreme_implement,
    constraints=(are_bytes, qbinary.repeats_to_output, runs_are_long),
)


# Any function of one quantized tensor with Helium: 16 results at a time from the portable kernel's table.


def qunary_implement(operator: QUnary, target: Target, stored: StoredRows) -> Implementation:
    made = qunary.KERNEL.implement(operator, target, stored)
    function = replace(
        made.function,
        body=made.function.body.replace("tvm_ext_qunary(", "tvm_ext_helium_qunary("),
        includes=(
            "tvm_ext_helium_qunary.h", "tvm_ext_helium.h", "tvm_ext_helium_plain.h", "tvm_ext_requantize.h",
            *made.function.includes,
        ),
    )  # fmt: skip
    return replace(made, kernel=QUNARY.name, function=function, instructions=_instructions(operator))


def _instructions(operator: QUnary) -> int:
    """Return the modelled instructions: a load, a gather, a store and the loop for 16 elements, for each row."""
    kind = one_image(operator.output)
    rows, length = kind.shape[1], kind.num_elements // kind.shape[1]
    return rows * (-(-length // 16) * 4 + 6)


QUNARY = Kernel(
    name="qunary_helium",
    title="Function of one 8-bit quantized tensor, by a table of 256 results",
    operator=QUnary,
    implement=qunary_implement,
    constraints=qunary.KERNEL.constraints,
)


# PReLU of a quantized tensor with Helium: eight elements at a time, the bytes of the portable kernel.

EIGHT_PRELU, PRELU_ROW = 24, 6
"""Modelled instructions of eight elements, and of a run of slopes."""


def prelu_implement(operator: QPrelu, target: Target, stored: StoredRows) -> Implementation:
    made, fixed = qprelu.KERNEL.implement(operator, target, stored), qprelu.FixedPrelu.of(operator)
    source, period = operator.inputs[0], fixed.below.size
    repeats = operator.output.num_elements // period
    members: dict[str, Value] = {
        "repeats": repeats, "period": period, "is_unsigned": source.dtype == "uint8",
        "zero_point": quantization(source).zero_point, "above": fixed.above, "start": fixed.start,
        "shift": fixed.shift, "low": operator.low, "high": operator.high,
    }  # fmt: skip
    layer = structure("tvm_ext_helium_prelu_layer", "layer", members)
    function = replace(
        made.function, body="\n".join([*layer, "tvm_ext_helium_prelu(&layer, input, output, slopes);"]),
        includes=(
            "tvm_ext_helium_qunary.h", "tvm_ext_helium.h", "tvm_ext_helium_plain.h", "tvm_ext_qunary.h",
            *LAYER_INCLUDES,
        ),
    )  # fmt: skip
    total = repeats * (-(-period // AT_ONCE) * EIGHT_PRELU + PRELU_ROW)
    return replace(made, kernel=PRELU.name, function=function, instructions=total, ascends=repeats == 1)


def slopes_are_several(operator: QPrelu, target: Target) -> bool:
    """there must be at least four slopes"""
    return qprelu.FixedPrelu.of(operator).below.size >= LEAST_RUN


PRELU = Kernel(
    name="qprelu_helium",
    title="PReLU of a quantized tensor with a slope for each channel",
    operator=QPrelu,
    implement=prelu_implement,
    constraints=(*qprelu.KERNEL.constraints, slopes_are_several),
)


# Transposed matrices of bytes with Helium: elements of one side are adjacent, those of the other scattered or gathered.
#
# int8 or uint8[1, C, H, W] -> [1, H, W, C], or a part of them, row by row: the first step of a model whose images come
# as planes. Any other permutation that transposes a matrix, or each of several: an image to planes, rows of tokens.

PERMUTE_LAYER = "tvm_ext_helium_permute_layer"
# Bytes from an element to the next on the side with offsets: of 16 elements with offsets of 8 bits, of eight of 16.
NEAR_BYTES, FAR_BYTES = 17, 9362
# Modelled instructions: of a vector, of a run of them, of a matrix.
VECTOR, RUN, MATRIX = 4, 9, 4


@dataclass(frozen=True, kw_only=True)
class Transposed:
    """Output [rows, columns, channels] whose columns are adjacent in the input.

    row, plane: elements of the input from a row, and from a channel, to the next.
    """

    rows: int
    columns: int
    channels: int
    row: int
    plane: int

    @classmethod
    def of(cls, operator: Permute) -> Transposed | None:
        """Return the matrices, or None for permutations that transpose none."""
        extents = zip(operator.output.shape, permute.strides_of(operator), strict=True)
        axes: list[tuple[int, int]] = []
        for extent, stride in ((extent, stride) for extent, stride in extents if extent > 1):
            if axes and axes[-1][1] == extent * stride:
                extent *= axes.pop()[0]  # both axes are one
            axes.append((extent, stride))
        rows, columns, channels = ((1, 0), *axes)[-3:] if len(axes) in (2, 3) else ((1, 0),) * 3
        if columns[1] != 1:
            return None
        return cls(rows=rows[0], columns=columns[0], channels=channels[0], row=rows[1], plane=channels[1])

    @property
    def gathers(self) -> bool:
        """True if it takes fewer instructions to gather the channels of each pixel than to scatter each plane."""
        return self._gathered < self._scattered

    @property
    def _gathered(self) -> float:
        return self._runs(self.columns, self.channels, self.plane)

    @property
    def _scattered(self) -> float:
        return self._runs(self.channels, self.columns, self.channels)

    @property
    def instructions(self) -> float:
        """Modelled instructions; without limit if elements are too far apart."""
        return self.rows * (MATRIX + min(self._gathered, self._scattered))

    def _runs(self, runs: int, count: int, distance: int) -> float:
        """Return the modelled instructions of `runs` runs of `count` elements that are `distance` bytes apart."""
        if distance > FAR_BYTES:
            return inf
        return runs * (RUN + -(-count // (16 if distance <= NEAR_BYTES else 8)) * VECTOR)


def _is_by_rows(operator: Permute) -> bool:
    """Return True if rows of a channels-last image are computed one by one, as by the portable kernel."""
    return operator.axes == permute.CHANNELS_LAST and operator.inputs[0].shape[0] == 1


def transposes_bytes(operator: Permute, target: Target) -> bool:
    """elements must be bytes, and the permutation must transpose a matrix, or each matrix along the first axis"""
    found = Transposed.of(operator)
    return np.dtype(operator.output.dtype).itemsize == 1 and found is not None and found.instructions < inf


def permute_implement(operator: Permute, target: Target, stored: StoredRows) -> Implementation:
    found, made = Transposed.of(operator), permute.KERNEL.implement(operator, target, stored)
    assert found is not None, "the constraint has found matrices"
    by_rows = _is_by_rows(operator)
    whole = replace(operator.output, shape=(1, found.rows, found.columns, found.channels))
    members: dict[str, Value] = {
        "output": image(operator.output if by_rows else whole), "first": permute.origin_of(operator),
        "row": permute.strides_of(operator)[1] if by_rows else found.row, "plane": found.plane,
        **({"gathers": True} if found.gathers else {}),
    }  # fmt: skip
    rings, layer = with_rings(PERMUTE_LAYER, stored, inputs=())
    rows = "row_begin, row_end" if by_rows else f"0, {found.rows}"
    function = replace(
        made.function,
        body="\n".join([*rings, f"tvm_ext_helium_permute({layer}, input, output, {rows});"]),
        helpers=shapes(PERMUTE_LAYER, members),
        includes=("tvm_ext_helium_permute.h", "tvm_ext_layer.h", *INCLUDES),
    )
    return replace(made, kernel=PERMUTE.name, function=function, instructions=int(found.instructions))


PERMUTE = Kernel(
    name="permute_helium",
    title="Permutation of bytes that transposes matrices, as between planes and channels-last images",
    operator=Permute,
    implement=permute_implement,
    constraints=(transposes_bytes,),
)


# Interpolation of quantized images with Helium: weighted sums of four channels at a time.
#
# int8 or uint8[N, H, W, C] -> int8 or uint8[N, P, Q, C], as qinterpolate.py.

INTERPOLATION = qinterpolate.InterpolationLoops(
    add="tvm_ext_helium_qinterpolate_add", finish="tvm_ext_helium_qinterpolate_finish",
    includes=("tvm_ext_helium_qinterpolate.h", *qinterpolate.INCLUDES, *INCLUDES[1:]), at_once=4, row=2, column=2,
    kept=3, finished=11,
)  # fmt: skip


def interpolate_implement(operator: QInterpolate, target: Target, stored: StoredRows) -> Implementation:
    return qinterpolate.implement_by(INTERPOLATION, QINTERPOLATE.name, operator, stored)


QINTERPOLATE = Kernel(
    name="qinterpolate_helium",
    title="Interpolation of quantized images, four channels at a time",
    operator=QInterpolate,
    implement=interpolate_implement,
    constraints=qinterpolate.KERNEL.constraints,
)


KERNELS = (QBINARY, QBROADCAST, QDIVIDE, EXTREME, QUNARY, PRELU, PERMUTE, QINTERPOLATE)
