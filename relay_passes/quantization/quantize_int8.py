"""Post-training quantization: turn a float function into integers in QDQ form.

Rewrite:
    relu(add(conv2d(x, w), b))
      ->  quantize(relu(add(conv2d(dequantize(x), dequantize(int8 w)), dequantize(int32 b))))
    Integer results round once, also in a model that was read from a .tflite file.
    Activations have one scale and zero point per tensor, weights one scale per output channel and zero point 0, and
    biases the product of both scales. relu and clip come ahead of the quantize. Operators that only move or select
    numbers keep their parameters, and moves work on the integers themselves. Inputs and outputs become integers where
    their readers or their producers are integers, unless they are to stay float32.
    Activations have 8 bits, or 16 bits on request. A value that is needed with both is converted only once.
    A state has the same scale at the start and at the end of a run. States become integers whatever the inputs do, or
    stay float where the outputs, over all samples in order, would otherwise lose too much. Module attributes hold the
    initial values of integer states, and the measurements as JSON in `tvm_ext.quantization`.
Leaves alone: operators without an integer form, operators that lose too much, spectra of a signal up to their
logarithm unless float is not allowed, and values other than float32. A value between integers and float is quantized or
dequantized only once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import tvm
from tvm import relax

from relay_passes.analysis.calibrate import calibrate
from relay_passes.analysis.choose_precision import (
    NUM_TRIAL_SAMPLES,
    Activations,
    ChosenWidth,
    Measured,
    Ratio,
    UnitReason,
    WeightBits,
    choose,
    choose_bits,
    choose_width,
    follow_neighbours,
    impossible,
    measure,
    output_db,
)
from relay_passes.analysis.correct_biases import correct_biases, spread
from relay_passes.analysis.int8_parameters import AffineQuantization, LinearInt8
from relay_passes.analysis.quantization_units import Unit, is_float_tensor, units_of
from relay_passes.analysis.run_units import FLOAT, Array, IntegerChoice, Sample, UnitRunner
from relay_passes.analysis.spectra import IsTransform, spectra
from relay_passes.analysis.wide_states import wide_states
from relay_passes.dataflow import array_of, bindings, op_name, operands, outputs
from relay_passes.quantization.insert_qdq import Written, insert_qdq
from relay_passes.quantization.leave_costly import CostRule, choose_by_cost
from relay_passes.simplify.expose_gathers import ExposeGathers
from tvm_ext.core.decisions.models import KeptStates, ModelOrigin, PortNames, PortScales, QuantizationMeasured
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.core.model_nodes import ModelState

_SPECTRAL = "belongs to a spectrum, whose small values 8 bits would lose; a transform computes it in float"


@tvm.transform.module_pass(opt_level=0, name="QuantizeInt8")
class QuantizeInt8:
    """Quantize a float model to int8 in QDQ form, by samples of its inputs.

    samples: arrays by the names of main's parameters. For a model with states they are consecutive steps, without the
    states.
    resets: samples ahead of which states are reset.
    labels: for each sample, the index that the largest element of the first output should have.
    elementwise: operators that the backend computes element by element.
    float_io: whether inputs and outputs stay float32.
    min_snr_db: signal-to-noise ratio that every output must reach; operators are left in float until it does.
    float_allowed: False where no operator may be left in float.
    bits: the layers that get 4-bit weights, none by default.
    activations: "int16" for all operators with int16 kernels, or "mixed" for as many of them as bring every output to
    min_snr_db.
    is_transform: tells matrices of Fourier transforms, whose spectra stay in float.
    cost_rule: how predicted cycles and bytes count; None where accuracy alone does.

    Raises UnsupportedModel for a model that is already quantized, that computes nothing in float, or that has operators
    without an int8 form where float is not allowed.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        *,
        elementwise: frozenset[str],
        labels: Sequence[int] | None = None,
        resets: Set[int] = frozenset(),
        float_io: bool = False,
        min_snr_db: float = 10.0,
        float_allowed: bool = True,
        bits: WeightBits | None = None,
        activations: Activations = "int8",
        is_transform: IsTransform = lambda _: False,
        cost_rule: CostRule | None = None,
    ) -> None:
        self.bits, self.activations = bits or WeightBits(), activations
        self.samples, self.labels, self.resets, self.elementwise = samples, labels, resets, elementwise
        self.float_io, self.min_snr_db, self.float_allowed = float_io, min_snr_db, float_allowed
        self.is_transform, self.cost_rule = is_transform, cost_rule

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        _refuse_quantized(mod["main"])
        mod = ExposeGathers()(mod)
        func = mod["main"]
        # 1. Group operators into units, which become integers as a whole, or not at all.
        units = units_of(func, self.elementwise, mod)
        in_float = impossible(units)
        if in_float and not self.float_allowed:
            raise UnsupportedModel(
                f"the processor has no FPU, and these operators have no int8 form: {_listed(in_float)}. Replace them "
                "in the model, or choose a processor with an FPU."
            )
        spectral = spectra(units, func.params, self.is_transform) if self.float_allowed else frozenset[int]()
        in_float += [UnitReason(name=units[index].name, reason=_SPECTRAL) for index in sorted(spectral)]
        if not any(unit.computes and index not in spectral for index, unit in enumerate(units)):
            raise UnsupportedModel(
                "quantize = int8: no float operator of the model has an int8 form; leave the option out."
            )
        # 2. Run the float model on the samples, and derive scales from the ranges of all values.
        runner = UnitRunner(mod, units)
        steps = Steps(samples=self.samples, states=KeptStates.read(mod).states, resets=self.resets)
        ties, samples = ties_of(runner, steps.states), fed(runner, steps)
        calibrated = calibrate(runner, samples, ties)
        states = [param for param, _ in ties]
        # 3. Begin with all units in integers that have an integer form, with activations of 8 bits. `params` are the
        # inputs and states that may become integers.
        ports = list(func.params[: len(func.params) - len(steps.states)])
        may_be_integers = [*([] if self.float_io else ports), *states]
        params = [param for param in may_be_integers if is_float_tensor(param) and param in calibrated.narrow]
        integer_units = frozenset(index for index, unit in enumerate(units) if unit.kind != "float") - spectral
        all_eight_bits = IntegerChoice(
            units=integer_units, activations=calibrated.narrow, wide_activations=calibrated.wide,
            states=calibrated.states, wide_states=wide_states(units, calibrated.states, ties),
        )  # fmt: skip

        unfit = _unfit_layers(units, all_eight_bits)
        if unfit and not self.float_allowed:
            raise UnsupportedModel(
                f"the processor has no FPU, and these layers have no int8 form: {_listed(list(unfit.values()))}. Scale "
                "their inputs or weights down, or choose a processor with an FPU."
            )
        in_float += unfit.values()
        all_eight_bits = replace(all_eight_bits, units=integer_units - unfit.keys())

        @cache
        def widened(wide: frozenset[int]) -> IntegerChoice:
            choice = follow_neighbours(runner, replace(all_eight_bits, wide=wide), params)
            return replace(choice, linear=correct_biases(runner, samples, choice))

        def reached_db(tried: IntegerChoice) -> float:
            alone = output_db(runner, spread(samples, NUM_TRIAL_SAMPLES), tried)
            return min(alone, carried_error(runner, steps, tried).outputs_db) if steps.states else alone

        # 4. Choose the units with activations of 16 bits.
        width = choose_width(
            runner, self.activations, widened, reached_db, params, units=all_eight_bits.units,
            min_snr_db=self.min_snr_db,
        )  # fmt: skip
        all_integer = widened(width.wide)

        @cache
        def corrected(four_bits: frozenset[int]) -> dict[int, LinearInt8]:
            return correct_biases(runner, samples, all_integer, four_bits)

        # 5. Choose the units with weights of 4 bits. Biases are corrected again for each choice of bits.
        four_bit_units = choose_bits(runner, samples, all_integer, corrected, self.bits, min_snr_db=self.min_snr_db)
        all_integer = replace(all_integer, linear=corrected(four_bit_units)) if four_bit_units else all_integer

        def corrected_again(tried: IntegerChoice) -> IntegerChoice:
            # Biases made up for errors of operators that are float now.
            again = replace(tried, linear=correct_biases(runner, samples, tried, four_bit_units & tried.units))
            return max(again, tried, key=reached_db)

        # 6. Leave units in float until the outputs are accurate enough.
        choice = follow_neighbours(runner, all_integer, params)
        if self.float_allowed:
            choice, chosen = self._chosen(runner, steps, samples, all_integer, params)
            in_float += chosen
            choice = corrected_again(choice) if chosen else choice

        def quantized(tried: IntegerChoice) -> tuple[tvm.IRModule, Written]:
            made = insert_qdq(func, units, tried, integer_results=not self.float_io, num_states=len(steps.states))
            changed = mod.clone()
            changed.update_func(mod.get_global_var("main"), made.function)
            for var, layer in made.functions.items():
                changed.update_func(var, layer)
            # The integers are ours, not the file's: they round once, as the QDQ form says, whatever the file's format
            # does.
            return replace(ModelOrigin.read(changed), rounding="onnx").write(changed), made

        # 7. Leave units in float that are slower in integers.
        cost_report: Mapping[str, Any] = {}
        if self.cost_rule is not None:
            results = outputs(func)
            kept = (
                [*states, *results[len(results) - len(steps.states) :]] if self.float_io else [*func.params, *results]
            )
            found = choose_by_cost(
                self.cost_rule, mod, units, choice, {leaf for port in kept for leaf in operands(port)},
                without=lambda left: corrected_again(
                    follow_neighbours(runner, replace(choice, units=choice.units - left), params)
                ),
                written=lambda tried: quantized(tried)[0],
            )  # fmt: skip
            choice, cost_report = found.choice, found.report
            in_float += found.left
        # 8. Write the choice into the module, and the measurements into its attributes.
        measured = measure(runner, samples, choice)
        changed, written = quantized(choice)
        changed = _with_port_scales(changed, written)
        initial_states = _begun(func, steps.states, choice)
        report = self._report(runner, choice, measured, in_float, four_bit_units) | _width_report(width) | cost_report
        if steps.states:
            report |= _carried_report(carried_error(runner, steps, choice), initial_states)
        return QuantizationMeasured(report=report).write(KeptStates(states=initial_states).write(changed))

    def _chosen(
        self,
        runner: UnitRunner,
        steps: Steps,
        samples: Sequence[Sample],
        everything: IntegerChoice,
        params: Sequence[relax.Var],
    ) -> tuple[IntegerChoice, list[UnitReason]]:
        """Choose the operators that compute in int8.

        A state that is carried from run to run accumulates errors, which no single sample shows. So states and the
        operators that change them stay in float where the outputs would otherwise end too far off.
        """
        found = choose(runner, samples, everything, params, min_snr_db=self.min_snr_db)
        states = [param for param, _ in ties_of(runner, steps.states) if param in found[0].inputs]
        if not states:
            return found
        reached = carried_error(runner, steps, found[0]).outputs_db
        if reached >= self.min_snr_db:
            return found
        changing = units_between(runner, ties_of(runner, steps.states))
        others = [param for param in params if param not in states]
        rest = replace(everything, units=everything.units - changing)
        other = choose(runner, samples, rest, others, min_snr_db=self.min_snr_db)
        without = carried_error(runner, steps, other[0]).outputs_db
        if without <= reached:
            return found
        reason = (
            f"a state, or changes one; in int8 outputs reach {reached:g} dB over {len(steps.samples)} steps, in float "
            f"{without:g} dB, and {self.min_snr_db:g} dB are asked for"
        )
        names = [*(state.name for state in states), *(runner.units[index].name for index in sorted(changing))]
        return other[0], [*other[1], *(UnitReason(name=name, reason=reason) for name in dict.fromkeys(names))]

    def _report(
        self,
        runner: UnitRunner,
        choice: IntegerChoice,
        measured: Measured,
        left: Sequence[UnitReason],
        narrow: frozenset[int],
    ) -> dict[str, Any]:
        return {
            "samples": len(self.samples),
            "operators": [
                {
                    "name": runner.units[index].name,
                    "snr_db": db,
                    "dtype": _dtype(choice, index),
                    **({"weight_bits": 4} if index in narrow & choice.units else {}),
                }
                for index, db in _by_operator(runner.units, measured).items()
            ],
            "left_float": [{"name": unit.name, "reason": unit.reason} for unit in left],
            "accuracy_float": self._accuracy(measured.float_guesses),
            "accuracy_int8": self._accuracy(measured.int8_guesses),
        }

    def _accuracy(self, guesses: Sequence[int]) -> float | None:
        """Return the fraction of samples whose largest element is at the label's index, or None without labels."""
        if self.labels is None or len(guesses) != len(self.labels):
            return None
        return sum(int(a) == int(b) for a, b in zip(guesses, self.labels, strict=True)) / len(guesses)


def _with_port_scales(mod: tvm.IRModule, written: Written) -> tvm.IRModule:
    """Return the module with the scales of its integer inputs and outputs, which not every reader implies."""
    names = PortNames.read(mod)

    def of(
        names: Sequence[str], parameters: Sequence[AffineQuantization | None]
    ) -> dict[str, tuple[float, int]] | None:
        known = zip(names, parameters, strict=False)
        return {name: (one.scale, one.zero_point) for name, one in known if one is not None} or None

    found = PortScales(inputs=of(names.inputs, written.inputs), outputs=of(names.outputs, written.results))
    return mod if found == PortScales() else found.write(mod)


def _by_operator(units: Sequence[Unit], measured: Measured) -> dict[int, float]:
    """Return the lowest ratio of the results of each unit that computes, by its index."""
    makers = {unit.result: index for index, unit in enumerate(units)}
    found: dict[int, float] = {}
    for index, db in measured.db.items():
        maker = makers[units[index].inputs[0]] if units[index].kind == "part" else index
        if units[index].kind != "move":
            found[maker] = min(db, found.get(maker, db))
    return found


def _unfit_layers(units: Sequence[Unit], choice: IntegerChoice) -> dict[int, UnitReason]:
    """Return the recurrent units whose integer form does not exist, by their indices, with the reason."""
    reason = "sums of its products, or the factors of its gates, do not fit 32 bits"
    return {
        index: UnitReason(name=unit.name, reason=reason)
        for index, unit in enumerate(units)
        if unit.kind == "recurrent" and choice.recurrent(index, unit) is None
    }


def _begun(func: relax.Function, states: Sequence[ModelState], choice: IntegerChoice) -> tuple[ModelState, ...]:
    """Return the states with initial values as integers, where the states are integers now."""
    params = func.params[len(func.params) - len(states) :]
    begins = {param: choice.input_parameters(param) for param in params if param in choice.inputs}
    return tuple(
        replace(state, initial=begins[param].quantize(state.initial)) if param in begins else state
        for state, param in zip(states, params, strict=True)
    )


def _carried_report(error: CarriedError, states: Sequence[ModelState]) -> dict[str, Any]:
    return {
        "carried_snr_db": error.outputs_db,
        "states": [
            {"name": state.name, "dtype": str(state.initial.dtype), "snr_db": error.states_db[state.name]}
            for state in states
        ],
    }


def _width_report(width: ChosenWidth) -> dict[str, Any]:
    """Return the report's entry on the bits of activations, or nothing where no width was chosen."""
    reasons = [{"name": unit.name, "reason": unit.reason} for unit in width.reasons]
    return {"widths": reasons} if reasons else {}


def _dtype(choice: IntegerChoice, index: int) -> str:
    """Return the type of activations with which a unit computes."""
    if index not in choice.units:
        return "float32"
    return "int16" if index in choice.wide else "int8"


def _refuse_quantized(func: relax.Function) -> None:
    if any(op_name(b.value) in ("relax.quantize", "relax.dequantize") for b in bindings(func)):
        raise UnsupportedModel("quantize = int8: the model is already quantized; leave the option out.")


def _listed(left: Sequence[UnitReason]) -> str:
    names = [f"{unit.name} ({unit.reason})" for unit in left]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


Tie = tuple[relax.Var, relax.Var]
"""A parameter and the result that is its next value, which share one scale."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps:
    """Samples in order.

    states: the last parameters and results.
    resets: samples ahead of which states are reset.
    """

    samples: Sequence[Sample]
    states: Sequence[ModelState]
    resets: Set[int] = frozenset()


def ties_of(runner: UnitRunner, states: Sequence[ModelState]) -> list[Tie]:
    """Return the float states that are not constant, as pairs of parameter and result."""
    pairs = zip(runner.params[::-1], runner.results[::-1], range(len(states)), strict=False)
    return [
        (param, result)
        for param, result, _ in pairs
        if is_float_tensor(param) and isinstance(result, relax.Var) and is_float_tensor(result)
    ][::-1]


def units_between(runner: UnitRunner, ties: Sequence[Tie]) -> frozenset[int]:
    """Return the units that change the states.

    They depend on a state, and the next value of a state depends on them.
    """
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
    """Return the samples with the states that the float function has at each, so that each sample stands alone."""
    return [given for given, _ in _carried(runner, steps, FLOAT)] if steps.states else steps.samples


@dataclass(frozen=True, kw_only=True)
class CarriedError:
    """Signal-to-noise ratio in dB over all steps, where each function carries its own states.

    outputs_db: of the worst output.
    """

    outputs_db: float
    states_db: Mapping[str, float]


def carried_error(runner: UnitRunner, steps: Steps, choice: IntegerChoice) -> CarriedError:
    """Compare the int8 form with the float function over all steps."""
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
    """Yield the inputs of each run, with its states as real numbers, and its results."""
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
