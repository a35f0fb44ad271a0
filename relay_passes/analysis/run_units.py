"""Run a function unit by unit in TVM's virtual machine, in float or as its integer form would compute it.

Every unit is compiled once, with weights and biases as arguments, so that any choice of units in int8 can be tried
without compiling again. The QDQ form means exactly this: activations, weights and biases are rounded to numbers that
integers represent, and the arithmetic between is float.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

from relay_passes.analysis.int8_parameters import AffineQuantization, LinearInt8
from relay_passes.analysis.quantization_units import Unit
from relay_passes.analysis.recurrent_function import recurrent_function
from relay_passes.analysis.recurrent_int8 import (
    IntegerRecurrent,
    constant_states,
    quantize_recurrent,
    result_shapes,
)
from relay_passes.analysis.wide_states import NO_WIDE_STATES, WideStates
from relay_passes.dataflow import build, infer, operands, outputs, static_shape
from tvm_ext.core.decisions.composites import Symbol

Array = np.ndarray
Sample = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerChoice:
    """The units that compute in integers, and their parameters. The default computes everything in float.

    units: indices of the units.
    activations: parameters of every value that int8 units read or write.
    wide_activations: the same for int16 units.
    linear: integers of the linear units.
    states: parameters of the states of recurrent units, in order, by the index of the unit. Other units may read the
    same values with other parameters.
    wide_states: states of the function that keep the parameters of a recurrent unit.
    inputs: parameters of the function that arrive as integers.
    wide, wide_inputs: the units and inputs whose activations have 16 bits.
    """

    units: frozenset[int] = frozenset()
    activations: Mapping[relax.Var, AffineQuantization] = field(default_factory=dict)
    linear: Mapping[int, LinearInt8] = field(default_factory=dict)
    states: Mapping[int, tuple[AffineQuantization, ...]] = field(default_factory=dict)
    wide_states: WideStates = NO_WIDE_STATES
    inputs: frozenset[relax.Var] = frozenset()
    wide: frozenset[int] = frozenset()
    wide_inputs: frozenset[relax.Var] = frozenset()
    wide_activations: Mapping[relax.Var, AffineQuantization] = field(default_factory=dict)

    def parameters(self, index: int, var: relax.Var) -> AffineQuantization:
        """Return the parameters with which unit `index` reads or writes a value."""
        own = self.wide_states.moves.get(index)
        return own or (self.wide_activations if index in self.wide else self.activations)[var]

    def input_parameters(self, param: relax.Var) -> AffineQuantization:
        """Return the parameters with which an integer input arrives."""
        own = self.wide_states.params.get(param)
        return own or (self.wide_activations if param in self.wide_inputs else self.activations)[param]

    def recurrent(self, index: int, unit: Unit) -> IntegerRecurrent | None:
        """Return the integer form of a recurrent unit, or None if it has none."""
        own = unit.recurrent
        assert own is not None, "a recurrent unit has a layer"
        return quantize_recurrent(
            own, self.activations[own.sequence], self.states[index], self.activations[unit.result]
        )


FLOAT = IntegerChoice()


@dataclass(frozen=True, kw_only=True, eq=False)
class UnitResult:
    """The result of a unit.

    before_clamps: for a linear unit, the result ahead of relu and clip.
    """

    value: Any
    before_clamps: Array | None = None


class UnitRunner:
    """The units of a module's main, compiled for this machine."""

    def __init__(self, mod: tvm.IRModule, units: Sequence[Unit]) -> None:
        self.units = units
        self.params: list[relax.Var] = list(mod["main"].params)
        self.results = outputs(mod["main"])
        last_readers = {var: index for index, unit in enumerate(units) for var in unit.inputs}
        kept = {leaf for result in self.results for leaf in operands(result)}
        self.dead_after: dict[int, list[relax.Var]] = {}
        for var, index in last_readers.items():
            if var not in kept:
                self.dead_after.setdefault(index, []).append(var)
        machine = _machine(mod, units)
        computing = (index for index, unit in enumerate(units) if isinstance(unit.members[0].value, relax.Call))
        self.functions = {index: machine[_name(index)] for index in computing}
        self.operands: dict[tuple[int, int], tuple[Any, Array]] = {}
        self.layers: dict[Any, Any] = {}

    def compute(self, index: int, values: Mapping[relax.Var, Any], choice: IntegerChoice = FLOAT) -> UnitResult:
        """Compute unit `index` from the values it reads."""
        unit = self.units[index]
        rounds = index in choice.units
        if rounds and unit.kind == "recurrent" and (layer := choice.recurrent(index, unit)) is not None:
            return UnitResult(value=self._in_integers(unit, layer, values))
        rounds = rounds and unit.kind not in ("recurrent", "part")
        read = [choice.parameters(index, var).rounded(values[var]) if rounds else values[var] for var in unit.inputs]
        if not isinstance(unit.members[0].value, relax.Call):
            return UnitResult(value=_select(unit.members[0].value, values))
        if unit.kind == "linear":
            quantized = choice.linear.get(index) if rounds else None
            read += [quantized.real_weight, quantized.real_bias] if quantized else [unit.weight, unit.bias]
        given = self.functions[index](*(self._operand(index, place, value) for place, value in enumerate(read)))
        value = _to_numpy(given)
        before = None
        if unit.kind == "linear" and unit.clamps:
            before, value = value
        elif unit.kind == "linear":
            before = value
        kept = choice.parameters(index, unit.result).rounded(value) if rounds else value
        return UnitResult(value=kept, before_clamps=before)

    def _in_integers(self, unit: Unit, made: IntegerRecurrent, values: Mapping[relax.Var, Any]) -> list[Array]:
        """Return the results of a recurrent layer on integers, as real numbers."""
        own = unit.recurrent
        assert own is not None, "a recurrent unit has a layer"
        known = zip(constant_states(own, made), own.states, made.states, strict=True)
        states = [kind.quantize(values[var]) if array is None else array for array, var, kind in known]
        kinds = [*made.states, made.output]
        results = [np.empty(shape, kind.dtype) for shape, kind in zip(result_shapes(own), kinds, strict=True)]
        key = unit.result, made.sequence, made.states, made.output
        if key not in self.layers:
            function = recurrent_function(made.layer, *static_shape(own.sequence), own.units)
            built = tvm.compile(Symbol(name="layer").write(function), target="llvm")
            self.layers[key] = built["layer"]
        tensors = [*map(_to_tvm, (*states, made.sequence.quantize(values[own.sequence]), *made.constants, *results))]
        self.layers[key](*tensors)
        return [
            kind.dequantize(tensor.numpy())
            for kind, tensor in zip(kinds, tensors[len(tensors) - len(kinds) :], strict=True)
        ]

    def _operand(self, index: int, place: int, value: Any) -> Any:
        """Return an operand as a TVM tensor.

        Arrays are copied into the same tensor each time, because creating a tensor takes longer.
        """
        if isinstance(value, list):
            return _to_tvm(value)
        array = np.asarray(value)
        tensor, elements = self.operands.get((index, place), (None, array))
        if tensor is None or (elements.shape, elements.dtype) != (array.shape, array.dtype):
            tensor = _to_tvm(array)
            self.operands[index, place] = tensor, np.from_dlpack(tensor)
        else:
            elements[...] = array
        return tensor

    def start(self, sample: Sample, choice: IntegerChoice = FLOAT) -> dict[relax.Var, Any]:
        """Return the values of the parameters for a sample, whose arrays have the parameters' names."""
        arrays = {param: sample[param.name] for param in self.params}
        return {
            param: choice.input_parameters(param).rounded(array) if param in choice.inputs else array
            for param, array in arrays.items()
        }

    def walk(self, sample: Sample, choice: IntegerChoice = FLOAT) -> Iterator[Any]:
        """Yield the result of each unit in order. A value is dropped after its last reader."""
        values = self.start(sample, choice)
        for index, unit in enumerate(self.units):
            values[unit.result] = self.compute(index, values, choice).value
            yield values[unit.result]
            for var in self.dead_after.get(index, ()):
                del values[var]

    def outputs(self, sample: Sample, choice: IntegerChoice = FLOAT) -> list[Array]:
        """Return the results of the function for a sample, as real numbers also for a choice of integers."""
        wanted = {var: value for var, value in self.start(sample, choice).items() if var in self.results}
        for unit, value in zip(self.units, self.walk(sample, choice), strict=True):
            if unit.result in self.results:
                wanted[unit.result] = value
        return [wanted[var] for var in self.results if isinstance(var, relax.Var)]


def _machine(mod: tvm.IRModule, units: Sequence[Unit]) -> relax.VirtualMachine:
    functions = {var: func for var, func in mod.functions_items() if var.name_hint != "main"}
    module = tvm.IRModule(functions)
    for index, unit in enumerate(units):
        if isinstance(unit.members[0].value, relax.Call):
            module[_name(index)] = Symbol(name=_name(index)).write(_function(unit))
    return relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())


def _name(index: int) -> str:
    return f"unit_{index}"


def _function(unit: Unit) -> relax.Function:
    """Return a unit as a function.

    The function of a linear unit also takes weight and bias, and also returns its result ahead of its clamps.
    """
    params = [relax.Var(var.name, var.ty) for var in unit.inputs]
    replace: dict[relax.Var, relax.Expr] = dict(zip(unit.inputs, params, strict=True))
    if unit.kind != "linear":
        return build(params, unit.members, [unit.result], replace=replace)
    weight = relax.Var("weight", relax.TensorType(unit.weight.shape, "float32"))
    bias = relax.Var("bias", relax.TensorType(unit.bias.shape, "float32"))
    sequence, before = linear_bindings(unit, replace[unit.inputs[0]], weight, bias)
    results = [before, sequence[-1].var] if unit.clamps else [before]
    return build([*params, weight, bias], sequence, results)


def linear_bindings(
    unit: Unit, data: relax.Expr, weight: relax.Expr, bias: relax.Expr
) -> tuple[list[relax.VarBinding], relax.Var]:
    """Return the bindings of a linear unit on other operands, and the value ahead of its clamps.

    bias: float32[K], or with the rank of the result.
    """
    anchor = unit.members[0]
    call = anchor.value
    product = infer(relax.Call(call.op, [data, weight], call.attrs, call.ty_args, call.span))
    sequence: list[relax.VarBinding] = []

    def bind(name: str, value: relax.Expr) -> relax.Var:
        var = relax.DataflowVar(name, value.ty)
        sequence.append(relax.VarBinding(var, value))
        return var

    total = bind(f"{unit.result.name}.product", product)
    if bias.ty.ndim == 1 and (shape := bias_shape(unit)) != (len(unit.bias),):
        bias = bind(f"{unit.result.name}.bias", infer(relax.op.reshape(bias, shape)))
    add = infer(relax.op.add(total, bias))
    before = total = bind(f"{unit.result.name}.sum", relax.Call(add.op, add.args, add.attrs, [], call.span, add.ty))
    for member in unit.members[len(unit.members) - unit.clamps :]:
        value = member.value
        clamped = infer(relax.Call(value.op, [total, *value.args[1:]], value.attrs, value.ty_args, value.span))
        total = bind(f"{member.var.name}.clamped", clamped)
    return sequence, before


def bias_shape(unit: Unit) -> tuple[int, ...]:
    """Return the shape in which the bias of a linear unit is added: [K] for a matmul, else of the result's rank."""
    if unit.operator == "relax.matmul":
        return (len(unit.bias),)
    rank = len(static_shape(unit.members[0].var))
    return tuple(len(unit.bias) if axis == unit.channel_axis else 1 for axis in range(rank))


def _select(value: relax.Expr, values: Mapping[relax.Var, Any]) -> Any:
    """Evaluate a binding that computes nothing: a tuple element, an alias or a tuple."""
    if isinstance(value, relax.TupleGetItem):
        return values[value.tuple_value][value.index]
    if isinstance(value, relax.Tuple):
        return [_select(part, values) for part in value.fields]
    return values[value] if isinstance(value, relax.Var) else value.value.numpy()


def _to_tvm(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_tvm(part) for part in value]
    return tvm.runtime.tensor(np.asarray(value, order="C"))  # ascontiguousarray would give a scalar an axis


def _to_numpy(value: Any) -> Any:
    """Return numpy arrays, copied because results may alias operands."""
    if isinstance(value, tvm.runtime.Tensor):
        return np.from_dlpack(value).copy()
    return [_to_numpy(part) for part in value]
