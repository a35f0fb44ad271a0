"""One ONNX node through its converter: the calls it becomes, constants folded, shapes static."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import onnx_input

from relay_passes.analysis.constant_value import evaluate
from relay_passes.dataflow import bindings, constant, op_name, operands, static_shape, substitute, with_span
from tvm_ext.frontends.onnx.element_types import SUPPORTED_DTYPES
from tvm_ext.frontends.onnx.refusals import Refused
from tvm_ext.frontends.size_limits import ImportSizes

_SHAPERS = frozenset(f"relax.{name}" for name in ("astype", "broadcast_to", "reshape", "permute_dims", "squeeze"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Statement:
    """One binding of the function to be. tensor: first output of the model's node it belongs to."""

    var: relax.Var
    value: relax.Expr
    tensor: str


class NodeTranslator:
    """Collects statements, node after node. tensor: what the next statements belong to."""

    def __init__(self, sizes: ImportSizes) -> None:
        self.statements: list[Statement] = []
        self._sizes = sizes
        self.tensor = ""
        self._builder = relax.BlockBuilder()

    def translate(
        self,
        converter: Callable[..., relax.Expr],
        node: onnx.NodeProto,
        inputs: Sequence[relax.Expr | None],
        label: str,
    ) -> list[relax.Expr]:
        """The node's results: variables of new statements, or constants. Raises Refused, and what converters raise."""
        attributes: dict[str, object] = {attribute.name: _attribute(attribute) for attribute in node.attribute}
        attributes["tvm_custom"] = {"name": node.name, "num_outputs": len(node.output)}
        values = self.emit(lambda bb: converter(bb, onnx_input(inputs), attributes, [{}, {}]), label)
        missing = [name for name in node.output[len(values) :] if name]
        if missing:
            raise Refused(f"its output {missing[0]!r} is not computed")
        return values

    def emit(self, build: Callable[[relax.BlockBuilder], relax.Expr], label: str) -> list[relax.Expr]:
        """What `build` returns, its fields if it is a tuple: variables of new statements, or constants."""
        self._builder._begin_dataflow_block()
        try:
            expr = self._builder.normalize(build(self._builder))
        finally:
            block = self._builder._end_block()
        span = tvm.ir.Span(tvm.ir.SourceName(label), 0, 0, 0, 0)
        known: dict[relax.Var, relax.Expr] = {}
        for binding in block.bindings:
            if not isinstance(binding, relax.VarBinding):
                raise Refused("the shape of its output depends on data")
            known[binding.var] = self._keep(substitute(binding.value, known), span)
        fields = expr.fields if isinstance(expr, relax.Tuple) else [expr]
        values = [self._keep(substitute(field, known), span) for field in fields]
        if len(values) == 1 and isinstance(values[0].ty, relax.TupleType):
            elements = range(len(values[0].ty.fields))
            values = [self._keep(relax.TupleGetItem(values[0], index), span) for index in elements]
        return [_tensor(value) for value in values]

    def helpers(self, main: relax.Function) -> dict[tvm.ir.GlobalVar, tvm.tirx.PrimFunc]:
        """The functions that `main` calls by name: what converters wrote as loops."""
        made = self._builder.get()
        called = {leaf for binding in bindings(main) for leaf in operands(binding.value)}
        return {var: made[var] for var in made.get_global_vars() if var in called}

    def _keep(self, value: relax.Expr, span: tvm.ir.Span) -> relax.Expr:
        """What stands for `value` from now on: itself if a leaf, its number if known, else a new variable."""
        if isinstance(value, relax.Var | relax.ShapeExpr | tvm.ir.GenericConst | tvm.tirx.IntImm):
            _refuse(self._sizes.refuses(value) if isinstance(value, tvm.ir.GenericConst) else None)
            return value
        _refuse(self._sizes.refuses(value))
        folded = evaluate(value)
        if folded is not None:
            return self._sizes.computed(folded)
        if is_no_op(value):
            return value.args[0]
        _check_type(value.ty)
        if isinstance(value.ty, relax.TensorType) and 0 in static_shape(value):
            return constant(np.empty(static_shape(value), str(value.ty.dtype)))
        var = relax.DataflowVar("", value.ty)
        self.statements.append(Statement(var=var, value=with_span(value, span), tensor=self.tensor))
        return var


def _refuse(reason: str | None) -> None:
    if reason:
        raise Refused(reason)


def _tensor(value: relax.Expr) -> relax.Expr:
    """ONNX knows tensors only: shapes and numbers of Relax become int64 constants."""
    if isinstance(value, relax.ShapeExpr):
        return constant(np.array([int(dim) for dim in value.values], "int64"))
    return constant(np.array(int(value), "int64")) if isinstance(value, tvm.tirx.IntImm) else value


def is_no_op(value: relax.Expr) -> bool:
    """Whether a call gives its first operand back as it is: a cast to its own type, a reshape to its own shape."""
    if op_name(value) not in _SHAPERS or not isinstance(value.ty, relax.TensorType):
        return False
    same_type = tvm_ffi.structural_equal(value.ty, value.args[0].ty)
    return same_type and (op_name(value) != "relax.permute_dims" or (value.attrs.axes is not None and _in_order(value)))


def _in_order(call: relax.Call) -> bool:
    axes = [int(axis) for axis in call.attrs.axes]
    return axes == list(range(len(axes)))


def _check_type(ty: relax.Type) -> None:
    """Raises Refused unless all of it is tensors of known shape and supported elements."""
    for field in ty.fields if isinstance(ty, relax.TupleType) else [ty]:
        if not isinstance(field, relax.TensorType) or not isinstance(field.shape, relax.ShapeExpr):
            raise Refused("the shape of its output depends on data")
        if not all(isinstance(dim, tvm.tirx.IntImm) for dim in field.shape.values):
            raise Refused("the shape of its output depends on data")
        if str(field.dtype) not in SUPPORTED_DTYPES:
            raise Refused(f"its element type {field.dtype} is not supported")


def _attribute(attribute: onnx.AttributeProto) -> object:
    """The value in the form TVM's converters expect: tuples for lists, bytes for strings."""
    value = onnx.helper.get_attribute_value(attribute)
    is_list = attribute.type >= onnx.AttributeProto.FLOATS and attribute.type != onnx.AttributeProto.SPARSE_TENSOR
    return tuple(value) if is_list and attribute.type != onnx.AttributeProto.TYPE_PROTO else value
