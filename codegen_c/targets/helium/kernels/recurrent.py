"""Recurrent layers on integers with Helium: gates and states of eight units at a time, around any dense kernels."""

from __future__ import annotations

from codegen_c.kernels.contract import Kernel, Target
from codegen_c.kernels.recurrent import qlstm, qrecurrent
from codegen_c.kernels.recurrent.qlstm import LstmGates
from codegen_c.kernels.recurrent.qrecurrent import RecurrentGates
from codegen_c.operators.kinds import QLstm, QRecurrent

LANES = 8
INCLUDES = (
    "tvm_ext_helium_recurrent.h", "tvm_ext_helium.h", "tvm_ext_helium_plain.h",
    *dict.fromkeys((*qlstm.INCLUDES, *qrecurrent.INCLUDES)),
)  # fmt: skip

# TensorFlow Lite's LSTM, with its two roundings.

LSTM_GATES = LstmGates(
    kernel="qlstm_helium", function="tvm_ext_helium_lstm_step", includes=INCLUDES, lanes=LANES,
    instructions=230, read_after=4 * (LANES - 1),
)  # fmt: skip
QLSTM = Kernel(
    name=LSTM_GATES.kernel,
    title="Quantized LSTM of TensorFlow Lite: gates of eight units at a time, around kernels of dense layers",
    operator=QLstm,
    implement=LSTM_GATES.implement,
    constraints=qlstm.KERNEL.constraints,
)


# Layers that are quantized here.
GATES = RecurrentGates(
    kernel="qrecurrent_helium", functions="tvm_ext_helium_recurrent", includes=INCLUDES, lanes=LANES,
    instructions={"lstm": 130, "gru": 110, "gru_resets_first": 120},
)  # fmt: skip


def has_two_gates(operator: QRecurrent, target: Target) -> bool:
    """the cell must be an LSTM or a GRU"""
    return operator.layer.cell in GATES.instructions


QRECURRENT = Kernel(
    name=GATES.kernel,
    title="Quantized LSTM or GRU layer: gates of eight units at a time, around kernels of dense layers",
    operator=QRecurrent,
    implement=GATES.implement,
    constraints=(has_two_gates, *qrecurrent.KERNEL.constraints),
)
KERNELS = (QLSTM, QRECURRENT)
