"""Cycles of cores with queues ahead of their units: blocks by hand, and the table of the Coral NPU."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.profiling.test_riscv_instructions import code
from tvm_ext.profiling.core_table import core_tables
from tvm_ext.profiling.instructions import FirmwareInstruction
from tvm_ext.profiling.unit_queues import QueuedUnit, queued_cycles

LOADS = QueuedUnit(cycles={"load": 4}, depth=2)
VECTORS = QueuedUnit(per_register={"vector": 2}, depth=4)


def cycles(instructions: Sequence[FirmwareInstruction], *units: QueuedUnit, width: int = 2) -> list[float]:
    return queued_cycles(instructions, width=width, units=units, latency={"load": 5}, blocking={"divide": 9})


def test_instructions_leave_together_unless_one_reads_what_another_writes() -> None:
    apart = code("add\ta0,a1,a2", "add\ta3,a1,a2", "add\ta4,a1,a2", "add\ta5,a1,a2")
    assert cycles(apart) == [0, 0, 1, 1]
    assert cycles(apart, width=4) == [0, 0, 0, 1]
    assert cycles(code("add\ta0,a1,a2", "add\ta3,a0,a2", "add\ta4,a3,a2")) == [0, 1, 2]


def test_a_queue_hides_the_time_of_its_unit_until_it_is_full() -> None:
    loads = code("lw\ta0,0(a7)", "lw\ta1,0(a7)", "lw\ta2,0(a7)", "lw\ta3,0(a7)")
    assert cycles(loads, LOADS, width=4)[:3] == [0, 0, 0], "the third leaves when the first begins"
    assert cycles(loads, LOADS, width=4)[3] == 16, "the fourth waits until the second begins; 16 cycles in all"
    assert cycles(code("lw\ta0,0(a7)", "add\ta1,a0,a0"), LOADS) == [0, 6], "a result after five cycles"


def test_vector_registers_are_awaited_in_the_queue() -> None:
    lines = ("vsetvli\ta5,a2,e32,m2,ta,ma", "vadd.vv\tv0,v2,v4", "vadd.vv\tv6,v0,v4", "add\ta0,a1,a2")
    assert cycles(code(*lines), VECTORS, width=4) == [0, 0, 0, 8], "the unit is busy for eight cycles"
    assert cycles(code(*lines[:2], "add\ta0,a1,a2"), width=4) == [0, 0, 1]


def test_some_instructions_stall_all_others() -> None:
    assert cycles(code("div\ta0,a1,a2", "add\ta3,a1,a2")) == [9, 1]
    assert cycles([]) == []


@pytest.mark.parametrize(
    ("lines", "total"),
    [
        (("lb\ta0,0(a1)", "lb\ta2,1(a1)", "lb\ta3,2(a1)"), 12),  # one load at a time, four cycles for each
        (("vsetvli\ta5,a2,e16,m2,ta,ma", "vwmacc.vx\tv0,a0,v24", "vwmacc.vx\tv4,a1,v24"), 4),  # of 4 registers each
        (("vsetvli\ta5,a2,e8,m1,ta,ma", "vle8.v\tv0,(a0)"), 5),
        (("vsetvli\ta5,a2,e32,m4,ta,ma", "vse32.v\tv0,(a0)"), 13),
        (("mul\ta0,a1,a2", "mul\ta3,a1,a2", "mul\ta4,a1,a2"), 3),
        (("add\ta0,a1,a2",) * 4, 1),
    ],
)
def test_blocks_of_the_coral_npu(lines: tuple[str, ...], total: float) -> None:
    table = core_tables()["rv32imf_zve32x"]
    assert sum(table.block_cycles(code(*lines))) == pytest.approx(total, rel=1e-6)
    assert table.taken_cycles(code("bnez\ta0,80000000 <f>")[0]) == 1
