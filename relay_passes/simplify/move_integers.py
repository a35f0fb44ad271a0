"""Let operators that only move or select elements of a quantized tensor work on integers, not on dequantized floats.

Rewrite, where `move` copies elements or selects the largest or smallest of several:
    move(dequantize(x), dequantize(y))      ->  dequantize(move(x, y))                          with equal parameters
    quantize(move(a, b))                    ->  move(quantize(a), quantize(b))                  without other readers
    quantize(max_pool2d(dequantize(x)))     ->  quantize(max_pool2d(dequantize(requantized x)))
    max_pool2d(dequantize(x))               ->  dequantize(quantize(max_pool2d(dequantize(x))))  without a quantize
    quantize(dequantize(x))                 ->  x                                               with equal parameters
    The rewrite is exact: quantize works element by element and is monotonic.
Leaves alone: parameters that are not constant or that differ by channel; padding with a value that the scale and
zero point of the tensor do not represent (until a quantize follows); constants, except embedding tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    bindings,
    infer,
    is_quantized,
    live,
    map_dataflow,
    names_in,
    op_name,
    operands,
    outputs,
    rebuild,
    returned,
    static_shape,
    substitute,
    users,
    with_span,
)
from tvm_ext.core.names import unique

MOVES = frozenset(
    f"relax.{name}"
    for name in (
        "reshape permute_dims expand_dims squeeze flatten strided_slice concat tile repeat flip broadcast_to take "
        "nn.pad max min maximum minimum"
    ).split()
)
"""Operators whose results are elements of their operands."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Parameters:
    """The scale and zero point of a whole tensor, as a quantize or dequantize reads them."""

    scale: relax.Expr
    zero_point: relax.Expr

    def equals(self, other: _Parameters) -> bool:
        pairs = ((self.scale, other.scale), (self.zero_point, other.zero_point))
        return all(array_of(a).dtype == array_of(b).dtype and _number(a) == _number(b) for a, b in pairs)

    def on_grid(self, real: float) -> int | None:
        """Return the integer that represents exactly this number, or None if there is none."""
        zero_point = array_of(self.zero_point)
        limits, found = np.iinfo(zero_point.dtype), self.nearest(real)
        back = np.float32(found - int(zero_point.reshape(-1)[0])) * np.float32(_number(self.scale))
        return found if limits.min <= found <= limits.max and back == np.float32(real) else None

    def nearest(self, real: float) -> int:
        limits = np.iinfo(array_of(self.zero_point).dtype)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            steps = np.rint(np.float32(real) / np.float32(_number(self.scale))) + np.float32(_number(self.zero_point))
        return int(np.clip(np.nan_to_num(steps), limits.min, limits.max))


@tvm.transform.module_pass(opt_level=0, name="MoveIntegers")
class MoveIntegers:
    """Turn operators that only move or select elements of quantized tensors into operators on integers."""

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, lambda func: _Rewriter(func).run() if is_quantized(func) else func)


class _Rewriter:
    """A single walk over the bindings.

    integers: the integers and the parameters of each float value that a dequantize computes.
    tables: the same for constants, which are left alone unless their rows are looked up.
    """

    def __init__(self, func: relax.Function) -> None:
        self.func, self.original = func, bindings(func)
        self.users = users(self.original)
        self.returned = returned(func)
        self.taken = names_in(func)
        self.sequence: list[relax.VarBinding] = []
        self.replaced: dict[relax.Var, relax.Expr] = {}
        self.integers: dict[relax.Var, tuple[relax.Expr, _Parameters]] = {}
        self.tables: dict[relax.Var, tuple[relax.Expr, _Parameters]] = {}
        self.moves: dict[relax.Var, relax.VarBinding] = {}
        self.moved: dict[relax.Var, relax.Call] = {}
        self.stacks: dict[relax.Var, relax.Call] = {}

    def run(self) -> relax.Function:
        for binding in self.original:
            self._visit(relax.VarBinding(binding.var, substitute(binding.value, self.replaced)))
        results = [substitute(result, self.replaced) for result in outputs(self.func)]
        return rebuild(self.func, live(self.sequence, results), results)

    def _visit(self, binding: relax.VarBinding) -> None:
        name, call = op_name(binding.value), binding.value
        if name == "relax.dequantize" and (known := _parameters(call)) is not None:
            is_constant = array_of(call.args[0]) is not None
            (self.tables if is_constant else self.integers)[binding.var] = (call.args[0], known)
        elif name == "relax.quantize" and (wanted := _parameters(call)) is not None:
            self._quantize(binding, wanted)
            return
        elif name == "relax.stack":
            self.stacks[binding.var] = call
        elif name == "relax.nn.max_pool2d":
            self.moves[binding.var] = binding
            if self._pool_integers(binding):
                return
        elif (apart := self._taken_apart(binding)) is not None:
            for step in apart:
                self._visit(step)
            return
        elif name in MOVES and _activations(call):
            self.moves[binding.var] = binding
            if self._move_integers(binding):
                return
        self.sequence.append(binding)

    def _taken_apart(self, binding: relax.VarBinding) -> list[relax.VarBinding] | None:
        """Write the maximum (or minimum) along the axis of a stack as a chain of maxima of two tensors."""
        pick = {"relax.max": relax.op.maximum, "relax.min": relax.op.minimum}.get(op_name(binding.value) or "")
        stack = self.stacks.get(binding.value.args[0]) if pick else None
        if pick is None or stack is None or binding.value.attrs.keepdims:
            return None
        rank, fields = len(static_shape(binding.value.args[0])), list(operands(stack))
        axes = [int(axis) % rank for axis in binding.value.attrs.axis or ()]
        if axes != [int(stack.attrs.axis or 0) % rank] or len(fields) < 2:
            return None
        steps: list[relax.VarBinding] = []
        best = fields[0]
        for index, field in enumerate(fields[1:], 1):
            call = with_span(infer(pick(best, field)), binding.value.span)
            is_last = index == len(fields) - 1
            name = unique(f"{binding.var.name}.{index}", self.taken)
            best = binding.var if is_last else relax.DataflowVar(name, call.ty)
            self.users.setdefault(best, [binding])
            steps.append(relax.VarBinding(best, call))
        return steps

    def _move_integers(self, binding: relax.VarBinding) -> bool:
        """Write a move of dequantized tensors with equal parameters as a dequantize of moved integers."""
        behind = self.integers | self.tables if _looks_up(binding.value) else self.integers
        found = [behind.get(leaf) for leaf in _activations(binding.value)]
        known = [pair for pair in found if pair is not None]
        if len(known) < len(found) or not all(parameters.equals(known[0][1]) for _, parameters in known):
            return False
        parameters = known[0][1]
        moved = _moved(binding.value, [integers for integers, _ in known], parameters, exact=True)
        if moved is None:
            return False
        integers = self._bind(f"{binding.var.name}.integers", moved)
        dequantize = relax.op.dequantize(integers, parameters.scale, parameters.zero_point, out_dtype="float32")
        self.sequence.append(relax.VarBinding(binding.var, with_span(infer(dequantize), binding.value.span)))
        self.integers[binding.var] = (integers, parameters)
        return True

    def _pool_integers(self, binding: relax.VarBinding) -> bool:
        """Quantize a pool of a dequantized tensor at once where no quantize follows: its results are representable
        exactly.
        """
        behind = self.integers.get(binding.value.args[0])
        is_quantized = any(op_name(reader.value) == "relax.quantize" for reader in self.users.get(binding.var, ()))
        if behind is None or is_quantized or binding.var in self.returned:
            return False
        parameters, dtype = behind[1], str(behind[0].ty.dtype)
        largest = self._bind(f"{binding.var.name}.largest", binding.value)
        quantize = relax.op.quantize(largest, parameters.scale, parameters.zero_point, axis=-1, out_dtype=dtype)
        integers = self._bind(f"{binding.var.name}.integers", with_span(infer(quantize), binding.value.span))
        dequantize = relax.op.dequantize(integers, parameters.scale, parameters.zero_point, out_dtype="float32")
        self.sequence.append(relax.VarBinding(binding.var, with_span(infer(dequantize), binding.value.span)))
        self.integers[binding.var] = (integers, parameters)
        return True

    def _quantize(self, binding: relax.VarBinding, wanted: _Parameters) -> None:
        """Reuse known integers, or move the tensor after it is quantized, or keep the quantize as it is."""
        source = binding.value.args[0]
        behind = self.integers.get(source)
        if behind is not None and behind[1].equals(wanted):
            if binding.var not in self.returned:
                self.replaced[binding.var] = behind[0]
                return
            if behind[0] in self.moved:  # an output keeps its own name
                self.sequence.append(relax.VarBinding(binding.var, self.moved[behind[0]]))
                return
        value = self._quantized_move(source, binding.value, wanted) if behind is None else None
        self.sequence.append(relax.VarBinding(binding.var, binding.value if value is None else value))

    def _quantized_move(self, source: relax.Expr, quantize: relax.Call, wanted: _Parameters) -> relax.Call | None:
        """Write quantize(move(a, b)) as move(quantize(a), quantize(b)).

        Return None where `source` is no move or has another reader.
        """
        move = self.moves.get(source)
        if move is None or source in self.returned or len(self.users.get(source, ())) != 1:
            return None
        leaves = _activations(move.value)
        if op_name(move.value) == "relax.nn.max_pool2d":
            return self._requantized_pool(move, quantize, wanted)
        inner = [self._quantized(leaf, quantize, wanted) for leaf in leaves]
        return _moved(move.value, inner, wanted, exact=False)

    def _quantized(self, leaf: relax.Expr, quantize: relax.Call, wanted: _Parameters) -> relax.Expr:
        behind = self.integers.get(leaf)
        if behind is not None and behind[1].equals(wanted):
            return behind[0]
        value = self._quantized_move(leaf, quantize, wanted) if behind is None else None
        if value is None:
            value = _quantize_like(quantize, leaf)
        return self._bind(f"{leaf.name}.quantized", value)

    def _requantized_pool(self, pool: relax.VarBinding, quantize: relax.Call, wanted: _Parameters) -> relax.Call | None:
        """Requantize the input of the pool to the output's scale and zero point, so that a single integer kernel
        computes it.
        """
        behind = self.integers.get(pool.value.args[0])
        if behind is None or behind[1].equals(wanted):
            return None
        integers = self._quantized(pool.value.args[0], quantize, wanted)
        dequantize = relax.op.dequantize(integers, wanted.scale, wanted.zero_point, out_dtype="float32")
        real = self._bind(f"{pool.var.name}.requantized", with_span(infer(dequantize), pool.value.span))
        largest = self._bind(pool.var.name, substitute(pool.value, {pool.value.args[0]: real}))
        return _quantize_like(quantize, largest)

    def _bind(self, name: str, value: relax.Expr) -> relax.Var:
        var = relax.DataflowVar(unique(name, self.taken), value.ty)
        self.sequence.append(relax.VarBinding(var, value))
        self.moved[var] = value
        return var


def _parameters(call: relax.Call) -> _Parameters | None:
    """Return the scale and zero point of a quantize or dequantize between float32 and 8 or 16 bits, or None.

    Each of the two has to be a single constant.
    """
    integers = call.ty if op_name(call) == "relax.quantize" else call.args[0].ty
    real = call.args[0].ty if op_name(call) == "relax.quantize" else call.ty
    scale, zero_point = array_of(call.args[1]), array_of(call.args[2])
    if scale is None or zero_point is None or scale.size != 1 or zero_point.size != 1:
        return None
    if str(real.dtype) != "float32" or str(integers.dtype) not in ("int8", "uint8", "int16", "uint16"):
        return None
    if scale.dtype != np.float32 or not 0 < _number(call.args[1]) < np.inf or str(integers.dtype) != zero_point.dtype:
        return None
    return _Parameters(scale=call.args[1], zero_point=call.args[2])


def _quantize_like(quantize: relax.Call, value: relax.Expr) -> relax.Call:
    """Return a quantize of another value, of any rank, with the same parameters."""
    call = relax.op.quantize(value, *quantize.args[1:], axis=-1, out_dtype=str(quantize.ty.dtype))
    return with_span(infer(call), quantize.span)


def _number(constant: relax.Expr) -> float:
    return float(array_of(constant).reshape(-1)[0])


def _activations(call: relax.Call) -> list[relax.Var]:
    """Return the tensors whose elements a move copies, or none where one of them is a constant."""
    moved = list(operands(call.args[0]))
    if op_name(call) in ("relax.maximum", "relax.minimum"):
        moved = list(operands(call))
    found = [leaf for leaf in moved if isinstance(leaf, relax.Var) and isinstance(leaf.ty, relax.TensorType)]
    return found if len(found) == len(moved) and all(str(leaf.ty.dtype) == "float32" for leaf in found) else []


def _looks_up(call: relax.Call) -> bool:
    """Return True for a lookup of rows by indices that are known only at run time."""
    return op_name(call) == "relax.take" and array_of(call.args[1]) is None


def _moved(call: relax.Call, integers: list[relax.Expr], parameters: _Parameters, *, exact: bool) -> relax.Call | None:
    """Return the move of integers, or None where its padding value has to be, but is not, representable."""
    leaves = _activations(call)
    if op_name(call) != "relax.nn.pad":
        pairs = dict(zip(leaves, integers, strict=True))
        return with_span(infer(substitute(call, pairs)), call.span)
    if str(call.attrs.pad_mode) != "constant":
        return None
    value = _pad_value(call)
    integer = parameters.on_grid(value) if exact else parameters.nearest(value)
    if integer is None:
        return None
    widths = [int(width) for width in call.attrs.pad_width]
    padded = relax.op.nn.pad(integers[0], widths, pad_value=integer)
    return with_span(infer(padded), call.span)


def _pad_value(call: relax.Call) -> float:
    return float(getattr(call.attrs, "pad_value", 0.0))
