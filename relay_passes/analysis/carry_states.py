"""Runs of a function with states, in order: each finds what the one before left, in float or as an int8 form would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from tvm import relax

from relay_passes.analysis.choose_float import Ratio
from relay_passes.analysis.quantization_units import is_float_tensor
from relay_passes.analysis.run_units import FLOAT, Array, IntegerChoice, Sample, UnitRunner
from relay_passes.dataflow import array_of
from tvm_ext.core.model_states import ModelState

Tie = tuple[relax.Var, relax.Var]
"""A parameter and the result that is its next value: both have one scale."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps:
    """Samples in order. states: the last parameters and results. resets: samples before which states begin anew."""

    samples: Sequence[Sample]
    states: Sequence[ModelState]
    resets: Set[int] = frozenset()


def ties_of(runner: UnitRunner, states: Sequence[ModelState]) -> list[Tie]:
    """Float states that are no constants."""
    pairs = zip(runner.params[::-1], runner.results[::-1], range(len(states)), strict=False)
    return [
        (param, result)
        for param, result, _ in pairs
        if is_float_tensor(param) and isinstance(result, relax.Var) and is_float_tensor(result)
    ][::-1]


def units_between(runner: UnitRunner, ties: Sequence[Tie]) -> frozenset[int]:
    """Units by which the states change: they read one, directly or not, and one's next value comes of them."""
    reached, wanted = {param for param, _ in ties}, {result for _, result in ties}
    behind: set[int] = set()
    for index, unit in enumerate(runner.units):
        if not reached.isdisjoint(unit.inputs):
            reached.add(unit.result)
            behind.add(index)
    before: set[int] = set()
    for index in reversed(range(len(runner.units))):
        if runner.units[index].result in wanted:
            wanted.update(runner.units[index].inputs)
            before.add(index)
    return frozenset(behind & before)


def fed(runner: UnitRunner, steps: Steps) -> Sequence[Sample]:
    """The samples with the states that the float function finds in each, so that they stand alone."""
    return [given for given, _ in _carried(runner, steps, FLOAT)] if steps.states else steps.samples


@dataclass(frozen=True, kw_only=True)
class CarriedError:
    """Signal to noise in dB over all steps, each function with its own states. outputs_db: of the worst output."""

    outputs_db: float
    states_db: Mapping[str, float]


def carried_error(runner: UnitRunner, steps: Steps, choice: IntegerChoice) -> CarriedError:
    """The int8 form beside the float function."""
    ratios = [Ratio() for _ in runner.results]
    pairs = zip(_carried(runner, steps, FLOAT), _carried(runner, steps, choice), strict=True)
    for (_, exact), (_, rounded) in pairs:
        for ratio, one, other in zip(ratios, exact, rounded, strict=True):
            if one.dtype.kind == "f":
                ratio.add(one, other)
    count = len(ratios) - len(steps.states)
    return CarriedError(
        outputs_db=min((ratio.db for ratio in ratios[:count]), default=0.0),
        states_db={state.name: ratio.db for state, ratio in zip(steps.states, ratios[count:], strict=True)},
    )


def _carried(runner: UnitRunner, steps: Steps, choice: IntegerChoice) -> Iterator[tuple[Sample, list[Array]]]:
    """Inputs of each run, states as real numbers, and its results."""
    names = [param.name for param in runner.params[len(runner.params) - len(steps.states) :]]
    begun = dict(zip(names, (state.initial for state in steps.states), strict=True))
    held = begun
    for index, sample in enumerate(steps.samples):
        given = {**sample, **(begun if index in steps.resets else held)}
        computed = iter(runner.outputs(given, choice))
        results: list[Array] = []
        for result in runner.results:
            array = next(computed) if isinstance(result, relax.Var) else array_of(result)
            assert array is not None, "a result is a variable or a constant"
            results.append(array)
        held = dict(zip(names, results[len(results) - len(names) :], strict=True))
        yield given, results
