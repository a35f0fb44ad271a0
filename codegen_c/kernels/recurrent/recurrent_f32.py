"""LSTM, GRU and RNN layers in float32: a loop over time around dense and element-wise kernels of the target.

float32[T, B, C] with states float32[B, H] -> final states float32[B, H], and float32[T, B, H]. A dense layer multiplies
the inputs of a few steps at once, because the weights that it loads then serve several of them. In each step another
dense layer starts at these sums and adds the products of the hidden state: the bias, the input, then the hidden state,
c ascending. The code and the constants do not grow with T.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np

from codegen_c.c_text.text import block, loop
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.dense import dense_f32
from codegen_c.kernels.recurrent.parts import StepPart, has_bias, have_kernels
from codegen_c.kernels.shared.product_kernel import SCRATCH
from codegen_c.operators.kinds import Array, Dense, Elementwise, Operator, Recurrent, TensorType
from codegen_c.operators.scalar import Instruction, Operand, ScalarProgram
from tvm_ext.core.alignment import aligned

COPY_INSTRUCTIONS = 2
"""Modelled instructions of each float that a step copies."""
_Span = tuple[str, int, int]
"""Floats [begin, end) of a buffer of the step.

The buffers are `input_sums`, the products of the step's input with their biases; `sums`, for results inside the step;
and the states by their names.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Stage:
    """An operator of a step, and the floats that it reads and writes.

    start: floats with which the sums of a dense layer start, in place of its bias.
    """

    name: str
    operator: Operator
    sources: tuple[_Span, ...]
    target: _Span
    start: _Span | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cell:
    """The layer of an operator as stages. Rows of the weights are those of gates in ONNX's order.

    at_once: steps whose inputs are multiplied together.
    """

    operator: Recurrent
    at_once: int

    @property
    def units(self) -> int:
        return int(self.operator.hidden_weight.shape[1])

    @property
    def num_rows(self) -> int:
        """Number of rows of the weights: units times gates."""
        return len(self.operator.input_weight)

    @property
    def num_sums(self) -> int:
        """Floats of the buffer `sums`."""
        return max(stage.target[2] for stage in self.stages if stage.target[0] == "sums")

    @property
    def inputs(self) -> Dense:
        """The dense layer that multiplies the inputs of `at_once` steps."""
        operator, rows = self.operator, self.at_once * self.operator.inputs[-1].shape[1]
        bias = operator.input_bias.copy()
        # The hidden state's bias is added here too, except that of a product which the reset gate multiplies.
        added = slice(0, 2 * self.units if operator.cell == "gru" else self.num_rows)
        bias[added] += operator.hidden_bias[added]
        channels = operator.input_weight.shape[1]
        return Dense(
            inputs=(_tensor(rows, channels),), outputs=(_tensor(rows, self.num_rows),),
            weight=operator.input_weight, bias=bias,
        )  # fmt: skip

    @property
    def stages(self) -> tuple[_Stage, ...]:
        stages = {
            "lstm": self._lstm, "gru": self._gru, "gru_resets_first": self._gru_resets_first,
            "rnn_tanh": self._rnn, "rnn_relu": self._rnn,
        }  # fmt: skip
        return tuple(stages[self.operator.cell]())

    def _lstm(self) -> Iterator[_Stage]:
        """Gates in the order i, o, f, c."""
        i, o, f, c = (self._sums(gate) for gate in range(4))
        yield self._product("gates", range(4))
        update = _Program()
        kept = update.of("multiply", update.of("sigmoid", 0), 1)
        cell = update.of("add", kept, update.of("multiply", update.of("sigmoid", 2), update.of("tanh", 3)))
        if limit := self.operator.cell_limit:
            cell = update.of("maximum", cell, Operand(kind="number", number=-limit))
            update.of("minimum", cell, Operand(kind="number", number=limit))
        yield self._elementwise("update", update, (f, self._state("cell"), i, c), self._state("cell"))
        output = _Program()
        output.of("multiply", output.of("sigmoid", 0), output.of("tanh", 1))
        yield self._elementwise("output", output, (o, self._state("cell")), self._state("hidden"))

    def _gru(self) -> Iterator[_Stage]:
        """Gates in the order z, r, h. The reset gate multiplies the product of the hidden state."""
        z, r, product = (self._sums(gate) for gate in range(3))
        operator, rows, hidden = self.operator, self._rows(range(2, 3)), self._state("hidden")
        yield self._product("gates", range(2))
        yield self._dense("product", operator.hidden_weight[rows], operator.hidden_bias[rows], hidden, product)
        blend = _Program()
        total = blend.of("add", 2, blend.of("multiply", blend.of("sigmoid", 1), 3))
        blend.mixed(blend.of("sigmoid", 0), 4, blend.of("tanh", total))
        yield self._elementwise("blend", blend, (z, r, self._input_sums(2), product, hidden), hidden)

    def _gru_resets_first(self) -> Iterator[_Stage]:
        """Gates in the order z, r, h. The reset gate multiplies the hidden state ahead of its product."""
        z, r, new = (self._sums(gate) for gate in range(3))
        hidden = self._state("hidden")
        yield self._product("gates", range(2))
        reset = _Program()
        reset.of("multiply", reset.of("sigmoid", 0), 1)
        yield self._elementwise("reset", reset, (r, hidden), r)
        yield self._product("candidate", range(2, 3), r)
        blend = _Program()
        blend.mixed(blend.of("sigmoid", 0), 2, blend.of("tanh", 1))
        yield self._elementwise("blend", blend, (z, new, hidden), hidden)

    def _rnn(self) -> Iterator[_Stage]:
        activation = _Program()
        if self.operator.cell == "rnn_tanh":
            activation.of("tanh", 0)
        else:
            activation.of("maximum", 0, Operand(kind="number"))
        yield self._product("gates", range(1))
        yield self._elementwise("output", activation, (self._sums(0),), self._state("hidden"))

    def _sums(self, gate: int) -> _Span:
        return "sums", gate * self.units, (gate + 1) * self.units

    def _input_sums(self, gate: int) -> _Span:
        return "input_sums", gate * self.units, (gate + 1) * self.units

    def _state(self, name: str) -> _Span:
        return name, 0, self.units

    def _rows(self, gates: range) -> slice:
        return slice(gates.start * self.units, gates.stop * self.units)

    def _product(self, name: str, gates: range, source: _Span | None = None) -> _Stage:
        """Return the dense layer that adds the products of the hidden state, or of `source`, to those of the input."""
        rows = self._rows(gates)
        weight = self.operator.hidden_weight[rows]
        source = source or self._state("hidden")
        stage = self._dense(name, weight, np.zeros(len(weight), np.float32), source, ("sums", rows.start, rows.stop))
        return replace(stage, start=("input_sums", rows.start, rows.stop))

    def _dense(self, name: str, weight: Array, bias: Array, source: _Span, target: _Span) -> _Stage:
        types = (_tensor(1, weight.shape[1]),), (_tensor(1, weight.shape[0]),)
        layer = Dense(inputs=types[0], outputs=types[1], weight=weight, bias=bias)
        return _Stage(name=name, operator=layer, sources=(source,), target=target)

    def _elementwise(self, name: str, program: _Program, sources: tuple[_Span, ...], target: _Span) -> _Stage:
        own = _tensor(1, self.units)
        operator = Elementwise(inputs=(own,) * len(sources), outputs=(own,), finish=program.program)
        return _Stage(name=name, operator=operator, sources=sources, target=target)


class _Program:
    """A scalar program that is written call by call. A number as operand is the index of an input."""

    def __init__(self) -> None:
        self._instructions: list[Instruction] = []

    @property
    def program(self) -> ScalarProgram:
        return ScalarProgram(instructions=tuple(self._instructions))

    def of(self, function: str, *operands: Operand | int) -> Operand:
        given = tuple(Operand(kind="input", index=o) if isinstance(o, int) else o for o in operands)
        self._instructions.append(Instruction(function=function, operands=given))
        return Operand(kind="value", index=len(self._instructions))

    def mixed(self, share: Operand, first: int, second: Operand) -> Operand:
        """Return share * first + (1 - share) * second, with a rounding error that vanishes where both are equal."""
        change = self.of("multiply", share, self.of("subtract", first, second))
        return self.of("add", second, change)


def _tensor(*shape: int) -> TensorType:
    return TensorType(shape=shape, dtype="float32")


def _cell(operator: Recurrent, target: Target) -> _Cell:
    """Return the cell with as many steps at once as the dense kernel computes rows together."""
    steps, batch, _ = operator.inputs[-1].shape
    _, pixels = target.instruction_set.floats.product
    return _Cell(operator=operator, at_once=1 if target.least_scratch else min(steps, -(-pixels // batch)))


def parts_have_kernels(operator: Recurrent, target: Target) -> bool:
    """float32 kernels must take the dense layers and the element-wise operators of its cell"""
    cell = _cell(operator, target)
    return have_kernels([cell.inputs, *(stage.operator for stage in cell.stages)], target)


def sums_start_anywhere(operator: Recurrent, target: Target) -> bool:
    """dense kernels of float32 must start their sums at one float for each output channel"""
    layers = [stage.operator for stage in _cell(operator, target).stages if stage.start]
    return all(has_bias(layer, target) for layer in layers)


def reference(operator: Recurrent, inputs: list[Array], cell: _Cell) -> list[Array]:
    """The operator in numpy, by the references of its parts."""
    *given, sequence = inputs
    known = iter(given)
    states = [np.array(next(known) if array is None else array, np.float32) for array in operator.initial]
    outputs = np.empty(operator.outputs[-1].shape, np.float32)
    steps = range(len(sequence))
    for t in reversed(steps) if operator.is_backward else steps:
        for b in range(sequence.shape[1]):
            row = dense_f32.reference(replace(cell.inputs, outputs=(_tensor(cell.num_rows),)), [sequence[t, b]])[0]
            buffers = {name: state[b] for name, state in zip(_names(operator), states, strict=True)}
            buffers |= {"input_sums": row, "sums": np.empty(cell.num_sums, np.float32)}
            for stage in cell.stages:
                name, begin, end = stage.target
                buffers[name][begin:end] = _computed(stage, buffers)
            outputs[t, b] = buffers["hidden"]
    return [*states, outputs]


def _computed(stage: _Stage, buffers: dict[str, Array]) -> Array:
    """Return the floats that a stage writes."""
    read = [buffers[name][begin:end] for name, begin, end in stage.sources]
    operator = stage.operator
    if isinstance(operator, Elementwise):
        return operator.finish.run(None, read)
    assert isinstance(operator, Dense), "a cell has dense and element-wise stages"
    if stage.start is not None:
        name, begin, end = stage.start
        operator = replace(operator, bias=buffers[name][begin:end])
    return dense_f32.reference(operator, read)[0].reshape(-1)


def _names(operator: Recurrent) -> tuple[str, ...]:
    return ("hidden", "cell")[: len(operator.initial)]


def implement(operator: Recurrent, target: Target, stored: StoredRows) -> Implementation:
    cell = _cell(operator, target)
    of_inputs = StepPart.of(cell.inputs, target, "input")
    parts = [replace(StepPart.of(stage.operator, target, stage.name), starts=stage.start is not None)
             for stage in cell.stages]  # fmt: skip
    steps, batch, _ = operator.inputs[-1].shape
    runs = steps * batch
    begins = [(f"initial_{n}", a) for n, a in zip(_names(operator), operator.initial, strict=True) if _is_stored(a)]
    every = [of_inputs, *parts]
    return Implementation(
        kernel=KERNEL.name,
        function=_function(cell, of_inputs, parts),
        reference=lambda inputs: reference(operator, inputs, cell),
        constants=(*(constant for part in every for constant in part.constants()), *begins),
        scratch_bytes=_parts_begin(cell) + max(part.made.scratch_bytes for part in every),
        macs=runs * (cell.inputs.weight.size + sum(part.made.macs for part in parts)),
        instructions=-(-steps // cell.at_once) * of_inputs.made.instructions
        + runs * (sum(part.made.instructions for part in parts) + cell.units * COPY_INSTRUCTIONS),
        passes=Passes(constants=runs, input=1.0, scratch=2.0 * runs),
        accumulation="bias, the input, then the hidden state, c ascending",
        next_states=_next_states(operator),
    )


def _next_states(operator: Recurrent) -> tuple[tuple[int, int], ...]:
    """Return the states that are inputs, each with the output that holds its next value."""
    outputs = [index for index, array in enumerate(operator.initial) if array is None]
    return tuple(enumerate(outputs))


def _is_stored(initial: Array | None) -> TypeGuard[Array]:
    """True for an initial state that needs a constant: zeros are written by the code."""
    return initial is not None and bool(np.any(initial))


def _sums_begin(cell: _Cell) -> int:
    """Offset in scratch of the buffer `sums`."""
    return aligned(4 * cell.inputs.output.num_elements)


def _parts_begin(cell: _Cell) -> int:
    """Offset in scratch of the bytes that belong to the parts."""
    return _sums_begin(cell) + aligned(4 * cell.num_sums)


def _function(cell: _Cell, of_inputs: StepPart, parts: Sequence[StepPart]) -> CFunction:
    """Return the loop over time, and over the sequences of a batch."""
    operator, names = cell.operator, _names(cell.operator)
    given = [f"initial_{name}" for name, array in zip(names, operator.initial, strict=True) if array is None]
    begins = [f"initial_{n}" for n, a in zip(names, operator.initial, strict=True) if _is_stored(a)]
    activations = (
        *(Parameter(name=name, ctype="float", role="input") for name in (*given, "input")),
        *(Parameter(name=name, ctype="float", role="output") for name in (*(f"next_{n}" for n in names), "output")),
    )
    every = [of_inputs, *parts]
    constants = [own for part in every for own in part.parameters()]
    constants += [Parameter(name=name, ctype="float", role="constant") for name in begins]
    return CFunction(
        parameters=(*activations, *constants, SCRATCH),
        body="\n".join(_body(cell, of_inputs, parts)),
        helpers="\n".join(part.definition() for part in every),
        includes=tuple(dict.fromkeys(name for part in every for name in part.made.function.includes)),
    )


def _body(cell: _Cell, of_inputs: StepPart, parts: Sequence[StepPart]) -> Iterator[str]:
    operator, names = cell.operator, _names(cell.operator)
    steps, batch, _ = operator.inputs[-1].shape
    units, scratch = cell.units, f"&scratch[{_parts_begin(cell)}]"
    yield "float *const products = (float *)(void *)scratch; /* of the inputs of some steps */"
    yield f"float *const sums = (float *)(void *)&scratch[{_sums_begin(cell)}];"
    for name, array in zip(names, operator.initial, strict=True):
        size = 4 * batch * units
        is_zero = array is not None and not _is_stored(array)
        yield f"memset(next_{name}, 0, {size});" if is_zero else f"memmove(next_{name}, initial_{name}, {size});"
    row = "t" if batch == 1 else f"((t * {batch}) + b)"
    once, each, product = _products_of(cell, of_inputs, scratch)
    step = [
        *(f"float *const {name} = {f'next_{name}' if batch == 1 else f'&next_{name}[b * {units}]'};" for name in names),
        f"const float *const input_sums = {product};",
        *(
            part.call(
                [_pointer(span) for span in stage.sources],
                _pointer(stage.target),
                scratch,
                start=_pointer(stage.start) if stage.start else "",
            )
            for stage, part in zip(cell.stages, parts, strict=True)
        ),
        f"memcpy(&output[{row} * {units}], hidden, {4 * units});",
    ]
    over_batch = step if batch == 1 else loop("b", batch, step)
    yield from once
    if operator.is_backward:
        yield from loop("turn", steps, [f"const int32_t t = {steps - 1} - turn;", *each, *over_batch])
    else:
        yield from loop("t", steps, [*each, *over_batch])


def _products_of(cell: _Cell, of_inputs: StepPart, scratch: str) -> tuple[list[str], list[str], str]:
    """Return how step t gets the products of its input: statements ahead of the loop, those of the step, and a pointer.

    If the steps are no multiple of those that are multiplied at once, the last products include some that are known
    already.
    """
    steps, batch, channels = cell.operator.inputs[-1].shape
    count = cell.at_once

    def multiply(first: str) -> str:
        return of_inputs.call([f"&input[{first} * {batch * channels}]" if first else "input"], "products", scratch)

    def row(step: str) -> str:
        """Return the pointer to the products of sequence b. step: counts from the first one that is multiplied."""
        if batch == 1:
            return f"&products[{step} * {cell.num_rows}]" if step else "products"
        return f"&products[{f'(({step} * {batch}) + b)' if step else 'b'} * {cell.num_rows}]"

    if count == 1:
        return [], [multiply("t")], row("")
    if count == steps:
        return [multiply("")], [], row("t")
    if cell.operator.is_backward:
        is_new, begin = f"turn % {count} == 0", f"t - {count - 1}"
        begin = f"t > {count - 1} ? {begin} : 0" if steps % count else begin
    else:
        is_new, begin = f"t % {count} == 0", f"t < {steps - count} ? t : {steps - count}" if steps % count else "t"
    each = [f"if ({is_new}) {{", block([f"first = {begin};", multiply("first")]), "}"]
    return ["int32_t first = 0;"], each, row("(t - first)")


def _pointer(span: _Span) -> str:
    """Return the C expression of the first float. States are pointers of the step by their own names."""
    name, begin, _ = span
    return f"&{name}[{begin}]" if begin else name


KERNEL = Kernel(
    name="recurrent_f32",
    title="LSTM, GRU or RNN layer in float32: a loop over the steps that calls dense and element-wise kernels",
    operator=Recurrent,
    implement=implement,
    constraints=(parts_have_kernels, sums_start_anywhere),
)
