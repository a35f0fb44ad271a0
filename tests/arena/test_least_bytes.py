"""The bytes that a step needs in any order and in any division into rows, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen_c.arena.least_bytes import least_bytes_by_rows
from codegen_c.arena.plan import plan_memory
from codegen_c.kernels.contract import Accumulating, Implementation, Spatial, StoredRows
from codegen_c.kernels.shared.window import accumulated
from codegen_c.operators.kinds import TensorType
from codegen_c.program.program import Program
from codegen_c.program.sequences import in_series
from codegen_c.program.steps import KernelCall
from codegen_c.program.tensors import Part, Ring
from tests.arena.programs import call, program
from tests.arena.test_bounds import ROW_BYTES, ROWS, WHOLE, access, images, in_rows


def least(made: Program) -> int:
    planned, plan = plan_memory(made, activations="ram")
    found = least_bytes_by_rows(planned, plan)
    assert found <= plan.arena_bytes
    return found


def chain(*steps: KernelCall, **sizes: int) -> Program:
    """x -> a -> b -> y, of six rows each, where x and y are small ports."""
    return images(program({"x": ROW_BYTES * ROWS // 4, "a": WHOLE, "b": WHOLE, "y": ROWS * 4, **sizes}, *steps))


@pytest.mark.parametrize(("kernel", "in_place", "rows"), [(1, (), 2), (1, (0,), 1), (3, (), 4), (5, (), 6)])
def test_rows_that_are_read_at_once_and_the_row_that_is_written(
    kernel: int, in_place: tuple[int, ...], rows: int
) -> None:
    inner = in_rows(call("s1", "a", "b"), kernel, in_place=in_place)
    made = chain(in_rows(call("s0", "x", "a")), inner, in_rows(call("s2", "b", "y")))
    assert least(made) == max(rows * ROW_BYTES, WHOLE // 4 + ROW_BYTES)


def test_a_plan_in_rows_has_the_bound_of_the_plan_in_whole_layers() -> None:
    body = (in_rows(call("s0", "x", "a"), 3), in_rows(call("s1", "a", "b"), 5), in_rows(call("s2", "b", "y"), 1))
    whole = chain(*body)
    split = replace(whole, steps=(in_series("q", body, (1, 1, 1)),))
    rings = {name: replace(split.tensors[name], ring=Ring(rows=ROWS, stored=5)) for name in "ab"}
    assert least(replace(split, tensors=split.tensors | rings)) == least(whole) == 6 * ROW_BYTES


def test_a_kernel_without_rows_needs_whole_operands_and_its_scratch() -> None:
    made = chain(in_rows(call("s0", "x", "a")), call("s1", "a", "b", scratch_bytes=10), in_rows(call("s2", "b", "y")))
    assert least(made) == 2 * WHOLE + 10


def test_the_first_reader_of_an_input_and_the_writer_of_an_output_need_the_whole_port() -> None:
    made = images(program({"x": WHOLE, "y": WHOLE}, in_rows(call("s", "x", "y"), 3)))
    assert least(made) == WHOLE + ROW_BYTES
    two = images(program({"x": WHOLE, "z": WHOLE, "y": ROWS}, in_rows(call("s", "x z", "y")), inputs="x z"))
    assert least(two) == 2 * WHOLE + 1
    steps = in_rows(call("s", "x", "y")), in_rows(call("t", "x", "z"))
    lost = images(program({"x": ROWS, "y": WHOLE, "z": WHOLE}, *steps, outputs="y z"))
    assert least(lost) == 2 * WHOLE


def test_parts_of_a_tensor_take_no_bytes_beside_it() -> None:
    """s1 joins a and b, which are written in their places within y."""
    steps = (in_rows(call("s0", "x", "a")), call("s1", "a", "y"))
    made = images(program({"x": ROWS, "a": WHOLE, "y": WHOLE}, *steps))
    part = replace(made.tensors["a"], part=Part(tensor="y", first=0))
    assert least(replace(made, tensors=made.tensors | {"a": part})) == WHOLE


def test_a_kernel_that_adds_up_rows_needs_one_of_them_and_its_sums() -> None:
    """Global pooling needs its input whole, or a row at a time beside 8 bytes of sums."""

    def adding(rows: int, stored: StoredRows) -> Implementation:
        return replace(step.implementation, spatial=accumulated(rows), sums=TensorType(shape=(2,), dtype="int32"))

    step = call("s1", "a", "y")
    of_rows = Accumulating(row_counts=(2, ROWS), implement=adding)
    step = replace(step, implementation=replace(step.implementation, accumulating=of_rows))
    made = images(program({"x": ROWS, "a": WHOLE, "y": ROWS}, in_rows(call("s0", "x", "a")), step))
    assert least(made) == ROW_BYTES + ROWS + 8


def test_an_input_without_rows_is_read_whole() -> None:
    joined = call("s2", "a b", "y")
    of_a = Spatial(output_rows=ROWS, inputs=(access(1),))
    joined = replace(joined, implementation=replace(joined.implementation, spatial=of_a))
    made = chain(in_rows(call("s0", "x", "a")), in_rows(call("s1", "x", "b")), joined)
    assert least(made) == ROW_BYTES + WHOLE + 4
