"""Writes a choice of int8 units into a function: quantize and dequantize around them, integer weights inside."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relay_passes.analysis.int8_parameters import LinearInt8
from relay_passes.analysis.quantization_units import Unit
from relay_passes.analysis.run_units import Int8Choice, bias_shape, linear_bindings
from relay_passes.dataflow import build, constant, infer, live, outputs, substitute, with_span


def insert_qdq(
    func: relax.Function, units: list[Unit], choice: Int8Choice, *, int8_results: bool, num_states: int = 0
) -> relax.Function:
    """`func` as QDQ. An int8 value has the name its float value had; int8_results: results of int8 units stay int8.

    Parameters in `choice.inputs` become int8. num_states: last parameters and results that have one type.
    """
    return _Writer(func, units, choice).run(int8_results, num_states)


class _Writer:
    """Knows the float form, the int8 form, or both, of each value."""

    def __init__(self, func: relax.Function, units: list[Unit], choice: Int8Choice) -> None:
        self.func, self.units, self.choice = func, units, choice
        self.sequence: list[relax.VarBinding] = []
        self.floats: dict[relax.Var, relax.Expr] = {}
        self.integers: dict[relax.Var, relax.Var] = {}
        self.dequantized: dict[relax.Var, relax.Var] = {}

    def run(self, int8_results: bool, num_states: int) -> relax.Function:
        params = [self._param(param) for param in self.func.params]
        for index, unit in enumerate(self.units):
            self._unit(index, unit)
        given, states = outputs(self.func), self.func.params[len(self.func.params) - num_states :]
        count = len(given) - num_states
        results = [
            *(self._result(result, int8_results) for result in given[:count]),
            *(self._left(param, result) for param, result in zip(states, given[count:], strict=True)),
        ]
        as_tuple = isinstance(self.func.body.body, relax.Tuple)
        return build(params, live(self.sequence, results), results, attrs=self.func.attrs, as_tuple=as_tuple)

    def _param(self, param: relax.Var) -> relax.Var:
        if param not in self.choice.inputs:
            self.floats[param] = param
            return param
        self.integers[param] = relax.Var(param.name, relax.TensorType(param.ty.shape, "int8"))
        return self.integers[param]

    def _unit(self, index: int, unit: Unit) -> None:
        if index not in self.choice.units:
            self._as_it_was(unit)
        elif unit.kind == "move":
            member = unit.members[0]
            value = substitute(member.value, {var: self._integer(var) for var in unit.inputs})
            self.integers[unit.result] = self._bind(unit.result.name, value)
        else:
            self._in_int8(index, unit)

    def _as_it_was(self, unit: Unit) -> None:
        for member in unit.members:
            known = {var: self._float(var) for var in unit.inputs} | self.floats
            self.floats[member.var] = self._bind(member.var.name, substitute(member.value, known))

    def _in_int8(self, index: int, unit: Unit) -> None:
        known: dict[relax.Var, relax.Expr] = {var: self._dequantize(var) for var in unit.inputs}
        if unit.kind == "linear":
            linear = self.choice.linear[index]
            value = self._linear(unit, linear, known[unit.inputs[0]])
        else:
            for member in unit.members:
                name = f"{member.var.name}.float" if member.var.same_as(unit.result) else member.var.name
                known[member.var] = self._bind(name, substitute(member.value, known))
            value = known[unit.result]
        self._quantize(unit.result, value, unit.members[-1].value.span)

    def _linear(self, unit: Unit, linear: LinearInt8, data: relax.Expr) -> relax.Var:
        span, name = unit.members[0].value.span, unit.result.name
        weight = self._constant(f"{name}.weight", linear.weight, linear.weight_scale, linear.axis, span)
        shape = bias_shape(unit)
        axis = len(shape) - 1 if unit.operator == "relax.matmul" else _channel_axis(unit)
        bias = self._constant(f"{name}.bias", linear.bias.reshape(shape), linear.bias_scale, axis, span)
        sequence, _ = linear_bindings(unit, data, weight, bias)
        self.sequence += sequence
        return sequence[-1].var

    def _constant(
        self, name: str, integers: np.ndarray, scale: np.ndarray, axis: int, span: tvm.ir.Span | None
    ) -> relax.Var:
        zeros = constant(np.zeros(scale.shape, integers.dtype))
        call = relax.op.dequantize(constant(integers), constant(scale), zeros, axis=axis, out_dtype="float32")
        return self._bind(name, with_span(infer(call), span))

    def _quantize(self, var: relax.Var, value: relax.Expr, span: tvm.ir.Span | None) -> None:
        scale, zero_point = self._parameters(var)
        call = infer(relax.op.quantize(value, scale, zero_point, out_dtype="int8"))
        name = f"{var.name}.int8" if var in self.floats else var.name
        self.integers[var] = self._bind(name, with_span(call, span))

    def _integer(self, var: relax.Var) -> relax.Var:
        if var not in self.integers:
            self._quantize(var, self.floats[var], None)
        return self.integers[var]

    def _dequantize(self, var: relax.Var) -> relax.Var:
        if var not in self.dequantized:
            scale, zero_point = self._parameters(var)
            call = relax.op.dequantize(self._integer(var), scale, zero_point, out_dtype="float32")
            self.dequantized[var] = self._bind(f"{var.name}.dequantized", infer(call))
        return self.dequantized[var]

    def _float(self, var: relax.Var) -> relax.Expr:
        return self.floats[var] if var in self.floats else self._dequantize(var)

    def _result(self, result: relax.Expr, int8_results: bool) -> relax.Expr:
        if not isinstance(result, relax.Var):
            return result
        if int8_results and result in self.integers and result not in self.floats:
            return self.integers[result]
        return self._float(result)

    def _left(self, param: relax.Var, result: relax.Expr) -> relax.Expr:
        """A state's next value, of the type that the state has."""
        if param not in self.choice.inputs:
            return self._result(result, False)
        assert isinstance(result, relax.Var), "states that become constants stay as they are"
        return self._integer(result)

    def _parameters(self, var: relax.Var) -> tuple[relax.Expr, relax.Expr]:
        affine = self.choice.activations[var]
        return relax.const(affine.scale, "float32"), relax.const(affine.zero_point, "int8")

    def _bind(self, name: str, value: relax.Expr) -> relax.Var:
        var = relax.DataflowVar(name, value.ty)
        self.sequence.append(relax.VarBinding(var, value))
        return var


def _channel_axis(unit: Unit) -> int:
    attrs = unit.members[0].value.attrs
    return str(attrs.out_layout or attrs.data_layout).index("C")
