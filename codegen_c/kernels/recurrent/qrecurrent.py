"""LSTM, GRU and RNN layers on integers: a loop over time around integer dense kernels of the target.

int8[T, B, C] with the states of `RECURRENT_CELLS` -> next states, and int8[T, B, H]. Each step copies its input beside
the int8 hidden state, so that one dense kernel sums both products of a gate in int32. tvm_ext_recurrent.h then computes
gates and states with one rounding for each result. The code and the constants do not grow with T.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, loop
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.recurrent.parts import StepPart, have_kernels
from codegen_c.kernels.shared.layer import shapes
from codegen_c.kernels.shared.product_kernel import SCRATCH
from codegen_c.operators.kinds import Array, QDense, QRecurrent, Quantization, TensorType
from tvm_ext.core.alignment import aligned
from tvm_ext.core.recurrent_cells import RECURRENT_CELLS, TABLE_BITS, TANH_POWER, UNIT_POWER, RecurrentCell

LAYER = "tvm_ext_recurrent_layer"
INCLUDES = ("tvm_ext_recurrent.h", "tvm_ext_layer.h", "tvm_ext_requantize.h")
_ONE = 1 << UNIT_POWER


def sums_leave_room(operator: QRecurrent, target: Target) -> bool:
    """sums of products, scaled by a power of two, must fit int32, whatever the input"""
    most = 1 << (31 - operator.layer.left)
    return all(abs(bound).max() < most for layer in _layers(operator) for bound in qdense.bounds(layer))


def sums_have_a_kernel(operator: QRecurrent, target: Target) -> bool:
    """an integer kernel must take its products: sums of at most 32 bits"""
    return have_kernels(_layers(operator), target)


def _layers(operator: QRecurrent) -> list[QDense]:
    """Return the dense layers that sum the products of the cell in int32. Zero points are in their biases."""
    return [_dense(weight, bias) for weight, bias in zip(operator.weights, operator.biases, strict=True)]


def _dense(weight: Array, bias: Array) -> QDense:
    sums, depth = (int(extent) for extent in weight.shape)
    unit = Quantization(scale=1.0, zero_point=0)
    return QDense(
        inputs=(TensorType(shape=(1, depth), dtype="int8", quantization=unit),),
        outputs=(TensorType(shape=(1, sums), dtype="int32", quantization=unit),),
        weight=weight, weight_scale=np.ones(sums, np.float32), bias=bias, low=-(1 << 31), high=(1 << 31) - 1,
    )  # fmt: skip


def _cell(operator: QRecurrent) -> RecurrentCell:
    return RECURRENT_CELLS[operator.layer.cell]


# The operator in numpy, bit for bit, on int64 arrays of one sequence.


def reference(operator: QRecurrent, inputs: list[Array]) -> list[Array]:
    """The operator in numpy, bit for bit."""
    *given, sequence = inputs
    known = iter(given)
    states = [np.array(next(known) if array is None else array) for array in operator.initial]
    outputs = np.empty(operator.hidden_states.shape, np.int8)
    steps = range(len(sequence))
    for b in range(sequence.shape[1]):
        own = [state[b].astype(np.int64) for state in states]
        for t in reversed(steps) if operator.layer.is_backward else steps:
            *own, hidden = _step(operator, own, sequence[t, b].astype(np.int64))
            outputs[t, b] = hidden
        for state, value in zip(states, own, strict=True):
            state[b] = value
    return [*states, outputs]


def _step(operator: QRecurrent, states: list[Array], x: Array) -> list[Array]:
    """Return the next states of one sequence, and its int8 hidden state."""
    layer, cell, units = operator.layer, _cell(operator), operator.units
    hidden = _hidden(operator, states[0]) if cell.states[0] == "int16" else states[0]

    def products(index: int, hidden: Array) -> list[Array]:
        """Return gates of product `index` ahead of their functions."""
        reads = cell.products[index].reads
        read = {"input": x, "hidden": hidden, "both": np.concatenate([x, hidden])}[reads]
        sums = operator.weights[index].astype(np.int64) @ read + operator.biases[index]
        first = sum(len(weight) for weight in operator.weights[:index])
        multiplier = operator.multiplier[first : first + len(sums)].astype(np.int64)
        gates = _saturated((((sums << layer.left) * multiplier) + (1 << 31)) >> 32)
        return [gates[begin : begin + units] for begin in range(0, len(gates), units)]

    def sigmoid(gate: Array) -> Array:
        index, rest = (gate >> TABLE_BITS) + 128, gate & 255
        low, high = (operator.table[index + step].astype(np.int64) for step in (0, 1))
        return low + (((high - low) * rest) >> TABLE_BITS)

    def tanh(gate: Array) -> Array:
        return 2 * sigmoid(gate) - _ONE

    def blended(z: Array, candidate: Array) -> list[Array]:
        other = _shifted(candidate, UNIT_POWER - layer.state_power)
        following = _shifted(z * states[0] + (_ONE - z) * other, UNIT_POWER)
        return [following, _hidden(operator, following)]

    match layer.cell:
        case "lstm":
            i, o, f, c = products(0, hidden)
            added = (sigmoid(i) * tanh(c)) >> (UNIT_POWER - layer.state_power)
            following = _saturated(_shifted(sigmoid(f) * states[1] + added, UNIT_POWER))
            if layer.limit:
                following = np.clip(following, -layer.limit, layer.limit)
            distance = layer.state_power - TANH_POWER
            scaled = _shifted(following, distance) if distance > 0 else _saturated(following << -distance)
            result = _hidden(operator, _shifted(sigmoid(o) * tanh(scaled), UNIT_POWER))
            return [result, following, result]
        case "gru":
            z, r = products(0, hidden)
            total = products(1, hidden)[0] + _shifted(sigmoid(r) * products(2, hidden)[0], UNIT_POWER)
            return blended(sigmoid(z), tanh(_saturated(2 * total)))
        case "gru_resets_first":
            z, r = products(0, hidden)
            reset = _hidden(operator, _shifted(sigmoid(r) * states[0], UNIT_POWER))
            return blended(sigmoid(z), tanh(products(1, reset)[0]))
        case "rnn_tanh":
            result = _hidden(operator, tanh(products(0, hidden)[0]))
        case _:
            result = np.clip(products(0, hidden)[0] + layer.zero_point, _low(operator), 127)
    return [result, result]


def _hidden(operator: QRecurrent, value: Array) -> Array:
    multiplier, shift = operator.layer.hidden_factor
    return np.clip(_shifted(value * multiplier, shift) + operator.layer.zero_point, _low(operator), 127)


def _low(operator: QRecurrent) -> int:
    """Least hidden state: an RNN with relu has none below zero."""
    return operator.layer.zero_point if operator.layer.cell == "rnn_relu" else -128


def _saturated(values: Array) -> Array:
    return np.clip(values, -32768, 32767)


def _shifted(values: Array, shift: int) -> Array:
    """Values / 2^shift, rounded, halves up."""
    return (values + ((1 << shift) >> 1)) >> shift


# The operator in C.


@dataclass(frozen=True, kw_only=True)
class RecurrentGates:
    """Kernels whose steps compute gates and states by C functions `<functions>_<cell>`, as in tvm_ext_recurrent.h.

    lanes: units that they compute at a time, of whose sums and multipliers they may read all. instructions: modelled,
    of these units in one step, by cell, without the sums of their gates.
    """

    kernel: str
    functions: str
    includes: tuple[str, ...] = ()
    lanes: int = 1
    instructions: Mapping[str, int]

    def implement(self, operator: QRecurrent, target: Target, stored: StoredRows) -> Implementation:
        return _implement(operator, target, self)


PORTABLE = RecurrentGates(
    kernel="qrecurrent", functions="tvm_ext_recurrent",
    instructions={"lstm": 95, "gru": 75, "gru_resets_first": 85, "rnn_tanh": 30, "rnn_relu": 15},
)  # fmt: skip


def _implement(operator: QRecurrent, target: Target, gates: RecurrentGates) -> Implementation:
    parts = [StepPart.of(layer, target, f"product_{k}") for k, layer in enumerate(_layers(operator))]
    names, (steps, batch, channels) = _names(operator), operator.inputs[-1].shape
    begins = [(f"initial_{n}", a) for n, a in zip(names, operator.initial, strict=True) if _is_stored(a)]
    groups, after = -(-operator.units // gates.lanes), -operator.units % gates.lanes
    runs, own = steps * batch, [("multiplier", np.pad(operator.multiplier, (0, after)))]
    own += [("table", operator.table)] if _reads_table(operator) else []
    return Implementation(
        kernel=gates.kernel,
        function=_function(operator, parts, gates),
        reference=lambda inputs: reference(operator, inputs),
        constants=(*(constant for part in parts for constant in part.constants()), *own, *begins),
        scratch_bytes=_parts_begin(operator) + max(4 * after, *(part.made.scratch_bytes for part in parts)),
        macs=runs * sum(weight.size for weight in operator.weights),
        instructions=runs
        * (
            sum(part.made.instructions for part in parts)
            + groups * gates.instructions[operator.layer.cell]
            + channels
            + operator.units
        ),
        passes=Passes(constants=runs, input=1.0, scratch=2.0 * runs),
        accumulation="exact",
        next_states=tuple(enumerate(index for index, array in enumerate(operator.initial) if array is None)),
        exact=True,
    )


def _names(operator: QRecurrent) -> tuple[str, ...]:
    return ("hidden", "cell")[: len(operator.initial)]


def _reads_table(operator: QRecurrent) -> bool:
    """True for cells with a sigmoid or a tanh."""
    return operator.layer.cell != "rnn_relu"


def _is_stored(initial: Array | None) -> TypeGuard[Array]:
    """True for an initial state that needs a constant: one number in all units is written by the code."""
    return initial is not None and bool(np.any(initial != initial.reshape(-1)[0]))


def _row_bytes(operator: QRecurrent) -> int:
    """Bytes of a sequence's input and hidden state side by side."""
    return aligned(operator.inputs[-1].shape[2] + operator.units, 4)


def _sums_begin(operator: QRecurrent) -> int:
    """Offset in scratch of the sums."""
    return aligned(operator.inputs[-1].shape[1] * _row_bytes(operator))


def _parts_begin(operator: QRecurrent) -> int:
    """Offset in scratch of the bytes that belong to the dense kernels."""
    return _sums_begin(operator) + aligned(4 * operator.multiplier.size)


def _function(operator: QRecurrent, parts: Sequence[StepPart], gates: RecurrentGates) -> CFunction:
    """Return the loop over time, and over the sequences of a batch."""
    names, kinds = _names(operator), [C_TYPES[kind] for kind in _cell(operator).states]
    states = list(zip(names, kinds, operator.initial, strict=True))
    activations = (
        *(Parameter(name=f"initial_{name}", ctype=kind, role="input") for name, kind, array in states if array is None),
        Parameter(name="input", ctype="int8_t", role="input"),
        *(Parameter(name=f"next_{name}", ctype=kind, role="output") for name, kind, _ in states),
        Parameter(name="output", ctype="int8_t", role="output"),
    )
    constants = (
        *(own for part in parts for own in part.parameters()),
        Parameter(name="multiplier", ctype="int32_t", role="constant"),
        *([Parameter(name="table", ctype="int16_t", role="constant")] if _reads_table(operator) else []),
        *(Parameter(name=f"initial_{n}", ctype=kind, role="constant") for n, kind, a in states if _is_stored(a)),
    )
    includes = [name for part in parts for name in part.made.function.includes]
    return CFunction(
        parameters=(*activations, *constants, SCRATCH),
        body="\n".join(_body(operator, parts, gates)),
        helpers="\n".join([*(part.definition() for part in parts), _shapes(operator)]),
        includes=tuple(dict.fromkeys([*includes, *gates.includes, *INCLUDES])),
    )


def _body(operator: QRecurrent, parts: Sequence[StepPart], gates: RecurrentGates) -> Iterator[str]:
    steps, batch, channels = operator.inputs[-1].shape
    units, row = operator.units, _row_bytes(operator)
    is_wide = _cell(operator).states[0] == "int16"
    yield f"int8_t *const rows = (int8_t *)scratch; /* input and hidden state, {row} bytes for each sequence */"
    yield f"int32_t *const sums = (int32_t *)(void *)&scratch[{_sums_begin(operator)}];"
    for name, kind, array in zip(_names(operator), _cell(operator).states, operator.initial, strict=True):
        yield from _begin(f"next_{name}", f"initial_{name}", kind, array, batch * units)
    hidden = f"rows[{channels}]" if batch == 1 else f"rows[(b * {row}) + {channels}]"
    state = "next_hidden" if batch == 1 else f"&next_hidden[b * {units}]"
    copy = f"memcpy(&{hidden}, {state}, {units});"
    yield from _over(batch, [f"tvm_ext_recurrent_narrow(&$_layer, {state}, &{hidden});" if is_wide else copy])
    at = "t" if batch == 1 else f"((t * {batch}) + b)"
    step = [
        f"int8_t *const x = {'rows' if batch == 1 else f'&rows[b * {row}]'};",
        f"int8_t *const h = &x[{channels}];",
        f"memcpy(x, &input[{at} * {channels}], {channels});",
        *_STEPS[operator.layer.cell](_Calls(operator, parts, gates)),
        f"memcpy(&output[{at} * {units}], h, {units});",
    ]
    over_batch = _over(batch, step)
    if operator.layer.is_backward:
        yield from loop("turn", steps, [f"const int32_t t = {steps - 1} - turn;", *over_batch])
    else:
        yield from loop("t", steps, over_batch)
    if not is_wide:
        yield from _over(batch, [f"memcpy({state}, &{hidden}, {units});"])


def _begin(target: str, source: str, kind: str, initial: Array | None, count: int) -> list[str]:
    """Return statements that set a state to its initial value."""
    size = count * np.dtype(kind).itemsize
    if initial is None or _is_stored(initial):
        return [f"memmove({target}, {source}, {size});"]
    number = int(initial.reshape(-1)[0])
    if kind == "int8" or number == 0:
        return [f"memset({target}, {number}, {size});"]
    return loop("k", count, [f"{target}[k] = {number};"])


def _over(batch: int, lines: Sequence[str]) -> list[str]:
    """Return the statements for each sequence b of a batch."""
    return list(lines) if batch == 1 else loop("b", batch, lines)


class _Calls:
    """Calls of one step. They have pointers to x, to the sums, and to the states.

    x holds the input and then the hidden state h.
    """

    def __init__(self, operator: QRecurrent, parts: Sequence[StepPart], gates: RecurrentGates) -> None:
        self._operator, self._parts, self._gates = operator, parts, gates

    def product(self, index: int) -> str:
        """Return the call that sums product `index` of the cell."""
        reads = _cell(self._operator).products[index].reads
        first = sum(len(weight) for weight in self._operator.weights[:index])
        scratch = f"&scratch[{_parts_begin(self._operator)}]"
        target = f"&sums[{first}]" if first else "sums"
        return self._parts[index].call(["h" if reads == "hidden" else "x"], target, scratch)

    def function(self, name: str, *states: str) -> str:
        """Return the call of a function that computes gates. states: names of those that it takes."""
        _, batch, _ = self._operator.inputs[-1].shape
        given = [f"next_{s}" if batch == 1 else f"&next_{s}[b * {self._operator.units}]" for s in states]
        arguments = [
            "&$_layer",
            "sums",
            "multiplier",
            *given,
            "h",
            *(["table"] if _reads_table(self._operator) else []),
        ]
        return f"{self._gates.functions}_{name}({', '.join(arguments)});"


_STEPS: Mapping[str, Callable[[_Calls], list[str]]] = {
    "lstm": lambda calls: [calls.product(0), calls.function("lstm", "cell")],
    "gru": lambda calls: [*map(calls.product, range(3)), calls.function("gru", "hidden")],
    "gru_resets_first": lambda calls: [
        calls.product(0), calls.function("reset", "hidden"),
        calls.product(1), calls.function("gru_candidate", "hidden"),
    ],
    "rnn_tanh": lambda calls: [calls.product(0), calls.function("rnn_tanh")],
    "rnn_relu": lambda calls: [calls.product(0), calls.function("rnn_relu")],
}  # fmt: skip
"""Statements of one step of each cell."""


def _shapes(operator: QRecurrent) -> str:
    """Return the definition of `$_layer`, a `tvm_ext_recurrent_layer`."""
    layer = operator.layer
    multiplier, shift = layer.hidden_factor
    members: dict[str, Value] = {
        "units": operator.units, "left": layer.left, "state_power": layer.state_power, "hidden_multiplier": multiplier,
        "hidden_shift": shift, "zero_point": layer.zero_point, "low": _low(operator), "limit": layer.limit,
    }  # fmt: skip
    return shapes(LAYER, members)


KERNEL = Kernel(
    name=PORTABLE.kernel,
    title="Quantized LSTM, GRU or RNN layer: a loop over the steps that calls kernels of dense layers",
    operator=QRecurrent,
    implement=PORTABLE.implement,
    constraints=(sums_leave_room, sums_have_a_kernel),
)
