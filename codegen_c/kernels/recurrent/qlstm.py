"""LSTM of TensorFlow Lite on integers: a loop over time around two dense kernels, whichever are cheapest.

int8[T, B, C] with a hidden state int8[B, H] and a cell int16[B, H] -> int8[T, B, H]. In each step the products of the
input and of the hidden state are summed in int32 by integer dense kernels of the target, 4 H sums each; then
tvm_ext_qlstm.h computes gates, cell and output with TensorFlow Lite's two roundings. The code does not grow with T.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, loop
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.recurrent.parts import StepPart, have_kernels
from codegen_c.kernels.shared.layer import shapes
from codegen_c.kernels.shared.product_kernel import SCRATCH
from codegen_c.kernels.shared.requantize_tflite import multiply
from codegen_c.operators.kinds import LSTM_GATES, Array, QDense, QLstm, Quantization, TensorType
from tvm_ext.core.alignment import aligned

LAYER = "tvm_ext_lstm_layer"
INCLUDES = ("tvm_ext_qlstm.h", "tvm_ext_layer.h", "tvm_ext_requantize.h", "tvm_ext_requantize_tflite.h")
MOST_SUM = 1 << 30
_GATE_POWER = 12
_INPUT, _FORGET, _CELL, _OUTPUT = range(LSTM_GATES)


def sums_leave_room(operator: QLstm, target: Target) -> bool:
    """sums of products must stay below 2^30, whatever the input"""
    return all(abs(bound).max() < MOST_SUM for layer in layers(operator) for bound in qdense.bounds(layer))


def sums_have_a_kernel(operator: QLstm, target: Target) -> bool:
    """an integer kernel must take its products: sums of at most 32 bits"""
    return have_kernels(layers(operator), target)


def layers(operator: QLstm) -> tuple[QDense, QDense]:
    """The dense layers that sum the products of one input and of one hidden state: 4 H sums in int32 each."""
    of_input, of_hidden = operator.zero_points
    return (
        dense_sums(operator.input_weight, operator.bias, of_input),
        dense_sums(operator.hidden_weight, np.zeros_like(operator.bias), of_hidden),
    )


def dense_sums(weight: Array, bias: Array, zero_point: int) -> QDense:
    """Return the dense layer that sums products of an int8 vector with a zero point in int32, below 2^30."""
    sums, depth = (int(extent) for extent in weight.shape)
    unit = Quantization(scale=1.0, zero_point=0)
    return QDense(
        inputs=(TensorType(shape=(1, depth), dtype="int8", quantization=replace(unit, zero_point=zero_point)),),
        outputs=(TensorType(shape=(1, sums), dtype="int32", quantization=unit),),
        weight=weight, weight_scale=np.ones(sums, np.float32), bias=bias, low=-MOST_SUM, high=MOST_SUM,
    )  # fmt: skip


def reference(operator: QLstm, inputs: list[Array]) -> list[Array]:
    """The operator in numpy, bit for bit."""
    hidden, cell, sequence = inputs
    outputs: list[Array] = []
    for row in sequence:
        hidden, cell = _step(operator, hidden, cell, row)
        outputs.append(hidden)
    return [hidden, cell, np.stack(outputs)]


def _step(operator: QLstm, hidden: Array, cell: Array, row: Array) -> tuple[Array, Array]:
    of_input, of_hidden = (
        ((values.astype(np.int64) - zero_point) @ weight.astype(np.int64).T + bias)
        for values, zero_point, weight, bias in (
            (row, operator.zero_points[0], operator.input_weight, operator.bias),
            (hidden, operator.zero_points[1], operator.hidden_weight, 0),
        )
    )
    units = operator.hidden_weight.shape[1]
    gates = [
        _saturated(sum(
            _saturated(multiply(sums[:, gate * units : (gate + 1) * units], *operator.factors[gate + first]))
            for sums, first in ((of_input, 0), (of_hidden, LSTM_GATES))
        ))
        for gate in range(LSTM_GATES)
    ]  # fmt: skip
    forget, update, output = operator.factors[2 * LSTM_GATES :]
    kept = multiply(_sigmoid(operator, gates[_FORGET]) * cell.astype(np.int64), *forget)
    added = multiply(_sigmoid(operator, gates[_INPUT]) * _tanh(operator, 3 * gates[_CELL]), *update)
    following = _saturated(_saturated(kept) + _saturated(added))
    if operator.clip:
        following = np.clip(following, -operator.clip, operator.clip)
    left, right = _cell_shifts(operator)
    steps = (following * (3 << left) + ((1 << right) >> 1)) >> right
    let_out = multiply(_tanh(operator, steps) * _sigmoid(operator, gates[_OUTPUT]), *output)
    result = np.clip(let_out + operator.zero_points[1], -128, 127)
    return result.astype(np.int8), following.astype(np.int16)


def _saturated(values: Array | int) -> Array:
    return np.clip(values, -32768, 32767)


def _line(operator: QLstm, size: Array, bits: int) -> Array:
    """Values between two entries of the table, times 2^bits."""
    index = np.minimum(size >> bits, 254)
    low, high = (operator.table[index + step].astype(np.int64) for step in (0, 1))
    return (low << bits) + (size & ((1 << bits) - 1)) * (high - low)


def _sigmoid(operator: QLstm, x: Array) -> Array:
    """int64 in units of 2^-15 of units of 2^-12."""
    line = _line(operator, np.abs(3 * x), 9)
    return np.where(x >= 0, line + (1 << 9), (1 << 25) - line + (1 << 9) - 1) >> 10


def _tanh(operator: QLstm, steps: Array) -> Array:
    """int64 in units of 2^-15 of units of 2^-12 / 3: 2 sigmoid(2 x) - 1."""
    size = np.abs(steps)
    line = np.where((size >> 8) >= 255, 0xFFFF << 8, _line(operator, size, 8))
    return np.where(steps >= 0, line - (1 << 23) + (1 << 7), (1 << 23) - line + (1 << 7) - 1) >> 8


def _cell_shifts(operator: QLstm) -> tuple[int, int]:
    """Shifts to the left and to the right that bring 3 times the units of the cell to steps of 2^-12 / 3."""
    power = operator.cell_power + _GATE_POWER
    return max(power, 0), max(-power, 0)


@dataclass(frozen=True, kw_only=True)
class LstmGates:
    """Kernels whose steps compute gates, cell and output by one C function, with the parameters of `tvm_ext_lstm_step`.

    lanes: units that it computes at a time. instructions: modelled, of these units in one step, without the sums of
    their gates. read_after: bytes after the sums that it may read. table: returns the table of the sigmoid as the
    function reads it, from that of the operator.
    """

    kernel: str
    function: str
    includes: tuple[str, ...] = ()
    lanes: int = 1
    instructions: int
    read_after: int = 0
    table: Callable[[Array], Array] = lambda table: table

    def implement(self, operator: QLstm, target: Target, stored: StoredRows) -> Implementation:
        return _implement(operator, target, self)


PORTABLE = LstmGates(kernel="qlstm", function="tvm_ext_lstm_step", instructions=260)


def _implement(operator: QLstm, target: Target, gates: LstmGates) -> Implementation:
    parts = [
        StepPart.of(layer, target, prefix) for layer, prefix in zip(layers(operator), ("input", "hidden"), strict=True)
    ]
    steps, batch, channels = operator.inputs[2].shape
    units = operator.inputs[0].shape[1]
    runs, table = steps * batch, gates.table(operator.table)
    sums_bytes = 2 * aligned(4 * LSTM_GATES * units)
    return Implementation(
        kernel=gates.kernel,
        function=_function(operator, parts, sums_bytes, gates),
        reference=lambda inputs: reference(operator, inputs),
        constants=(*(constant for part in parts for constant in part.constants()), ("table", table)),
        scratch_bytes=sums_bytes + max(gates.read_after, *(part.made.scratch_bytes for part in parts)),
        macs=runs * LSTM_GATES * units * (channels + units),
        instructions=runs
        * (sum(part.made.instructions for part in parts) + -(-units // gates.lanes) * gates.instructions),
        passes=Passes(constants=runs, input=1.0, scratch=2.0 * runs),
        accumulation="exact",
        next_states=((0, 0), (1, 1)),
        exact=True,
    )


def _function(operator: QLstm, parts: list[StepPart], sums_bytes: int, gates: LstmGates) -> CFunction:
    """The loop over time, and over the sequences of a batch."""
    steps, batch, channels = operator.inputs[2].shape
    units = operator.inputs[0].shape[1]
    kinds = [C_TYPES[kind.dtype] for kind in operator.inputs]
    sources, results = ("hidden", "cell", "input"), ("next_hidden", "next_cell", "output")
    activations = (
        *(Parameter(name=name, ctype=ctype, role="input") for name, ctype in zip(sources, kinds, strict=True)),
        *(Parameter(name=name, ctype=ctype, role="output") for name, ctype in zip(results, kinds, strict=True)),
    )
    of_input, of_hidden = parts
    inner = f"&scratch[{sums_bytes}]"
    sequence, state = ("t", "") if batch == 1 else (f"((t * {batch}) + b)", f"[b * {units}]")
    step = [
        f"int8_t *const h = {f'&next_hidden{state}' if state else 'next_hidden'};",
        of_input.call([f"&input[{sequence} * {channels}]"], "sums", inner),
        of_hidden.call(["h"], f"&sums[{sums_bytes // 8}]", inner),
        f"{gates.function}(&$_layer, sums, &sums[{sums_bytes // 8}], "
        f"{f'&next_cell{state}' if state else 'next_cell'}, h, table);",
        f"memcpy(&output[{sequence} * {units}], h, {units});",
    ]
    body = [
        "int32_t *const sums = (int32_t *)(void *)scratch;",
        f"memmove(next_hidden, hidden, {batch * units});",
        f"memmove(next_cell, cell, {2 * batch * units});",
        *loop("t", steps, step if batch == 1 else loop("b", batch, step)),
    ]
    includes = [name for part in parts for name in part.made.function.includes]
    return CFunction(
        parameters=(
            *activations, *(own for part in parts for own in part.parameters()),
            Parameter(name="table", ctype=C_TYPES[gates.table(operator.table).dtype.name], role="constant"), SCRATCH,
        ),
        body="\n".join(body),
        helpers="\n".join([*(part.definition() for part in parts), _shapes(operator)]),
        includes=tuple(dict.fromkeys([*includes, *gates.includes, *INCLUDES])),
    )  # fmt: skip


def _shapes(operator: QLstm) -> str:
    """Definition of `$_layer`, a `tvm_ext_lstm_layer`."""
    factors = [f"{{{mantissa}, {shift}}}" for mantissa, shift in operator.factors]
    left, right = _cell_shifts(operator)
    members: dict[str, Value] = {
        "units": operator.inputs[0].shape[1],
        "input": f"{{{', '.join(factors[:LSTM_GATES])}}}",
        "hidden": f"{{{', '.join(factors[LSTM_GATES : 2 * LSTM_GATES])}}}",
        **dict(zip(("forget", "update", "output"), factors[2 * LSTM_GATES :], strict=True)),
        "zero_point": operator.zero_points[1], "cell_left": left, "cell_right": right, "clip": operator.clip,
    }  # fmt: skip
    return shapes(LAYER, members)


KERNEL = Kernel(
    name=PORTABLE.kernel,
    title="Quantized LSTM of TensorFlow Lite: a loop over the steps that calls kernels of dense layers",
    operator=QLstm,
    implement=PORTABLE.implement,
    constraints=(sums_leave_room, sums_have_a_kernel),
)
