"""A target from outside: a package with a kernel and a header of its own, as a user would install it."""

from __future__ import annotations

from pathlib import Path

TARGET = """\
from codegen_c.targets.instruction_set import InstructionSet, Startup

BOARD = Startup(
    package="toy_target.board", isas=("toy1",), emulator="qemu-system-toy", read_stack_pointer="copy %0, stack"
)
TARGET = InstructionSet(simd="toy", title="toy vectors", calibration={"softmax_toy": 0.5}, startups=(BOARD,))
"""

KERNEL = """\
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter
from codegen_c.kernels.softmax.softmax_f32 import reference
from codegen_c.operators.kinds import Softmax


def is_no_logarithm(operator, target):
    \"""it must be no logarithm\"""
    return not operator.log


def implement(operator, target, stored):
    total, length = operator.output.num_elements, operator.output.shape[-1]
    parameters = (
        Parameter(name="input", ctype="float", role="input"), Parameter(name="output", ctype="float", role="output"),
    )
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=parameters, body=f"toy_softmax(input, output, {total}, {length});", includes=("tvm_ext_toy.h",),
        ),
        reference=lambda inputs: reference(operator, inputs),
        instructions=total * 20,
    )


KERNEL = Kernel(
    name="softmax_toy", title="Softmax", operator=Softmax, implement=implement, constraints=(is_no_logarithm,)
)
"""

HEADER = """\
#ifndef TVM_EXT_TOY_H
#define TVM_EXT_TOY_H
#include "tvm_ext_kernels.h"
static inline void toy_softmax(const float *x, float *y, int32_t total, int32_t length)
{
    for (int32_t i = 0; i < total; i += length) {
        float most = x[i];
        float sum = 0.0f;
        for (int32_t k = 0; k < length; ++k) {
            most = most < x[i + k] ? x[i + k] : most;
        }
        for (int32_t k = 0; k < length; ++k) {
            y[i + k] = expf(x[i + k] - most);
            sum += y[i + k];
        }
        for (int32_t k = 0; k < length; ++k) {
            y[i + k] /= sum;
        }
    }
}
#endif
"""


BOARD_FILES = ("startup.c", "semihosting_call.h", "measure_known.h", "timer_tick.h")


def write_toy_target(folder: Path, package: str = "toy_target", simd: str = "toy") -> None:
    """A package and its metadata, as an installer leaves them in a folder of sys.path."""
    for name, text in {
        f"{package}/__init__.py": "",
        f"{package}/target.py": TARGET.replace('"toy"', f'"{simd}"'),
        f"{package}/kernels/__init__.py": "",
        f"{package}/kernels/softmax_toy.py": KERNEL,
        f"{package}/runtime/tvm_ext_toy.h": HEADER,
        f"{package}/board/__init__.py": "",
        **{f"{package}/board/{name}": f"/* toy {name} */\n" for name in BOARD_FILES},
        f"{package}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n",
        f"{package}-1.0.dist-info/entry_points.txt": f"[tvm_ext.targets]\n{simd} = {package}\n",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
