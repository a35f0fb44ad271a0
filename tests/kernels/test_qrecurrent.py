"""Recurrent layers on integers: numpy, C and TVM give the same bits, and they follow the float layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import relax

from codegen_c.kernels.contract import StoredRows, Target
from codegen_c.kernels.recurrent import qrecurrent
from codegen_c.operators.kinds import QRecurrent, Recurrent, TensorType
from relay_passes.analysis.int8_parameters import AffineQuantization, affine_of_range
from relay_passes.analysis.recurrent_function import recurrent_function
from relay_passes.analysis.recurrent_int8 import (
    FloatRecurrent,
    IntegerRecurrent,
    constant_states,
    quantize_recurrent,
    state_of_range,
)
from tests.kernels.dsp import CORTEX_M4
from tests.kernels.harness import HOST, PORTABLE, compile_kernels, run_kernel
from tests.kernels.test_f32_recurrent import GATES, implementation, layer
from tvm_ext.core.decisions.composites import RecurrentLayer, Symbol
from tvm_ext.core.recurrent_cells import RECURRENT_CELLS

Array = np.ndarray
INPUT = affine_of_range(-3.0, 2.5)


def integers(own: Recurrent, hidden: AffineQuantization, state: AffineQuantization) -> IntegerRecurrent:
    """The layer on integers, with one zero point that is not 0."""
    cell = RECURRENT_CELLS[own.cell]
    states = tuple(state if kind == "int16" else hidden for kind in cell.states)
    made = quantize_recurrent(as_relax(own), INPUT, states, hidden)
    assert made is not None
    return made


def as_relax(own: Recurrent) -> FloatRecurrent:
    return FloatRecurrent(
        layer=RecurrentLayer(cell=own.cell, has_biases=True, cell_limit=own.cell_limit), cell=RECURRENT_CELLS[own.cell],
        is_backward=own.is_backward, sequence=relax.Var("x", relax.TensorType(own.inputs[-1].shape, "float32")),
        states=tuple(relax.const(a) if a is not None else relax.Var("s", relax.TensorType(own.outputs[0].shape,
                     "float32")) for a in own.initial),
        input_weight=own.input_weight, hidden_weight=own.hidden_weight, input_bias=own.input_bias,
        hidden_bias=own.hidden_bias,
    )  # fmt: skip


def operator_of(own: Recurrent, made: IntegerRecurrent) -> QRecurrent:
    *products, multiplier, table = made.constants
    kinds = [*RECURRENT_CELLS[own.cell].states, "int8"]
    given = [kind for kind, array in zip(kinds, own.initial, strict=False) if array is None]
    return QRecurrent(
        inputs=tuple(TensorType(shape=t.shape, dtype=d) for t, d in zip(own.inputs, [*given, "int8"], strict=True)),
        outputs=tuple(TensorType(shape=t.shape, dtype=d) for t, d in zip(own.outputs, kinds, strict=True)),
        layer=made.layer, weights=tuple(products[::2]), biases=tuple(products[1::2]), multiplier=multiplier,
        table=table, initial=tuple(constant_states(as_relax(own), made)),
    )  # fmt: skip


def by_tvm(own: Recurrent, made: IntegerRecurrent, inputs: list[Array]) -> list[Array]:
    steps, batch, channels = own.inputs[-1].shape
    function = recurrent_function(made.layer, steps, batch, channels, own.hidden_weight.shape[1])
    run = tvm.compile(Symbol(name="layer").write(function), target="llvm")["layer"]
    operator = operator_of(own, made)
    given = iter(inputs[:-1])
    states = [next(given) if array is None else array for array in operator.initial]
    results = [np.empty(kind.shape, kind.dtype) for kind in operator.outputs]
    tensors = [tvm.runtime.tensor(a) for a in (*states, inputs[-1], *made.constants, *results)]
    run(*tensors)
    return [tensor.numpy() for tensor in tensors[len(tensors) - len(results) :]]


LAYERS = [
    *(layer(cell, 7, 1, 5, 6, seed=k) for k, cell in enumerate(GATES)),
    *(layer(cell, 4, 3, 3, 5, seed=k, given=2, is_backward=True) for k, cell in enumerate(GATES)),
    *(layer(cell, 1, 1, 1, 1, seed=k) for k, cell in enumerate(GATES)),
    layer("lstm", 9, 2, 18, 12, cell_limit=0.3),
]


def spread(own: Recurrent, factor: float) -> Recurrent:
    """The layer with larger weights, so that gates saturate."""
    return replace(own, input_weight=own.input_weight * np.float32(factor))


def elements(kind: TensorType, seed: int) -> Array:
    limits = np.iinfo(kind.dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, kind.shape).astype(kind.dtype)


@pytest.mark.parametrize("target", [HOST, CORTEX_M4, PORTABLE], ids=["host", "cortex_m4", "portable"])
@pytest.mark.parametrize("factor", [1.0, 60.0])
def test_c_gives_the_bits_of_numpy(target: Target, factor: float) -> None:
    owns = [spread(one, factor) for one in LAYERS]
    powers = [affine_of_range(-0.9, 0.7), affine_of_range(0.0, 6.0)], [state_of_range(-1, 1), state_of_range(-9, 3)]
    operators = [operator_of(own, integers(own, powers[0][k % 2], powers[1][k % 2])) for k, own in enumerate(owns)]
    made = [qrecurrent.KERNEL.implement(operator, target, StoredRows()) for operator in operators]
    for operator, one, entry in zip(operators, made, compile_kernels(made), strict=True):
        inputs = [elements(kind, seed) for seed, kind in enumerate(operator.inputs)]
        for found, wanted in zip(run_kernel(operator, one, inputs, entry=entry), one.reference(inputs), strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("index", range(len(LAYERS)))
def test_tvm_gives_the_bits_of_numpy(index: int) -> None:
    own = LAYERS[index]
    made = integers(own, affine_of_range(-0.9, 0.7), state_of_range(-9, 3))
    operator = operator_of(own, made)
    inputs = [elements(kind, seed) for seed, kind in enumerate(operator.inputs)]
    for found, wanted in zip(by_tvm(own, made, inputs), qrecurrent.reference(operator, inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("cell", GATES)
def test_integers_follow_the_float_layer(cell: str) -> None:
    own = layer(cell, 200, 1, 16, 32, seed=3)
    own = replace(own, hidden_weight=own.hidden_weight * np.float32(0.3))
    x = np.random.default_rng(0).normal(size=own.inputs[0].shape).astype(np.float32).clip(-3, 2.5)
    *states, wanted = implementation(own).reference([x])
    hidden = affine_of_range(float(wanted.min()), float(wanted.max()))
    made = integers(own, hidden, state_of_range(float(states[-1].min()), float(states[-1].max())))
    *_, found = qrecurrent.reference(operator_of(own, made), [INPUT.quantize(x)])
    error = hidden.dequantize(found) - wanted
    assert 10 * np.log10(np.square(wanted).sum() / np.square(error).sum()) > 27
