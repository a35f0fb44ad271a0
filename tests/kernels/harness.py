"""Compiles one kernel alone and calls it through ctypes, so that it can be held against its numpy reference."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

import numpy as np

from codegen_c.emit.functions import definition
from codegen_c.kernels.contract import Implementation, Target
from codegen_c.operators import Operator
from tvm_ext.core.platform import Platform

HOST = Target(processor=Platform.load("host").processor)
FLAGS = (
    "-std=c11 -O2 -fno-strict-aliasing -fPIC -shared -Wall -Wextra -Wpedantic -Wconversion -Wshadow "
    "-Wcast-qual -Werror -Wno-unused-function -fsanitize=undefined -fno-sanitize-recover=undefined"
).split()


def compile_kernel(implementation: Implementation) -> ctypes.CDLL:
    """The kernel as a shared library with one entry `kernel`."""
    function = implementation.function
    names = [parameter.name for parameter in function.parameters]
    declarations = ", ".join(parameter.declaration() for parameter in function.parameters)
    includes = "".join(f"#include <{name}>\n" for name in function.includes)
    text = (
        f'{includes}#include "tvm_ext_kernels.h"\n\n{definition(function, "step")}\n'
        f"void kernel({declarations});\nvoid kernel({declarations})\n{{\n    step({', '.join(names)});\n}}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "kernel.c"), Path(folder, "kernel.so")
        source.write_text(text)
        command = ["gcc", *FLAGS, f"-I{files('codegen_c') / 'runtime'}", str(source), "-o", str(library), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stderr}\n{text}"
        return ctypes.CDLL(str(library))


def run_kernel(
    operator: Operator,
    implementation: Implementation,
    inputs: list[np.ndarray],
    rows: list[tuple[int, int]] | None = None,
) -> list[np.ndarray]:
    """Outputs of the compiled kernel; `rows` calls it once for each range of output rows."""
    entry = compile_kernel(implementation).kernel
    outputs = [np.full(t.shape, 77, dtype=t.dtype) for t in operator.outputs]
    scratch = np.zeros(max(implementation.scratch_bytes, 1) + 16, dtype=np.uint8)
    parts = {
        "input": iter([np.ascontiguousarray(array) for array in inputs]),
        "output": iter(outputs),
        "constant": iter([np.ascontiguousarray(array) for _, array in implementation.constants]),
        "scratch": iter([scratch]),
    }
    kept = {p.name: next(parts[p.role]) for p in implementation.function.parameters if p.role != "row"}
    num_rows = implementation.spatial.output_rows if implementation.spatial else operator.output.shape[1:2][0:1]
    whole = [(0, num_rows if isinstance(num_rows, int) else (num_rows[0] if num_rows else 1))]
    for begin, end in rows or whole:
        bounds = iter((begin, end))
        arguments = [
            ctypes.c_int32(next(bounds)) if p.role == "row" else kept[p.name].ctypes.data_as(ctypes.c_void_p)
            for p in implementation.function.parameters
        ]
        entry(*arguments)
    return outputs
