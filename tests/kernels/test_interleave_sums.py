"""Several sums in one loop have the same bits; loops whose sums depend on each other are left alone."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T

from codegen_c.tir.interleave_sums import interleave_sums

# pyright: reportUnknownVariableType=false, reportGeneralTypeIssues=false


@T.prim_func(s_tir=True)
def rows(x: T.Buffer((10,), "float32"), w: T.Buffer((8, 10), "float32"), y: T.Buffer((8,), "float32")):
    for i in range(8):
        total = T.alloc_buffer((1,), "float32", scope="local")
        total[0] = T.float32(0.5)
        for k in range(10):
            total[0] = total[0] + x[k] * w[i, k]
        y[i] = total[0]


@T.prim_func(s_tir=True)
def triangle(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    for i in range(8):
        total = T.alloc_buffer((1,), "float32", scope="local")
        total[0] = T.float32(0)
        for k in range(i):
            total[0] = total[0] + x[k]
        y[i] = total[0]


@T.prim_func(s_tir=True)
def recurrence(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    for i in range(8):
        total = T.alloc_buffer((1,), "float32", scope="local")
        total[0] = x[i]
        for k in range(8):
            total[0] = total[0] + y[k]
        y[i] = total[0]


@T.prim_func(s_tir=True)
def seven_rows(x: T.Buffer((10,), "float32"), y: T.Buffer((7,), "float32")):
    for i in range(7):
        total = T.alloc_buffer((1,), "float32", scope="local")
        total[0] = T.float32(0)
        for k in range(10):
            total[0] = total[0] + x[k]
        y[i] = total[0]


def test_four_sums_have_the_bits_of_one_after_the_other() -> None:
    changed = rows.with_body(interleave_sums(rows.body))
    assert not tvm_ffi.structural_equal(changed, rows)
    loops: list[int] = []
    tvm_ffi.structural_walk(changed.body, [(tirx.For, lambda loop: loops.append(int(loop.extent)))])
    assert sorted(loops) == [2, 10]
    rng, results = np.random.default_rng(0), []
    x, w = rng.standard_normal(10).astype(np.float32), rng.standard_normal((8, 10)).astype(np.float32)
    for function in (rows, changed):
        y = tvm.runtime.tensor(np.zeros(8, np.float32))
        module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        tvm.compile(module, target="llvm")["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w), y)
        results.append(y.numpy().tobytes())
    assert results[0] == results[1]


@pytest.mark.parametrize("function", [triangle, recurrence, seven_rows], ids=["triangle", "recurrence", "seven_rows"])
def test_other_loops_stay(function: tirx.PrimFunc) -> None:
    assert tvm_ffi.structural_equal(interleave_sums(function.body), function.body)
