"""Tables of cycles: blocks by hand against the manuals, and platforms without a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvm_ext.core.errors import BadPlatform
from tvm_ext.core.platform import Platform
from tvm_ext.profiling.core_table import core_table, core_tables
from tvm_ext.profiling.instructions import KINDS, FirmwareInstruction, instruction


def code(*lines: str) -> list[FirmwareInstruction]:
    return [instruction(*line.partition("\t")[::2]) for line in lines]


def test_loads_of_a_cortex_m4_are_pipelined_unless_one_gives_the_address_of_the_next() -> None:
    table = core_tables()["cortex-m4"]
    assert table.block_cycles(code("ldr\tr0, [r4]", "ldr\tr1, [r5]", "ldr\tr2, [r6]")) == [2, 1, 1]
    assert table.block_cycles(code("ldr\tr0, [r4]", "ldr\tr1, [r0]")) == [2, 2]


def test_lists_divisions_and_floats_of_a_cortex_m4() -> None:
    table = core_tables()["cortex-m4"]
    assert table.block_cycles(code("pop\t{r4, r5, r6, pc}")) == [5]
    assert table.block_cycles(code("ldrd\tr4, r5, [r0]", "smlad\tr0, r1, r2, r0")) == [3, 1]
    assert table.block_cycles(code("vfma.f32\ts0, s1, s2", "vdiv.f32\ts3, s4, s5")) == [3, 14]
    assert table.taken_cycles(code("bne.n\t10")[0]) == 2


def test_vector_instructions_of_a_cortex_m55_overlap_unless_they_need_the_same_unit() -> None:
    table = core_tables()["cortex-m55"]
    in_turn = code(
        "vldrb.u8\tq0, [r0], #16", "vmladava.s8\tr2, q4, q5", "vldrb.u8\tq1, [r1], #16", "vmladava.s8\tr2, q4, q5"
    )
    assert table.block_cycles(in_turn) == [1, 1, 1, 1]
    assert table.block_cycles([in_turn[0], in_turn[2], in_turn[1], in_turn[3]]) == [1, 2, 1, 2]
    assert table.taken_cycles(code("letp\tlr, 10")[0]) == 0


def test_a_use_of_what_was_just_loaded_stalls_a_cortex_m33() -> None:
    table = core_tables()["cortex-m33"]
    assert table.block_cycles(code("ldr\tr0, [r4]", "adds\tr1, r0, #1")) == [1, 2]
    assert table.block_cycles(code("ldr\tr0, [r4]", "adds\tr1, r2, #1")) == [1, 1]


MULTIPLIED = code(
    "smlad\tsl, r4, r0, sl", "ldr\tr5, [r2, #4]", "smlad\tfp, r4, r0, fp", "ldr\tr6, [r2, #8]",
    "smlad\tlr, r4, r0, lr", "sxtb16\tr0, r3", "smlad\tr7, r4, r1, r7", "ldr\tr3, [r2, #8]",
)  # fmt: skip


def test_a_cortex_m7_starts_two_instructions_in_a_cycle() -> None:
    """Cycles as llvm-mca 14 has them: four of these eight, and eight where products come first."""
    table = core_tables()["cortex-m7"]
    assert table.block_cycles(MULTIPLIED) == [1, 0] * 4
    products = [one for one in MULTIPLIED if one.kind == "multiply"]
    assert table.block_cycles(products) == [1, 1, 1, 1], "there is one multiplier"
    assert table.block_cycles(code("ldr\tr0, [r4]", "ldr\tr1, [r5]", "ldr\tr2, [r6]")) == [1, 0, 1]


def test_results_that_a_cortex_m7_waits_for() -> None:
    table = core_tables()["cortex-m7"]
    assert table.block_cycles(code("ldr\tr0, [r4]", "adds\tr1, r0, #1")) == [1, 1]
    assert table.block_cycles(code("ldr\tr0, [r4]", "ldr\tr1, [r0]")) == [1, 2], "an address is read earlier"
    assert table.block_cycles(code("mul\tr0, r1, r2", "adds\tr3, r0, #1")) == [1, 2]
    assert table.block_cycles(code("smlad\tr0, r1, r2, r0", "smlad\tr0, r1, r2, r0")) == [1, 1], "sums are passed on"
    assert table.block_cycles(code("ldmia\tr0!, {r4, r5, r6}", "adds\tr1, r2, #1")) == [2.5, 1], "lists start alone"


UNPUBLISHED = {"armv8-m.base", "hexagonv66", "aarch64", "rv64gcv", "rv64gcv_zvl256b", "wasm32", "lx106"}
"""Processors whose vendors publish no cycles of instructions, and those of a virtual machine or of a whole system."""
COMPILED_AS_OTHERS = {"cortex-m52", "cortex-m85"}
"""Cores without a table whose code is compiled for another core."""


def test_every_shipped_board_has_a_table_that_says_what_it_stands_on() -> None:
    boards = [one for one in (Platform.load(name) for name in Platform.shipped()) if one.board]
    without = [one for one in boards if one.processor.isa in UNPUBLISHED or one.processor.core in COMPILED_AS_OTHERS]
    assert {one.processor.core or one.processor.isa for one in without} == UNPUBLISHED | COMPILED_AS_OTHERS
    for platform in without:
        with pytest.raises(BadPlatform, match=r"there is no table of cycles for"):
            core_table(platform)
    for platform in [one for one in boards if one not in without]:
        table = core_table(platform)
        assert table.source and table.bound
        assert {*table.cycles, *table.per_register} <= {*KINDS}
    assert {"cortex-m0plus", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55"} <= {*core_tables()}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("-mthumb",), r"flags name no core; add -mcpu="),
        (("-mcpu=cortex-m85",), r"no table of cycles for cortex-m85; cores with a table are"),
    ],
)
def test_platforms_without_a_table(cortex_m4: Platform, flags: tuple[str, ...], message: str) -> None:
    platform = replace(cortex_m4, toolchain=replace(cortex_m4.toolchain, flags=flags))
    with pytest.raises(BadPlatform, match=message):
        core_table(platform)
