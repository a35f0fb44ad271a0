"""Float recurrent layers: every cell, both directions, batches, states that are given or constant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen_c.kernels.contract import Implementation, StoredRows, Target
from codegen_c.kernels.recurrent import recurrent_f32
from codegen_c.operators.kinds import Recurrent
from tests.kernels.dsp import CORTEX_M4
from tests.kernels.float32 import elements, floats
from tests.kernels.harness import HOST, PORTABLE, compile_kernels, run_kernel

GATES = {"lstm": 4, "gru": 3, "gru_resets_first": 3, "rnn_tanh": 1, "rnn_relu": 1}
Array = np.ndarray


def layer(
    cell: str, steps: int, batch: int = 1, channels: int = 3, units: int = 4, *, given: int = 0, seed: int = 0,
    **fields: object,
) -> Recurrent:  # fmt: skip
    """Return a layer whose first states are inputs, `given` of them."""
    random = np.random.default_rng(seed)
    rows, states = GATES[cell] * units, 2 if cell == "lstm" else 1

    def uniform(*shape: int) -> Array:
        return random.uniform(-0.5, 0.5, shape).astype(np.float32)

    state = floats(batch, units)
    return Recurrent(
        inputs=(*(state,) * min(given, states), floats(steps, batch, channels)),
        outputs=(*(state,) * states, floats(steps, batch, units)),
        cell=cell, input_weight=uniform(rows, channels), hidden_weight=uniform(rows, units), input_bias=uniform(rows),
        hidden_bias=uniform(rows),
        initial=tuple(None if k < given else uniform(batch, units) * (k % 2) for k in range(states)),
        **fields,  # type: ignore[arg-type]
    )  # fmt: skip


LAYERS = [
    *(layer(cell, 5, seed=k) for k, cell in enumerate(GATES)),
    *(layer(cell, 11, 2, 5, 9, seed=k, is_backward=True) for k, cell in enumerate(GATES)),
    *(layer(cell, 1, 3, 1, 1, seed=k, given=2) for k, cell in enumerate(GATES)),
    layer("lstm", 8, given=1, cell_limit=0.2),
    layer("gru", 4, is_backward=True),
]


@pytest.mark.parametrize("target", [HOST, CORTEX_M4, PORTABLE], ids=["host", "cortex_m4", "portable"])
def test_layers(target: Target) -> None:
    made = [recurrent_f32.implement(operator, target, StoredRows()) for operator in LAYERS]
    for operator, one, entry in zip(LAYERS, made, compile_kernels(made), strict=True):
        inputs = [elements(kind, seed) for seed, kind in enumerate(operator.inputs)]
        for found, wanted in zip(run_kernel(operator, one, inputs, entry=entry), one.reference(inputs), strict=True):
            np.testing.assert_allclose(found, wanted, atol=2e-6)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def plain(operator: Recurrent, x: Array) -> Array:
    """The hidden states of a layer from zeros, in float64, as ONNX defines the cells."""
    units = operator.hidden_weight.shape[1]
    hidden = cell = np.zeros(units)
    found = []
    for row in x[:, 0]:
        w = operator.input_weight @ row + operator.input_bias
        r = operator.hidden_weight @ hidden + operator.hidden_bias
        total = (w + r).reshape(-1, units)
        if operator.cell == "lstm":
            cell = sigmoid(total[2]) * cell + sigmoid(total[0]) * np.tanh(total[3])
            hidden = sigmoid(total[1]) * np.tanh(cell)
        elif operator.cell.startswith("gru"):
            z, reset = sigmoid(total[0]), sigmoid(total[1])
            last = slice(2 * units, None)
            after = reset * r[last]
            if operator.cell == "gru_resets_first":
                after = operator.hidden_weight[last] @ (reset * hidden) + operator.hidden_bias[last]
            hidden = (1 - z) * np.tanh(w[last] + after) + z * hidden
        else:
            hidden = np.tanh(total[0]) if operator.cell == "rnn_tanh" else np.maximum(total[0], 0)
        found.append(hidden)
    return np.array(found)[:, np.newaxis]


@pytest.mark.parametrize("cell", GATES)
def test_cells_are_those_of_onnx(cell: str) -> None:
    operator = layer(cell, 9, seed=1)
    operator = replace(operator, initial=tuple(np.zeros((1, 4), np.float32) for _ in operator.initial))
    x = elements(operator.inputs[-1], 2)
    *_, found = implementation(operator).reference([x])
    np.testing.assert_allclose(found, plain(operator, x.astype(np.float64)), atol=1e-6)


def implementation(operator: Recurrent, **fields: object) -> Implementation:
    return recurrent_f32.implement(operator, replace(PORTABLE, **fields), StoredRows())  # type: ignore[arg-type]


def test_neither_code_nor_constants_grow_with_the_sequence() -> None:
    found: list[Implementation] = [implementation(layer("gru", steps)) for steps in (40, 4000)]
    assert found[0].function.body.replace("40", "4000") == found[1].function.body
    assert found[0].constant_bytes == found[1].constant_bytes and found[0].scratch_bytes == found[1].scratch_bytes


def test_the_least_scratch_multiplies_one_input_at_a_time() -> None:
    usual, least = (implementation(layer("lstm", 8), least_scratch=less) for less in (False, True))
    assert usual.scratch_bytes - least.scratch_bytes == 3 * 4 * 16 and least.macs == usual.macs
