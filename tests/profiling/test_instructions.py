"""Instructions as objdump prints them: their class, and the registers they move, read and write."""

from __future__ import annotations

import pytest

from tvm_ext.profiling.instructions import instruction, read_disassembly

KINDS = {
    "alu": ["movs\tr0, #1", "add.w\tr1, r2, r3, lsl #2", "it\tlt", "sxtb16\tr3, r4", "cmp\tr0, r1"],
    "multiply": ["smlad\tr8, r1, r2, r8", "mul.w\tr1, r2, r3", "muls\tr1, r2", "smmlar\tr0, r1, r2, r3"],
    "multiply_long": ["umull\tr8, r9, r1, r2", "smlal\tr0, r1, r2, r3", "smlald\tr0, r1, r2, r3"],
    "divide": ["sdiv\tr0, r1, r2", "udivne\tr0, r1, r2"],
    "load": ["ldr\tr3, [pc, #20]", "ldrsb.w\tr8, [r1], #1", "ldrne.w\tr0, [r1]", "ldrexb\tr0, [r1]"],
    "load_double": ["ldrd\tr5, r6, [sp, #8]"],
    "load_multiple": ["ldmia.w\tsp!, {r4, r5, pc}", "pop\t{r4, pc}"],
    "store": ["str.w\tr3, [sp]", "strb\tr0, [r1, #0]"],
    "store_double": ["strd\tr5, r6, [sp]"],
    "store_multiple": ["stmdb\tsp!, {r4, lr}", "push\t{r4, lr}"],
    "branch": ["b.n\t12", "bne.n\t12 <f>", "bl\t12 <f>", "bls.n\t12", "ble.n\t12", "bx\tlr", "cbnz\tr0, 12"],
    "loop": ["le\tlr, 12", "letp\tlr, 12", "dlstp.8\tlr, r1", "wls\tlr, r0, 12"],
    "barrier": ["dsb\tsy"],
    "float": ["vadd.f32\ts0, s1, s2", "vmov\tr0, s1", "vcvt.f32.s32\ts0, s1", "vmrs\tAPSR_nzcv, fpscr"],
    "float_multiply": ["vmul.f32\ts0, s1, s2", "vnmul.f32\ts0, s1, s2"],
    "float_mac": ["vfma.f32\ts0, s1, s2", "vmla.f32\ts0, s1, s2", "vfnms.f32\ts0, s1, s2"],
    "float_divide": ["vdiv.f32\ts0, s1, s2"],
    "float_root": ["vsqrt.f32\ts0, s1"],
    "float_load": ["vldr\ts0, [r1]", "vldr\td0, [r1]"],
    "float_load_multiple": ["vldmia\tr0!, {s0-s3}", "vpop\t{d8-d9}"],
    "float_store": ["vstr\ts0, [r1]"],
    "float_store_multiple": ["vpush\t{d8}"],
    "double": ["vadd.f64\td0, d1, d2", "vfma.f64\td0, d1, d2"],
    "double_divide": ["vdiv.f64\td0, d1, d2"],
    "vector": ["vadd.i32\tq0, q1, q2", "vdup.8\tq3, ip", "vpst", "vmovlb.s16\tq0, q1", "vmaxv.s8\tr0, q1"],
    "vector_multiply": ["vmlava.s8\tr0, q1, q2", "vmullb.s8\tq0, q1, q2", "vfma.f32\tq0, q1, q2"],
    "vector_load": ["vldrb.u8\tq3, [ip], #16", "vldrw.u32\tq3, [r7, q1]"],
    "vector_store": ["vstrb.8\tq3, [sl], #16"],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "lines"), KINDS.items())
def test_kinds(kind: str, lines: list[str]) -> None:
    for line in lines:
        mnemonic, _, operands = line.partition("\t")
        assert instruction(mnemonic, operands).kind == kind, line


def test_registers_of_lists() -> None:
    popped = instruction("ldmia.w", "sp!, {r4, r5, r6, pc}")
    assert popped.registers == 4 and popped.writes == {"r4", "r5", "r6", "pc"} and popped.reads == {"sp"}
    pushed = instruction("vpush", "{d8-d11}")
    assert pushed.registers == 4 and pushed.reads == {"d8", "d9", "d10", "d11"} and not pushed.writes


def test_registers_read_and_written() -> None:
    loaded = instruction("ldr.w", "r3, [r0, r2, lsl #2]")
    assert loaded.writes == {"r3"} and loaded.reads == {"r0", "r2"}
    two = instruction("ldrd", "r5, r6, [sp, #8]")
    assert two.writes == {"r5", "r6"} and two.reads == {"sp"}
    stored = instruction("str", "r3, [r0, #4]")
    assert not stored.writes and stored.reads == {"r3", "r0"}
    compared = instruction("cmp", "r0, r1")
    assert not compared.writes and compared.reads == {"r0", "r1"}


def test_a_disassembly_is_read_by_address() -> None:
    text = (
        "00000588 <f>:\n     588:\tldr\tr3, [pc, #4]\t@ (590)\n     58a:\tbx\tlr\n     58c:\tnop\n"
        "     590:\t.word\t0x20000000\n"
    )
    found = read_disassembly(text)
    assert {address: one.kind for address, one in found.items()} == {0x588: "load", 0x58A: "branch", 0x58C: "alu"}
    assert found[0x588].reads == {"pc"}
