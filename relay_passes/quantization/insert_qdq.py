"""Write a choice of integer units into a function: quantize and dequantize around them, integer weights inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax, tirx

from relay_passes.analysis.int8_parameters import AffineQuantization, LinearInt8
from relay_passes.analysis.quantization_units import Unit
from relay_passes.analysis.recurrent_function import recurrent_function
from relay_passes.analysis.recurrent_int8 import FloatRecurrent, IntegerRecurrent, constant_states, result_shapes
from relay_passes.analysis.run_units import IntegerChoice, bias_shape, linear_bindings
from relay_passes.dataflow import (
    array_of,
    build,
    constant,
    infer,
    live,
    operands,
    outputs,
    static_shape,
    substitute,
    with_span,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Written:
    """A function in QDQ form.

    functions: PrimFuncs that it calls. inputs, results: parameters of the integers among its parameters and results,
    and None for the others.
    """

    function: relax.Function
    functions: Mapping[tvm.ir.GlobalVar, tirx.PrimFunc]
    inputs: Sequence[AffineQuantization | None]
    results: Sequence[AffineQuantization | None]


def insert_qdq(
    func: relax.Function, units: list[Unit], choice: IntegerChoice, *, integer_results: bool, num_states: int = 0
) -> Written:
    """Return `func` in QDQ form. An integer value has the name of its float value.

    integer_results: whether results of integer units stay integers.
    num_states: the number of last parameters and results that are states, each with the same type in both.
    Parameters in `choice.inputs` become integers, and a value that is read with another number of bits is converted
    only once.
    """
    writer = _Writer(func, units, choice)
    written = writer.run(integer_results, num_states)
    return Written(
        function=written,
        functions=writer.functions,
        inputs=[choice.input_parameters(param) if param in choice.inputs else None for param in func.params],
        results=[writer.parameters.get(result) if integer_results else None for result in outputs(func)],
    )


class _Writer:
    """A single walk over the units.

    floats, integers: the float form of each value, and its integer forms by type; a value may have both.
    parameters: the quantization with which each integer value was computed.
    tuples: the results of recurrent units on integers, with the parameters of their elements. functions: that compute
    them.
    """

    def __init__(self, func: relax.Function, units: list[Unit], choice: IntegerChoice) -> None:
        self.func, self.units, self.choice = func, units, choice
        self.sequence: list[relax.VarBinding] = []
        self.floats: dict[relax.Var, relax.Expr] = {}
        self.parameters: dict[relax.Var, AffineQuantization] = {}
        self.integers: dict[tuple[relax.Var, AffineQuantization], relax.Var] = {}
        self.dequantized: dict[tuple[relax.Var, AffineQuantization], relax.Var] = {}
        self.tuples: dict[relax.Var, tuple[relax.Var, list[AffineQuantization]]] = {}
        self.functions: dict[tvm.ir.GlobalVar, tirx.PrimFunc] = {}

    def run(self, integer_results: bool, num_states: int) -> relax.Function:
        params = [self._param(param) for param in self.func.params]
        for index, unit in enumerate(self.units):
            self._unit(index, unit)
        given, states = outputs(self.func), self.func.params[len(self.func.params) - num_states :]
        count = len(given) - num_states
        results = [
            *(self._result(result, integer_results) for result in given[:count]),
            *(self._left(param, result) for param, result in zip(states, given[count:], strict=True)),
        ]
        as_tuple = isinstance(self.func.body.body, relax.Tuple)
        return build(params, live(self.sequence, results), results, attrs=self.func.attrs, as_tuple=as_tuple)

    def _param(self, param: relax.Var) -> relax.Var:
        if param not in self.choice.inputs:
            self.floats[param] = param
            return param
        affine = self.choice.input_parameters(param)
        return self._know(param, affine, relax.Var(param.name, relax.TensorType(param.ty.shape, affine.dtype)))

    def _unit(self, index: int, unit: Unit) -> None:
        if index in self.choice.units and unit.recurrent is not None:
            made = self.choice.recurrent(index, unit)
            assert made is not None, "the choice has only layers with an integer form"
            self._recurrent(unit, unit.recurrent, made)
        elif unit.kind == "part" and unit.inputs[0] in self.tuples:
            whole, parameters = self.tuples[unit.inputs[0]]
            place = unit.members[0].value.index
            self._know(unit.result, parameters[place], self._bind(unit.result.name, relax.TupleGetItem(whole, place)))
        elif index not in self.choice.units:
            self._as_it_was(unit)
        elif unit.kind == "move":
            member = unit.members[0]
            read = {var: self._integer(var, self.choice.parameters(index, var)) for var in unit.inputs}
            own = self.choice.parameters(index, unit.result)
            is_join = unit.operator == "relax.concat"
            value = _joined(member.value, read, own) if is_join else substitute(member.value, read)
            self._know(unit.result, own, self._bind(unit.result.name, value))
        else:
            self._in_integers(index, unit)

    def _as_it_was(self, unit: Unit) -> None:
        for member in unit.members:
            known = {var: self._float(var) for var in unit.inputs} | self.floats
            self.floats[member.var] = self._bind(member.var.name, substitute(member.value, known))

    def _in_integers(self, index: int, unit: Unit) -> None:
        known: dict[relax.Var, relax.Expr] = {
            var: self._dequantize(var, self.choice.parameters(index, var)) for var in unit.inputs
        }
        if unit.kind == "linear":
            linear = self.choice.linear[index]
            value = self._linear(unit, linear, known[unit.inputs[0]])
        else:
            for member in unit.members:
                name = f"{member.var.name}.float" if member.var.same_as(unit.result) else member.var.name
                known[member.var] = self._bind(name, substitute(member.value, known))
            value = known[unit.result]
        affine = self.choice.parameters(index, unit.result)
        self._know(unit.result, affine, self._quantize(unit.result, value, affine, unit.members[-1].value.span))

    def _recurrent(self, unit: Unit, own: FloatRecurrent, made: IntegerRecurrent) -> None:
        """Write the call of a layer on integers."""
        function = recurrent_function(made.layer, *static_shape(own.sequence), own.units)
        name = f"{unit.result.name}_int8"
        var = relax.BlockBuilder().add_func(function, name)
        self.functions[var] = function
        states = [
            constant(array) if array is not None else self._integer(state, parameters)
            for array, state, parameters in zip(constant_states(own, made), own.states, made.states, strict=True)
        ]
        arguments = [*states, self._integer(own.sequence, made.sequence), *map(constant, made.constants)]
        kinds = [*made.states, made.output]
        types = [relax.TensorType(s, kind.dtype) for s, kind in zip(result_shapes(own), kinds, strict=True)]
        call = infer(relax.call_tir(var, relax.Tuple(arguments), types))
        result = self._bind(unit.result.name, with_span(call, unit.members[0].value.span))
        self.tuples[unit.result] = result, kinds

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

    def _know(self, var: relax.Var, affine: AffineQuantization, integers: relax.Var) -> relax.Var:
        """Record a value that is computed as integers."""
        self.parameters[var], self.integers[var, affine] = affine, integers
        return integers

    def _quantize(
        self, var: relax.Var, value: relax.Expr, affine: AffineQuantization, span: tvm.ir.Span | None = None
    ) -> relax.Var:
        scale, zero_point = _constants(affine)
        call = infer(relax.op.quantize(value, scale, zero_point, out_dtype=affine.dtype))
        is_other = var in self.floats or var in self.parameters
        return self._bind(f"{var.name}.{affine.dtype}" if is_other else var.name, with_span(call, span))

    def _integer(self, var: relax.Var, affine: AffineQuantization) -> relax.Var:
        key = var, affine
        if key not in self.integers:
            self.integers[key] = self._quantize(var, self._float(var), affine)
        return self.integers[key]

    def _dequantize(self, var: relax.Var, affine: AffineQuantization) -> relax.Var:
        key = var, affine
        if key not in self.dequantized:
            scale, zero_point = _constants(affine)
            call = relax.op.dequantize(self._integer(var, affine), scale, zero_point, out_dtype="float32")
            self.dequantized[key] = self._bind(f"{var.name}.dequantized", infer(call))
        return self.dequantized[key]

    def _float(self, var: relax.Var) -> relax.Expr:
        return self.floats[var] if var in self.floats else self._dequantize(var, self.parameters[var])

    def _result(self, result: relax.Expr, integer_results: bool) -> relax.Expr:
        if not isinstance(result, relax.Var):
            return result
        if integer_results and result in self.parameters:
            return self.integers[result, self.parameters[result]]
        return self._float(result)

    def _left(self, param: relax.Var, result: relax.Expr) -> relax.Expr:
        """Return the next value of a state, with the type of the state."""
        if param not in self.choice.inputs:
            return self._result(result, False)
        assert isinstance(result, relax.Var), "states that become constants stay as they are"
        return self._integer(result, self.choice.input_parameters(param))  # a tie has one scale

    def _bind(self, name: str, value: relax.Expr) -> relax.Var:
        if isinstance(value, relax.TupleGetItem):
            value = relax.BlockBuilder().normalize(value)
        var = relax.DataflowVar(name, value.ty)
        self.sequence.append(relax.VarBinding(var, value))
        return var


def _joined(concat: relax.Call, read: Mapping[relax.Var, relax.Expr], own: AffineQuantization) -> relax.Call:
    """Return a concat of integers; constants among its parts are quantized as its result is."""
    parts = [
        read[part] if (array := array_of(part)) is None else constant(own.quantize(array)) for part in operands(concat)
    ]
    return with_span(infer(relax.op.concat(parts, axis=int(concat.attrs.axis or 0))), concat.span)


def _constants(affine: AffineQuantization) -> tuple[relax.Expr, relax.Expr]:
    return relax.const(affine.scale, "float32"), relax.const(affine.zero_point, affine.dtype)


def _channel_axis(unit: Unit) -> int:
    attrs = unit.members[0].value.attrs
    return str(attrs.out_layout or attrs.data_layout).index("C")
