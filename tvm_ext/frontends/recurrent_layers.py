"""RNN, GRU and LSTM of every format: a standard layer is one function that runs a step in a loop, for one kernel.

The size and compile time of the loop do not depend on the length of the sequence. Layers with peepholes, with limits of
their gates, with other activations or with another type than float32 have no kernel. They are unrolled if their
sequence is short: then one matmul multiplies the inputs of all steps with their weights, and each operator can be
quantized. If it is long, plain C computes the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from codegen_c.tir.plain_c import CannotLowerError
from codegen_c.tir.repeat import repeat_step
from relay_passes.dataflow import constant, static_shape
from tvm_ext.core.decisions.composites import RecurrentLayer, RepeatedStep
from tvm_ext.frontends.emitter import Emitter, dtype_name, ints_of, number
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]
State = tuple[relax.Expr, ...]

MOST_UNROLLED = 32
"""Longest sequence, in steps, of a layer without a kernel that is unrolled; longer sequences run in a loop."""
CELL_LIMIT = "cell_limit"
"""Attribute of an LSTM that ONNX does not have: the cell is clipped to [-limit, limit]; 0 for no limit."""
_MOST_WITH_LENGTHS = 512
"""Longest sequence, in steps, whose real length is an input. Such sequences are always unrolled."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    """Weights of one direction. gates(x): products of the input of one step, [batch, num_gates * hidden], without bias.

    recurrent [hidden, num_gates * hidden]; input_bias and recurrent_bias [num_gates * hidden] or None;
    peephole [3 * hidden] or None; limit: values before an activation are clipped to [-limit, limit].
    """

    hidden: int
    recurrent: relax.Expr
    input_bias: relax.Expr | None
    recurrent_bias: relax.Expr | None
    peephole: relax.Expr | None
    functions: Sequence[Activation]
    limit: float | None
    attributes: Attributes


Step = Callable[[Emitter, Cell, relax.Expr, State], State]


@dataclass(frozen=True, kw_only=True)
class CellKind:
    """Kind of a recurrent cell.

    activations: names of the default activation functions of one direction. cells: a function that takes the attributes
    of a layer and returns names of cells of `RecurrentLayer`, by the names of their activation functions.
    """

    step: Step
    num_gates: int
    num_states: int
    activations: tuple[bytes, ...]
    cells: Callable[[Attributes], Mapping[tuple[str, ...], str]]


def all_steps(emit: Emitter, inputs: Sequence[relax.Expr | None], attr: Attributes, kind: CellKind) -> relax.Tuple:
    """Return y[steps, directions, batch, hidden] and the final states of a recurrent layer.

    inputs, attr: inputs and attributes as the ONNX operator of this kind takes them. Raises Refused.
    """
    batch_first = bool(attr.get("layout", 0))
    x = emit.transposed(inputs[0], [1, 0, 2]) if batch_first else inputs[0]
    steps, batch, _ = static_shape(x)
    lengths = _lengths(inputs[4], steps)
    if lengths is not None and steps > _MOST_WITH_LENGTHS:
        raise Refused(f"a sequence of {steps} steps whose length is an input; {_MOST_WITH_LENGTHS} is the limit")
    direction = attr.get("direction", b"forward")
    outputs, states = [], []
    for index in range(2 if direction == b"bidirectional" else 1):
        is_backward = direction == b"reverse" or index == 1
        if is_backward and lengths is not None:
            raise Refused("sequences of different lengths are read backward")
        own = _Direction(kind=kind, inputs=(x, *inputs[1:]), attributes=attr, index=index, is_backward=is_backward)
        state = tuple(
            _initial(emit, given, index, batch_first, (batch, own.hidden), dtype_name(x))
            for given in inputs[5 : 5 + kind.num_states]
        )
        in_loop = lengths is None and (bool(own.known_cell) or steps > MOST_UNROLLED)
        output, state = _looped(emit, own, state) if in_loop else _unrolled(emit, own, state, lengths)
        outputs.append(output)
        states.append(state)
    y = _stacked(emit, outputs, axis=1)  # [steps, directions, batch, hidden]
    last = [_stacked(emit, [state[k] for state in states], axis=0) for k in range(kind.num_states)]
    if batch_first:
        y, last = emit.transposed(y, [2, 0, 1, 3]), [emit.transposed(value, [1, 0, 2]) for value in last]
    return relax.Tuple([y, *last])


def _stacked(emit: Emitter, values: Sequence[relax.Expr], axis: int) -> relax.Expr:
    """Stack values along a new axis, by operators that move integers as well as floats."""
    shape = static_shape(values[0])
    parts = [emit.reshaped(value, (*shape[:axis], 1, *shape[axis:])) for value in values]
    return emit.concat(parts, axis=axis) if len(parts) > 1 else parts[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Direction:
    """One direction of a recurrent layer. inputs: inputs of the ONNX operator, with x as [steps, batch, channels]."""

    kind: CellKind
    inputs: Inputs
    attributes: Attributes
    index: int
    is_backward: bool

    @property
    def hidden(self) -> int:
        return static_shape(self.inputs[2])[2]

    @property
    def known_cell(self) -> str:
        """The cell of a `RecurrentLayer` that this layer is, or an empty text."""
        attr = self.attributes
        is_limited = bool(attr.get("clip") or attr.get("input_forget") or self.inputs[7] is not None)
        if is_limited or dtype_name(self.inputs[0]) != "float32":
            return ""
        count = len(self.kind.activations)
        names = tuple(map(_lower, self._activations[self.index * count : (self.index + 1) * count]))
        return self.kind.cells(attr).get(names, "")

    @property
    def _activations(self) -> Sequence[bytes | str]:
        """Names of the activations of all directions up to this one."""
        return self.attributes.get("activations") or self.kind.activations * (self.index + 1)

    def cell(self, emit: Emitter, inputs: Inputs, index: int) -> Cell:
        """Return the cell with the weights at `index` of the first axis of `inputs`."""
        attr, count = self.attributes, len(self.kind.activations)
        found = activations(emit, self._activations, attr.get("activation_alpha", ()), attr.get("activation_beta", ()))
        own = found[self.index * count : (self.index + 1) * count]
        return _cell(emit, inputs, attr, index, self.kind.num_gates, own)


def _unrolled(emit: Emitter, own: _Direction, state: State, lengths: relax.Expr | None) -> tuple[relax.Expr, State]:
    """Write every step of the sequence. Return the outputs [steps, batch, hidden] and the final states."""
    x = own.inputs[0]
    steps, batch, _ = static_shape(x)
    cell = own.cell(emit, own.inputs, own.index)
    shares = _input_shares(emit, x, own.inputs[1], own.index)
    found: dict[int, relax.Expr] = {}
    for time in range(steps - 1, -1, -1) if own.is_backward else range(steps):
        share = emit.reshaped(emit.slice(shares, 0, time, time + 1), (batch, static_shape(shares)[2]))
        new = own.kind.step(emit, cell, share, state)
        if lengths is not None:
            running = emit.reshaped(emit.greater(lengths, time), (batch, 1))
            zero = emit.zeros((batch, cell.hidden), dtype_name(x))
            found[time] = emit.where(running, new[0], zero)
            new = tuple(emit.where(running, after, before) for after, before in zip(new, state, strict=True))
        else:
            found[time] = new[0]
        state = new
    return emit.stack([found[time] for time in range(steps)], axis=0), state


def _looped(emit: Emitter, own: _Direction, state: State) -> tuple[relax.Expr, State]:
    """Write one step and a function that runs it in a loop. Return the same values as `_unrolled`.

    Raises Refused if the step cannot be lowered to loops.
    """
    x = own.inputs[0]
    steps, batch, channels = static_shape(x)
    given = {
        place: emit.slice(value, 0, own.index, own.index + 1)
        for place, value in enumerate(own.inputs)
        if place in (1, 2, 3, 7) and value is not None
    }
    element = relax.Var("x", relax.TensorType((batch, channels), dtype_name(x)))
    before = tuple(relax.Var(f"state{k}", value.ty) for k, value in enumerate(state))
    weights = {place: relax.Var(f"weights{place}", value.ty) for place, value in given.items()}
    builder = relax.BlockBuilder()
    inner = Emitter(builder)
    with builder.function("main", [*before, element, *weights.values()]):
        with builder.dataflow():
            inputs = [weights.get(place) for place in range(len(own.inputs))]
            share = _input_shares(inner, inner.reshaped(element, (1, batch, channels)), inputs[1], 0)
            share = inner.reshaped(share, static_shape(share)[1:])
            after = own.kind.step(inner, own.cell(inner, inputs, 0), share, before)
            results = builder.emit_output(relax.Tuple([*after, after[0]]))
        builder.emit_func_output(results)
    repeated = RepeatedStep(count=steps, num_states=len(state), num_sequences=1, is_backward=own.is_backward)
    try:
        loop = repeat_step(builder.get()["main"], repeated)
    except CannotLowerError as error:
        raise Refused(f"its step needs {error}") from error
    known, limit = own.known_cell, float(own.attributes.get(CELL_LIMIT, 0.0))
    layer = RecurrentLayer(cell=known, has_biases=own.inputs[3] is not None, cell_limit=limit)
    made = layer.write(loop.function) if known else loop.function
    function = emit.builder.add_func(made, "repeated_step")
    types = [*(value.ty for value in state), relax.TensorType((steps, batch, own.hidden), dtype_name(x))]
    arguments = [*state, x, *given.values(), *map(constant, loop.constants)]
    made = emit.builder.emit(relax.call_tir(function, relax.Tuple(arguments), types))
    *last, output = (emit.builder.emit(relax.TupleGetItem(made, k)) for k in range(len(types)))
    return output, tuple(last)


def _lengths(given: relax.Expr | None, steps: int) -> relax.Expr | None:
    """Return the lengths of the sequences, or None if all are known to equal the number of steps."""
    known = ints_of(given)
    return None if given is None or (known is not None and set(known) == {steps}) else given


def _row(emit: Emitter, x: relax.Expr, index: int) -> relax.Expr:
    """Return x[index] of a tensor whose first axis is the direction."""
    return emit.reshaped(emit.slice(x, 0, index, index + 1), static_shape(x)[1:])


def _cell(
    emit: Emitter, inputs: Inputs, attr: Attributes, index: int, num_gates: int, functions: Sequence[Activation]
) -> Cell:
    recurrent = emit.transposed(_row(emit, inputs[2], index), [1, 0])
    width = static_shape(recurrent)[1]
    bias = None if inputs[3] is None else _row(emit, inputs[3], index)
    peephole = inputs[7] if num_gates == 4 else None
    return Cell(
        hidden=width // num_gates,
        recurrent=recurrent,
        input_bias=None if bias is None else emit.slice(bias, 0, 0, width),
        recurrent_bias=None if bias is None else emit.slice(bias, 0, width, 2 * width),
        peephole=None if peephole is None else _row(emit, peephole, index),
        functions=functions,
        limit=float(attr["clip"]) if attr.get("clip") else None,
        attributes=attr,
    )


def _initial(
    emit: Emitter, given: relax.Expr | None, index: int, batch_first: bool, shape: tuple[int, int], dtype: str
) -> relax.Expr:
    if given is None:
        return emit.zeros(shape, dtype)
    return _row(emit, emit.transposed(given, [1, 0, 2]) if batch_first else given, index)


def _input_shares(emit: Emitter, x: relax.Expr, weights: relax.Expr, index: int) -> relax.Expr:
    """Return the input times its weights for all steps at once, [steps, batch, num_gates * hidden]."""
    steps, batch, width = static_shape(x)
    weight = emit.transposed(_row(emit, weights, index), [1, 0])
    flat = emit.matmul(emit.reshaped(x, (steps * batch, width)), weight)
    return emit.reshaped(flat, (steps, batch, static_shape(weight)[1]))


def _sum(emit: Emitter, *terms: relax.Expr | None) -> relax.Expr:
    present = [term for term in terms if term is not None]
    total = present[0]
    for term in present[1:]:
        total = emit.add(total, term)
    return total


def _clipped(emit: Emitter, cell: Cell, x: relax.Expr) -> relax.Expr:
    return x if cell.limit is None else emit.clip(x, -cell.limit, cell.limit)


def _gate(emit: Emitter, cell: Cell, x: relax.Expr | None, index: int) -> relax.Expr | None:
    """Return the part of the last axis that belongs to one gate."""
    if x is None:
        return None
    axis = len(static_shape(x)) - 1
    return emit.slice(x, axis, index * cell.hidden, (index + 1) * cell.hidden)


def _rnn_step(emit: Emitter, cell: Cell, share: relax.Expr, state: State) -> State:
    total = _sum(emit, share, emit.matmul(state[0], cell.recurrent), cell.input_bias, cell.recurrent_bias)
    return (cell.functions[0](_clipped(emit, cell, total)),)


def _gru_step(emit: Emitter, cell: Cell, share: relax.Expr, state: State) -> State:
    """Compute one step of a GRU. The gates are in the order z, r, h."""
    f, g = cell.functions
    (h,) = state
    shares = _sum(emit, share, cell.input_bias)
    by_gate = lambda x: [_gate(emit, cell, x, index) for index in range(3)]  # noqa: E731
    wz, wr, wh = by_gate(shares)
    rz, rr, rh = by_gate(_sum(emit, emit.matmul(h, cell.recurrent), cell.recurrent_bias))
    z = f(_clipped(emit, cell, emit.add(wz, rz)))
    r = f(_clipped(emit, cell, emit.add(wr, rr)))
    if cell.attributes.get("linear_before_reset", 0):
        candidate = emit.multiply(r, rh)
    else:
        weight, bias = _gate(emit, cell, cell.recurrent, 2), _gate(emit, cell, cell.recurrent_bias, 2)
        candidate = _sum(emit, emit.matmul(emit.multiply(r, h), weight), bias)
    new = g(_clipped(emit, cell, emit.add(wh, candidate)))
    return (emit.add(emit.multiply(emit.subtract(1.0, z), new), emit.multiply(z, h)),)


def _lstm_step(emit: Emitter, cell: Cell, share: relax.Expr, state: State) -> State:
    """Compute one step of an LSTM. The gates are in the order i, o, f, c, the peepholes in the order i, o, f."""
    f, g, h = cell.functions
    hidden, memory = state
    total = _sum(emit, share, emit.matmul(hidden, cell.recurrent), cell.input_bias, cell.recurrent_bias)
    gi, go, gf, gc = (_gate(emit, cell, total, index) for index in range(4))

    def through_peephole(gate: relax.Expr, index: int, value: relax.Expr) -> relax.Expr:
        weights = _gate(emit, cell, cell.peephole, index)
        return gate if weights is None else emit.add(gate, emit.multiply(weights, value))

    i = f(_clipped(emit, cell, through_peephole(gi, 0, memory)))
    if cell.attributes.get("input_forget", 0):
        forget = emit.subtract(1.0, i)
    else:
        forget = f(_clipped(emit, cell, through_peephole(gf, 2, memory)))
    new = emit.add(emit.multiply(forget, memory), emit.multiply(i, g(_clipped(emit, cell, gc))))
    limit = cell.attributes.get(CELL_LIMIT, 0.0)
    new = emit.clip(new, -limit, limit) if limit else new
    o = f(_clipped(emit, cell, through_peephole(go, 1, new)))
    return (emit.multiply(o, h(new)), new)


Activation = Callable[[relax.Expr], relax.Expr]

# Defaults of alpha and beta, from the table in the ONNX standard.
_PARAMETERS: dict[str, tuple[float, ...]] = {
    "relu": (),
    "tanh": (),
    "sigmoid": (),
    "softsign": (),
    "softplus": (),
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01,),
    "thresholdedrelu": (1.0,),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0,),
}


def _lower(name: bytes | str) -> str:
    return (name.decode() if isinstance(name, bytes) else name).lower()


def activations(
    emit: Emitter, names: Sequence[bytes | str], alphas: Sequence[float], betas: Sequence[float]
) -> list[Activation]:
    """Return one function per name. Functions with parameters take alphas and betas in order. Raises Refused."""
    alpha, beta = iter(alphas), iter(betas)
    made = []
    for encoded in names:
        name = _lower(encoded)
        if name not in _PARAMETERS:
            raise Refused(f"the activation {name} is not known")
        defaults = _PARAMETERS[name]
        a = next(alpha, defaults[0]) if len(defaults) > 0 else 0.0
        b = next(beta, defaults[1]) if len(defaults) > 1 else 0.0
        made.append(_function(emit, name, float(a), float(b)))
    return made


def _function(emit: Emitter, name: str, a: float, b: float) -> Activation:
    table: dict[str, Activation] = {
        "relu": emit.nn.relu,
        "tanh": emit.tanh,
        "sigmoid": emit.sigmoid,
        "softsign": lambda x: emit.divide(x, emit.add(emit.abs(x), 1.0)),
        "softplus": lambda x: emit.nn.softplus(x),
        "affine": lambda x: emit.add(emit.multiply(x, a), b),
        "leakyrelu": lambda x: emit.nn.leakyrelu(x, alpha=a),
        "thresholdedrelu": lambda x: emit.where(emit.greater(x, a), x, number(0, dtype_name(x))),
        "scaledtanh": lambda x: emit.multiply(emit.tanh(emit.multiply(x, b)), a),
        "hardsigmoid": lambda x: emit.clip(emit.add(emit.multiply(x, a), b), 0.0, 1.0),
        "elu": lambda x: emit.where(
            emit.greater(x, 0.0), x, emit.multiply(emit.subtract(emit.exp(emit.minimum(x, 0.0)), 1.0), a)
        ),
    }
    return table[name]


def _rnn_cells(_: Attributes) -> Mapping[tuple[str, ...], str]:
    return {("tanh",): "rnn_tanh", ("relu",): "rnn_relu"}


def _gru_cells(attr: Attributes) -> Mapping[tuple[str, ...], str]:
    return {("sigmoid", "tanh"): "gru" if attr.get("linear_before_reset", 0) else "gru_resets_first"}


def _lstm_cells(_: Attributes) -> Mapping[tuple[str, ...], str]:
    return {("sigmoid", "tanh", "tanh"): "lstm"}


RNN = CellKind(step=_rnn_step, num_gates=1, num_states=1, activations=(b"Tanh",), cells=_rnn_cells)
GRU = CellKind(step=_gru_step, num_gates=3, num_states=1, activations=(b"Sigmoid", b"Tanh"), cells=_gru_cells)
LSTM = CellKind(
    step=_lstm_step, num_gates=4, num_states=2, activations=(b"Sigmoid", b"Tanh", b"Tanh"), cells=_lstm_cells
)
