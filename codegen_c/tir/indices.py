"""Indices that inputs hold, kept within their buffers: such a load reads the nearest element, such a store writes none.

TVM's definitions of gathers and scatters trust them; what a sensor or a network peer sends may be anything.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Expr, Range, TensorLoad, Var
from tvm.sym import Analyzer


def with_indices_inside(body: tirx.Stmt, inputs: Mapping[tirx.Buffer, np.ndarray | None]) -> tirx.Stmt:
    """The statement with accesses inside of their buffers, whatever integers `inputs` hold; None: not known now."""
    indices = _Indices(body, inputs)
    return tvm_ffi.structural_map(body, [(TensorLoad, indices.load), (tirx.BufferStore, indices.store)])


class _Indices:
    """given: buffers and variables that hold, computed or copied, what inputs hold; comparisons with it choose only."""

    def __init__(self, body: tirx.Stmt, inputs: Mapping[tirx.Buffer, np.ndarray | None]) -> None:
        self.inputs = inputs
        self.analyzer = Analyzer()
        self.given: set[Var] = set(inputs)
        tvm_ffi.structural_walk(
            body,
            [
                (tirx.For, self._counted),
                (s_tir.SBlock, self._mapped),
                (tirx.Bind, lambda bind: self._taken(bind.var, bind.value)),
                (tirx.BufferStore, lambda store: self._taken(store.buffer, store.value)),
            ],
        )

    def load(self, expr: TensorLoad) -> Expr:
        axes = list(zip(expr.indices, map(int, expr.source.ty.shape), strict=True))
        if not any(self._is_wild(index, extent) for index, extent in axes):
            return expr
        return tirx.BufferLoad(expr.source, [self._nearest(index, extent) for index, extent in axes])

    def store(self, store: tirx.BufferStore) -> tirx.Stmt:
        axes = zip(store.indices, map(int, store.buffer.ty.shape), strict=True)
        wild = [(index, extent) for index, extent in axes if self._is_wild(index, extent)]
        conditions = [side for index, extent in wild for side in (index >= 0, index < _like(index, extent))]
        return tirx.IfThenElse(tirx.all(*conditions), store, None) if wild else store

    def _nearest(self, index: Expr, extent: int) -> Expr:
        if not self._is_wild(index, extent):
            return index
        return tirx.max(tirx.min(index, _like(index, extent - 1)), _like(index, 0))

    def _is_wild(self, index: Expr, extent: int) -> bool:
        if not self._depends(index) or self._is_known_inside(index, extent):
            return False
        bound = self.analyzer.const_int_bound(index)
        return not (bound.min_value >= 0 and bound.max_value < extent)

    def _depends(self, expr: Expr) -> bool:
        if isinstance(expr, tirx.Select):
            return self._depends(expr.true_value) or self._depends(expr.false_value)
        if str(expr.ty.dtype) == "bool":
            return False
        found: list[bool] = []
        tvm_ffi.structural_walk(expr, [(Var, lambda var: found.append(var in self.given))])
        return any(found)

    def _is_known_inside(self, index: Expr, extent: int) -> bool:
        """True for an element of a constant none of which lies outside."""
        while isinstance(index, tirx.Cast):
            index = index.value
        values = self.inputs.get(index.source) if isinstance(index, TensorLoad) else None
        return values is not None and bool(values.size and values.min() >= 0 and values.max() < extent)

    def _counted(self, loop: tirx.For) -> None:
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))

    def _mapped(self, block: s_tir.SBlock) -> None:
        for axis in block.iter_vars:
            self.analyzer.bind(axis.var, axis.dom)

    def _taken(self, into: Var, value: Expr) -> None:
        if self._depends(value):
            self.given.add(into)


def _like(index: Expr, number: int) -> Expr:
    return tirx.const(number, index.ty.dtype)
