"""A float function as units, which are runs of bindings that int8 code computes as single operators.

Units exist during quantization only. `FormComposites` later forms the operators of the QDQ module by its own rules:
what lies between a dequantize and a quantize is one operator, if the backend accepts it.

linear    conv2d, its transpose, or matmul by a constant matrix; with the added bias, and relu and clip after it
compute   an operator that reads a neighbourhood, two combined activations, or a chain of element-wise
          operators on one activation; with relu and clip after two combined activations or normalized groups
          of channels; with a number that scales a product of two activations; with a mask ahead of a softmax;
          PReLU with slopes of channels
recurrent a standard layer of LSTM, GRU or RNN, all steps; its result is a tuple
part      an element of the tuple of a recurrent unit
move      the same numbers in other positions; the result has the parameters of the inputs
float     every other operator, computed as in the model
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import tvm
from tvm import relax

from relay_passes.analysis.recurrent_int8 import FloatRecurrent, recurrent_of
from relay_passes.dataflow import array_of, op_name, operands, static_shape
from relay_passes.patterns import Dataflow, any_constant, any_variable, number, op

Kind = Literal["linear", "compute", "recurrent", "part", "move", "float"]

_LINEAR = frozenset({"relax.nn.conv2d", "relax.nn.conv2d_transpose", "relax.matmul"})
_MOVES = frozenset(
    f"relax.{name}"
    for name in "reshape permute_dims expand_dims squeeze flatten concat strided_slice tile take".split()
)
_ANCHORS = frozenset(
    f"relax.{name}"
    for name in (
        "matmul nn.max_pool2d nn.avg_pool2d mean sum nn.softmax nn.layer_norm nn.rms_norm image.resize2d max min nn.pad"
    ).split()
)
_SCALES = frozenset({"relax.multiply", "relax.divide"})
_LEFT_OUT = -1000.0
"""A score to which this number or less is added counts as masked out of the softmax."""
_CLAMPS = frozenset({"relax.nn.relu", "relax.clip"})
_X = any_variable()
_LEAK = op("relax.multiply", op("relax.minimum", _X, number(0)), any_constant(), any_order=True)
_PRELU = op("relax.add", op("relax.maximum", _X, number(0)), _LEAK, any_order=True)
_SAME_NUMBERS = frozenset({"relax.nn.max_pool2d", "relax.max", "relax.min"})


@dataclass(frozen=True, kw_only=True, eq=False)
class Unit:
    """Bindings, in order, that become at most one quantized operator.

    inputs: activations read from outside, each listed once.
    weight, axis: of a linear unit, where axis holds its output channels.
    bias: float32[K], zeros where the model adds none.
    clamps: the number of last members that only clamp.
    recurrent: the layer of a recurrent unit.
    """

    name: str
    kind: Kind
    members: tuple[relax.VarBinding, ...]
    inputs: tuple[relax.Var, ...]
    weight: np.ndarray | None = None
    axis: int = 0
    bias: np.ndarray | None = None
    clamps: int = 0
    recurrent: FloatRecurrent | None = None

    @property
    def computes(self) -> bool:
        """True for units whose integer form is a choice; the others follow their neighbours, or are always float."""
        return self.kind in ("linear", "compute", "recurrent")

    @property
    def result(self) -> relax.Var:
        return self.members[-1].var

    @property
    def channel_axis(self) -> int:
        """Axis of the result that holds the output channels of a linear unit."""
        return _channel_axis(self.members[0].value, self.members[0].var)

    @property
    def operator(self) -> str:
        """Relax's name of the operator that determines the kind of the unit."""
        return op_name(self.members[0].value) or type(self.members[0].value).__name__

    @property
    def keeps_parameters(self) -> bool:
        """True where the result's numbers are numbers of the input, so that both share scale and zero point."""
        nearest = self.operator == "relax.image.resize2d" and self.members[0].value.attrs.method == "nearest_neighbor"
        zeros = self.operator == "relax.nn.pad" and float(self.members[0].value.attrs.pad_value) == 0
        same = nearest or zeros or self.operator in _SAME_NUMBERS
        return self.kind == "move" or (self.kind == "compute" and same)


def is_float_tensor(var: relax.Expr) -> bool:
    """Return True where a value is a float32 tensor."""
    return isinstance(var.ty, relax.TensorType) and str(var.ty.dtype) == "float32"


def units_of(func: relax.Function, elementwise: frozenset[str], mod: tvm.IRModule | None = None) -> list[Unit]:
    """Return the units of a function of one dataflow block, in order.

    elementwise: operators that the backend computes element by element. mod: contains the PrimFuncs that the function
    calls; None for a function that calls none.
    """
    return list(_Grouping(func, elementwise, mod or tvm.IRModule()).run())


class _Grouping:
    def __init__(self, func: relax.Function, elementwise: frozenset[str], mod: tvm.IRModule) -> None:
        self.mod, self.flow, self.elementwise = mod, Dataflow(func), elementwise
        self.owned: set[relax.Var] = set()
        self.tuples: set[relax.Var] = set()

    def run(self) -> Iterator[Unit]:
        """Yield the units. A unit stands at the position of its last member, because all its inputs come earlier."""
        units: dict[relax.Var, Unit] = {}
        for index, binding in enumerate(self.flow.sequence):
            if binding.var in self.owned:
                continue
            unit = self._unit(binding, index)
            self.owned.update(member.var for member in unit.members)
            units[unit.result] = unit
        return (units[binding.var] for binding in self.flow.sequence if binding.var in units)

    def _unit(self, binding: relax.VarBinding, index: int) -> Unit:
        name = op_name(binding.value)
        leaves = _activations(binding)
        if (layer := recurrent_of(binding.value, self.mod)) is not None:
            self.tuples.add(binding.var)
            return replace(_plain("recurrent", [binding]), recurrent=layer)
        if isinstance(binding.value, relax.TupleGetItem) and binding.value.tuple_value in self.tuples:
            return _plain("part", [binding])
        if name is None or not leaves or not all(is_float_tensor(value) for value in (*leaves, binding.var)):
            return _plain("float", [binding])
        if name in _LINEAR and (linear := self._linear(binding)) is not None:
            return linear
        if name in _MOVES:
            moved = binding.value.args[:1] if name == "relax.take" else [binding.value]  # the indices are constant
            whole = all(array_of(leaf) is None for value in moved for leaf in operands(value))
            whole = whole or (name == "relax.concat" and all(map(is_float_tensor, operands(binding.value))))
            return _plain("move" if whole else "float", [binding])
        if name == "relax.nn.group_norm":
            clamps = self._clamps(binding)
            return _plain("compute", [binding, *clamps], clamps=len(clamps))
        if name in _ANCHORS:
            return _plain("compute", [binding, *self._scale(binding)])
        if _interpolates(binding.value):
            return _plain("compute", [binding, *self._second_axis(binding)])
        if name not in self.elementwise:
            return _plain("float", [binding])
        if len(leaves) == 1:
            return self._masked(binding) or self._prelu(binding) or self._function_of_one(binding, index)
        clamps = self._clamps(binding)
        return _plain("compute", [binding, *clamps], clamps=len(clamps))

    def _linear(self, anchor: relax.VarBinding) -> Unit | None:
        """Return the anchor with its bias and clamps, or None unless only the weight is constant."""
        call, weight = anchor.value, array_of(anchor.value.args[1])
        if weight is None or array_of(call.args[0]) is not None:
            return None
        is_matrix = op_name(call) == "relax.matmul"
        if is_matrix and weight.ndim != 2:
            return None
        axis = 1 if is_matrix else str(call.attrs.kernel_layout).index("O")
        channels = weight.shape[axis]
        if channels != static_shape(anchor.var)[_channel_axis(call, anchor.var)]:
            return None  # a transposed convolution with groups has the channels of a single group here
        members, bias = [anchor], np.zeros(channels, "float32")
        follower = self.flow.sole_reader(anchor.var)
        if follower is not None and op_name(follower.value) == "relax.add":
            added = _per_channel(anchor.var, follower, _channel_axis(call, anchor.var), channels)
            if added is not None:
                members, bias = [anchor, follower], added
        clamps = self._clamps(members[-1])
        unit = _plain("linear", [*members, *clamps], clamps=len(clamps))
        return replace(unit, weight=weight, axis=axis, bias=bias)

    def _masked(self, mask: relax.VarBinding) -> Unit | None:
        """Return a softmax with the mask that is added ahead of it.

        A separate int8 sum could not hold both the scores and the mask.
        """
        arrays = [array for leaf in operands(mask.value) if (array := array_of(leaf)) is not None]
        follower = self.flow.sole_reader(mask.var)
        if op_name(mask.value) != "relax.add" or follower is None or op_name(follower.value) != "relax.nn.softmax":
            return None
        leaves_out = len(arrays) == 1 and arrays[0].min(initial=0.0) <= _LEFT_OUT
        return _plain("compute", [mask, follower]) if leaves_out and _same_shape(mask, _activations(mask)[0]) else None

    def _prelu(self, first: relax.VarBinding) -> Unit | None:
        """Return PReLU with slopes of several channels, as RecognizeLeaks writes it, from its first operator on."""
        total = first
        for name in ("relax.multiply", "relax.add") if op_name(first.value) == "relax.minimum" else ("relax.add",):
            follower = self.flow.sole_reader(total.var)
            if follower is None or op_name(follower.value) != name:
                return None
            total = follower
        match = self.flow.match(_PRELU, total.var)
        if match is None or not _same_shape(total, match[_X]):
            return None
        inner = {leaf for value in (total.value, match.call(_LEAK)) for leaf in operands(value)}
        members = [binding for binding in self.flow.sequence if binding.var in inner or binding is total]
        inside = {member.var for member in members}
        is_whole = len(members) == 4 and all(self.flow.is_inner(member.var, inside) for member in members[:-1])
        return _plain("compute", members) if is_whole and first in members else None

    def _scale(self, product: relax.VarBinding) -> list[relax.VarBinding]:
        """Return the number that scales a product of two activations, or nothing."""
        follower = self.flow.sole_reader(product.var) if op_name(product.value) == "relax.matmul" else None
        if follower is None or op_name(follower.value) not in _SCALES or len(_activations(follower)) > 1:
            return []
        is_divisor = array_of(follower.value.args[0]) is not None and op_name(follower.value) == "relax.divide"
        return [] if is_divisor or not _adds_numbers_only(follower, product.var) else [follower]

    def _second_axis(self, first: relax.VarBinding) -> list[relax.VarBinding]:
        """Return the interpolation along the other axis of an image, or nothing: one kernel computes both."""
        follower = self.flow.sole_reader(first.var)
        if follower is None or not _interpolates(follower.value) or not is_float_tensor(follower.var):
            return []
        shapes = [static_shape(var) for var in (_activations(first)[0], first.var, follower.var)]
        axes = [
            [axis for axis, (a, b) in enumerate(zip(*pair, strict=True)) if a != b]
            for pair in (shapes[:2], shapes[1:])
        ]  # fmt: skip
        return [follower] if all(len(found) == 1 for found in axes) and abs(axes[0][0] - axes[1][0]) == 1 else []

    def _clamps(self, last: relax.VarBinding) -> list[relax.VarBinding]:
        """Return relu and clip operators, each the only reader of the value ahead of it."""
        found: list[relax.VarBinding] = []
        while (follower := self.flow.sole_reader(last.var)) is not None and op_name(follower.value) in _CLAMPS:
            found.append(follower)
            last = follower
        return found

    def _function_of_one(self, first: relax.VarBinding, index: int) -> Unit:
        """Return the longest chain of element-wise operators on one activation that leaves a single value.

        The other operands of the chain are scalars.
        """
        source = _activations(first)[0]
        known, members, best = {source, first.var}, [first], 1
        if not _adds_numbers_only(first, source):
            return _plain("compute" if _same_shape(first, source) else "float", [first])
        for candidate in self.flow.sequence[index + 1 :]:
            leaves = set(_activations(candidate))
            if not leaves or not leaves <= known or candidate.var in self.owned:
                continue
            if op_name(candidate.value) not in self.elementwise or not _adds_numbers_only(candidate, source):
                continue
            members.append(candidate)
            known.add(candidate.var)
            inside = {member.var for member in members}
            if all(self.flow.is_inner(member.var, inside) for member in members[:-1]):
                best = len(members)
        return _plain("compute", members[:best])


def _plain(kind: Kind, members: Sequence[relax.VarBinding], *, clamps: int = 0) -> Unit:
    inside = {member.var for member in members}
    leaves = dict.fromkeys(leaf for member in members for leaf in _activations(member))
    return Unit(
        name=_name(members), kind=kind, members=tuple(members), clamps=clamps,
        inputs=tuple(leaf for leaf in leaves if leaf not in inside),
    )  # fmt: skip


def _activations(binding: relax.VarBinding) -> list[relax.Var]:
    """Return the variables that a binding reads, each listed once."""
    return [leaf for leaf in dict.fromkeys(operands(binding.value)) if isinstance(leaf, relax.Var)]


def _name(members: Sequence[relax.VarBinding]) -> str:
    """Return the model's own name of the first operator, or else the name of the result."""
    span = members[0].value.span
    return span.source_name.name if span is not None else members[-1].var.name


def _interpolates(call: relax.Expr) -> bool:
    """Return True where a call_tir reads indices and weights like an interpolation of a front end.

    See ExposeInterpolations.
    """
    if op_name(call) != "relax.call_tir":
        return False
    leaves = list(operands(call.args[1]))
    arrays = [array_of(leaf) for leaf in leaves[1:]]
    return [None if a is None else (str(a.dtype), a.ndim) for a in arrays] == [("int32", 2), ("float32", 2)]


def _same_shape(binding: relax.VarBinding, source: relax.Var) -> bool:
    return is_float_tensor(binding.var) and static_shape(binding.var) == static_shape(source)


def _adds_numbers_only(binding: relax.VarBinding, source: relax.Var) -> bool:
    arrays = [array for leaf in operands(binding.value) if (array := array_of(leaf)) is not None]
    return _same_shape(binding, source) and all(array.size == 1 for array in arrays)


def _channel_axis(call: relax.Call, var: relax.Var) -> int:
    if op_name(call) == "relax.matmul":
        return len(static_shape(var)) - 1
    return str(call.attrs.out_layout or call.attrs.data_layout).index("C")


def _per_channel(var: relax.Var, add: relax.VarBinding, axis: int, channels: int) -> np.ndarray | None:
    """Return the constant of an addition as float32[channels], if it has one number per channel, or None."""
    arrays = [array for leaf in operands(add.value) if (array := array_of(leaf)) is not None]
    rank = len(static_shape(var))
    if len(arrays) != 1 or arrays[0].ndim > rank or not _same_shape(add, var):
        return None
    shape = (1,) * (rank - arrays[0].ndim) + arrays[0].shape
    if any(extent != 1 for index, extent in enumerate(shape) if index != axis):
        return None
    return np.broadcast_to(arrays[0].reshape(-1), channels).astype("float32")
