"""A float module in float64 that calls out after each operator: the model without rounding, and where it would round.

Rewrite:
    main(x: float32): y = matmul(x, w); z = relu(y)
      ->  main(x: float64): x' = stop_0(x); y = matmul(x', float64 w); y' = stop_1(y); z = relu(y')
    A stop is a function of TVM's runtime (`Stop.symbol`) from a tensor to one of the same shape. It reads the value, or
    moves it by as much as float32 would round there (`Stop.roundoff`).
    A step that runs in a loop is written in float64, without stops, and its loop is made of it again.
Leaves alone: integers, and operators that TVM has in float32 only, which are called between casts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from codegen_c.tir.repeat import repeat_step, step_of
from relay_passes.composites import custom_use
from relay_passes.dataflow import array_of, bindings, build, infer, op_name, outputs, static_shape, with_main
from tvm_ext.core.decisions.composites import RepeatedStep

UNIT_ROUNDOFF: Mapping[str, float] = {
    "float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8,
}  # fmt: skip
"""Largest relative error of rounding to the nearest number of a type."""

_EXACT = frozenset(
    "abs argmax argmin argsort broadcast_to ceil clip concat expand_dims flatten flip floor full full_like "
    "gather_elements gather_nd isfinite isinf isnan layout_transform max maximum memory.view min minimum negative "
    "nn.batch_flatten nn.dropout nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.pad nn.pixel_shuffle nn.relu one_hot "
    "ones permute_dims repeat reshape reverse_sequence round scatter_elements scatter_nd sign slice_scatter sort split "
    "squeeze stack strided_slice take tile topk tril triu trunc where zeros zeros_like ones_like index_tensor".split()
)
"""Operators that return elements of their operands, or numbers that floats hold."""
_REDUCTIONS = frozenset("mean sum variance std prod cumsum cumprod".split())
_NORMALIZATIONS = frozenset("nn.layer_norm nn.group_norm nn.instance_norm nn.rms_norm nn.batch_norm".split())
_BOUNDED = dict.fromkeys("sigmoid tanh erf sin cos nn.softmax nn.silu".split(), 1.0)
"""Ranges of functions that runtimes approximate with an absolute error: a sigmoid of 1e-6 as 0.5 less 0.499999."""
_CANCELLING = {"nn.gelu": 4.0, "nn.gelu_tanh": 4.0, "nn.softplus": 1.0, "nn.selu": 1.0, "log_add_exp": 1.0}
"""Magnitudes that cancel inside functions, in the C too: x / 2 * (1 + erf(x))."""
_TRANSCENDENTAL = frozenset(
    "exp power log_add_exp sinh cosh tan nn.log_softmax nn.softplus nn.selu sigmoid tanh erf sin cos nn.softmax "
    "nn.gelu nn.gelu_tanh nn.silu".split()
)
"""Functions that runtimes compute from a rounded multiple of their operand."""
_IN_FLOAT32 = ("relax.call_tir", "relax.call_dps_packed", "relax.quantize", "relax.dequantize")
_UNKNOWN_TERMS = 16
"""Terms that each element of a result adds up, of an operator that is not known, and of a step."""


@dataclass(frozen=True, kw_only=True)
class Stop:
    """A function that the module calls with a value.

    name: of a value that is asked for, else empty. roundoff: relative size of the rounding error. bound: magnitude
    below which the error is no smaller; others_bound: the same in other runtimes.
    """

    symbol: str
    name: str
    roundoff: float = 0.0
    bound: float = 0.0
    others_bound: float = 0.0


def in_float64(mod: tvm.IRModule, wanted: Sequence[str], prefix: str) -> tuple[tvm.IRModule, list[Stop]]:
    """The module and its stops, whose symbols have a prefix.

    wanted: names of values of `main` to stop at though they are exact.
    """
    writer = _Writer(mod, frozenset(wanted), prefix)
    changed = with_main(mod, writer.run(mod["main"]))
    for var, function in writer.loops.items():
        changed.update_func(var, function)
    return changed, writer.stops


MOST_MACS_AS_WRITTEN = 10_000_000
"""Multiply-accumulates of all runs together up to which LLVM's optimizer takes longer than it saves."""


def multiply_accumulates(mod: tvm.IRModule) -> int:
    """Products that a run of `main` adds up in convolutions and matrix products, roughly."""
    total = 0
    for binding in bindings(mod["main"]):
        name = (op_name(binding.value) or "").removeprefix("relax.")
        if name.startswith("nn.conv") or name == "matmul":
            total += math.prod(static_shape(binding.var)) * _num_terms(name, binding.value)
    return total


def is_float_type(ty: tvm.ir.Type) -> bool:
    """True for tensors of floats of any width."""
    return isinstance(ty, relax.TensorType) and str(ty.dtype) in UNIT_ROUNDOFF


class _Writer:
    """Knows the float64 form of each value. loops: functions of steps in float64."""

    def __init__(self, mod: tvm.IRModule, wanted: frozenset[str], prefix: str, *, has_stops: bool = True) -> None:
        self.mod, self.wanted, self.prefix, self.has_stops = mod, wanted, prefix, has_stops
        self.stops: list[Stop] = []
        self.loops: dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc] = {}
        self._counts: dict[relax.Var, int] = {}
        self._forms: dict[relax.Expr, relax.Expr] = {}
        self._sequence: list[relax.VarBinding] = []

    def run(self, main: relax.Function) -> relax.Function:
        params = [self._param(param) for param in main.params]
        for binding in bindings(main):
            value = self._value(binding.value)
            if count := _repeated_by(self.mod, binding.value).count:
                self._counts[binding.var] = count
            var = self._bind(binding.var.name, value)
            is_float, name = is_float_type(var.ty), binding.var.name if binding.var.name in self.wanted else ""
            roundoff = self._roundoff(binding.value) if is_float else 0.0
            operator = (op_name(binding.value) or "").removeprefix("relax.")
            stops = is_float and (roundoff or name)
            self._forms[binding.var] = self._stop(var, name, roundoff, operator) if stops else var
        results = [self._form(result) for result in outputs(main)]
        as_tuple = isinstance(main.body.body, relax.Tuple)
        return build(params, self._sequence, results, attrs=main.attrs, as_tuple=as_tuple)

    def _roundoff(self, value: relax.Expr) -> float:
        """Relative rounding error of a value; of results of a loop, that of all its steps."""
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in self._counts:
            terms = self._counts[value.tuple_value] * _UNKNOWN_TERMS
            return UNIT_ROUNDOFF[str(value.ty.dtype)] * math.sqrt(terms)
        return _roundoff(value)

    def _repeated(self, value: relax.Call, repeated: RepeatedStep) -> relax.Call:
        """A loop over the step in float64."""
        step = _Writer(self.mod, frozenset(), "", has_stops=False).run(step_of(repeated))
        loop = repeat_step(step, repeated)
        function = tvm.ir.GlobalVar(f"{value.args[0].name_hint}_float64")
        self.loops[function] = loop.function
        given = value.args[1].fields[:]
        given = [*map(self._form, given[: len(given) - len(loop.constants)]), *map(relax.const, loop.constants)]
        return relax.call_tir(function, relax.Tuple(given), [_wide(ty) for ty in value.ty.fields])

    def _param(self, param: relax.Var) -> relax.Var:
        if is_float_type(param.ty):
            self._forms[param] = relax.Var(param.name, _wide(param.ty))
        return self._form(param)

    def _form(self, expr: relax.Expr) -> relax.Expr:
        if expr in self._forms:
            return self._forms[expr]
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._form(field) for field in expr.fields])
        array = array_of(expr)
        if array is not None and str(array.dtype) in UNIT_ROUNDOFF:
            return relax.const(array.astype(np.float64), "float64")
        return expr

    def _value(self, value: relax.Expr) -> relax.Expr:
        if isinstance(value, relax.TupleGetItem):
            return relax.TupleGetItem(self._form(value.tuple_value), value.index)
        if not isinstance(value, relax.Call):
            return self._form(value)
        if (repeated := _repeated_by(self.mod, value)).count:
            return self._repeated(value, repeated)
        name = op_name(value) or ""
        if name in _IN_FLOAT32 or custom_use(value) is not None:
            return self._between_casts(value)
        arguments = [self._form(argument) for argument in value.args]
        if _moves_operands(name.removeprefix("relax.")):
            roundoff = _roundoff(value)
            arguments = [
                self._stop(one, "", roundoff) if isinstance(one, relax.Var) and is_float_type(one.ty) else one
                for one in arguments
            ]
        return infer(relax.Call(value.op, arguments, _wide_attributes(value.attrs), value.ty_args))

    def _between_casts(self, value: relax.Call) -> relax.Expr:
        """The call as it is, on operands of its own types."""
        arguments = [self._narrow(argument) for argument in value.args]
        result = self._bind("narrow", relax.Call(value.op, arguments, value.attrs, value.ty_args))
        if isinstance(value.ty, relax.TupleType):
            fields = [self._bind("narrow", relax.TupleGetItem(result, index)) for index in range(len(value.ty.fields))]
            return relax.Tuple([self._widened(field) for field in fields])
        return self._widened(result)

    def _narrow(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._narrow(field) for field in expr.fields])
        form = self._form(expr)
        if form is expr or not is_float_type(form.ty) or array_of(expr) is not None:
            return expr
        return self._bind("narrow", infer(relax.op.astype(form, expr.ty.dtype)))

    def _widened(self, var: relax.Var) -> relax.Var:
        return self._bind(var.name, infer(relax.op.astype(var, "float64"))) if is_float_type(var.ty) else var

    def _stop(self, var: relax.Var, name: str, roundoff: float, operator: str = "") -> relax.Var:
        if not self.has_stops:
            return var
        bound = _CANCELLING.get(operator, 0.0)
        stop = Stop(symbol=f"{self.prefix}_{len(self.stops)}", name=name, roundoff=roundoff, bound=bound,
            others_bound=_BOUNDED.get(operator, bound),
        )  # fmt: skip
        self.stops.append(stop)
        return self._bind(var.name, relax.op.call_dps_packed(stop.symbol, relax.Tuple([var]), var.ty))

    def _bind(self, name: str, value: relax.Expr) -> relax.Var:
        if not isinstance(value, relax.Var):
            value = relax.BlockBuilder().normalize(value)
        var = relax.DataflowVar(name, value.ty)
        self._sequence.append(relax.VarBinding(var, value))
        return var


def _repeated_by(mod: tvm.IRModule, value: relax.Expr) -> RepeatedStep:
    """The step that a call runs in a loop."""
    return RepeatedStep.read(mod[value.args[0]]) if op_name(value) == "relax.call_tir" else RepeatedStep()


def _wide(ty: relax.TensorType) -> relax.TensorType:
    return relax.TensorType(ty.shape, "float64")


def _wide_attributes(attrs: tvm.ir.Attrs | None) -> tvm.ir.Attrs | None:
    """Attributes of a call whose types are float64 where they were floats."""
    info = getattr(type(attrs), "__tvm_ffi_type_info__", None)
    if attrs is None or info is None:
        return attrs
    fields = {field.name: getattr(attrs, field.name) for field in info.fields}
    wide = {name: value for name, value in fields.items() if isinstance(value, tvm_ffi.dtype)}
    wide = {name: tvm_ffi.dtype("float64") for name, value in wide.items() if str(value) in UNIT_ROUNDOFF}
    return tvm.ir.make_node(info.type_key, **fields | wide) if wide else attrs


def _moves_operands(name: str) -> bool:
    """True for operators that add up terms, or whose argument is rounded before the function is computed."""
    is_sum = name.startswith(("nn.conv", "nn.avg_pool", "nn.adaptive_avg_pool", "nn.attention"))
    return is_sum or name in ("matmul", "einsum") or name in _REDUCTIONS | _NORMALIZATIONS | _TRANSCENDENTAL


def _roundoff(value: relax.Expr) -> float:
    """Relative rounding error of an operator's result: the unit roundoff times the root of the terms it adds up."""
    if not isinstance(value, relax.Call) or not is_float_type(value.ty):
        return 0.0
    name = (op_name(value) or "").removeprefix("relax.")
    unit = UNIT_ROUNDOFF[str(value.ty.dtype)]
    if name == "astype":
        source = UNIT_ROUNDOFF.get(str(value.args[0].ty.dtype), 0.0)
        return unit if unit > source else 0.0
    # Sums of narrow floats are added up in float32, and rounded once.
    inside = min(unit, UNIT_ROUNDOFF["float32"])
    return 0.0 if name in _EXACT else max(unit, inside * math.sqrt(_num_terms(name, value)))


def _num_terms(name: str, call: relax.Call) -> int:
    """Terms that each element of a result adds up."""

    def size(expr: relax.Expr) -> int:
        return math.prod(static_shape(expr))

    if name.startswith("nn.conv"):
        outputs_at = str(call.attrs.kernel_layout).index("O")
        groups = int(call.attrs.groups) if name.endswith("transpose") else 1
        return max(size(call.args[1]) // (static_shape(call.args[1])[outputs_at] * groups), 1)
    if name == "matmul":
        return static_shape(call.args[0])[-1]
    if name in _REDUCTIONS or name.startswith("nn.adaptive_avg_pool"):
        return max(size(call.args[0]) // max(size(call), 1), 2)
    if name.startswith("nn.avg_pool"):
        return math.prod(int(extent) for extent in call.attrs.pool_size)
    if name in ("nn.softmax", "nn.log_softmax"):
        return static_shape(call)[int(call.attrs.axis)]
    if name in ("nn.layer_norm", "nn.instance_norm", "nn.rms_norm"):
        shape = static_shape(call.args[0])
        return math.prod(shape[int(axis)] for axis in call.attrs.axes)
    if name == "nn.group_norm":
        return max(size(call) // int(call.attrs.num_groups), 1)
    return 1 if name and name not in _IN_FLOAT32 and not name.startswith("image.") else _UNKNOWN_TERMS
