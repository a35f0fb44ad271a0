"""Operators through their PrimFuncs as a shared library: lowered, compiled, called, compared."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

from codegen_c.emit.functions import definition
from codegen_c.tir.composite import lower_composite
from codegen_c.tir.plain_c import PlainC
from tests.kernels.tir_cases import Case
from tests.support.runtime_headers import INCLUDE_FLAGS
from tests.support.single_turns import single_turns

FLAGS = [
    "-std=c11",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wconversion",
    "-Wshadow",
    "-Wcast-qual",
    "-Wdouble-promotion",
    "-Werror",
    "-fstrict-aliasing",
]
PRELUDE = '#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include "tvm_ext_kernels.h"\n\n'


def lowered(function: relax.Function, module: tvm.IRModule | None = None) -> PlainC:
    result = lower_composite(function, module)
    assert isinstance(result, PlainC), result
    return result


def entry(name: str, plain: PlainC) -> str:
    """The step, and an exported function around it."""
    declarations = ", ".join(parameter.declaration() for parameter in plain.function.parameters)
    names = ", ".join(parameter.name for parameter in plain.function.parameters)
    step = definition(plain.function, f"{name}_step")
    assert not single_turns(step), step
    head = f"void run_{name}({declarations})"
    return f"{step}\n{head};\n{head}\n{{\n    {name}_step({names});\n}}\n"


def compile_c(compiler: str, arguments: list[str]) -> None:
    done = subprocess.run([compiler, *FLAGS, *INCLUDE_FLAGS, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]


def arguments_of(plain: PlainC, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> list[np.ndarray]:
    """The arrays behind the function's pointers; scratch starts out as noise."""
    parts = {
        "input": iter(inputs),
        "output": iter(outputs),
        "constant": iter([np.ascontiguousarray(data) for _, data in plain.constants]),
        "scratch": iter([np.full(plain.scratch_bytes, 0xA5, np.uint8)]),
    }
    return [next(parts[parameter.role]) for parameter in plain.function.parameters]


def call(library: ctypes.CDLL, name: str, arrays: list[np.ndarray]) -> None:
    getattr(library, f"run_{name}")(*[ctypes.c_void_p(array.ctypes.data) for array in arrays])


def assert_same_bits(cases: list[Case], one: dict[str, PlainC], other: dict[str, PlainC], folder: Path) -> None:
    """Two ways to lower each case, by name, give the same bytes."""
    source, library = folder / "both.c", folder / "both.so"
    ways = {"one": one, "other": other}
    texts = [entry(f"{name}_{way}", plain) for way, plains in ways.items() for name, plain in plains.items()]
    source.write_text(PRELUDE + "".join(texts))
    compile_c("gcc", ["-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"])
    loaded = ctypes.CDLL(str(library))
    for case in cases:
        shape = [int(extent) for extent in case.function().ret_ty.shape.values]
        results: list[np.ndarray] = []
        for way, plains in ways.items():
            plain = plains[case.name]
            results.append(np.full(shape, 77, c_dtype(plain)))
            call(loaded, f"{case.name}_{way}", arguments_of(plain, case.arrays(), results[-1:]))
        assert results[0].tobytes() == results[1].tobytes(), case.name


def assert_equal(outputs: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for output, reference in zip(outputs, expected, strict=True):
        if reference.dtype.kind == "f":
            np.testing.assert_allclose(output, reference, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(output, reference)


def c_dtype(plain: PlainC) -> np.dtype:
    ctype = next(parameter.ctype for parameter in plain.function.parameters if parameter.role == "output")
    name = ctype.removeprefix("tvm_ext_any_").removesuffix("_t")
    return np.dtype({"float": "float32", "double": "float64"}.get(name, name))
