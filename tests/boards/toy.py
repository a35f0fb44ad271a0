"""Packages written by hand: small enough to know their instructions, whole enough for every build file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from codegen_c.emit.build_files import emit_build_files
from codegen_c.emit.firmware import emit_firmware
from codegen_c.emit.selftest import TestVector, emit_selftest, emit_vectors
from codegen_c.program.interface import Interface, Port
from tvm_ext.core.options import Io
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_objects
from tvm_ext.execution.qemu_start import link_firmware

RELU_LINE = "output[i] = input[i] > -0.5f ? 2.0f * input[i] + 1.0f : 0.0f;"
EXPONENT = "output[i] = expf(input[i]);"


@dataclass(frozen=True, kw_only=True)
class Toy:
    """A package in `folder`; `sample` and `expected` are under the model's own names."""

    folder: Path
    interface: Interface
    sample: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]


def write_toy(
    folder: Path,
    platform: Platform,
    *,
    io: Io = "arena",
    body: str = RELU_LINE,
    expected: np.ndarray | None = None,
    prologue: str = "",
    section: str = "",
) -> Toy:
    """A model of 8 floats to 8 floats that runs `prologue`, then `body` for each element i."""
    interface = Interface(
        model="toy",
        io=io,
        inputs=(Port(name="x", source="in:0 */ ??/", shape=(2, 4), dtype="float32"),),
        outputs=(Port(name="y", source="out", shape=(8,), dtype="float32"),),
    )
    x = np.linspace(-2, 3, 8, dtype=np.float32).reshape(2, 4)
    y = np.maximum(2 * x + 1, 0).ravel() if expected is None else expected
    vector = TestVector(inputs={"in:0 */ ??/": x}, outputs={"out": y})
    texts = {
        "toy.h": _header(io),
        "toy.c": _source(io, body, prologue, section),
        **emit_vectors(interface, [vector]),
        **emit_selftest(interface),
        **emit_build_files("toy", ["toy.c"], platform, "speed"),
        **(emit_firmware(interface, platform) if platform.board else {}),
    }
    write_texts(folder, texts)
    return Toy(folder=folder, interface=interface, sample=dict(vector.inputs), expected={"out": y})


def write_texts(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def build_elf(folder: Path, platform: Platform, out_dir: Path) -> Path:
    """Everything but the host's main, compiled and linked as firmware."""
    top = [path for path in sorted(folder.glob("*.c")) if not path.name.endswith("_main.c")]
    sources = [*top, *sorted((folder / "board").glob("*.c"))]
    objects = compile_objects(sources, out_dir, platform.toolchain, include_dirs=[folder])
    return link_firmware(objects, out_dir / "toy.elf", platform, folder / "board")


ARM_LOOP = (".syntax unified", "ldr r0, =0", "ldr r1, ={}", "1: subs r1, r1, #1", "bne 1b", "bx lr")
RISCV_LOOP = ("lui a1, %hi({0})", "addi a1, a1, %lo({0})", "1: addi a1, a1, -1", "bnez a1, 1b", "li a0, 0", "ret")
LOOPS = dict.fromkeys(("rv32imac", "rv32imac_zve32x", "rv32imafc_zve32f"), RISCV_LOOP)
"""A function that returns 0 after so many turns of two instructions, with four beside them, by `isa`; else Arm's."""
XTENSA, XTENSA_LOOP = "lx106", ("movi a3, {}", "1: addi a3, a3, -1", "bnez a3, 1b", "movi a2, 0", "ret")
"""The loop for a compiler without naked functions: assembly outside of the C, with three more instructions."""


def write_loop(toy: Toy, iterations: int, isa: str = "") -> int:
    """Replace the model by a loop of known length; the instructions it executes, the first and last included."""
    loop = XTENSA_LOOP if isa == XTENSA else LOOPS.get(isa, ARM_LOOP)
    assembly = "".join(f"{line.format(iterations)}\\n" for line in loop)
    naked = f'__attribute__((naked)) int32_t toy_run(void)\n{{\n    __asm__ volatile("{assembly}");\n}}\n'
    beside = f'__asm__(".text\\n.literal_position\\n.align 4\\n.global toy_run\\ntoy_run: {assembly}");\n'
    (toy.folder / "toy.c").write_text(
        '#include "toy.h"\nstatic float x[8];\nstatic float y[8];\n'
        "float *toy_x(void) { return x; }\nconst float *toy_y(void) { return y; }\n"
        f"{beside if isa == XTENSA else naked}"
    )
    return 2 * iterations + (4 if isa in LOOPS else 3)


def _header(io: Io) -> str:
    arena = "float *toy_x(void);\nconst float *toy_y(void);\nint32_t toy_run(void);\n"
    caller = "int32_t toy_run(const float *x, float *y);\n"
    sizes = "#include <stdint.h>\n#define TOY_X_SIZE 8\n#define TOY_Y_SIZE 8\ntypedef int32_t toy_status;\n"
    return f"#ifndef TOY_H\n#define TOY_H\n{sizes}{arena if io == 'arena' else caller}#endif\n"


def _source(io: Io, body: str, prologue: str, section: str) -> str:
    place = f'__attribute__((section("{section}"))) ' if section else ""
    arena = f"{place}static float input[8];\n{place}static float output[8];\n"
    accessors = "float *toy_x(void) { return input; }\nconst float *toy_y(void) { return output; }\n"
    head = "int32_t toy_run(const float *input, float *output)"
    if io == "arena":
        head = f"{arena}{accessors}int32_t toy_run(void)"
    loop = f"    for (int32_t i = 0; i < 8; i++) {{\n        {body}\n    }}\n"
    return f'#include "toy.h"\n#include <math.h>\n{head}\n{{\n{prologue}\n{loop}    return 0;\n}}\n'
