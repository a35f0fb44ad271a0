"""Statements of a function to be: what each operator of a model became, constants folded, shapes static."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from relay_passes.analysis.constant_value import evaluate
from relay_passes.dataflow import substitute, with_span
from tvm_ext.frontends.onnx.translate_node import Statement
from tvm_ext.frontends.size_limits import ImportSizes


class NotPossible(Exception):
    """Raised for an operator whose result has no shape or type that is known at compile time, or is too large."""


class Statements:
    """Collects statements, operator after operator."""

    def __init__(self, sizes: ImportSizes) -> None:
        self.list: list[Statement] = []
        self._sizes = sizes
        self._builder = relax.BlockBuilder()

    def collect(
        self, make: Callable[[relax.BlockBuilder], relax.Expr], *, operator: str, tensor: str
    ) -> list[relax.Expr]:
        """The results of `make`: variables of new statements, or constants. Raises NotPossible, and what `make` raises.

        operator: its name in the model, the span of all calls. tensor: its first result in the model.
        """
        self._builder._begin_dataflow_block()
        try:
            expr = self._builder.normalize(make(self._builder))
        finally:
            block = self._builder._end_block()
        span = tvm.ir.Span(tvm.ir.SourceName(operator), 0, 0, 0, 0)
        known: dict[relax.Var, relax.Expr] = {}
        for binding in block.bindings:
            if not isinstance(binding, relax.VarBinding):
                raise NotPossible("the shape of its output depends on data")
            known[binding.var] = self._keep(substitute(binding.value, known), span, tensor)
        fields = expr.fields if isinstance(expr, relax.Tuple) else [expr]
        values = [self._keep(substitute(field, known), span, tensor) for field in fields]
        if len(values) == 1 and isinstance(values[0].ty, relax.TupleType):
            elements = range(len(values[0].ty.fields))
            values = [self._keep(relax.TupleGetItem(values[0], index), span, tensor) for index in elements]
        return values

    def helpers(self, called: set[relax.Expr]) -> dict[tvm.ir.GlobalVar, tvm.tirx.PrimFunc]:
        """Those functions that converters wrote as loops and that are among `called`."""
        made = self._builder.get()
        return {var: made[var] for var in made.get_global_vars() if var in called}

    def _keep(self, value: relax.Expr, span: tvm.ir.Span, tensor: str) -> relax.Expr:
        """What stands for `value` from now on: itself if a leaf, its number if known, else a new variable."""
        if isinstance(value, relax.Var | relax.ShapeExpr | tvm.ir.GenericConst | tvm.tirx.IntImm):
            self._refuse(value if isinstance(value, tvm.ir.GenericConst) else None)
            return value
        self._refuse(value)
        dequantizes = isinstance(value, relax.Call) and value.op == tvm.ir.Op.get("relax.dequantize")
        folded = None if dequantizes else evaluate(value)  # a dequantized weight stays one: kernels use its integers
        if folded is not None:
            return self._sizes.computed(folded)
        _check_static(value.ty)
        var = relax.DataflowVar("", value.ty)
        self.list.append(Statement(var=var, value=with_span(value, span), tensor=tensor))
        return var

    def _refuse(self, value: relax.Expr | None) -> None:
        reason = None if value is None else self._sizes.refuses(value)
        if reason:
            raise NotPossible(reason)


def _check_static(ty: relax.Type) -> None:
    for field in ty.fields if isinstance(ty, relax.TupleType) else [ty]:
        if not isinstance(field, relax.TensorType) or not isinstance(field.shape, relax.ShapeExpr):
            raise NotPossible("the shape of its output depends on data")
        if not all(isinstance(dim, tvm.tirx.IntImm) for dim in field.shape.values):
            raise NotPossible("the shape of its output depends on data")
