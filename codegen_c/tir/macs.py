"""Multiply-accumulates of a PrimFunc: products that its loops add to a running sum."""

from __future__ import annotations

import math

import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, Range, TensorLoad
from tvm.sym import Analyzer

from codegen_c.tir.lower import lower_function
from codegen_c.tir.ranges import reads_elements


def macs_of_function(function: tirx.PrimFunc) -> int:
    """Multiply-accumulates of one run, before any scheduling."""
    return macs_of_loops(lower_function(function).body)


def macs_of_loops(statement: tirx.Stmt) -> int:
    """Multiply-accumulates of plain loops: one for each time that a product of elements is added to what is stored.

    Of two branches the larger counts; bodies of `while` count once.
    """
    return _macs(statement, Analyzer())


def _macs(statement: tirx.Stmt, analyzer: Analyzer) -> int:
    if isinstance(statement, tirx.SeqStmt):
        return sum(_macs(part, analyzer) for part in statement.seq)
    if isinstance(statement, tirx.For):
        analyzer.bind(statement.loop_var, Range.from_min_extent(statement.min, statement.extent))
        each = _macs(statement.body, analyzer)
        return each * _turns(statement, analyzer) if each else 0
    if isinstance(statement, tirx.IfThenElse):
        other = _macs(statement.else_case, analyzer) if statement.else_case is not None else 0
        return max(_macs(statement.then_case, analyzer), other)
    if isinstance(statement, tirx.While | tirx.AttrStmt):
        return _macs(statement.body, analyzer)
    return int(isinstance(statement, tirx.BufferStore) and _adds_product(statement))


def _turns(loop: tirx.For, analyzer: Analyzer) -> int:
    """Turns of a loop; the most there can be, where they depend on loops around it."""
    step = int(loop.step) if loop.step is not None else 1
    return max(0, math.ceil(analyzer.const_int_bound(loop.extent).max_value / step))


def _adds_product(store: tirx.BufferStore) -> bool:
    """True for `x[i] = x[i] + ... a * b ...`, one of the factors at least an element."""
    total = store.value
    if not isinstance(total, tirx.Add):
        return False
    sides = [(total.a, total.b), (total.b, total.a)]
    return any(_is_stored(kept, store) and _has_product(added) for kept, added in sides)


def _is_stored(value: Expr, store: tirx.BufferStore) -> bool:
    return (
        isinstance(value, TensorLoad)
        and value.source.same_as(store.buffer)
        and tvm_ffi.structural_equal(value.indices, store.indices)
    )


def _has_product(value: Expr) -> bool:
    found: list[tirx.Mul] = []
    tvm_ffi.structural_walk(value, [(tirx.Mul, found.append)])
    return any(map(reads_elements, found))
