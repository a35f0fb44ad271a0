"""Loops fused, straightened, blocked, freed of what does not change: which are, and that no bit changes."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import TensorLoad
from tvm.relax import op

from benchmarks.measure.generic_definitions import cases
from codegen_c.kernels import generic
from codegen_c.kernels.contract import CFunction, StoredRows, Target
from codegen_c.operators.kinds import Generic
from codegen_c.targets.registry import target_of
from codegen_c.tir import composite, lower, statements
from codegen_c.tir.hoist_loads import Hoisted, hoist_loads
from codegen_c.tir.plain_c import PlainC
from codegen_c.tir.shape_loops import narrow_block
from tests.kernels.tir_cases import Case
from tests.kernels.tir_library import PRELUDE, arguments_of, assert_same_bits, c_dtype, call, compile_c, entry, lowered
from tvm_ext.core.platform import Platform

ROWS, IMAGE = ((24, 30), "float32"), ((1, 6, 24, 20), "float32")
NAMES = """relu add maximum isnan floor_divide_i32 cast_int32_float32 cast_float32_int8 dequantize log_softmax max_1
sum_2_3 std_0_2 softmax_1 layer_norm group_norm argmax argmin_3 cumsum cumsum_0 permute_0231 permute_0132 concat_3 tile
repeat repeat_0 flip_2 broadcast_to triu take take_1 gather_elements gather_nd scatter_elements one_hot pad_constant
pad_reflect pad_replicate resize_nearest_neighbor resize_linear matmul conv1d max_pool2d""".split()
DEFINITIONS = [case for case in cases() if case.name in NAMES]
WITHOUT: dict[str, tuple[object, str, Callable[..., object]]] = {
    "fuse": (lower, "fuse_loops", lambda function: function),
    "straighten": (lower, "straighten_loops", lambda function: function),
    "hoist": (composite, "hoist_loads", lambda function, num_inputs: Hoisted(function=function, places={})),
    "block": (composite, "block_loops", lambda function, keep_vectors=False: function),
    "rows": (statements, "rows_of", lambda loop, around: []),
}
"""What is left out of lowering: where it is called, and what then stands there."""


def body_of(build: Callable[..., relax.Expr], *inputs: tuple[tuple[int, ...], str]) -> str:
    """The C where size matters more than speed, which is not blocked."""
    return forms_of(build, *inputs)[2].body


def forms_of(build: Callable[..., relax.Expr], *inputs: tuple[tuple[int, ...], str]) -> tuple[CFunction, ...]:
    """Functions for processors without vectors, with them, and for size."""
    plain = lowered(Case(name="formed", build=build, inputs=inputs).function())
    ways = ((False, False), (True, False), (False, True))
    return tuple(plain.form(has_vectors=vectors, is_small=small).function for vectors, small in ways)


@pytest.fixture(scope="module")
def whole() -> dict[str, PlainC]:
    return {case.name: lowered(case.function()) for case in DEFINITIONS}


@pytest.mark.parametrize("name", WITHOUT)
def test_no_bit_changes(name: str, whole: dict[str, PlainC], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, attribute, other = WITHOUT[name]
    monkeypatch.setattr(module, attribute, other)
    without = {case.name: lowered(case.function()) for case in DEFINITIONS}
    changed = [case for case in DEFINITIONS if without[case.name].function != whole[case.name].function]
    assert len(changed) >= 4
    picked = [{case.name: plains[case.name] for case in changed} for plains in (whole, without)]
    assert_same_bits(changed, picked[0], picked[1], tmp_path)


@pytest.mark.parametrize("form", ["for_vectors", "small"])
def test_forms_compute_the_same(form: str, whole: dict[str, PlainC], tmp_path: Path) -> None:
    others = {
        name: replace(plain, function=other.function)
        for name, plain in whole.items()
        if (other := getattr(plain, form))
    }
    assert len(others) >= 12 and {"pad_constant", "tile"} <= set(others)
    assert_same_bits([case for case in DEFINITIONS if case.name in others], whole, others, tmp_path)


def test_output_may_take_the_place_of_an_input(whole: dict[str, PlainC], tmp_path: Path) -> None:
    """Blocks of long loops read and write in the same order as one turn after the other."""
    claims = [case for case in DEFINITIONS if whole[case.name].in_place]
    assert {"relu", "maximum", "cast_int32_float32"} <= {case.name for case in claims}
    source, library = tmp_path / "claims.c", tmp_path / "claims.so"
    source.write_text(PRELUDE + "".join(entry(case.name, whole[case.name]) for case in claims))
    compile_c("gcc", ["-O3", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"])
    loaded = ctypes.CDLL(str(library))
    for case in claims:
        plain, inputs = whole[case.name], case.arrays()
        for index in plain.in_place:
            output, shared = np.zeros(inputs[index].shape, c_dtype(plain)), case.arrays()
            call(loaded, case.name, arguments_of(plain, inputs, [output]))
            place = shared[index].view(output.dtype)
            call(loaded, case.name, arguments_of(plain, shared, [place]))
            assert place.tobytes() == output.tobytes(), case.name


def test_rows_without_a_gap_are_one_loop() -> None:
    assert body_of(op.nn.relu, ROWS).count("for (") == 1
    summed = body_of(lambda x: op.sum(x, [2, 3]), IMAGE)
    assert summed.count("for (") == 2 and "< 480" in summed


def test_rows_with_a_gap_stay_loops() -> None:
    assert body_of(lambda x: op.strided_slice(x, [1], [0], [29]), ROWS).count("for (") == 2
    assert body_of(lambda x, y: op.add(x, y), ROWS, ((30,), "float32")).count("for (") == 2


@pytest.mark.parametrize(
    ("build", "loops"),
    [
        (lambda x: op.repeat(x, 2, axis=1), 3),
        (lambda x: op.tile(x, (2, 5)), 3),
        (lambda x: op.nn.pad(x, [1, 2, 3, 4], pad_mode="reflect"), 4),
        (lambda x: op.nn.pad(x, [1, 2, 3, 4], pad_mode="replicate"), 4),
    ],
)
def test_bent_places_need_no_table(build: Callable[..., relax.Expr], loops: int) -> None:
    body = body_of(build, ROWS)
    assert "constant" not in body
    assert body.count("for (") == loops


def test_places_that_step_unevenly_stay_a_table() -> None:
    body = body_of(
        lambda x: op.image.resize2d(
            x, (36, 30), layout="NCHW", method="nearest_neighbor", coordinate_transformation_mode="half_pixel"
        ),
        IMAGE,
    )
    assert "const float *const input0_row = &input0[i1 * 480 + (int32_t)constant0[i2]];" in body
    assert "= input0_row[(int32_t)constant1[i3]];" in body


def test_a_row_begins_inside_of_its_buffer() -> None:
    """Reflected from below, rows step back: what each adds at least stands where they begin."""
    body = body_of(lambda x: op.nn.pad(x, [1, 2, 3, 4], pad_mode="reflect"), ROWS)
    assert re.search(r"input0_row = &input0\[690 - ", body) and "input0_row[3 - i1]" in body


def test_places_that_an_input_holds_are_computed_once() -> None:
    indices = ((16,), "int64")
    body = body_of(lambda x, i: op.take(x, i, axis=0), ROWS, indices)
    assert body.count("$_inside_i64(") == 1
    assert body.index("$_inside_i64(") < body.rindex("for (")


def test_functions_of_what_does_not_change_are_called_once() -> None:
    norm = body_of(lambda x: op.nn.layer_norm(x, _ramp(30), _ramp(30), axes=-1), ROWS)
    assert norm.index("sqrtf(") < norm.rindex("for (")
    logs = body_of(op.nn.log_softmax, ROWS)
    assert logs.index("logf(") < logs.rindex("for (")


def test_what_may_not_be_read_stays_where_it_is() -> None:
    """A choice, and what stands behind `&&`, guards its loads."""

    def build(x: relax.Expr) -> relax.Expr:
        return op.broadcast_to(op.nn.pad(x, [0, 2, 0, 0]), (6, 40))

    body = body_of(build, ((4, 1), "float32"))
    assert re.search(r"= \(?\w+ < 4\)? \? input0\[\w+\] : 0.0f;", body), body


@pytest.mark.parametrize(("turns", "leaves", "moved"), [(24, False, True), (0, False, False), (24, True, False)])
def test_nothing_moves_before_a_loop_that_may_not_come_to_it(turns: int, leaves: bool, moved: bool) -> None:
    counter = tirx.Var("i", "int32")
    source, target = (tirx.decl_buffer((24,), "float32", name) for name in ("source", "target"))
    body = tirx.BufferStore(target, tirx.BufferLoad(source, [tirx.IntImm("int32", 3)]), [counter])
    if leaves:
        body = tirx.SeqStmt([tirx.IfThenElse(counter < 5, tirx.Break(), None), body])
    loop = tirx.For(counter, tirx.IntImm("int32", 0), tirx.IntImm("int32", turns), tirx.ForKind.SERIAL, body)
    hoisted = hoist_loads(tirx.PrimFunc([source, target], loop), 1).function.body
    assert isinstance(hoisted, tirx.SeqStmt) == moved


def test_an_expression_that_is_part_of_another_one_leaves_no_unused_variable() -> None:
    """The first element is a value by itself, and a part of a product that does not change either."""
    counter, zero = tirx.Var("i", "int32"), tirx.IntImm("int32", 0)
    source, target = (tirx.decl_buffer((24,), "int32", name) for name in ("source", "target"))
    first = tirx.BufferLoad(source, [zero])
    grown = first * tirx.IntImm("int32", 3)
    value = tirx.Max(grown, counter) + tirx.Min(first, counter)
    body = tirx.BufferStore(target, value, [counter])
    loop = tirx.For(counter, zero, tirx.IntImm("int32", 24), tirx.ForKind.SERIAL, body)
    hoisted = hoist_loads(tirx.PrimFunc([source, target], loop), 1).function.body
    made: list[tirx.AllocBuffer] = []
    read: set[object] = set()
    tvm_ffi.structural_walk(
        hoisted, [(tirx.AllocBuffer, made.append), (TensorLoad, lambda load: read.add(load.source))]
    )
    assert len(made) == 2 and all(one.buffer in read for one in made)


def test_short_turns_stand_side_by_side() -> None:
    blocked, vectors, small = forms_of(op.nn.relu, ROWS)
    assert "< 180" in blocked.body and "< 4" in blocked.body and "< 720" in small.body
    assert vectors.body == blocked.body  # no vectors of choices
    blocked, vectors, small = forms_of(op.add, ROWS, ROWS)
    assert vectors.body == small.body != blocked.body


@pytest.mark.parametrize("build", [op.exp, op.nn.gelu, lambda x: op.strided_slice(x, [1], [0], [9])])
def test_calls_and_few_turns_do_not(build: Callable[..., relax.Expr]) -> None:
    blocked, _, small = forms_of(build, ROWS)
    assert blocked == small


def test_rows_of_zeros_are_loops_of_their_own_where_vectors_are() -> None:
    scalar, vectors, small = forms_of(lambda x: op.nn.pad(x, [1, 1, 2, 2]), ROWS)
    assert "1 <= i0" in scalar.body and "1 <= i0" in small.body and "i0 < 24" not in scalar.body
    assert "1 <= i0" not in vectors.body and "i0 < 24" in vectors.body


def test_a_quotient_that_no_turn_changes_keeps_no_vectors_away() -> None:
    blocked, vectors, small = forms_of(lambda x: op.tile(x, (2, 3)), ROWS)
    assert "% 24" in vectors.body and vectors.body == small.body != blocked.body


def test_zeros_of_short_sums_of_products_are_added_where_vectors_are() -> None:
    for channels, is_added in ((6, True), (12, False)):
        weights = np.arange(4 * channels * 3, dtype=np.float32).reshape(4, channels, 3)
        shape = ((1, channels, 60), "float32")
        scalar, vectors, _ = forms_of(lambda x, w=weights: op.nn.conv1d(x, relax.const(w), padding=1), shape)
        assert "if (" in scalar.body and ("if (" not in vectors.body) == is_added


def test_four_floats_become_bytes_at_once() -> None:
    scalar, _, small = forms_of(lambda x: op.astype(x, "int8"), ((603,), "float32"))
    assert "$_narrow_i8(input0[i0 * 4], input0[i0 * 4 + 1]," in scalar.body and "= (int8_t)$_i32_from" in scalar.body
    assert "narrow" not in small.body
    assert "narrow" not in forms_of(lambda x: op.astype(x, "int32"), ROWS)[0].body


@pytest.mark.parametrize("is_block", [True, False])
def test_floats_that_turns_before_made_are_converted_in_turn(is_block: bool) -> None:
    counter = tirx.Var("i", "int32")
    source, target = tirx.decl_buffer((8,), "float32", "source"), tirx.decl_buffer((8,), "int8", "target")
    value = tirx.BufferLoad(source, [counter])
    if not is_block:
        value = value + tirx.Cast("float32", tirx.BufferLoad(target, [counter]))
    store = tirx.BufferStore(target, tirx.Cast("int8", value), [counter + 1])
    ends = (tirx.IntImm("int32", end) for end in (0, 4))
    assert (narrow_block(tirx.For(counter, *ends, tirx.ForKind.SERIAL, store)) is not None) == is_block


def test_kernels_choose_the_form_of_their_processor() -> None:
    plain = lowered(Case(name="chosen", build=op.add, inputs=(ROWS, ROWS)).function())
    operator = Generic(name="chosen", inputs=(), outputs=(), plain=plain, reference=list)
    targets = [target_of(Platform.load(name).processor) for name in ("cortex_m4", "cortex_m55")]
    m4, m55 = (generic.implement(operator, target, StoredRows()).function for target in targets)
    assert m4 == plain.function and plain.for_vectors and m55 == plain.for_vectors.function
    small = Target(processor=targets[0].processor, instruction_set=targets[0].instruction_set, optimize="size")
    assert plain.small and generic.implement(operator, small, StoredRows()).function == plain.small.function


def test_a_counter_of_unknown_end_is_left_alone() -> None:
    end, counter = tirx.Var("n", "int32"), tirx.Var("i", "int32")
    target = tirx.decl_buffer((64,), "float32", "target")
    body = tirx.For(
        counter, tirx.IntImm("int32", 0), end, tirx.ForKind.SERIAL,
        tirx.BufferStore(target, tirx.const(0, "float32"), [counter]),
    )  # fmt: skip
    function = tirx.PrimFunc([target, end], body)
    for change in (lower.fuse_loops, lower.straighten_loops, composite.block_loops):
        assert change(function).body.extent.same_as(end)


def _ramp(count: int) -> relax.Expr:
    return relax.const(np.arange(count, dtype=np.float32))


def test_a_product_that_two_operators_read_stays() -> None:
    """TVM would inline the first reader into the product, and leave the second reader without it."""

    def build(x: relax.Expr, w: relax.Expr) -> relax.Expr:
        product = op.matmul(x, w)
        grown = op.exp(product)
        total = op.add(grown, op.multiply(op.abs(grown), op.abs(grown)))
        return op.reshape(op.add(op.nn.relu(product), op.log(total)), (3, 2))

    body = body_of(build, ((2, 6), "float32"), ((6, 3), "float32"))
    assert re.search(r"matmul\w*\[[^\]]+\] = matmul_local;", body), body
