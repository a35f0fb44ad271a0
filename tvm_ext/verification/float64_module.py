"""Rewrite a float module to float64 with calls of Python functions where float32 would round.

Rewrite:
    main(x: float32): y = matmul(x, w); z = relu(y)
      ->  main(x: float64): x' = stop_0(x); y = matmul(x', float64 w); y' = stop_1(y); z = relu(y')
    A stop is a function of TVM's runtime (`Stop.symbol`) from a tensor to a tensor of the same shape. It reads the
    value, or changes the value by as much as float32 would round there (`Stop.roundoff`).
    A step that runs in a loop is rewritten in float64 and lowered to a loop again. A loop cannot stop, so the step
    takes its rounding errors as sequences that stops have made for all steps, or as parameters if they are too large:
        y' = y + max(|y|, bound) * (factor[t] - 1)
Leaves alone: integers, and operators that TVM has in float32 only, which are called between casts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from codegen_c.kernels.fourier.basis import fourier_basis
from codegen_c.tir.repeat import repeat_step, step_of
from relay_passes.composites import custom_use
from relay_passes.dataflow import array_of, bindings, build, constant, infer, op_name, outputs, static_shape, with_main
from tvm_ext.core.decisions.composites import RepeatedStep

UNIT_ROUNDOFF: Mapping[str, float] = {
    "float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8,
}  # fmt: skip
"""Largest relative error of rounding to the nearest number of a type."""

LARGEST = float(np.finfo(np.float32).max)
"""Largest number of float32."""

_EXACT = frozenset(
    "abs argmax argmin argsort broadcast_to ceil clip concat expand_dims flatten flip floor full full_like "
    "gather_elements gather_nd isfinite isinf isnan layout_transform max maximum memory.view min minimum negative "
    "nn.batch_flatten nn.dropout nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.pad nn.pixel_shuffle nn.relu one_hot "
    "ones permute_dims repeat reshape reverse_sequence round scatter_elements scatter_nd sign slice_scatter sort split "
    "squeeze stack strided_slice take tile topk tril triu trunc where zeros zeros_like ones_like index_tensor".split()
)
"""Operators without rounding error: they return elements of their operands, or numbers that floats hold exactly."""
_REDUCTIONS = frozenset("mean sum variance std prod cumsum cumprod".split())
_NORMALIZATIONS = frozenset("nn.layer_norm nn.group_norm nn.instance_norm nn.rms_norm nn.batch_norm".split())
_BOUNDED = dict.fromkeys("sigmoid tanh erf sin cos nn.softmax nn.silu".split(), 1.0)
"""Largest values of functions that runtimes approximate with an absolute error.

A runtime that computes a sigmoid of 1e-6 as 0.5 - 0.499999 has the rounding error of 0.5."""
_CANCELLING = {"nn.gelu": 4.0, "nn.gelu_tanh": 4.0, "nn.softplus": 1.0, "nn.selu": 1.0, "log_add_exp": 1.0}
"""Magnitudes of terms that cancel inside functions, in our C code too: 1 and erf(x) in x / 2 * (1 + erf(x))."""
_TRANSCENDENTAL = frozenset(
    "exp power log_add_exp sinh cosh tan nn.log_softmax nn.softplus nn.selu sigmoid tanh erf sin cos nn.softmax "
    "nn.gelu nn.gelu_tanh nn.silu".split()
)
"""Functions that runtimes compute from a rounded multiple of their operand, such as x / ln(2) for exp."""
_IN_FLOAT32 = ("relax.call_tir", "relax.call_dps_packed", "relax.quantize", "relax.dequantize")
_MOST_FACTORS = 1 << 22
"""Elements of the rounding errors of one operator in all steps of a loop; beyond them, all steps share an error."""
_UNKNOWN_TERMS = 16
"""Assumed number of terms that an unknown operator adds up for each element of its result."""


@dataclass(frozen=True, kw_only=True)
class Stop:
    """A function of TVM's runtime that the module calls with a value.

    symbol: name of the function.
    name: name of a value that the caller asked for; empty for other values.
    roundoff: rounding error relative to the value's magnitude.
    bound: magnitude below which the rounding error does not get smaller.
    others_bound: the same bound for runtimes other than our C code.
    step_axes: number of leading axes that are the steps of loops; elements along them are the same value of a step.
    """

    symbol: str
    name: str
    roundoff: float = 0.0
    bound: float = 0.0
    others_bound: float = 0.0
    step_axes: int = 0


def in_float64(mod: tvm.IRModule, wanted: Sequence[str], prefix: str) -> tuple[tvm.IRModule, list[Stop]]:
    """Return the module in float64 and its stops.

    wanted: names of values of `main` to stop at although they have no rounding error. prefix: of the stops' symbols.
    """
    writer = _Writer(mod, frozenset(wanted), prefix)
    changed = with_main(mod, writer.run(mod["main"]))
    for var, function in writer.loops.items():
        changed.update_func(var, function)
    return changed, writer.stops


MOST_MACS_AS_WRITTEN = 10_000_000
"""Multiply-accumulates of all runs up to which LLVM's optimizer takes more time than it saves."""


def multiply_accumulates(mod: tvm.IRModule) -> int:
    """Return the approximate number of multiply-accumulates in the convolutions and matrix products of `main`."""
    total = 0
    for binding in bindings(mod["main"]):
        name = (op_name(binding.value) or "").removeprefix("relax.")
        if name.startswith("nn.conv") or name == "matmul":
            total += math.prod(static_shape(binding.var)) * _num_terms(name, binding.value)
    return total


def is_float_type(ty: tvm.ir.Type) -> bool:
    """Return True for the type of a tensor of floats of any width."""
    return isinstance(ty, relax.TensorType) and str(ty.dtype) in UNIT_ROUNDOFF


class _Writer:
    """Writer of `main` in float64, with the float64 form of each value. loops: functions that the new module calls."""

    stops_matrices = True
    """Whether a stop can change a constant matrix."""

    def __init__(self, mod: tvm.IRModule, wanted: frozenset[str], prefix: str) -> None:
        self.mod, self.wanted, self.prefix = mod, wanted, prefix
        self.stops: list[Stop] = []
        self.loops: dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc] = {}
        self._forms: dict[relax.Expr, relax.Expr] = {}
        self._sequence: list[relax.VarBinding] = []

    def run(self, main: relax.Function) -> relax.Function:
        params = [self._param(param) for param in main.params]
        for binding in bindings(main):
            value = self._value(binding.value)
            var = self._bind(binding.var.name, value)
            is_float, name = is_float_type(var.ty), binding.var.name if binding.var.name in self.wanted else ""
            roundoff = _roundoff(binding.value) if is_float else 0.0
            operator = (op_name(binding.value) or "").removeprefix("relax.")
            stops = is_float and (roundoff or name)
            self._forms[binding.var] = self._stop(var, name, roundoff, operator) if stops else var
        results = [self._form(result) for result in outputs(main)]
        as_tuple = isinstance(main.body.body, relax.Tuple)
        return build(self._parameters(params), self._sequence, results, attrs=main.attrs, as_tuple=as_tuple)

    def _parameters(self, params: list[relax.Var]) -> list[relax.Var]:
        """Return the parameters of the new function. params: the parameters of the old function, in float64."""
        return params

    def _repeated(self, value: relax.Call, repeated: RepeatedStep) -> relax.Call:
        """Return a call of a loop that runs the step in float64."""
        module = step_of(repeated)
        writer = _StepWriter(module, repeated)
        step = writer.run(module["main"])
        called = tvm.IRModule({**dict(module.functions_items()), **writer.loops})
        separate = [error for error in writer.errors if not error.is_shared]
        loop = repeat_step(step, replace(repeated, num_sequences=repeated.num_sequences + len(separate)), called)
        # A builder gives the variable the type of the function, without which no call of it can be normalized. Its name
        # has a number, because several layers may call the same loop, and each call gets a function of its own.
        name = f"{value.args[0].name_hint}_float64_{len(self.loops)}"
        function = relax.BlockBuilder().add_func(loop.function, name)
        self.loops[function] = loop.function
        given = [self._form(field) for field in value.args[1].fields[:]]
        begin = repeated.is_open + repeated.num_states + repeated.num_sequences
        given[len(given) - len(loop.constants) :] = map(constant, loop.constants)
        made = [(error, *self._errors(error, repeated.count)) for error in writer.errors]
        factors, shared = ([factor for one, factor, _ in made if one.is_shared is whether] for whether in (False, True))
        bounds = [bound for _, _, bound in made if bound is not None]
        end = len(given) - len(loop.constants)
        arguments = [*given[:begin], *factors, *given[begin:end], *shared, *bounds, *given[end:]]
        fields = value.ty.fields if isinstance(value.ty, relax.TupleType) else [value.ty]
        types = [_wide(ty) if is_float_type(ty) else ty for ty in fields]
        return relax.call_tir(function, relax.Tuple(arguments), types)

    def _errors(self, error: _StepError, count: int) -> tuple[relax.Var, relax.Var | None]:
        """Return the factors of a rounding error for all steps, and its bound if the function has one."""
        shape = static_shape(error.factor)
        ones = self._bind("ones", relax.op.ones(shape if error.is_shared else (count, *shape), "float64"))
        step_axes = error.step_axes + (not error.is_shared)
        factor = self._called(ones, Stop(symbol="", name="", roundoff=error.roundoff, step_axes=step_axes))
        if error.bound is None:
            return factor, None
        zero = self._bind("zero", relax.op.zeros((), "float64"))
        signed = self._called(
            zero, Stop(symbol="", name="", roundoff=1.0, bound=error.c_bound, others_bound=error.others_bound)
        )
        return factor, self._bind("bound", infer(relax.op.abs(signed)))

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
        if (transform := _transform_in(value)) and self.stops_matrices:
            matrix = self._bind("matrix", arguments[transform.argument])
            unit = UNIT_ROUNDOFF["float32"]
            arguments[transform.argument] = self._called(
                matrix, Stop(symbol="", name="", roundoff=unit, bound=transform.largest, others_bound=transform.largest)
            )
        if _moves_operands(name.removeprefix("relax.")):
            roundoff = _roundoff(value)
            arguments = [
                self._stop(one, "", roundoff) if isinstance(one, relax.Var) and is_float_type(one.ty) else one
                for one in arguments
            ]
        return infer(relax.Call(value.op, arguments, _wide_attributes(value.attrs), value.ty_args))

    def _between_casts(self, value: relax.Call) -> relax.Expr:
        """Return the call unchanged, on operands that are cast to its own types, with results cast to float64."""
        arguments = [self._narrow(argument) for argument in value.args]
        result = self._bind("narrow", relax.Call(value.op, arguments, value.attrs, value.ty_args))
        if isinstance(value.ty, relax.TupleType):
            fields = [self._bind("narrow", relax.TupleGetItem(result, index)) for index in range(len(value.ty.fields))]
            return relax.Tuple([self._widened(field) for field in fields])
        return self._widened(result)

    def _narrow(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._narrow(field) for field in expr.fields])
        if array_of(expr) is not None:
            return expr
        form = self._form(expr)
        if form is expr or not is_float_type(form.ty):
            return form
        return self._bind("narrow", infer(relax.op.astype(form, expr.ty.dtype)))

    def _widened(self, var: relax.Var) -> relax.Var:
        return self._bind(var.name, infer(relax.op.astype(var, "float64"))) if is_float_type(var.ty) else var

    def _stop(self, var: relax.Var, name: str, roundoff: float, operator: str = "") -> relax.Var:
        bound, others_bound = _bounds(operator)
        return self._called(var, Stop(symbol="", name=name, roundoff=roundoff, bound=bound, others_bound=others_bound))

    def _called(self, var: relax.Var, stop: Stop) -> relax.Var:
        """Return the result of a stop, which gets its symbol here."""
        self.stops.append(replace(stop, symbol=f"{self.prefix}_{len(self.stops)}"))
        return self._bind(var.name, relax.op.call_dps_packed(self.stops[-1].symbol, relax.Tuple([var]), var.ty))

    def _bind(self, name: str, value: relax.Expr) -> relax.Var:
        if not isinstance(value, relax.Var):
            value = relax.BlockBuilder().normalize(value)
        var = relax.DataflowVar(name, value.ty)
        self._sequence.append(relax.VarBinding(var, value))
        return var


@dataclass(frozen=True, kw_only=True, eq=False)
class _StepError:
    """Parameters of a step that hold a rounding error.

    factor: 1 plus the relative error, of the value's type.
    bound: scalar, the magnitude below which the error does not get smaller; None for an error without bound.
    is_shared: all steps have the same error, because errors of each step would take too many bytes.
    step_axes: number of leading axes of the factor that are steps of loops inside the step.
    roundoff, c_bound, others_bound: as in `Stop`.
    """

    factor: relax.Var
    bound: relax.Var | None
    is_shared: bool
    step_axes: int
    roundoff: float
    c_bound: float
    others_bound: float


class _StepWriter(_Writer):
    """Writer of a loop's step in float64. errors: parameters that the step takes for its rounding errors."""

    stops_matrices = False

    def __init__(self, mod: tvm.IRModule, repeated: RepeatedStep) -> None:
        super().__init__(mod, frozenset(), "")
        self.errors: list[_StepError] = []
        self._num_ahead = repeated.has_index + repeated.num_states + repeated.num_sequences
        self._count = repeated.count

    def _parameters(self, params: list[relax.Var]) -> list[relax.Var]:
        separate, shared = (
            [error.factor for error in self.errors if error.is_shared is whether] for whether in (False, True)
        )
        bounds = [error.bound for error in self.errors if error.bound is not None]
        return [*params[: self._num_ahead], *separate, *params[self._num_ahead :], *shared, *bounds]

    def _errors(self, error: _StepError, count: int) -> tuple[relax.Var, relax.Var | None]:
        """Return the factors and the bound of an error in a loop inside this step, which are parameters of the step."""
        shape = static_shape(error.factor)
        if error.is_shared:
            return self._added(error, shape)
        return self._added(replace(error, step_axes=error.step_axes + 1), (count, *shape))

    def _added(self, error: _StepError, shape: tuple[int, ...]) -> tuple[relax.Var, relax.Var | None]:
        """Return new parameters of the step for an error whose factors have the given shape."""
        number = len(self.errors)
        factor = relax.Var(f"factor_{number}", relax.TensorType(shape, "float64"))
        has_bound = max(error.c_bound, error.others_bound) > 0
        bound = relax.Var(f"bound_{number}", relax.TensorType((), "float64")) if has_bound else None
        is_shared = self._count * math.prod(shape) > _MOST_FACTORS
        self.errors.append(replace(error, factor=factor, bound=bound, is_shared=is_shared))
        return factor, bound

    def _stop(self, var: relax.Var, name: str, roundoff: float, operator: str = "") -> relax.Var:
        if not roundoff:
            return var
        c_bound, others_bound = _bounds(operator)
        error = _StepError(
            factor=var, bound=None, is_shared=False, step_axes=0,
            roundoff=roundoff, c_bound=c_bound, others_bound=others_bound,
        )  # fmt: skip
        factor, bound = self._added(error, static_shape(var))
        size = self._bind("size", infer(relax.op.abs(var)))
        size = size if bound is None else self._bind("size", infer(relax.op.maximum(size, bound)))
        # The error of infinity would be infinite, and infinity minus infinity is not a number.
        size = self._bind("size", infer(relax.op.minimum(size, relax.const(LARGEST, "float64"))))
        error_of = self._bind("error", infer(relax.op.subtract(factor, relax.const(1.0, "float64"))))
        change = self._bind("change", infer(relax.op.multiply(size, error_of)))
        return self._bind(var.name, infer(relax.op.add(var, change)))


@dataclass(frozen=True, kw_only=True)
class _Transform:
    """A product with windowed cosines and sines. argument: index of the matrix. largest: factor of the window."""

    argument: int
    largest: float


def _transform_in(value: relax.Call) -> _Transform | None:
    """Return the matrix of windowed cosines and sines that a call multiplies with; None for other calls.

    Kernels replace the product by a Fourier transform, whose roundings are relative to the largest entries of the
    matrix, in rows of small entries as well. Exporters leave 1e-16 where a sine is zero.
    """
    name = op_name(value)
    if name not in ("relax.matmul", "relax.nn.conv1d", "relax.nn.conv2d"):
        return None
    for index, argument in enumerate(value.args[:2]):
        array = array_of(argument)
        if array is None or array.ndim < 2 or array.dtype != np.float32:
            continue
        if name == "relax.matmul":
            rows = array.reshape(-1, array.shape[-1]) if index == 0 else array.reshape(-1, array.shape[-1]).T
        else:
            rows = array.reshape(len(array), -1)
        if basis := fourier_basis(rows):
            return _Transform(argument=index, largest=float(np.abs(basis.window).max()))
    return None


def _bounds(operator: str) -> tuple[float, float]:
    """Return the magnitudes below which rounding errors do not get smaller: in our C code, and in other runtimes."""
    bound = _CANCELLING.get(operator, 0.0)
    return bound, _BOUNDED.get(operator, bound)


def _repeated_by(mod: tvm.IRModule, value: relax.Expr) -> RepeatedStep:
    """Return the description of the step that a call runs in a loop; empty for any other call."""
    return RepeatedStep.read(mod[value.args[0]]) if op_name(value) == "relax.call_tir" else RepeatedStep()


def _wide(ty: relax.TensorType) -> relax.TensorType:
    return relax.TensorType(ty.shape, "float64")


def _wide_attributes(attrs: tvm.ir.Attrs | None) -> tvm.ir.Attrs | None:
    """Return the attributes of a call with every float type in them changed to float64."""
    info = getattr(type(attrs), "__tvm_ffi_type_info__", None)
    if attrs is None or info is None:
        return attrs
    fields = {field.name: getattr(attrs, field.name) for field in info.fields}
    wide = {name: value for name, value in fields.items() if isinstance(value, tvm_ffi.dtype)}
    wide = {name: tvm_ffi.dtype("float64") for name, value in wide.items() if str(value) in UNIT_ROUNDOFF}
    return tvm.ir.make_node(info.type_key, **fields | wide) if wide else attrs


def _moves_operands(name: str) -> bool:
    """Return True for operators that add up terms, or that round their argument before they compute the function."""
    is_sum = name.startswith(("nn.conv", "nn.avg_pool", "nn.adaptive_avg_pool", "nn.attention"))
    return is_sum or name in ("matmul", "einsum") or name in _REDUCTIONS | _NORMALIZATIONS | _TRANSCENDENTAL


def _roundoff(value: relax.Expr) -> float:
    """Return the relative rounding error of an operator's result.

    It is the unit roundoff times the square root of the number of terms that an element adds up, because rounding
    errors of random sign grow with the root.
    """
    if not isinstance(value, relax.Call) or not is_float_type(value.ty):
        return 0.0
    name = (op_name(value) or "").removeprefix("relax.")
    unit = UNIT_ROUNDOFF[str(value.ty.dtype)]
    if name == "astype":
        source = UNIT_ROUNDOFF.get(str(value.args[0].ty.dtype), 0.0)
        return unit if unit > source else 0.0
    # Terms of 16-bit floats are added up in float32, and the sum is rounded once.
    inside = min(unit, UNIT_ROUNDOFF["float32"])
    return 0.0 if name in _EXACT else max(unit, inside * math.sqrt(_num_terms(name, value)))


def _num_terms(name: str, call: relax.Call) -> int:
    """Return the number of terms that each element of a result adds up."""

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
