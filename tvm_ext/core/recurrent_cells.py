"""Cells of recurrent layers on integers: their gates, their states, and the products that each step sums.

Gates are in ONNX's order: i, o, f, c of an LSTM, and z, r, h of a GRU. The arithmetic is written in three forms that
give the same bits: numpy and C (`codegen_c/kernels/recurrent/qrecurrent.py`, `tvm_ext_recurrent.h`), and a PrimFunc
(`relay_passes/analysis/recurrent_function.py`). All of them use these numbers:

    sums          int32: bias + int8 weights times [input, hidden state], zero points in the bias
    gate          int16 in units of 2^-12, of the tanh of a candidate 2^-13: sum * 2^left * multiplier / 2^32
    sigmoid       int16 in units of 2^-15, by a table of 257 entries over [-8, 8] and lines between its entries
    tanh(x)       2 sigmoid(2 x) - 1 by the same table
    state         int16 in units of 2^-power: the cell of an LSTM, and the hidden state of a GRU
    hidden state  int8 with a scale and a zero point: what a step multiplies, and the output
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

GATE_POWER = 12
"""A gate ahead of its sigmoid has units of 2^-12."""
TANH_POWER = 13
"""A gate ahead of its tanh has units of 2^-13, because the table is read at 2 x."""
UNIT_POWER = 15
"""Results of sigmoid and tanh have units of 2^-15."""
TABLE_BITS = 8
"""Bits of a gate that lie between two entries of the table."""


@dataclass(frozen=True, kw_only=True)
class CellProduct:
    """Integer sums of some gates. reads: the input of a step, the hidden state, or both side by side.

    powers: for each gate, the power of two of its units; 0 for sums that become an int8 output directly.
    """

    reads: Literal["input", "hidden", "both"]
    gates: tuple[int, ...]
    powers: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class RecurrentCell:
    """A cell. num_gates: gates of the weights. states: element types of its states. products: in order of their sums.

    wide_state: index of the state in units of 2^-power, or None.
    """

    num_gates: int
    states: tuple[str, ...]
    products: tuple[CellProduct, ...]
    wide_state: int | None = None


_BOTH_GATES = CellProduct(reads="both", gates=(0, 1), powers=(GATE_POWER,) * 2)

RECURRENT_CELLS: Mapping[str, RecurrentCell] = {
    "lstm": RecurrentCell(
        num_gates=4,
        states=("int8", "int16"),
        products=(CellProduct(reads="both", gates=(0, 1, 2, 3), powers=(*(GATE_POWER,) * 3, TANH_POWER)),),
        wide_state=1,
    ),
    "gru": RecurrentCell(
        num_gates=3,
        states=("int16",),
        products=(
            _BOTH_GATES,
            CellProduct(reads="input", gates=(2,), powers=(GATE_POWER,)),
            CellProduct(reads="hidden", gates=(2,), powers=(GATE_POWER,)),
        ),
        wide_state=0,
    ),
    "gru_resets_first": RecurrentCell(
        num_gates=3,
        states=("int16",),
        products=(_BOTH_GATES, CellProduct(reads="both", gates=(2,), powers=(TANH_POWER,))),
        wide_state=0,
    ),
    "rnn_tanh": RecurrentCell(
        num_gates=1, states=("int8",), products=(CellProduct(reads="both", gates=(0,), powers=(TANH_POWER,)),)
    ),
    "rnn_relu": RecurrentCell(
        num_gates=1, states=("int8",), products=(CellProduct(reads="both", gates=(0,), powers=(0,)),)
    ),
}
