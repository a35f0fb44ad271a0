"""Scalar programs: each function in C against numpy, and the text they become."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.elementwise import elementwise_f32
from codegen_c.kernels.shared.lanes import SCALAR, Finish, Lanes
from codegen_c.operators.kinds import Elementwise
from codegen_c.operators.scalar import FUNCTIONS, Operand, ScalarProgram
from tests.kernels.float32 import assert_close, floats, number, program, value
from tests.kernels.harness import HOST, Entry, compile_kernels, run_kernel

X = np.concatenate([np.linspace(0.05, 4, 60), [0.5, 1.5, 2.5, 1e-3]]).astype(np.float32)
Y = np.roll(X, 17)
POSITIVE_ONLY = ("log", "sqrt", "rsqrt", "power")
HALF_HEADERS = Lanes(count=1, half=True).includes
INPUTS = tuple(Operand(kind="input", index=i) for i in range(2))


def operator(name: str) -> Elementwise:
    arity = FUNCTIONS[name].arity
    return Elementwise(inputs=(floats(64),) * arity, outputs=(floats(64),), finish=program((name, *INPUTS[:arity])))


@pytest.fixture(scope="module")
def compiled() -> dict[str, Entry]:
    """Every function in C; the headers of kernels of float16, which round between operators, are included for all."""
    made = [elementwise_f32.KERNEL.implement(operator(name), HOST, StoredRows()) for name in FUNCTIONS]
    with_halves = [replace(i, function=replace(i.function, includes=HALF_HEADERS)) for i in made]
    return dict(zip(FUNCTIONS, compile_kernels(with_halves), strict=True))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("sign", [1, -1])
def test_every_function(compiled: dict[str, Entry], name: str, sign: int) -> None:
    if sign < 0 and name in POSITIVE_ONLY:
        pytest.skip("is not defined below zero")
    chosen = operator(name)
    inputs = [X * np.float32(sign), Y][: len(chosen.inputs)]
    implementation = elementwise_f32.KERNEL.implement(chosen, HOST, StoredRows())
    (found,) = run_kernel(chosen, implementation, inputs, entry=compiled[name])
    assert_close(found, implementation.reference(inputs)[0])
    assert len(np.unique(found)) > 3, "the inputs tell nothing about this function"


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_nan_of_the_first_operand_is_the_result(compiled: dict[str, Entry], name: str) -> None:
    """Needed by relu and clip: their constant is the second operand."""
    a, b = np.full((2, 64), 2, np.float32)
    a[:] = np.nan
    chosen = operator(name)
    implementation = elementwise_f32.KERNEL.implement(chosen, HOST, StoredRows())
    for result in (
        run_kernel(chosen, implementation, [a, b], entry=compiled[name])[0],
        chosen.finish.run(None, [a, b]),
    ):
        assert np.isnan(result).all()


def test_functions_take_the_operands_they_say() -> None:
    for name, function in FUNCTIONS.items():
        assert all(f"{{{i}}}" in function.c for i in range(function.arity)), name
        assert f"{{{function.arity}}}" not in function.c, name


SILU = program(("sigmoid", value()), ("multiply", value(), value(1)))


def test_values_may_be_read_again() -> None:
    x = np.array([0.0, 2.0], np.float32)
    np.testing.assert_allclose(SILU.run(x, []), x / (1 + np.exp(-x)), rtol=1e-6)
    helper = Finish(program=SILU).helper(SCALAR)
    assert (
        "    const float v1 = 1.0f / (1.0f + expf(-value));\n    const float v2 = value * v1;\n    return v2;" in helper
    )


def test_an_empty_program_is_the_element_itself() -> None:
    empty = ScalarProgram()
    assert empty.reads_element and empty.num_instructions == 0 and empty.inputs_read() == ()
    assert empty.run(X, []) is X
    assert Finish(program=empty).helper(SCALAR) == "" and Finish(program=empty).call("sum0", lambda _: "") == "sum0"


def test_operands_are_arguments_once_each_in_order_of_use() -> None:
    channel, second = Operand(kind="channel"), Operand(kind="input", index=2)
    finish = Finish(
        program=program(
            ("add", value(), second), ("multiply", value(1), channel), ("add", value(2), second),
            channels=[np.ones(3, np.float32)],
        )
    )  # fmt: skip
    assert finish.operands == (second, channel)
    assert "$_finish(float value, float input2, float channel0)" in finish.helper(SCALAR)
    vectors = finish.helper(Lanes(count=8))
    assert "$_finish_f32x8(" in vectors and "$_finish(" not in vectors, "of the widths that are used alone"
    assert finish.call("sum0", lambda o: f"{o.kind}[i]") == "$_finish(sum0, input[i], channel[i])"
    assert [p.name for p in finish.input_parameters()] == ["input2"]
    assert [role for role, _ in finish.constants()] == ["channel0"]


def test_float32_at_every_step() -> None:
    """1e8 + 1 - 1e8 is 0 in float32, and 1 in anything wider."""
    steps = program(("add", value(), number(1.0)), ("subtract", value(1), number(1e8)))
    assert steps.run(np.array([1e8], np.float32), []).tolist() == [0.0]
