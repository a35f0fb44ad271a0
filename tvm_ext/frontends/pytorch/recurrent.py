"""Convert PyTorch's LSTM, GRU and RNN layer by layer to the form of ONNX, which orders the gates differently."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tvm import relax

from relay_passes.dataflow import static_shape
from tvm_ext.frontends import recurrent_layers
from tvm_ext.frontends.emitter import Emitter
from tvm_ext.frontends.pytorch.operators import Converter, arguments_of

_PARAMETERS = 2
"""Weights of a layer and direction: for the input and for the state. Each may have a bias."""


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """ONNX's form of a PyTorch operator.

    order: for each gate of ONNX, its index among PyTorch's gates. attributes: attributes of the ONNX operator.
    """

    kind: recurrent_layers.CellKind
    order: tuple[int, ...]
    attributes: dict[str, Any]


_CELLS = {
    "lstm.input": _Cell(kind=recurrent_layers.LSTM, order=(0, 3, 1, 2), attributes={}),
    "gru.input": _Cell(kind=recurrent_layers.GRU, order=(1, 0, 2), attributes={"linear_before_reset": 1}),
    "rnn_tanh.input": _Cell(kind=recurrent_layers.RNN, order=(0,), attributes={}),
    "rnn_relu.input": _Cell(kind=recurrent_layers.RNN, order=(0,), attributes={"activations": (b"Relu",) * 2}),
}


def _converter(cell: _Cell) -> Converter:
    """Return a function of torch's node and TVM's importer that returns the outputs and the final states."""

    def convert(node: Any, importer: Any) -> relax.Expr:
        given, emit = arguments_of(node), Emitter(importer.block_builder)
        x = importer.env[given["input"]]
        x = emit.transposed(x, [1, 0, 2]) if given["batch_first"] else x
        hx = given["hx"] if isinstance(given["hx"], list | tuple) else [given["hx"]]
        states = [importer.env[state] for state in hx]
        weights = iter([importer.env[parameter] for parameter in given["params"]])
        directions = 2 if given["bidirectional"] else 1
        direction = b"bidirectional" if directions == 2 else b"forward"
        last: list[list[relax.Expr]] = []
        for layer in range(given["num_layers"]):
            w, r, bias = _weights(emit, weights, cell, directions, has_biases=given["has_biases"])
            before = [emit.slice(state, 0, layer * directions, (layer + 1) * directions) for state in states]
            inputs = [x, w, r, bias, None, *before, *[None] * 4]
            made = recurrent_layers.all_steps(emit, inputs, {**cell.attributes, "direction": direction}, cell.kind)
            y, *after = made.fields
            steps, _, batch, hidden = static_shape(y)
            x = emit.reshaped(emit.transposed(y, [0, 2, 1, 3]), (steps, batch, directions * hidden))
            last.append(after)
        output = emit.transposed(x, [1, 0, 2]) if given["batch_first"] else x
        final = [emit.concat([after[k] for after in last], axis=0) for k in range(len(states))]
        return relax.Tuple([importer.block_builder.emit(value) for value in (output, *final)])

    return convert


def _weights(
    emit: Emitter, weights: Iterator[relax.Expr], cell: _Cell, directions: int, *, has_biases: bool
) -> tuple[relax.Expr, relax.Expr, relax.Expr | None]:
    """Return the input weights, recurrent weights and biases of one layer in ONNX's form."""
    given = [[next(weights) for _ in range(_parameters(has_biases))] for _ in range(directions)]
    found = [[_in_order(emit, value, cell.order) for value in own] for own in given]
    stacked: Callable[[int], relax.Expr] = lambda place: emit.stack([own[place] for own in found], axis=0)  # noqa: E731
    bias = emit.concat([stacked(2), stacked(3)], axis=1) if has_biases else None
    return stacked(0), stacked(1), bias


def _parameters(has_biases: bool) -> int:
    return 2 * _PARAMETERS if has_biases else _PARAMETERS


def layers_to_keep(program: Any) -> list[Any]:
    """Return the overloads in a torch.export.ExportedProgram that are converted as layers, not step by step.

    An overload is left to PyTorch's decomposition if any call of it has projections (`proj_size`), for which ONNX has
    no form.
    """
    found: dict[Any, bool] = {}
    for node in program.graph.nodes:
        if node.op == "call_function" and getattr(node.target, "__name__", "") in _CELLS:
            found[node.target] = found.get(node.target, True) and not _has_projections(node)
    return [overload for overload, keeps in found.items() if keeps]


def _has_projections(node: Any) -> bool:
    given = arguments_of(node)
    directions = 2 if given["bidirectional"] else 1
    return len(given["params"]) != given["num_layers"] * directions * _parameters(given["has_biases"])


def _in_order(emit: Emitter, weight: relax.Expr, order: tuple[int, ...]) -> relax.Expr:
    """Return a weight whose rows are grouped by gate in ONNX's order."""
    rows = static_shape(weight)[0] // len(order)
    parts = [emit.slice(weight, 0, gate * rows, (gate + 1) * rows) for gate in order]
    return emit.concat(parts, axis=0) if len(parts) > 1 else parts[0]


CONVERTERS: dict[str, Converter] = {name: _converter(cell) for name, cell in _CELLS.items()}
