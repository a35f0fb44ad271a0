"""Form composites: one private function per kernel, chains of float16 operators included.

Rewrite: seven shapes, in this order. Constants move inside; the composite stands at the position of its last member.
    quantize(f(dequantize(a), dequantize(b) ...))  ->  c(a, b ...)      f: float operators, at most one anchor
    f(conv2d(dequantize(a), dequantize(w)))        ->  c(a)             a conv2d or matmul with constant w, and the
                                                                        element-wise operators that follow;
                                                                        range_quantize(a) alike
    half(f(float(x)))                              ->  c(x)             float16: either of the next two between casts,
                                                                        where a single kernel takes the whole chain
    take(x, i) * a + take(x, j) * b                ->  c(x)             an interpolation that a kernel computes, also
                                                                        along two axes
    relu(add(conv2d(x, w), r))                     ->  c(x, r)          an anchor and its element-wise operators
    op(x)                                          ->  c(x)             every other operator
A quantized chain carries the model's rounding semantics (`ModelOrigin`) as its own `QuantizedRounding`.
Leaves alone: operators that the backend refuses, tuple access, and chains with an inner value that is read outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import tvm
import tvm_ffi
from tvm import relax

from relay_passes.backend import Backend
from relay_passes.composites import attributes, call_new, kind_of
from relay_passes.dataflow import (
    array_of,
    build,
    is_dataflow,
    op_name,
    operands,
    rebuild,
    static_shape,
)
from relay_passes.layout.channels_last import channels_last, laid_out
from relay_passes.patterns import Dataflow
from relay_passes.regions.weighted_sums import interpolations
from tvm_ext.core.decisions.composites import PrimFuncs, QuantizedRounding
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.names import RANGE_QUANTIZE, identifier, shared_prefix, unique

ANCHORS = frozenset(
    f"relax.{name}"
    for name in (
        "nn.conv2d nn.conv1d nn.conv3d nn.conv2d_transpose nn.conv1d_transpose matmul nn.max_pool2d "
        "nn.avg_pool2d nn.adaptive_avg_pool2d nn.softmax nn.log_softmax mean sum max min image.resize2d "
        "concat nn.layer_norm nn.rms_norm nn.group_norm einsum"
    ).split()
)
# A concat alone copies whole contiguous ranges. Operators that follow it run over its result in place. Float groups of
# channels have no kernel that could apply other operators.
FUSING = ANCHORS - {"relax.concat", "relax.nn.group_norm"}
PRODUCTS = frozenset({"relax.nn.conv2d", "relax.matmul"})
MAX_CHAIN = 12


@dataclass(frozen=True, kw_only=True)
class Group:
    """Bindings, in order, that become a single composite. The variable of the last binding is its result."""

    members: list[relax.VarBinding]
    anchor: relax.VarBinding


@tvm.transform.module_pass(opt_level=0, name="FormComposites")
class FormComposites:
    """Put every operator that the backend takes into a composite."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        if not is_dataflow(mod["main"]):
            return mod
        return _Rewriter(mod, self.backend).run()


class _Rewriter:
    def __init__(self, mod: tvm.IRModule, backend: Backend) -> None:
        self.mod, self.backend = mod, backend
        self.func: relax.Function = mod["main"]
        self.flow = Dataflow(self.func)
        self.sequence = self.flow.sequence
        self.producer = self.flow.made
        self.position = {binding.var: index for index, binding in enumerate(self.sequence)}
        self.owned: set[relax.Var] = set()
        self.rounding = QuantizedRounding(meaning=ModelOrigin.read(mod).rounding)

    def run(self) -> tvm.IRModule:
        groups = {group.members[-1].var: group for group in self._groups()}
        module = self.mod.clone()
        taken = {var.name_hint for var in module.get_global_vars()}
        rebuilt = []
        prefix = shared_prefix({node for binding in self.sequence if (node := _node(binding))})
        for binding in self.sequence:
            group = groups.get(binding.var)
            if group:
                arguments, composite = self._composite(group)
                name = (_node(group.anchor) or binding.var.name).removeprefix(prefix)
                call = call_new(module, unique(identifier(name), taken), composite, arguments, group.anchor.value.span)
                rebuilt.append(relax.VarBinding(binding.var, call))
            elif binding.var not in self.owned:
                rebuilt.append(binding)
        module.update_func(module.get_global_var("main"), rebuild(self.func, rebuilt))
        return module

    def _groups(self) -> Iterator[Group]:
        found = [
            *self._accepted(
                self._quantized(b) for b in reversed(self.sequence) if op_name(b.value) == "relax.quantize"
            ),
            *self._accepted(self._dequantized(b) for b in reversed(self.sequence) if op_name(b.value) in PRODUCTS),
            *self._accepted(self._halves(b for b in reversed(self.sequence) if op_name(b.value) in FUSING)),
            *self._accepted(self._halves(b for b in self.sequence if op_name(b.value) in self.backend.elementwise)),
            *self._accepted(self._interpolated(b) for b in reversed(self.sequence) if op_name(b.value) == "relax.add"),
            *self._accepted(self._anchored(b) for b in reversed(self.sequence) if op_name(b.value) in FUSING),
            *self._accepted(self._anchored(b) for b in self.sequence if op_name(b.value) in self.backend.elementwise),
            *self._accepted(self._taken(b) for b in reversed(self.sequence) if op_name(b.value) == "relax.take"),
            *self._accepted(Group(members=[b], anchor=b) for b in self.sequence if op_name(b.value)),
        ]
        return iter(found)

    def _accepted(self, candidates: Iterator[Group | None]) -> Iterator[Group]:
        """Yield the groups that the backend compiles and whose members are all free. Their members are then taken.

        The backend is asked about groups in their final layout, because kernels take no other layout, and a group
        without a kernel would be lowered through TVM only to be asked about. To answer, the backend lowers the
        composite and chooses a kernel; lowering of the region later gets the same answer for the same composite.
        """
        for group in candidates:
            if group is None or any(member.var in self.owned for member in group.members):
                continue
            if self.backend.refuses(laid_out(self._composite(group)[1])) is None:
                self.owned.update(member.var for member in group.members)
                yield group

    def _composite(self, group: Group) -> tuple[list[relax.Var], relax.Function]:
        return _composite(self.mod, group, self.rounding)

    def _halves(self, anchors: Iterator[relax.VarBinding]) -> Iterator[Group]:
        """Yield a float16 group for each anchor, without outside readers: the longest chain that a kernel takes."""
        chains = HalfChains(
            sequence=self.sequence, producer=self.producer, position=self.position,
            elementwise=self.backend.elementwise,
        )  # fmt: skip
        for anchor in anchors:
            if anchor.var in self.owned:
                continue
            groups = (Group(members=members, anchor=anchor) for members in chains.of(anchor))
            taken = next((group for group in groups if self._has_kernel(group)), None)
            if taken:
                yield taken

    def _has_kernel(self, group: Group) -> bool:
        """Return True for a free group without outside readers that a kernel takes, with channels last if needed."""
        inside = {member.var for member in group.members}
        if inside & self.owned or not all(self.flow.is_inner(member.var, inside) for member in group.members[:-1]):
            return False
        composite = self._composite(group)[1]
        forms = (laid_out(composite), channels_last(composite))
        return any(self.backend.has_kernel(form) for form in forms if form is not None)

    def _quantized(self, quantize: relax.VarBinding) -> Group | None:
        """Return the group from a quantize back to its dequantizes, if no other value enters or leaves it."""
        members, pending, anchors = {quantize.var}, [quantize], []
        while pending:
            for leaf in operands(pending.pop().value):
                if not isinstance(leaf, relax.Var) or leaf in members:
                    continue
                producer = self.producer.get(leaf)
                if producer is None or op_name(producer.value) is None or leaf in self.owned:
                    return None
                name = op_name(producer.value)
                if name in ANCHORS:
                    anchors.append(producer)
                elif name not in self.backend.elementwise and name not in ("relax.dequantize", "relax.take"):
                    return None
                members.add(leaf)
                if name != "relax.dequantize":
                    pending.append(producer)
        if len(anchors) > 1 or not all(self.flow.is_inner(var, members) for var in members - {quantize.var}):
            return None
        ordered = sorted((self.producer[var] for var in members), key=lambda b: self.position[b.var])
        inner = [b for b in ordered if op_name(b.value) not in ("relax.dequantize", "relax.quantize")]
        # Without operators between them, a dequantize and a quantize requantize integers to another scale.
        return Group(members=ordered, anchor=(anchors or inner or [quantize])[0])

    def _taken(self, last: relax.VarBinding) -> Group:
        """Return the group of a `take` and the preceding takes that only it reads: a gather along several axes."""
        members = [last]
        while (before := self.producer.get(members[0].value.args[0])) is not None:
            if op_name(before.value) != "relax.take" or not self.flow.is_inner(before.var, {members[0].var}):
                break
            members.insert(0, before)
        return Group(members=members, anchor=last)

    def _interpolated(self, last: relax.VarBinding) -> Group | None:
        """Return the group of weighted sums along one axis after the other, if a kernel interpolates by them."""
        found: Group | None = None
        for members in interpolations(last, self.producer):
            ordered = sorted(members, key=lambda b: self.position[b.var])
            group = Group(members=ordered, anchor=members[0])
            if not self._has_kernel(group):
                break
            found = group
        return found

    def _dequantized(self, anchor: relax.VarBinding) -> Group | None:
        """Return the group of `_anchored` for a quantized activation and dequantized weights, with its dequantizes."""
        activation, *weights = [self._dequantize_of(leaf, RANGE_QUANTIZE) for leaf in operands(anchor.value)]
        sources = (activation, *weights)
        constant = [source is not None and array_of(source.value.args[0]) is not None for source in sources]
        if activation is None or None in weights or constant != [False, True]:
            return None
        group = self._anchored(anchor, quantized=True)
        if group is None:
            return None
        leaves = dict.fromkeys(leaf for member in group.members for leaf in operands(member.value))
        found = (self._dequantize_of(leaf) for leaf in leaves)
        before = [activation, *(source for source in found if source is not None and source.var != activation.var)]
        members = sorted((*before, *group.members), key=lambda b: self.position[b.var])
        inside = {member.var for member in members}
        is_apart = all(self.flow.is_inner(source.var, inside) for source in before)
        return Group(members=members, anchor=anchor) if is_apart else None

    def _dequantize_of(self, leaf: relax.Expr, *others: str) -> relax.VarBinding | None:
        """Return the dequantize, or one of the other operators, that computes a value, if it is still free."""
        producer = self.producer.get(leaf) if isinstance(leaf, relax.Var) else None
        is_free = producer is not None and producer.var not in self.owned
        return producer if is_free and op_name(producer.value) in ("relax.dequantize", *others) else None

    def _anchored(self, anchor: relax.VarBinding, *, quantized: bool = False) -> Group | None:
        """Return the anchor with the longest chain of element-wise operators that leaves a single value.

        quantized: whether dequantized constants may be operands of the chain, as other constants may.
        """
        if anchor.var in self.owned:
            return None
        members, best = [anchor], 1
        known = {anchor.var}
        for candidate in self.sequence[self.position[anchor.var] + 1 :]:
            if len(members) == MAX_CHAIN:
                break
            if not known & set(operands(candidate.value)):
                continue
            if not self._fuses(candidate, anchor, known, quantized):
                break
            members.append(candidate)
            known.add(candidate.var)
            if all(self.flow.is_inner(member.var, known) for member in members[:-1]):
                best = len(members)
        return Group(members=members[:best], anchor=anchor)

    def _fuses(
        self, candidate: relax.VarBinding, anchor: relax.VarBinding, known: set[relax.Var], quantized: bool
    ) -> bool:
        """Return True if an operator runs element by element on the anchor's result, with operands of that shape."""
        if op_name(candidate.value) not in self.backend.elementwise or candidate.var in self.owned:
            return False
        if not isinstance(anchor.var.ty, relax.TensorType) or not _same_type(candidate.var, anchor.var):
            return False
        for leaf in operands(candidate.value):
            source = self._dequantize_of(leaf) if quantized else None
            array = array_of(source.value.args[0] if source else leaf)
            if array is not None:
                fits = sum(extent > 1 for extent in array.shape) <= 1
            else:
                fits = leaf in known or not isinstance(leaf, relax.Var) or _same_type(leaf, anchor.var)
            if not fits:
                return False
        return True


def _same_type(first: relax.Var, second: relax.Var) -> bool:
    return tvm_ffi.structural_equal(first.ty, second.ty)


def _composite(mod: tvm.IRModule, group: Group, rounding: QuantizedRounding) -> tuple[list[relax.Var], relax.Function]:
    """Return the arguments of the call, and the private function. Inputs become parameters, constants stay inside.

    rounding: the model's semantics of quantized arithmetic.
    """
    inside = {member.var for member in group.members}
    leaves = [leaf for member in group.members for leaf in operands(member.value)]
    arguments = [leaf for leaf in dict.fromkeys(leaves) if isinstance(leaf, relax.Var) and leaf not in inside]
    params = [relax.Var(var.name, var.ty) for var in arguments]
    rounds = op_name(group.members[-1].value) == "relax.quantize"
    quantized = rounds and len(group.members) > 1
    kind = f"{'q' if quantized else ''}{kind_of(group.anchor.value)}"
    nodes = list(dict.fromkeys(node for m in group.members if (node := _node(m))))
    prim_funcs = {leaf: mod[leaf] for leaf in leaves if isinstance(leaf, tvm.ir.GlobalVar)}
    meant = rounding if rounds else QuantizedRounding()
    attrs = attributes(kind, nodes, PrimFuncs(functions=prim_funcs or None), meant)
    replace = dict(zip(arguments, params, strict=True))
    last = group.members[-1]
    result = relax.Var(last.var.name, last.var.ty)  # main keeps its own variable: each is bound only once
    members = [*group.members[:-1], relax.VarBinding(result, last.value)]
    func = build(params, members, [result], attrs=attrs, as_tuple=False, replace=replace)
    return arguments, func


def _node(binding: relax.VarBinding) -> str | None:
    """Return the model's own name of the operator from which a binding comes."""
    span = binding.value.span
    return span.source_name.name if span is not None else None


MOST_MEMBERS = 36
_HALF = "float16"


@dataclass(frozen=True, kw_only=True)
class HalfChains:
    """Chains of a function: casts to float32, an anchor, element-wise operators, and a cast to float16.

    sequence: the bindings of the function.
    producer, position: of each variable.
    elementwise: the operators that may follow the anchor.
    """

    sequence: Sequence[relax.VarBinding]
    producer: Mapping[relax.Var, relax.VarBinding]
    position: Mapping[relax.Var, int]
    elementwise: AbstractSet[str]

    def of(self, anchor: relax.VarBinding) -> Iterator[list[relax.VarBinding]]:
        """Yield the bindings of each chain on an anchor, in order, the longest chain first.

        Results inside a chain may still have readers outside, which the caller checks.
        """
        chain = _Chain()
        if not isinstance(anchor.var.ty, relax.TensorType) or not self._take(chain, anchor):
            return
        ends: list[list[relax.VarBinding]] = []
        for candidate in self.sequence[self.position[anchor.var] + 1 :]:
            if len(chain.members) >= MOST_MEMBERS:
                break
            if candidate.var in chain.known or not chain.known & set(operands(candidate.value)):
                continue
            if not self._follows(candidate, anchor) or not self._take(chain, candidate):
                break
            if _is_cast(candidate, _HALF):
                ends.append(sorted(chain.members, key=lambda b: self.position[b.var]))
        yield from reversed(ends)

    def _take(self, chain: _Chain, binding: relax.VarBinding) -> bool:
        """Add an operator and the casts that widen its other operands.

        False where an operand is no float16 value that is widened.
        """
        casts: list[relax.VarBinding] = []
        for leaf in operands(binding.value):
            if leaf in chain.known or not isinstance(leaf, relax.Var):
                continue
            producer = self.producer.get(leaf)
            if producer is None or not _is_widened(producer):
                return False
            casts.append(producer)
        added = [*{cast.var: cast for cast in casts}.values(), binding]
        chain.members.extend(added)
        chain.known.update(member.var for member in added)
        return True

    def _follows(self, candidate: relax.VarBinding, anchor: relax.VarBinding) -> bool:
        """Return True for a cast between float16 and float32, or an element-wise operator on the anchor's result."""
        is_cast = _is_cast(candidate, _HALF) or _is_cast(candidate, "float32")
        if not is_cast and op_name(candidate.value) not in self.elementwise:
            return False
        if static_shape(candidate.var) != static_shape(anchor.var):
            return False
        arrays = [array for leaf in operands(candidate.value) if (array := array_of(leaf)) is not None]
        vectors = all(sum(extent > 1 for extent in array.shape) <= 1 for array in arrays)
        others = [leaf for leaf in operands(candidate.value) if isinstance(leaf, relax.Var)]
        return vectors and all(static_shape(leaf) == static_shape(anchor.var) for leaf in others)


@dataclass(frozen=True, kw_only=True)
class _Chain:
    """The members of a chain so far, and their variables."""

    members: list[relax.VarBinding] = field(default_factory=list)
    known: set[relax.Var] = field(default_factory=set)


def _is_cast(binding: relax.VarBinding, dtype: str) -> bool:
    return op_name(binding.value) == "relax.astype" and str(binding.var.ty.dtype) == dtype


def _is_widened(binding: relax.VarBinding) -> bool:
    """Return True for a cast from float16 to float32."""
    if not _is_cast(binding, "float32"):
        return False
    source = binding.value.args[0]
    return isinstance(source, relax.Var) and str(source.ty.dtype) == _HALF
