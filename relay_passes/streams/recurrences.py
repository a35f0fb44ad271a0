"""Recurrent layers over time: loops whose states go on from run to run of a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import array_of, op_name
from relay_passes.streams.time_rules import Known, Unruly
from tvm_ext.core.decisions.composites import IntegerRecurrentLayer, QuantizedLstm, RepeatedStep
from tvm_ext.core.recurrent_cells import RECURRENT_CELLS


@dataclass(frozen=True, kw_only=True, eq=False)
class Recurrence:
    """A call of a function that runs a step in a loop over time.

    function: the loop.
    given: its operands, which are the initial states, the sequences and the step's other operands.
    sequences: positions of the operands that have an element for each step.
    num_states: number of states, which are also the first of its `num_results` results.
    steps: number of steps.
    initial: value of each state ahead of the first step.
    carried: positions of states that are the model's own states already.
    """

    function: tvm.ir.GlobalVar
    given: Sequence[relax.Expr]
    sequences: range
    num_states: int
    num_results: int
    steps: int
    initial: Sequence[np.ndarray]
    carried: Set[int]

    @property
    def stacked(self) -> list[int]:
        """Positions of the function's parameters that have an element for each step. Results follow the operands."""
        return [*self.sequences, *range(len(self.given) + self.num_states, len(self.given) + self.num_results)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Carried:
    """A state of the model. left: the expression whose value a run leaves for the next. initial: its first value."""

    left: relax.Expr | None
    initial: np.ndarray

    def is_left_by(self, layer: relax.Var, place: int) -> bool:
        """Return True if the next value is a result of a recurrent layer."""
        left = self.left
        return isinstance(left, relax.TupleGetItem) and left.tuple_value == layer and left.index == place


def repeated_by(call: relax.Expr, functions: Mapping[tvm.ir.GlobalVar, tvm.ir.BaseFunc]) -> RepeatedStep:
    """Return the description of the loop over time that an expression calls; empty for all other expressions."""
    function = functions.get(call.args[0]) if op_name(call) == "relax.call_tir" else None
    if function is None:
        return RepeatedStep()
    integers = IntegerRecurrentLayer.read(function)
    if integers.cell:
        num_states = len(RECURRENT_CELLS[integers.cell].states)
        count = int(function.params[num_states].ty.shape[0])
        return RepeatedStep(count=count, num_states=num_states, num_sequences=1, is_backward=integers.is_backward)
    if QuantizedLstm.read(function).factors:
        return RepeatedStep(count=int(function.params[2].ty.shape[0]), num_states=2, num_sequences=1)
    return RepeatedStep.read(function)


def recurrence_of(
    binding: relax.VarBinding, repeated: RepeatedStep, known: Known, carried: Mapping[relax.Var, Carried]
) -> Recurrence | Unruly:
    """Return the recurrent layer that a binding calls, or the reason why its states cannot go on from run to run.

    carried: the states of the model.
    """
    given = list(binding.value.args[1].fields)
    sequences = range(repeated.num_states, repeated.num_states + repeated.num_sequences)
    if repeated.has_index or repeated.is_open or not isinstance(binding.value.ty, relax.TupleType):
        return Unruly(reason="is a loop that does more than to pass its states from row to row")
    if repeated.is_backward:
        return Unruly(reason="reads its sequence backward, from rows that come only later")
    if any(known.axes.get(given[place]) != 0 for place in sequences):
        return Unruly(reason="reads a sequence that is not over time")
    if not all(known.is_constant(operand) for operand in given[sequences.stop :]):
        return Unruly(reason="has weights that the model computes")
    initial, own = list[np.ndarray](), set[int]()
    for place, state in enumerate(given[: repeated.num_states]):
        array = array_of(state)
        if array is None and state in carried and carried[state].is_left_by(binding.var, place):
            array = carried[state].initial
            own.add(place)
        if array is None:
            return Unruly(reason="begins in a state that the model computes")
        initial.append(array)
    return Recurrence(
        function=binding.value.args[0], given=given, sequences=sequences, num_states=repeated.num_states,
        num_results=len(binding.value.ty.fields), steps=repeated.count, initial=initial, carried=own,
    )  # fmt: skip
