"""Tolerances of verification step by step, just inside and just outside: 1 LSB, a quarter of one on average."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.backend.build import Compiled
from codegen_c.emit.banner import Origin
from codegen_c.program.interface import Interface, Port
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, Step, Transfer
from codegen_c.program.tensors import Part, Strip, Tensor
from tests.arena.programs import call
from tvm_ext import Platform
from tvm_ext.verification.account import account_for, sources
from tvm_ext.verification.reference_runtimes.reference_result import ReferenceResult

Array = np.ndarray
SIZE = 100


def step(name: str, source: str, target: str, compute: Callable[[Array], Array], shape: tuple[int, ...]) -> KernelCall:
    made = call(name, source, target)
    implementation = replace(made.implementation, reference=lambda seen: [compute(seen[0])])
    return replace(made, implementation=implementation, input_shapes=(shape,))


def plain(array: Array) -> Array:
    return array


def compiled_of(program: Program) -> Compiled:
    """A compiled program with ports as the tensors are, and a plan that nobody looks at."""
    inputs, outputs = (
        tuple(Port(name=name, source=name, shape=program.tensors[name].shape, dtype=program.tensors[name].dtype)
              for name in names)
        for names in (program.inputs, program.outputs)
    )  # fmt: skip
    interface = Interface(model="m", io="arena", inputs=inputs, outputs=outputs)
    plan, origin = MemoryPlan(placements={}, arenas=()), cast(Origin, None)
    return Compiled(program=program, plan=plan, interface=interface, origin=origin, platform=Platform.load("host"))


def chain(dtype: str, *computed: Callable[[Array], Array], size: int = SIZE) -> Compiled:
    """x -> t0 -> t1 ... -> y, each element by itself."""
    names = ["x", *(f"t{index}" for index in range(len(computed) - 1)), "y"]
    tensors = {name: Tensor(name=name, source=name, shape=(size,), dtype=dtype, memory="ram") for name in names}
    steps = tuple(
        step(f"s{index}", names[index], names[index + 1], each, (size,)) for index, each in enumerate(computed)
    )
    return compiled_of(Program(name="p", inputs=("x",), outputs=("y",), tensors=tensors, steps=steps))


def errors(
    compiled: Compiled, x: Sequence[Array] | Array, *said: dict[str, Array], ties: Sequence[dict[str, Array]] = ()
) -> tuple[str, ...]:
    """Errors found against a reference runtime. said: per sample, its tensors by name; ties: halves among them."""
    given = [x] if isinstance(x, np.ndarray) else list(x)
    outputs = [{name: a for name, a in sample.items() if name in compiled.program.outputs} for sample in said]
    reference_result = ReferenceResult(
        runtime="somebody", own_reading="", outputs=outputs, inner=list(said), ties=list(ties)
    )
    return account_for(compiled, [{"x": array} for array in given], reference_result).errors


def off(array: Array, by: float, count: int = 1) -> Array:
    """The first elements moved."""
    moved = array.copy()
    moved[:count] += np.array(by).astype(array.dtype)
    return moved


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_a_step_may_round_by_one(dtype: str) -> None:
    x = np.full(SIZE, 7, dtype)
    assert errors(chain(dtype, plain), x, {"y": off(x, 1)}) == ()
    (error,) = errors(chain(dtype, plain), x, {"y": off(x, 2)})
    assert error == "s0: y is 2 LSB from somebody's"


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool"])
def test_integers_without_a_scale_are_equal(dtype: str) -> None:
    x = np.zeros(SIZE, dtype)
    assert errors(chain(dtype, plain), x, {"y": x}) == ()
    other = x.copy()
    other[0] = 1
    assert errors(chain(dtype, plain), x, {"y": other}) == ("s0: y is 1 LSB from somebody's",)


@pytest.mark.parametrize(("units", "passes"), [(0.99, True), (1.01, False)])
def test_floats_of_a_step(units: float, passes: bool) -> None:
    x = np.full(SIZE, 4.0, np.float32)
    found = errors(chain("float32", plain), x, {"y": off(x, 4 * units * 1e-4)})
    assert (found == ()) is passes
    assert passes or "LSB" not in found[0]


@pytest.mark.parametrize("way", [1, -1])
def test_a_quarter_on_average_is_rounding_and_more_is_not(way: int) -> None:
    x = np.zeros(SIZE, np.int8)
    assert errors(chain("int8", plain), x, {"y": off(x, way, 25)}) == ()
    (error,) = errors(chain("int8", plain), x, {"y": off(x, way, 26)})
    assert error == f"y differs from somebody's by {-way * 0.26:.2f} LSB on average"


def test_halves_that_go_one_way_are_rounding() -> None:
    x = np.zeros(SIZE, np.int8)
    said = {"y": off(x, 1, 50)}
    halves = np.arange(SIZE) < 40
    assert errors(chain("int8", plain), x, said, ties=[{"y": halves}]) == ()
    assert len(errors(chain("int8", plain), x, said, ties=[{"y": np.arange(SIZE) < 20}])) == 1


def test_the_average_is_of_both_ways_and_of_all_samples() -> None:
    x = np.zeros(SIZE, np.int8)
    assert errors(chain("int8", plain), x, {"y": off(x, 1, 50) - off(x, 1, 100) + off(x, 1, 50)}) == ()
    half, few = np.zeros(16, np.int8), np.zeros(15, np.int8)
    short, shorter = chain("int8", plain, size=16), chain("int8", plain, size=15)
    assert errors(short, half, {"y": half + 1}) == ()
    assert errors(short, [half, half], {"y": half + 1}, {"y": half + 1}) != ()
    assert errors(short, [half, half], {"y": half + 1}, {"y": half - 1}) == ()
    assert errors(shorter, [few, few], {"y": few + 1}, {"y": few + 1}) == (), "30 elements tell nothing"


def test_behind_a_hidden_tensor_its_own_rounding_is_allowed_too() -> None:
    """y = 3 t: a step of t is 3 of y, and 1 more for y's own rounding; the mean is not judged."""
    made, x = chain("int8", plain, lambda t: 3 * t), np.full(SIZE, 7, np.int8)
    assert errors(made, x, {"y": 3 * x + np.int8(4)}) == ()
    assert errors(made, x, {"y": off(3 * x, 5)}) == ("s1: y is 5 LSB from somebody's",)
    assert errors(made, x, {"t0": x, "y": off(3 * x, 2)}) == ("s1: y is 2 LSB from somebody's",)


def test_all_hidden_tensors_are_added_up() -> None:
    made, x = chain("int8", plain, plain, plain), np.full(SIZE, 7, np.int8)
    assert errors(made, x, {"y": off(x, 3)}) == ()
    assert errors(made, x, {"y": off(x, 4)}) != ()
    assert errors(made, x, {"t0": x, "y": off(x, 2)}) == ()
    assert errors(made, x, {"t0": x, "y": off(x, 3)}) != ()


def test_a_hidden_tensor_may_move_either_way() -> None:
    """At the end of a range only one is left; of a difference of elements only moves apart show."""
    ends = np.full(SIZE, 127, np.int8)
    assert errors(chain("int8", plain, plain), ends, {"y": off(ends, -2)}) == ()
    assert errors(chain("int8", plain, plain), -ends - 1, {"y": off(-ends - 1, 2)}) == ()
    made = chain("int8", plain, lambda t: t - np.roll(t, 1))
    x = np.zeros(SIZE, np.int8)
    assert errors(made, x, {"y": off(x, 3)}) == () and errors(made, x, {"y": off(x, 4)}) != ()


@pytest.mark.parametrize(("units", "passes"), [(1.98, True), (2.02, False)])
def test_floats_behind_a_hidden_tensor(units: float, passes: bool) -> None:
    x = np.full(SIZE, 4.0, np.float32)
    found = errors(chain("float32", plain, plain), x, {"y": off(x, 4 * units * 1e-4)})
    assert (found == ()) is passes


def test_an_output_that_is_an_input_is_judged() -> None:
    made = chain("int8", plain)
    program = replace(made.program, outputs=("x", "y"))
    x = np.zeros(SIZE, np.int8)
    assert errors(compiled_of(program), x, {"x": x, "y": x}) == ()
    (error,) = errors(compiled_of(program), x, {"x": off(x, 2), "y": x})
    assert error.startswith("an input: x is 2 LSB")


def in_parts(steps: Sequence[Step]) -> Compiled:
    """x -> a, b, which are the halves of y."""
    tensor = Tensor(name="x", source="x", shape=(SIZE,), dtype="int8", memory="ram")
    tensors = {
        "x": tensor,
        "y": replace(tensor, name="y", source="y", shape=(2 * SIZE,)),
        "a": replace(tensor, name="a", source="a", part=Part(tensor="y", first=0)),
        "b": replace(tensor, name="b", source="b", part=Part(tensor="y", first=SIZE)),
    }
    return compiled_of(Program(name="p", inputs=("x",), outputs=("y",), tensors=tensors, steps=tuple(steps)))


def test_an_output_that_is_its_parts_is_judged() -> None:
    made = in_parts([step("s0", "x", "a", plain, (SIZE,)), step("s1", "x", "b", lambda t: t + 1, (SIZE,))])
    x = np.full(SIZE, 10, np.int8)
    y = np.concatenate([x, x + 1]).astype(np.int8)
    assert errors(made, x, {"y": y}) == ()
    assert errors(made, x, {"y": off(y, 3)}) == (), "its own, and one of a and b each"
    assert errors(made, x, {"y": off(y, 4)}) == ("its parts: y is 4 LSB from somebody's",)
    assert errors(made, x, {"a": x, "b": x + 1, "y": off(y, 2)}) == ("its parts: y is 2 LSB from somebody's",)


def test_a_copy_rests_on_what_it_copies() -> None:
    names = ("x", "t", "u", "y")
    tensors = {name: Tensor(name=name, source=name, shape=(SIZE,), dtype="int8", memory="ram") for name in names}
    steps = (
        step("s0", "x", "t", plain, (SIZE,)),
        Transfer(name="copy", source="t", target="u"),
        step("s1", "u", "y", plain, (SIZE,)),
    )
    made = compiled_of(Program(name="p", inputs=("x",), outputs=("y",), tensors=tensors, steps=steps))
    x = np.zeros(SIZE, np.int8)
    assert errors(made, x, {"t": x, "y": off(x, 2)}) == (), "one for u, one for y"
    assert errors(made, x, {"t": x, "y": off(x, 3)}) != ()
    assert errors(made, x, {"u": off(x, 3), "y": off(x, 3)}) == ("copy: u is 3 LSB from somebody's",), "one for t"


def test_what_the_reference_has_is_read_as_it_is_stored() -> None:
    """In another order of axes, as columns of an image; of another type or size it is another tensor."""
    image = np.arange(24, dtype=np.int8).reshape(1, 2, 3, 4)
    stored = Tensor(
        name="y", source="y", shape=(1, 3, 4, 2), dtype="int8", memory="ram", layout=(0, 2, 3, 1)
    )  # NCHW kept as NHWC
    strip = Tensor(
        name="c", source="c_0", shape=(1, 3, 2, 2), dtype="int8", memory="ram", layout=(0, 2, 3, 1),
        strip=Strip(source="y", begin=1, end=3),
    )  # fmt: skip
    x = replace(stored, name="x", source="x", layout=())
    steps = (
        step("s0", "x", "c", lambda t: t[:, :, 1:3], stored.shape),
        step("s1", "x", "y", plain, stored.shape),
    )
    program = Program(name="p", inputs=("x",), outputs=("y",), tensors={"x": x, "y": stored, "c": strip}, steps=steps)
    made, given = compiled_of(program), image.transpose(0, 2, 3, 1)
    assert sources(program) == ["x", "y"]
    assert errors(made, given, {"y": image}) == ()
    wrong = image.copy()
    wrong[0, 0, 0, 1] += 2
    found = errors(made, given, {"y": wrong})
    assert len(found) == 2 and found[0].startswith("s0: c_0") and found[1].startswith("s1: y")
    (error,) = errors(made, given, {"y": image.astype(np.int16)})
    assert error == "output y: somebody gives no such tensor"
    assert errors(made, given, {"y": image[..., :2]}) == (error,)


def test_a_part_of_a_hidden_tensor_rests_on_it() -> None:
    tensor = Tensor(name="x", source="x", shape=(SIZE,), dtype="int8", memory="ram")
    named = {name: replace(tensor, name=name, source=name) for name in ("x", "t", "y")}
    tensors = named | {"p": replace(tensor, name="p", source="p", part=Part(tensor="t", first=0))}
    steps = (step("s0", "x", "t", plain, (SIZE,)), step("s1", "p", "y", plain, (SIZE,)))
    made = compiled_of(Program(name="p", inputs=("x",), outputs=("y",), tensors=tensors, steps=steps))
    x = np.full(SIZE, 10, np.int8)
    assert errors(made, x, {"y": off(x, 2)}) == () and errors(made, x, {"y": off(x, 3)}) != ()


def test_an_output_counts_only_where_the_reference_calls_it_one() -> None:
    """A tensor inside the model may have its name."""
    made, x = chain("int8", plain), np.zeros(SIZE, np.int8)
    reference_result = ReferenceResult(runtime="somebody", own_reading="", outputs=[{}], inner=[{"y": x}])
    assert account_for(made, [{"x": x}], reference_result).errors == ("output y: somebody gives no such tensor",)


def test_errors_stand_once_and_tensors_are_counted_once() -> None:
    made, x = chain("int8", plain, plain), np.zeros(SIZE, np.int8)
    said = {"t0": x, "y": off(x, 2)}
    reference_result = ReferenceResult(
        runtime="somebody", own_reading="", outputs=[{"y": said["y"]}] * 2, inner=[said] * 2
    )
    found = account_for(made, [{"x": x}] * 2, reference_result)
    assert found.errors == ("s1: y is 2 LSB from somebody's",) and found.tensors_compared == 2
