"""Statements of an imported function: the calls that operators become, and the names of their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from relay_passes.analysis.constant_value import evaluate
from relay_passes.dataflow import bindings, operands, substitute, with_span
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.size_limits import ImportSizes

Replace = Callable[[relax.Expr], "relax.Expr | None"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Statement:
    """A binding of the new function.

    tensor: first output of the model's operator to which it belongs.
    """

    var: relax.Var
    value: relax.Expr
    tensor: str


class Statements:
    """Collects statements, operator after operator.

    folds: returns True for an expression that a constant replaces if its numbers are known.
    replaced: returns an expression that replaces the given expression, or None if it becomes a statement. It may raise
    Refused.
    """

    def __init__(
        self,
        sizes: ImportSizes,
        *,
        folds: Callable[[relax.Expr], bool] = lambda value: True,
        replaced: Replace = lambda value: None,
    ) -> None:
        self.list: list[Statement] = []
        self._sizes, self._folds, self._replaced = sizes, folds, replaced
        self._builder = relax.BlockBuilder()

    def collect(
        self, make: Callable[[relax.BlockBuilder], relax.Expr], *, operator: str, tensor: str
    ) -> list[relax.Expr]:
        """Return the results of `make`: variables of new statements, or constants.

        operator: its name in the model, the span of all calls.
        tensor: its first result in the model.
        Raises Refused for a result that is too large or has no static shape, and anything that `make` raises.
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
                raise Refused("the shape of its output depends on data")
            known[binding.var] = self._keep(substitute(binding.value, known), span, tensor)
        fields = expr.fields if isinstance(expr, relax.Tuple) else [expr]
        values = [self._keep(substitute(field, known), span, tensor) for field in fields]
        if len(values) == 1 and isinstance(values[0].ty, relax.TupleType):
            elements = range(len(values[0].ty.fields))
            values = [self._keep(relax.TupleGetItem(values[0], index), span, tensor) for index in elements]
        return values

    def helpers(self, main: relax.Function) -> dict[tvm.ir.GlobalVar, tvm.tirx.PrimFunc]:
        """Return the functions that `main` calls by name, which converters wrote as loops."""
        made = self._builder.get()
        called = {leaf for binding in bindings(main) for leaf in operands(binding.value)}
        return {var: made[var] for var in made.get_global_vars() if var in called}

    def _keep(self, value: relax.Expr, span: tvm.ir.Span, tensor: str) -> relax.Expr:
        """Return the replacement of `value` from now on: a leaf itself, a known number, or else a new variable."""
        if isinstance(value, relax.Var | relax.ShapeExpr | tvm.ir.GenericConst | tvm.tirx.IntImm):
            _refuse(self._sizes.refuses(value) if isinstance(value, tvm.ir.GenericConst) else None)
            return value
        _refuse(self._sizes.refuses(value))
        folded = evaluate(value) if self._folds(value) else None
        if folded is not None:
            return self._sizes.computed(folded)
        _check_static(value.ty)
        if (other := self._replaced(value)) is not None:
            return other
        var = relax.DataflowVar("", value.ty)
        self.list.append(Statement(var=var, value=with_span(value, span), tensor=tensor))
        return var


def _refuse(reason: str | None) -> None:
    if reason:
        raise Refused(reason)


def _check_static(ty: relax.Type) -> None:
    for field in ty.fields if isinstance(ty, relax.TupleType) else [ty]:
        if not isinstance(field, relax.TensorType) or not isinstance(field.shape, relax.ShapeExpr):
            raise Refused("the shape of its output depends on data")
        if not all(isinstance(dim, tvm.tirx.IntImm) for dim in field.shape.values[:]):
            raise Refused("the shape of its output depends on data")


def name_variables(
    statements: Sequence[Statement], tensors: Mapping[str, object], outputs: Sequence[str]
) -> tuple[list[relax.VarBinding], dict[relax.Var, relax.Var]]:
    """Return bindings with names, and the named variable of each unnamed variable.

    A variable that holds a tensor of the model has its name, preferably that of an output (Identity). Other variables,
    inside the calls of a node, are named after the node's first output: `y.1`, `y.2`.
    """
    own: dict[object, str] = {}
    for name in [*outputs, *tensors]:
        if isinstance(tensors[name], relax.Var):
            own.setdefault(tensors[name], name)
    taken = set(tensors)
    renamed: dict[relax.Var, relax.Var] = {}
    bindings = []
    for statement in statements:
        name = own.get(statement.var) or _inner_name(statement.tensor, taken)
        taken.add(name)
        value = substitute(statement.value, renamed)
        renamed[statement.var] = relax.DataflowVar(name, statement.var.ty)
        bindings.append(relax.VarBinding(renamed[statement.var], value))
    return bindings, renamed


def _inner_name(tensor: str, taken: set[str]) -> str:
    index = 1
    while f"{tensor}.{index}" in taken:
        index += 1
    return f"{tensor}.{index}"
