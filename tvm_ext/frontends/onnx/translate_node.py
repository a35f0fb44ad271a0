"""Translate an ONNX node by its converter into calls, with constants folded and shapes static."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import onnx_input

from relay_passes.dataflow import constant, op_name, static_shape
from tvm_ext.frontends.onnx.element_types import (
    SUPPORTED_DTYPES,
    computes_narrow,
    narrow_results,
    narrowed,
    unsupported_type,
    widened,
)
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.size_limits import ImportSizes
from tvm_ext.frontends.statements import Statements

_MOST_LETTERS = 40
_SHAPERS = frozenset(f"relax.{name}" for name in ("astype", "broadcast_to", "reshape", "permute_dims", "squeeze"))


class NodeTranslator:
    """Collects statements, node after node.

    tensor: first output of the node to which the next statements belong.
    """

    def __init__(self, sizes: ImportSizes) -> None:
        self._sizes = sizes
        self.statements = self.new_statements()
        self.tensor = ""

    def new_statements(self) -> Statements:
        """Return a list for statements of a body, apart from those so far."""
        return Statements(self._sizes, replaced=_replaced)

    def translate(
        self,
        converter: Callable[..., relax.Expr],
        node: onnx.NodeProto,
        inputs: Sequence[relax.Expr | None],
        label: str,
    ) -> list[relax.Expr]:
        """Return the node's results: variables of new statements, or constants.

        Raises Refused, and anything that converters raise.
        """
        attributes: dict[str, object] = {attribute.name: _attribute(attribute) for attribute in node.attribute}
        attributes["tvm_custom"] = {"name": node.name, "num_outputs": len(node.output), "outputs": list(node.output)}
        is_narrow = computes_narrow(node, inputs)
        given = [self._widened(value, label) for value in inputs] if is_narrow else inputs
        values = self.emit(lambda bb: converter(bb, onnx_input(given), attributes, [{}, {}]), label)
        if is_narrow:
            pairs = zip(values, narrow_results(node, inputs), strict=False)
            values = [self._one(narrowed(value, dtype), label) for value, dtype in pairs]
        missing = [name for name in node.output[len(values) :] if name]
        if missing:
            raise Refused(f"its output {missing[0]!r} is not computed")
        return values

    def _widened(self, value: relax.Expr | None, label: str) -> relax.Expr | None:
        wide = widened(value)
        return wide if wide is None or wide is value else self._one(wide, label)

    def _one(self, value: relax.Expr, label: str) -> relax.Expr:
        return value if not isinstance(value, relax.Call) else self.emit(lambda bb: bb.normalize(value), label)[0]

    def emit(self, build: Callable[[relax.BlockBuilder], relax.Expr], label: str) -> list[relax.Expr]:
        """Return the results of `build`, or its fields for a tuple: variables of new statements, or constants."""
        return [_tensor(value) for value in self.statements.collect(build, operator=label, tensor=self.tensor)]


def untranslated(node: onnx.NodeProto, inputs: Sequence[object]) -> str:
    """Return why a node is refused that no converter takes, with the arguments that were tried."""
    given = [_described(value) for value in inputs]
    attributes = [f"{attribute.name} = {_shown(attribute)}" for attribute in node.attribute]
    beside = f", and {', '.join(attributes)}" if attributes else ""
    return f"no converter takes it with {', '.join(given) or 'no inputs'}{beside}"


def _described(value: object) -> str:
    if not isinstance(value, relax.Expr):
        return "no input there"
    known = "constant " if isinstance(value, tvm.ir.GenericConst) else ""
    text = f"{value.ty.dtype}{list(static_shape(value))}"
    return f"{known}{text}" if known else f"{text} not known before it runs"


def _shown(attribute: onnx.AttributeProto) -> str:
    text = str(_attribute(attribute))
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."


def _replaced(value: relax.Expr) -> relax.Expr | None:
    """Return the operand of a call that changes nothing, or a constant for a tensor without elements."""
    if is_no_op(value):
        return value.args[0]
    for field in value.ty.fields if isinstance(value.ty, relax.TupleType) else [value.ty]:
        if str(field.dtype) not in SUPPORTED_DTYPES:
            raise Refused(unsupported_type(str(field.dtype)))
    if isinstance(value.ty, relax.TensorType) and 0 in static_shape(value):
        return constant(np.empty(static_shape(value), str(value.ty.dtype)))
    return None


def _tensor(value: relax.Expr) -> relax.Expr:
    """Convert shapes and numbers of Relax to int64 constants, because ONNX has only tensors."""
    if isinstance(value, relax.ShapeExpr):
        return constant(np.array([int(dim) for dim in value.values], "int64"))
    return constant(np.array(int(value), "int64")) if isinstance(value, tvm.tirx.IntImm) else value


def is_no_op(value: relax.Expr) -> bool:
    """Return True for a call that returns its first operand: a cast to its own type, or a reshape to its own shape."""
    if op_name(value) not in _SHAPERS or not isinstance(value.ty, relax.TensorType):
        return False
    same_type = tvm_ffi.structural_equal(value.ty, value.args[0].ty)
    return same_type and (op_name(value) != "relax.permute_dims" or (value.attrs.axes is not None and _in_order(value)))


def _in_order(call: relax.Call) -> bool:
    axes = [int(axis) for axis in call.attrs.axes]
    return axes == list(range(len(axes)))


def _attribute(attribute: onnx.AttributeProto) -> object:
    """Return the value in the form that TVM's converters expect: tuples for lists, bytes for strings."""
    value = onnx.helper.get_attribute_value(attribute)
    is_list = attribute.type >= onnx.AttributeProto.FLOATS and attribute.type != onnx.AttributeProto.SPARSE_TENSOR
    return tuple(value) if is_list and attribute.type != onnx.AttributeProto.TYPE_PROTO else value
