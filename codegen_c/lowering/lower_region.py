"""Lower a region function to a Program: each fused operator becomes a kernel call.

Bindings are lowered in order, because their order is the schedule. Afterwards copies between memories, row sequences
and states are inserted, in this order.

A reshape needs no step: its result is its operand's tensor with another shape. A move becomes a transfer. If a DMA
connects the two memories, the transfer runs while later steps run, and a wait follows before the first read of its
result, or after the number of operators that the move names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from codegen_c.composites.graph import tensor_type
from codegen_c.composites.lower_operator import Lower, Lowered, lower_operator
from codegen_c.composites.selection import selection_of
from codegen_c.kernels.contract import Refusal, Target
from codegen_c.kernels.shared.requantize import factors_note
from codegen_c.lowering.states import KeptPair, with_states
from codegen_c.lowering.transfers import Move, Prefetch, with_transfers
from codegen_c.operators.kinds import Concat, Gather, Permute, Stream, TensorType
from codegen_c.operators.titles import title
from codegen_c.program.program import Program
from codegen_c.program.sequences import fold_sequences, in_sequence
from codegen_c.program.steps import KernelCall, Step, Transfer
from codegen_c.program.tensors import Constant, Strip, Tensor
from tvm_ext.core.decisions.composites import (
    ColumnStrip,
    ModelTensor,
    MoveTarget,
    OperatorMemories,
    OperatorProcessor,
    Region,
    RowSplit,
    SourceNodes,
    StorageLayout,
    Symbol,
)
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.core.model_nodes import ModelState
from tvm_ext.core.names import MOVE, identifier, strip_ending, unique
from tvm_ext.core.platform import Platform


@dataclass(frozen=True, kw_only=True)
class GivenNames:
    """C identifiers of a region's inputs and outputs, in order. An empty name is derived from the model's own."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def of_input(self, index: int) -> str:
        """Return the name of an input, or an empty string."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def of_output(self, index: int) -> str:
        """Return the name of an output, or an empty string."""
        return self.outputs[index] if index < len(self.outputs) else ""


_OWN_NAMES = GivenNames()
PLAIN_PORTS = frozenset({"input", "output"})
"""Names that no layer's function may have, because the package uses them for a single input and a single output."""


def lower_region(
    region: relax.Function,
    platform: Platform,
    targets: Mapping[str, Target],
    *,
    reserved: set[str],
    lower: Lower = lower_operator,
    states: Sequence[ModelState] = (),
    warm_up_runs: int = 0,
    names: GivenNames = _OWN_NAMES,
    staged: bool = False,
) -> Program:
    """Return the program of a region function. Raises UnsupportedModel.

    targets: target by processor on which an operator may run; the platform's first processor comes first. reserved: C
    identifiers that are in use. states: states of the model, which are the last parameters and the last results.
    warm_up_runs: runs after a reset that return no outputs. names: names of inputs and outputs. staged: True if
    processors are stages of a pipeline, each of which keeps its own states.
    """
    taken = {*reserved, *filter(None, (*names.inputs, *names.outputs))}
    return _Lowering(region, platform, targets, taken, lower, names).run(states, warm_up_runs, staged=staged)


@dataclass(frozen=True, kw_only=True)
class _View:
    """A value of the region: the tensor that holds its bytes, and the shape in which operators see it.

    Values that reshapes connect have one tensor. `lowering/views.py` is about something else, parts of a tensor.
    layout: storage layout of a reshaped value, whose axes are no longer the tensor's; None for the tensor's own.
    """

    tensor: str
    shape: tuple[int, ...]
    layout: tuple[int, ...] | None = None


class _Lowering:
    """State of lowering one region: tensors, constants and steps so far.

    views: the tensor of each value of the region. composites: the local functions that the region defines.
    model_names: the model's own name of each value. taken: C identifiers in use.
    splits: for each step of a row sequence, the sequence that a pass decided. `fold_sequences` reads them.
    handed_over: pairs of tensors of which the second has elements of the first, and so the same quantization.
    moves, prefetches: copies between memories, of tensors and of constants. `with_transfers` inserts them as steps.
    """

    def __init__(
        self, region: relax.Function, platform: Platform, targets: Mapping[str, Target], taken: set[str], lower: Lower,
        names: GivenNames,
    ) -> None:  # fmt: skip
        self.region, self.platform, self.targets, self.taken, self.lower = region, platform, targets, taken, lower
        self.names = names
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, Constant] = {}
        self.steps: list[Step] = []
        self.views: dict[Any, _View | tuple[_View, ...]] = {}
        self.model_names: dict[Any, str] = {}
        self.composites: dict[Any, relax.Function] = {}
        self.splits: dict[str, RowSplit] = {}
        self.constants_of: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self.handed_over: list[tuple[str, str]] = []
        self.moves: list[Move] = []
        self.prefetches: dict[str, Prefetch] = {}

    def run(self, states: Sequence[ModelState], warm_up_runs: int, *, staged: bool) -> Program:
        """Lower all bindings, then insert transfers, row sequences and states."""
        params = self.region.params
        names = Region.read(self.region).parameters or [param.name for param in params]
        self.model_names = dict(zip(params, names, strict=True))
        roles = ["input"] * (len(params) - len(states)) + ["state"] * len(states)
        named = [
            self._tensor(param.name, tensor_type(param.ty), role=role, source=source, given=self.names.of_input(index))
            for index, ((param, source), role) in enumerate(zip(self.model_names.items(), roles, strict=True))
        ]
        for param, name in zip(params, named, strict=True):
            self.views[param] = _View(tensor=name, shape=self.tensors[name].shape)
        for block in self.region.body.blocks:
            for binding in block.bindings:
                self._visit(binding.var, binding.value)
        self._quantize_moved()
        body = self.region.body.body
        results = list(body.fields) if isinstance(body, relax.Tuple) else [body]
        inputs, states_before = named[: len(named) - len(states)], named[len(named) - len(states) :]
        outputs = [
            self._output(result, self.names.of_output(index))
            for index, result in enumerate(results[: len(results) - len(states)])
        ]
        # Next values of states are never constants, because the pass CopyResults copies these.
        states_after = [self._argument(result).tensor for result in results[len(results) - len(states) :]]
        program = Program(
            name=Symbol.read(self.region).name, inputs=tuple(inputs), outputs=tuple(outputs), tensors=self.tensors,
            constants=self.constants, steps=tuple(self.steps), state_home=self.platform.states,
        )  # fmt: skip
        sequences = {name: split.sequence for name, split in self.splits.items()}
        program = with_transfers(program, self.moves, self.prefetches, self.platform, self.taken, sequences)
        pairs = [
            KeptPair(state=state, found=before, left=after)
            for state, before, after in zip(states, states_before, states_after, strict=True)
        ]
        folded = fold_sequences(program, self.splits)
        return with_states(folded, pairs, self.taken, warm_up_runs=warm_up_runs, staged=staged)

    def _visit(self, var: relax.Var, value: relax.Expr) -> None:
        """Lower one binding of the region."""
        if isinstance(value, relax.Function):
            self.composites[var] = value
        elif isinstance(value, relax.Var):
            self.views[var] = self.views[value]
        elif isinstance(value, relax.TupleGetItem):
            fields = self.views[value.tuple_value]
            assert isinstance(fields, tuple), "an element is taken of a tuple"
            self.views[var] = fields[value.index]
        elif isinstance(value.op, tvm.ir.Op) and value.op.name == MOVE:
            self._move(var, value)
        else:
            self._call(var, value)

    def _move(self, var: relax.Var, value: relax.Call) -> None:
        """Add a transfer to another memory."""
        source = self._argument(value.args[0])
        tensor, target = self.tensors[source.tensor], MoveTarget.read(value)
        name = self._tensor(var.name, tensor_type(var.ty), memory=target.memory)
        self.tensors[name] = replace(
            self.tensors[name], source=tensor.source, layout=tensor.layout, quantization=tensor.quantization
        )
        self.views[var] = replace(source, tensor=name)
        self.handed_over.append((tensor.name, name))
        within, copies = target.within, target.processor
        move = Move(source=tensor.name, target=name, index=len(self.steps), within=within, processor=copies)
        self.moves.append(move)

    def _call(self, var: relax.Var, call: relax.Call) -> None:
        """Add the kernel call of a composite, or a view for a reshape.

        `lower` has usually chosen the kernel before, when a pass asked about the composite, and returns it again.
        """
        composite = self.composites[call.op]
        self.model_names[var] = ModelTensor.read(composite).name or var.name
        lowered = self.lower(composite, self._target(composite))
        if isinstance(lowered, Refusal):
            raise UnsupportedModel(f"{call.op.name}: {lowered.reason}")
        arguments = [self._argument(arg) for arg in call.args]
        seen = [arguments[index] for index in lowered.arguments]
        if lowered.implementation is None:
            layout = StorageLayout.read(composite).axes
            self.views[var] = replace(seen[0], shape=lowered.operator.output.shape, layout=layout)
            return
        for view, wanted in zip(seen, lowered.operator.inputs, strict=True):
            self._quantize(view.tensor, wanted)
        fields = var.ty.fields if isinstance(var.ty, relax.TupleType) else [var.ty]
        suffixes = [""] if len(fields) == 1 else [f".{index}" for index in range(len(fields))]
        outputs = [
            self._tensor(
                f"{var.name}{suffix}",
                replace(tensor_type(ty), quantization=kind.quantization),
                source=f"{self.model_names[var]}{suffix}",
                layout=StorageLayout.read(composite).axes,
                memory=OperatorMemories.read(composite).memory,
                columns=ColumnStrip.read(composite).columns,
            )
            for suffix, ty, kind in zip(suffixes, fields, lowered.operator.outputs, strict=True)
        ]
        views = tuple(_View(tensor=name, shape=self.tensors[name].shape) for name in outputs)
        self.views[var] = views if isinstance(var.ty, relax.TupleType) else views[0]
        if isinstance(lowered.operator, Permute | Stream | Gather | Concat):
            self.handed_over += [(view.tensor, outputs[0]) for view in seen]
        self.steps.append(self._step(call, composite, lowered, seen, outputs))

    def _target(self, composite: relax.Function) -> Target:
        """Return the target of the processor that runs an operator, the first processor by default."""
        return self.targets[OperatorProcessor.read(composite).processor or next(iter(self.targets))]

    def _caller(self, composite: relax.Function) -> str:
        """Return the core that calls the function of an operator; for an accelerator, the first core."""
        target = self._target(composite)
        return (self.platform if target.is_offload else target).processor.name

    def _step(
        self, call: relax.Call, composite: relax.Function, lowered: Lowered, seen: list[_View], outputs: list[str]
    ) -> KernelCall:
        """Return the kernel call, with its constants added to the program."""
        implementation = lowered.implementation
        assert implementation is not None, "a step has an implementation"
        split, placement = RowSplit.read(composite), OperatorMemories.read(composite)
        if split.sequence:
            implementation = in_sequence(implementation, split.input_rows)
        word = identifier(call.op.name)
        name = unique(f"{word}_layer" if word in PLAIN_PORTS else word, self.taken)
        if implementation.sums is not None:
            outputs = [*outputs, self._tensor(f"{name}_sums", implementation.sums)]
        source_nodes = SourceNodes.read(composite).nodes
        constants = [
            self._constant(array, f"{name}_{role}", role, factors_note(lowered.operator, role))
            for role, array in implementation.constants
        ]
        if split.sequence:
            self.splits[name] = split
        if placement.weights_memory and constants:
            self.prefetches[name] = Prefetch(memory=placement.weights_memory, ahead=placement.weights_ahead)
        return KernelCall(
            name=name, implementation=implementation, inputs=tuple(view.tensor for view in seen),
            outputs=tuple(outputs), input_shapes=tuple(kind.shape for kind in lowered.operator.inputs),
            constants=tuple(constants), source_nodes=source_nodes,
            scratch_memory=placement.scratch_memory, processor=self._caller(composite),
            computes=title(lowered.operator), weight_bits=lowered.operator.weight_bits, operator=lowered.operator,
            selection=selection_of(composite, lowered.arguments),
        )  # fmt: skip

    def _constant(self, array: np.ndarray, name: str, role: str, factors: str = "") -> str:
        """Return the name of a constant. Equal constants are stored once. factors: description of its real factors."""
        data = np.ascontiguousarray(array)
        key = (str(data.dtype), data.shape, data.tobytes())
        if key not in self.constants_of:
            constant = unique(name, self.taken)
            note = f"{role}{factors}, {TensorType(shape=data.shape, dtype=str(data.dtype))}"
            self.constants[constant] = Constant(
                name=constant, data=data, memory=self.platform.weights, role=role, note=note
            )
            self.constants_of[key] = constant
        return self.constants_of[key]

    def _argument(self, expr: relax.Expr) -> _View:
        view = self.views[expr]
        assert isinstance(view, _View), "composites take tensors"
        return view

    def _tensor(
        self,
        text: str,
        kind: TensorType,
        *,
        source: str = "",
        role: Any = "intermediate",
        layout: tuple[int, ...] = (),
        memory: str = "",
        columns: tuple[int, int] | None = None,
        given: str = "",
    ) -> str:
        """Create a tensor and return its name, which is `given` or derived from `text`.

        source: the model's name of the tensor, or of the image of which it is a strip.
        """
        if 0 in kind.shape:
            raise UnsupportedModel(f"{text}: its type {kind} has no elements, so there is nothing to compute.")
        name, whole = given or unique(identifier(text, fallback="t"), self.taken), source or text
        source = f"{whole}.{strip_ending(columns)}" if columns else whole
        self.tensors[name] = Tensor(
            name=name, source=source, shape=kind.shape, dtype=kind.dtype,
            memory=memory or self.platform.activations, role=role, layout=layout, quantization=kind.quantization,
            strip=Strip(source=whole, begin=columns[0], end=columns[1]) if columns else None,
        )  # fmt: skip
        return name

    def _quantize(self, name: str, kind: TensorType) -> None:
        """Give a tensor the quantization with which its first reader takes it, if it has none."""
        if kind.quantization is not None and self.tensors[name].quantization is None:
            self.tensors[name] = replace(self.tensors[name], quantization=kind.quantization)

    def _quantize_moved(self) -> None:
        """Copy quantization between the two sides of operators that only move elements, in both directions."""
        for pairs in (self.handed_over[::-1], [(target, source) for source, target in self.handed_over]):
            for unknown, known in pairs:
                self._quantize(unknown, TensorType(shape=(), dtype="", quantization=self.tensors[known].quantization))

    def _output(self, expr: relax.Expr, given: str) -> str:
        """Return the tensor of a result; a copy if the result is also an input or another result."""
        if isinstance(expr, tvm.ir.GenericConst):
            raise UnsupportedModel("an output of the model is constant; remove it from the model's outputs.")
        view = self._argument(expr)
        tensor = self.tensors[view.tensor]
        result = TensorType(shape=view.shape, dtype=tensor.dtype, quantization=tensor.quantization)
        if tensor.role != "intermediate":
            name = self._tensor(f"{expr.name}.copy", result, role="output", given=given)
            step = unique(f"copy_{name}", self.taken)
            self.steps.append(Transfer(name=step, source=tensor.name, target=name))
            self.tensors[name] = replace(self.tensors[name], source=expr.name)
            return name
        source = self.model_names.get(expr, expr.name)
        layout = tensor.layout if view.layout is None else view.layout
        self.tensors[tensor.name] = replace(tensor, role="output", shape=view.shape, source=source, layout=layout)
        if given:
            return self._renamed(tensor.name, given)
        # A result that is a view of another tensor carries the result's name: it is part of the public interface.
        plain = identifier(source, fallback="t")
        is_named = tensor.source == source and (tensor.name == plain or plain in self.taken)
        return tensor.name if is_named else self._renamed(tensor.name, unique(plain, self.taken))

    def _renamed(self, old: str, new: str) -> str:
        """Rename a tensor everywhere, and return the new name."""
        self.tensors = {
            (new if name == old else name): (replace(tensor, name=new) if name == old else tensor)
            for name, tensor in self.tensors.items()
        }
        for value, view in self.views.items():
            if isinstance(view, _View) and view.tensor == old:
                self.views[value] = replace(view, tensor=new)
        self.steps = [with_name(step, old, new) for step in self.steps]
        self.moves = [move.renamed(old, new) for move in self.moves]
        return new


def with_name(step: Step, old: str, new: str) -> Step:
    """Return the step with one tensor renamed."""

    def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in names)

    if isinstance(step, KernelCall):
        return replace(step, inputs=renamed(step.inputs), outputs=renamed(step.outputs))
    assert isinstance(step, Transfer), "loops and waits come after lowering"
    source, target = renamed((step.source, step.target))
    return replace(step, source=source, target=target)
