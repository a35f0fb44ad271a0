"""The PrimFunc of a recurrent layer on integers, which is the layer's meaning for TVM.

Its arithmetic is that of `tvm_ext/core/recurrent_cells.py`, one rounding for each result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.ir import Expr, Var

from tvm_ext.core.decisions.composites import IntegerRecurrentLayer
from tvm_ext.core.recurrent_cells import RECURRENT_CELLS, TABLE_BITS, TANH_POWER, UNIT_POWER, CellProduct

_ONE = 1 << UNIT_POWER


def recurrent_function(
    layer: IntegerRecurrentLayer, steps: int, batch: int, channels: int, units: int
) -> tirx.PrimFunc:
    """Return the PrimFunc of an `IntegerRecurrentLayer`. It reads a sequence int8[steps, batch, channels]."""
    return layer.write(_Function(layer, steps, batch, channels, units).run())


@dataclass(frozen=True, kw_only=True, eq=False)
class _Product:
    """A product of the cell with its parameters. first: its first row among those of all products."""

    form: CellProduct
    weight: Var
    bias: Var
    first: int


class _Function:
    """Writer of one PrimFunc: loops over time, sequences and units around the statements of the cell."""

    def __init__(self, layer: IntegerRecurrentLayer, steps: int, batch: int, channels: int, units: int) -> None:
        self.layer, self.cell = layer, RECURRENT_CELLS[layer.cell]
        self.steps, self.batch, self.channels, self.units = steps, batch, channels, units
        names = ("hidden", "cell")[: len(self.cell.states)]
        shapes = [(name, (batch, units), kind) for name, kind in zip(names, self.cell.states, strict=True)]
        self.before = [tirx.decl_buffer(shape, kind, f"{name}_before") for name, shape, kind in shapes]
        self.after = [tirx.decl_buffer(shape, kind, f"{name}_after") for name, shape, kind in shapes]
        self.sequence = tirx.decl_buffer((steps, batch, channels), "int8", "sequence")
        self.outputs = tirx.decl_buffer((steps, batch, units), "int8", "outputs")
        self.products = list(self._products())
        rows = sum(len(product.gates) for product in self.cell.products) * units
        self.multiplier = tirx.decl_buffer((rows,), "int32", "multiplier")
        self.table = tirx.decl_buffer((257,), "int16", "table")
        self.gates = tirx.decl_buffer((rows,), "int32", "gates")
        self.narrow = tirx.decl_buffer((batch, units), "int8", "narrow")
        self.read = tirx.decl_buffer((units,), "int8", "read")

    def _products(self) -> Iterator[_Product]:
        depths = {"input": self.channels, "hidden": self.units, "both": self.channels + self.units}
        first = 0
        for index, form in enumerate(self.cell.products):
            rows = len(form.gates) * self.units
            yield _Product(
                form=form,
                weight=tirx.decl_buffer((rows, depths[form.reads]), "int8", f"weight_{index}"),
                bias=tirx.decl_buffer((rows,), "int32", f"bias_{index}"),
                first=first,
            )
            first += rows

    def run(self) -> tirx.PrimFunc:
        turn = _index("turn")
        time = _number(self.steps - 1) - turn if self.layer.is_backward else turn
        once = _over("b", self.batch, lambda b: tirx.SeqStmt([*self._step(time, b)]))
        loop = tirx.For(turn, 0, self.steps, tirx.ForKind.SERIAL, once)
        body = tirx.SeqStmt([
            *map(tirx.AllocBuffer, (self.gates, self.narrow, self.read)),
            *(self._copied(*pair) for pair in zip(self.before, self.after, strict=True)),
            self._each(lambda b, u: tirx.BufferStore(self.narrow, self._narrowed_state(b, u), [b, u])),
            loop,
        ])  # fmt: skip
        weights = [buffer for product in self.products for buffer in (product.weight, product.bias)]
        given = [*self.before, self.sequence, *weights, self.multiplier, self.table]
        return tirx.PrimFunc([*given, *self.after, self.outputs], body).with_attr("s_tir", True)

    def _copied(self, source: Var, target: Var) -> tirx.Stmt:
        return self._each(lambda b, u: tirx.BufferStore(target, source[b, u], [b, u]))

    def _each(self, store: Callable[[Var, Var], tirx.Stmt]) -> tirx.Stmt:
        return _over("b", self.batch, lambda b: _over("u", self.units, lambda u: store(b, u)))

    def _narrowed_state(self, b: Expr, u: Expr) -> Expr:
        """Return the int8 hidden state of the first state."""
        state = self.after[0][b, u]
        return state if self.cell.states[0] == "int8" else self._hidden(_wide(state))

    # One step of one sequence, as statements over all units.

    def _step(self, time: Expr, b: Var) -> Iterator[tirx.Stmt]:
        steps = {
            "lstm": self._lstm, "gru": self._gru, "gru_resets_first": self._gru_resets_first,
            "rnn_tanh": self._rnn, "rnn_relu": self._rnn,
        }  # fmt: skip
        yield _over("u", self.units, lambda u: tirx.BufferStore(self.read, self.narrow[b, u], [u]))
        yield from steps[self.layer.cell](time, b)

        def kept(u: Var) -> tirx.Stmt:
            return tirx.BufferStore(self.outputs, self.narrow[b, u], [time, b, u])

        yield _over("u", self.units, kept)

    def _lstm(self, time: Expr, b: Var) -> Iterator[tirx.Stmt]:
        yield from self._sums(self.products[0], time, b)
        cell, layer = self.after[1], self.layer

        def next_cell(u: Var) -> tirx.Stmt:
            i, f, c = (self._gate(gate, u) for gate in (0, 2, 3))
            added = (self._sigmoid(i) * self._tanh(c)) >> _number(UNIT_POWER - layer.state_power)
            following = _saturated(_shifted(self._sigmoid(f) * _wide(cell[b, u]) + added, UNIT_POWER))
            if layer.limit:
                following = _between(following, -layer.limit, layer.limit)
            return tirx.BufferStore(cell, tirx.Cast("int16", following), [b, u])

        def output(u: Var) -> tirx.Stmt:
            distance, value = layer.state_power - TANH_POWER, _wide(cell[b, u])
            scaled = _shifted(value, distance) if distance > 0 else _saturated(value << _number(-distance))
            let_out = _shifted(self._sigmoid(self._gate(1, u)) * self._tanh(scaled), UNIT_POWER)
            return self._kept(b, u, self._hidden(let_out))

        yield _over("u", self.units, next_cell)
        yield _over("u", self.units, output)

    def _gru(self, time: Expr, b: Var) -> Iterator[tirx.Stmt]:
        for product in self.products:
            yield from self._sums(product, time, b)

        def candidate(u: Var) -> Expr:
            product = _shifted(self._sigmoid(self._gate(1, u)) * self._gate(3, u), UNIT_POWER)
            return self._tanh(_saturated(_number(2) * (self._gate(2, u) + product)))

        yield from self._blended(b, candidate)

    def _gru_resets_first(self, time: Expr, b: Var) -> Iterator[tirx.Stmt]:
        yield from self._sums(self.products[0], time, b)

        def reset(u: Var) -> tirx.Stmt:
            value = _shifted(self._sigmoid(self._gate(1, u)) * _wide(self.after[0][b, u]), UNIT_POWER)
            return tirx.BufferStore(self.read, self._hidden(value), [u])

        yield _over("u", self.units, reset)
        yield from self._sums(self.products[1], time, b)
        yield from self._blended(b, lambda u: self._tanh(self._gate(2, u)))

    def _blended(self, b: Var, candidate: Callable[[Var], Expr]) -> Iterator[tirx.Stmt]:
        """Yield the next state of a GRU, z * state + (1 - z) * candidate."""
        state = self.after[0]

        def following(u: Var) -> tirx.Stmt:
            z = self._sigmoid(self._gate(0, u))
            other = _shifted(candidate(u), UNIT_POWER - self.layer.state_power)
            blend = _shifted(z * _wide(state[b, u]) + (_number(_ONE) - z) * other, UNIT_POWER)
            return tirx.BufferStore(state, tirx.Cast("int16", blend), [b, u])

        def narrowed(u: Var) -> tirx.Stmt:
            return tirx.BufferStore(self.narrow, self._hidden(_wide(state[b, u])), [b, u])

        yield _over("u", self.units, following)
        yield _over("u", self.units, narrowed)

    def _rnn(self, time: Expr, b: Var) -> Iterator[tirx.Stmt]:
        yield from self._sums(self.products[0], time, b)

        def output(u: Var) -> tirx.Stmt:
            gate = self._gate(0, u)
            if self.layer.cell == "rnn_tanh":
                return self._kept(b, u, self._hidden(self._tanh(gate)))
            zero = self.layer.zero_point
            return self._kept(b, u, tirx.Cast("int8", _between(gate + _number(zero), zero, 127)))

        yield _over("u", self.units, output)

    def _kept(self, b: Var, u: Var, hidden: Expr) -> tirx.Stmt:
        """Return the statements that store an int8 hidden state as the next state."""
        return tirx.SeqStmt([
            tirx.BufferStore(self.narrow, hidden, [b, u]), tirx.BufferStore(self.after[0], self.narrow[b, u], [b, u]),
        ])  # fmt: skip

    # Expressions in int32.

    def _sums(self, product: _Product, time: Expr, b: Var) -> Iterator[tirx.Stmt]:
        """Yield the gates of one product ahead of their functions: sums of `x` and `read`, then their scale."""
        rows = len(product.form.gates) * self.units
        parts = {"input": ("input",), "hidden": ("hidden",), "both": ("input", "hidden")}[product.form.reads]

        def started(k: Var) -> tirx.Stmt:
            return tirx.BufferStore(self.gates, product.bias[k], [k + product.first])

        def scaled(k: Var) -> tirx.Stmt:
            place = k + product.first
            value = tirx.Cast("int64", self.gates[place] << _number(self.layer.left))
            high = (value * tirx.Cast("int64", self.multiplier[place]) + tirx.const(1 << 31, "int64")) >> tirx.const(
                32, "int64"
            )
            return tirx.BufferStore(self.gates, _saturated(tirx.Cast("int32", high)), [place])

        yield _over("k", rows, started)
        begin = 0
        for part in parts:
            extent = self.channels if part == "input" else self.units
            yield _over("k", rows, lambda k, part=part, begin=begin, extent=extent: _over(  # type: ignore[misc]
                "c", extent, lambda c: self._added(product, k, c, begin, self.sequence[time, b, c] if part == "input"
                                                   else self.read[c])
            ))  # fmt: skip
            begin += extent
        yield _over("k", rows, scaled)

    def _added(self, product: _Product, k: Var, c: Var, begin: int, value: Expr) -> tirx.Stmt:
        place = k + product.first
        total = self.gates[place] + _wide(value) * _wide(product.weight[k, c + begin])
        return tirx.BufferStore(self.gates, total, [place])

    def _gate(self, gate: int, u: Var) -> Expr:
        """Return a gate by its position among the rows of all products."""
        return self.gates[u + gate * self.units]

    def _sigmoid(self, gate: Expr) -> Expr:
        index = (gate >> _number(TABLE_BITS)) + _number(128)
        low, high = (_wide(self.table[index + _number(step)]) for step in (0, 1))
        return low + (((high - low) * (gate & _number(255))) >> _number(TABLE_BITS))

    def _tanh(self, gate: Expr) -> Expr:
        return _number(2) * self._sigmoid(gate) - _number(_ONE)

    def _hidden(self, value: Expr) -> Expr:
        multiplier, shift = self.layer.hidden_factor
        steps = _shifted(value * _number(multiplier), shift) + _number(self.layer.zero_point)
        return tirx.Cast("int8", _between(steps, -128, 127))


def _index(name: str) -> Var:
    return Var(name, tvm.ir.PrimType("int32"))


def _over(name: str, extent: int, body: Callable[[Var], tirx.Stmt]) -> tirx.Stmt:
    index = _index(name)
    return tirx.For(index, 0, extent, tirx.ForKind.SERIAL, body(index))


def _number(value: int) -> Expr:
    return tirx.const(value, "int32")


def _wide(value: Expr) -> Expr:
    return tirx.Cast("int32", value)


def _between(value: Expr, low: int, high: int) -> Expr:
    return tirx.max(tirx.min(value, _number(high)), _number(low))


def _saturated(value: Expr) -> Expr:
    return _between(value, -32768, 32767)


def _shifted(value: Expr, shift: int) -> Expr:
    """Return value / 2^shift, rounded, halves up."""
    return (value + _number((1 << shift) >> 1)) >> _number(shift) if shift else value
