"""Instructions of RISC-V as objdump prints them: classes, registers of groups, and their cycles by the tables."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tvm_ext.profiling.core_table import core_tables
from tvm_ext.profiling.instructions import FirmwareInstruction, Kind, read_riscv, riscv_instruction


def code(*lines: str) -> Sequence[FirmwareInstruction]:
    """Instructions that lie behind each other from address 0x80000000 on."""
    text = "\n".join(f"{0x8000_0000 + 4 * i:x}:\t{line}" for i, line in enumerate(lines))
    return list(read_riscv(f"80000000 <f>:\n{text}\n").values())


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("lw\ta0,0(a1)", "load"), ("lbu\ta0,3(a1)", "load_narrow"), ("sh\ta0,0(sp)", "store"),
        ("mulh\ta0,a1,a2", "multiply"), ("remu\ta0,a1,a2", "divide"), ("bnez\ta0,80000000 <f>", "branch"),
        ("ret", "branch"), ("fence\tiorw,iorw", "barrier"), ("sltu\ta0,a1,a2", "alu"), ("csrwi\tvxrm,0", "alu"),
        ("flw\tfa0,0(a0)", "float_load"), ("fmadd.s\tfa0,fa1,fa2,fa3", "float_mac"), ("fadd.s\tfa0,fa1,fa2", "float"),
        ("vsetvli\ta5,a2,e8,m8,ta,ma", "alu"), ("vle8.v\tv24,(a3)", "vector_load"),
        ("vse32.v\tv0,(a1)", "vector_store"), ("vwmacc.vx\tv0,a0,v28", "vector_multiply"),
        ("vssra.vv\tv8,v8,v24", "vector"), ("vmulh.vv\tv8,v8,v16", "vector_multiply"),
        ("vmax.vx\tv8,v8,a0", "vector"), ("vfmax.vv\tv8,v8,v0", "vector"), ("vfmacc.vf\tv8,fa0,v0", "vector_multiply"),
        ("vsext.vf2\tv28,v24", "vector"),
    ],
)  # fmt: skip
def test_classes(line: str, kind: Kind) -> None:
    assert riscv_instruction(*line.partition("\t")[::2]).kind == kind


def test_registers_of_a_group_are_those_of_its_widest_operand() -> None:
    lines = [
        "vsetvli\ta5,a2,e16,m4,ta,ma", "vle8.v\tv24,(a3)", "vsext.vf2\tv28,v24", "vwmacc.vx\tv0,a0,v28",
        "vse32.v\tv0,(a1)", "vmv8r.v\tv8,v0", "vsetvli\tzero,zero,e8,mf2,ta,ma", "vle8.v\tv0,(a1)",
        "vnsrl.wi\tv8,v16,0",
    ]  # fmt: skip
    assert [one.registers for one in code(*lines)] == [0, 2, 4, 8, 8, 8, 0, 1, 1]


def test_stores_and_branches_write_nothing() -> None:
    assert not riscv_instruction("sw", "a0,0(a1)").writes
    assert riscv_instruction("sw", "a0,0(a1)").reads == {"a0", "a1"}
    assert not riscv_instruction("bne", "a0,a1,80000010 <f+0x10>").writes
    assert riscv_instruction("vwmacc.vx", "v0,a0,v28").reads == {"v0", "a0", "v28"}


def test_results_are_waited_for() -> None:
    table = core_tables()["rv32imac"]
    assert table.block_cycles(code("lw\ta0,0(a1)", "add\ta2,a0,a0", "lb\ta0,0(a1)", "add\ta2,a0,a0")) == [1, 2, 1, 3]
    assert table.block_cycles(code("mul\ta0,a1,a2", "mul\ta3,a1,a2", "add\ta4,a3,a3")) == [1, 4, 5]
    assert table.block_cycles(code("lw\ta0,0(a1)", "lw\ta2,0(a3)", "div\ta4,a0,a1")) == [1, 1, 33]


def test_groups_take_a_cycle_for_each_register() -> None:
    table = core_tables()["rv32imac_zve32x"]
    lines = ["vsetvli\ta5,a2,e16,m4,ta,ma", "vle8.v\tv24,(a3)", "vsext.vf2\tv28,v24", "vwmacc.vx\tv0,a0,v28"]
    assert table.block_cycles(code(*lines)) == [1, 2, 4, 8]
