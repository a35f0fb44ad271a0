"""The bound of the stack from disassembly: right where it is known, refused where there is none, never too low."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.boards.toy import build_elf, write_toy
from tests.support.kinds import KINDS, OFTEN, needs_board, needs_riscv
from tests.support.sweeps import some_of
from tvm_ext import Package, Platform
from tvm_ext.assurance.stack_bound import firmware_bound, frames_of, stack_bound
from tvm_ext.core.platform import HOST_TOOLCHAIN
from tvm_ext.execution.board import run_qemu

ON_BOARDS = [name for name in KINDS if needs_board(name) and not needs_riscv(name)]
ALWAYS = [name for name in ON_BOARDS if name in OFTEN]
ON_RISCV = [pytest.param(name, marks=pytest.mark.riscv_board) for name in KINDS if needs_riscv(name)]

FRAMES = {
    "push\t{r4, r5, lr}": 12,
    "push.w\t{r4, r5, r6, r7, r8, r9, sl, lr}": 32,
    "stmdb\tsp!, {r4, r5}": 8,
    "vpush\t{d8-d11}": 32,
    "vpush\t{s16}": 4,
    "vstmdb\tsp!, {d8, d9}": 16,
    "sub\tsp, #132\t@ 0x84": 132,
    "sub.w\tsp, sp, #4096\t; 0x1000": 4096,
    "str.w\tlr, [sp, #-4]!": 4,
    "strd\tr4, r5, [sp, #-16]!": 16,
    "stmdb\tr0!, {r4, r5}": 0,
    "sub.w\tr0, sp, #8": 0,
    "add\tsp, #12": 0,
    "str\tr0, [sp, #4]": 0,
}


def listing(**functions: str) -> str:
    """Functions as objdump prints them, 256 B apart, each ended by a return."""
    texts = []
    for index, (name, body) in enumerate(functions.items()):
        lines = [*filter(None, body.split("\n")), "bx\tlr"]
        texts.append(f"{index * 256:08x} <{name}>:")
        texts += [f"{index * 256 + 2 * i:8x}:\t{line}" for i, line in enumerate(lines)]
    return "\n".join(texts)


@pytest.mark.parametrize("line", FRAMES)
def test_frames(line: str) -> None:
    (frame,) = frames_of(listing(f=line)).values()
    assert (frame.num_bytes, frame.unclear, frame.calls_pointers) == (FRAMES[line], None, False)


def test_the_deepest_path_counts() -> None:
    text = listing(
        run="push\t{r4, lr}\nbl\t100 <a>\nbeq.n\t200 <b>",
        a="push\t{r4, r5, r6, lr}\ncbz\tr0, 104 <a+0x4>",
        b="sub\tsp, #24\nb.w\t300 <leaf>",
        leaf="push\t{r4}",
    )
    assert stack_bound(frames_of(text), "run").num_bytes == 8 + 24 + 4
    assert stack_bound(frames_of(text), "a").num_bytes == 16


@pytest.mark.parametrize(
    ("functions", "reason"),
    [
        ({"run": "bl\t100 <f>", "f": "bl\t0 <run>"}, "recursion: run -> f -> run"),
        ({"run": "bl\t0 <run>"}, "recursion: run -> run"),
        ({"run": "bl\t100 <f>", "f": "blx\tr3"}, "f calls through a pointer"),
        ({"run": "bx\tr3"}, "run calls through a pointer"),
        ({"run": "ldr\tpc, [r0, #4]"}, "run calls through a pointer"),
        ({"run": "mov\tpc, r4"}, "run calls through a pointer"),
        ({"run": "sub.w\tsp, sp, r3"}, "run: sets its stack pointer: sub.w sp, sp, r3"),
        ({"run": "mov\tsp, r7"}, "run: sets its stack pointer: mov sp, r7"),
        ({"other": ""}, "run is not in the disassembly"),
    ],
)
def test_no_bound_without_reason(functions: dict[str, str], reason: str) -> None:
    bound = stack_bound(frames_of(listing(**functions)), "run")
    assert (bound.num_bytes, bound.reason) == (None, reason)


@pytest.mark.parametrize(
    "body",
    [
        "ldmia.w\tsp!, {r4, pc}", "tbb\t[pc, r3]", "ldr.w\tpc, [pc, r3, lsl #2]", "pop\t{r4, pc}",
        "add\tr5, pc, #20\t@ (adr r5, 14 <run+0x14>)\nmla\tr4, r0, r4, r5\nmov\tpc, r4", "ldr.w\tpc, [sp], #4",
    ],
)  # fmt: skip
def test_returns_and_jumps_inside_are_no_calls(body: str) -> None:
    assert stack_bound(frames_of(listing(run=body)), "run").num_bytes == 0


def test_padding_behind_a_return_runs_into_nothing() -> None:
    padding = "\n     102:\tnop\n     104:\tmovs\tr0, r0\n"
    text = listing(run="bl\t100 <f>", f="") + padding + "00000200 <behind>:\n     200:\tbl\t100 <f>\n     202:\tbx\tlr"
    assert stack_bound(frames_of(text), "run").num_bytes == 0


ENTRY = "addw\tip, pc, #120\t@ 0x78\nmla\tr6, r7, r8, ip\norr.w\tr6, r6, #1\n"
"""An address of the function's own in r6."""


@pytest.mark.parametrize(
    "body",
    [
        "push\t{r1, r5, r6, r7}\nstmdb\tsp!, {r4, sl}\nldr.w\tpc, [sp, #16]\nstr.w\tfp, [sp, #8]",
        "addw\tr4, pc, #8\nmovne\tr6, r4\npush\t{r6}\nldr\tpc, [sp]",
        "push\t{r4, r6}\nsub\tsp, #8\nadd\tsp, #8\nldr\tpc, [sp, #4]",
        "sub\tsp, #12\nstrd\tr0, r6, [sp, #4]\nldr\tpc, [sp, #8]",
    ],
)
def test_addresses_of_its_own_may_be_pushed(body: str) -> None:
    assert stack_bound(frames_of(listing(run=ENTRY + body)), "run").reason is None


@pytest.mark.parametrize(
    "body",
    [
        "push\t{r1, r5, r6, r7}\nldr.w\tpc, [sp, #4]",
        "push\t{r6, r7}\nldr\tpc, [sp]\nstr.w\tfp, [sp]",
        "push\t{r6, r7}\nldr\tpc, [sp]\nstmia.w\tsp, {r0, r1}",
        "ldr\tr6, [r0]\npush\t{r6}\nldr\tpc, [sp]",
        "ldrd\tr5, r6, [r0]\nmov\tpc, r6",
        "movne\tr4, r6\nmov\tpc, r4",
        "bl\t100 <f>\nmov\tpc, r6",
        "sub\tsp, #8\nldr\tpc, [sp]",
    ],
)
def test_other_addresses_may_not(body: str) -> None:
    bound = stack_bound(frames_of(listing(run=ENTRY + body, f="")), "run")
    assert bound.reason == "run calls through a pointer"


def test_code_that_runs_into_the_next_function() -> None:
    """As libgcc's arithmetic does."""
    text = listing(run="push\t{lr}\nbl\t100 <entry>", entry="push\t{r4}", rest="push\t{r5, r6}")
    fallen = text.replace("     102:\tbx\tlr", "     102:\tnop")
    assert fallen != text
    assert stack_bound(frames_of(fallen), "run").num_bytes == 4 + 4 + 8


def test_callbacks_are_counted_apart() -> None:
    text = listing(run="push\t{r4, lr}\nblx\tr3\nbl\t100 <f>", f="sub\tsp, #16", read_x="sub\tsp, #64")
    bound = stack_bound(frames_of(text), "run", ["read_x"])
    assert (bound.num_bytes, bound.callback_depth_bytes, bound.with_callbacks_bytes) == (24, 8, 72)


def test_a_veneer_is_the_function_behind_it() -> None:
    text = listing(run="bl\t100 <__far_veneer>", __far_veneer="ldr.w\tpc, [pc]", far="sub\tsp, #40")
    assert stack_bound(frames_of(text), "run").num_bytes == 40


def test_the_host_has_no_bound() -> None:
    bound = firmware_bound(None, HOST_TOOLCHAIN, "net_run", [])
    assert bound.num_bytes is None and bound.reason and "libm" in bound.reason


@pytest.mark.board
def test_a_known_frame(tmp_path: Path, cortex_m4: Platform) -> None:
    """An array of 512 B on the stack of a function, painted whole."""
    filled = "    for (int32_t i = 0; i < 512; i++) {\n        big[i] = 1;\n    }"
    prologue = f"    volatile uint8_t big[512];\n{filled}\n    (void)big[0];"
    toy = write_toy(tmp_path, cortex_m4, prologue=prologue)
    elf = build_elf(tmp_path, cortex_m4, tmp_path / "build")
    bound = firmware_bound(elf, cortex_m4.toolchain, "toy_run", []).num_bytes
    painted = run_qemu(elf, cortex_m4, toy.interface, [toy.sample]).stack_bytes
    assert bound is not None and 512 <= painted <= bound <= painted + 16


@pytest.mark.board
def test_planted_recursion_and_pointers(tmp_path: Path, cortex_m4: Platform) -> None:
    deep = "int32_t deep(int32_t n, volatile int32_t *x);\nint32_t deep(int32_t n, volatile int32_t *x)\n"
    deep += "{\n    volatile int32_t y = n;\n    return n < *x ? deep(n + 1, &y) + y : y;\n}\n"
    for index, (extra, call, reason) in enumerate(
        [
            (deep, "volatile int32_t most = 3;\n    (void)deep(0, &most);", "recursion: "),
            ("extern float (*volatile hook)(float);\nfloat (*volatile hook)(float);\n",
             "(void)hook(1.0f);", "calls through a pointer"),
        ]
    ):  # fmt: skip
        folder = tmp_path / str(index)
        write_toy(folder, cortex_m4, prologue=f"    {call}")
        source = folder / "toy.c"
        source.write_text(source.read_text().replace("#include <math.h>\n", f"#include <math.h>\n{extra}"))
        bound = firmware_bound(build_elf(folder, cortex_m4, folder / "build"), cortex_m4.toolchain, "toy_run", [])
        assert bound.num_bytes is None and reason in str(bound.reason)


@pytest.mark.board
@pytest.mark.parametrize("name", some_of([*ALWAYS, *ON_RISCV], sweep=[name for name in ON_BOARDS if name not in OFTEN]))
def test_no_board_paints_more(name: str, kind: Callable[[str], Package]) -> None:
    report = kind(name).report
    bound, painted = report["stack_bound"], report["stack_bytes"]
    most = bound["with_callbacks_bytes"] or bound["num_bytes"]
    assert bound["reason"] is None and painted <= most <= painted + 128
    assert (bound["callback_depth_bytes"] is not None) == (report["options"]["io"] == "stream")
