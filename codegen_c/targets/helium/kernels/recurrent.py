"""Recurrent layers on integers with Helium: gates and states of eight units at a time, around any dense kernels."""

from __future__ import annotations

from codegen_c.kernels.contract import Kernel
from codegen_c.kernels.recurrent import qlstm
from codegen_c.kernels.recurrent.qlstm import LstmGates
from codegen_c.operators.kinds import QLstm

INCLUDES = ("tvm_ext_helium_recurrent.h", "tvm_ext_helium.h", "tvm_ext_helium_plain.h")

GATES = LstmGates(
    kernel="qlstm_helium", function="tvm_ext_helium_lstm_step", includes=INCLUDES, lanes=8, instructions=230,
    read_after=28,
)  # fmt: skip
QLSTM = Kernel(
    name=GATES.kernel,
    title="Quantized LSTM of TensorFlow Lite: gates of eight units at a time, around kernels of dense layers",
    operator=QLstm,
    implement=GATES.implement,
    constraints=qlstm.KERNEL.constraints,
)


KERNELS = (QLSTM,)
