"""Recurrent layers on integers with Helium: gates and states of eight units at a time, around any dense kernels."""

from __future__ import annotations

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.recurrent import qlstm, qrecurrent, qsvdf
from codegen_c.kernels.recurrent.qlstm import LstmGates
from codegen_c.kernels.recurrent.qrecurrent import RecurrentGates
from codegen_c.kernels.recurrent.qsvdf import SumLoops
from codegen_c.kernels.shared.common_shift import DOUBLED_BITS
from codegen_c.operators.kinds import QLstm, QRecurrent, QSvdfSum
from codegen_c.targets.helium.kernels.product import LAYER_INCLUDES

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


# Weighted sums over time of an SVDF: four outputs at a time.
#
# int8 or int16[B, M, 1, F], [F, M] -> int8[B, U]. Lanes are outputs, so a vector has every rank-th feature of a step:
# adjacent features if the rank is 1, which widening loads read; others are gathered.

SUM_LANES = 4
STEP_INSTRUCTIONS = 5
"""Modelled instructions of one feature of four outputs in a step."""
GATHERED_STEP_INSTRUCTIONS = 8
"""Modelled instructions of one feature of four outputs in a step if the rank is above 1 (a gather)."""
BLOCK_INSTRUCTIONS = 22
"""Modelled instructions of four outputs, besides their steps."""


def implement_sum(operator: QSvdfSum, target: Target, stored: StoredRows) -> Implementation:
    (features, memory), units, (multiplier, shift) = operator.weight.shape, len(operator.bias), operator.factor
    rank, blocks = features // units, -(-units // SUM_LANES)
    step = STEP_INSTRUCTIONS if rank == 1 else GATHERED_STEP_INSTRUCTIONS
    return SumLoops(
        kernel=SVDF_SUM.name,
        function="tvm_ext_helium_svdf_sum",
        layer="tvm_ext_helium_svdf_layer",
        members={
            "multiplier": multiplier, "shift": DOUBLED_BITS - shift,
            "rescale": {"rounds_twice": True, "zero_point": operator.zero_point, "low": -128, "high": 127},
        },
        includes=("tvm_ext_helium_svdf.h", *LAYER_INCLUDES),
        instructions=blocks * (rank * memory * step + BLOCK_INSTRUCTIONS),
        lanes=SUM_LANES,
    ).implement(operator)  # fmt: skip


SVDF_SUM = Kernel(
    name="qsvdf_sum_helium",
    title="Weighted sums over time of an SVDF of TensorFlow Lite on integers, four outputs at a time",
    operator=QSvdfSum,
    implement=implement_sum,
    constraints=qsvdf.SUM.constraints,
)
KERNELS = (QLSTM, QRECURRENT, SVDF_SUM)
