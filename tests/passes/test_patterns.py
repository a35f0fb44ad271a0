"""Patterns: which calls match, and what each part of a pattern matched."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.patterns import Dataflow, Pattern, any_constant, any_value, any_variable, either, number, op


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        with R.dataflow():
            scaled = R.multiply(x, R.const(0.5, "float32"))
            leaky = R.maximum(x, scaled)
            mixed = R.maximum(y, scaled)
            once = R.nn.relu(mixed)
            twice = R.add(once, once)
            joined = R.concat((twice, leaky), axis=0)
            kept = R.nn.relu(joined)
            last = R.nn.relu(kept)
            R.output(kept, last)
        return kept, last


FLOW = Dataflow(Module["main"])
VARS = {var.name: var for var in (*FLOW.func.params, *FLOW.made)}
X, FACTOR = any_value(), number()
SCALED = op("relax.multiply", X, FACTOR)


def matches(pattern: Pattern, name: str) -> bool:
    return FLOW.match(pattern, VARS[name]) is not None


def test_a_match_holds_the_value_of_every_part() -> None:
    match = FLOW.match(op("relax.maximum", X, SCALED), VARS["leaky"])
    assert match is not None
    assert match[X].same_as(VARS["x"])
    assert match[SCALED].same_as(VARS["scaled"])
    assert match.call(SCALED).same_as(FLOW.values[VARS["scaled"]])
    assert match.array(FACTOR) == np.float32(0.5)
    assert match.number(FACTOR) == 0.5


def test_a_parameter_has_no_call() -> None:
    match = FLOW.match(X, VARS["x"])
    assert match is not None
    assert match.call(X).same_as(VARS["x"])
    assert not matches(SCALED, "x")


def test_one_pattern_matches_one_value_at_all_its_positions() -> None:
    pattern = op("relax.maximum", X, SCALED)
    assert matches(pattern, "leaky")
    assert not matches(pattern, "mixed")
    assert matches(op("relax.maximum", any_value(), SCALED), "mixed")


@pytest.mark.parametrize(("any_order", "expected"), [(False, False), (True, True)])
def test_operands_are_reversed_only_on_demand(any_order: bool, expected: bool) -> None:
    assert matches(op("relax.maximum", SCALED, X, any_order=any_order), "leaky") is expected


def test_further_operands_may_be_anything_and_absent_operands_do_not_match() -> None:
    assert matches(op("relax.maximum", X), "leaky")
    assert matches(op("relax.maximum"), "leaky")
    assert not matches(op("relax.nn.relu", any_value(), any_value()), "once")


def test_operands_in_a_tuple_count_one_by_one() -> None:
    assert matches(op("relax.concat", op("relax.add"), op("relax.maximum")), "joined")


def test_a_single_reader_is_one_that_reads_once() -> None:
    def reads(name: str) -> bool:
        return matches(op(("relax.nn.relu", "relax.maximum", "relax.add"), read_once=True), name)

    assert reads("mixed") and reads("twice")
    assert not reads("once")  # read twice by one call
    assert not reads("kept")  # read once, and returned
    assert not reads("last")  # never read, only returned


def test_names_and_conditions() -> None:
    assert matches(op({"relax.add", "relax.maximum"}), "leaky")
    assert not matches(op("relax.add"), "leaky")
    assert matches(op("relax.concat", where=lambda call: int(call.attrs.axis) == 0), "joined")
    assert not matches(op("relax.concat", where=lambda call: int(call.attrs.axis) == 1), "joined")


@pytest.mark.parametrize(
    ("operand", "expected"),
    [
        (any_value(), True), (any_constant(), True), (any_variable(), False), (number(0.5), True),
        (number(0.25), False), (any_constant(lambda array: array.dtype == np.float16), False),
        (any_value(lambda expr: isinstance(expr, relax.Var)), False),
    ],
)  # fmt: skip
def test_constants(operand: Pattern, expected: bool) -> None:
    assert matches(op("relax.multiply", any_variable(), operand), "scaled") is expected


def test_the_match_tells_which_alternative_was_taken() -> None:
    first, second = op("relax.add"), op("relax.maximum")
    match = FLOW.match(either(first, second), VARS["leaky"])
    assert match is not None
    assert second in match
    assert first not in match


def test_the_next_alternative_is_tried_when_a_later_operand_does_not_match() -> None:
    inner = any_value()
    # The first alternative takes y for `inner`, which `leaky` does not read; the second takes `scaled`.
    mixed = either(op("relax.maximum", inner), op("relax.maximum", any_value(), inner))
    leaky = op("relax.maximum", any_value(), inner)
    assert matches(op("relax.concat", op("relax.add", op("relax.nn.relu", mixed)), leaky), "joined")


def test_readers() -> None:
    assert FLOW.sole_reader(VARS["mixed"]).var.same_as(VARS["once"])
    assert FLOW.sole_reader(VARS["x"]) is None
    assert FLOW.sole_reader(VARS["kept"]) is None
    assert FLOW.is_inner(VARS["scaled"], {VARS["leaky"], VARS["mixed"]})
    assert not FLOW.is_inner(VARS["scaled"], {VARS["leaky"]})
    assert not FLOW.is_inner(VARS["kept"], {VARS["last"]})
