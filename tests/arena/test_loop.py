"""A program that computes two convolutions row by row through a ring, and copies: bit for bit the plain program."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate import validate
from codegen_c.emit.banner import Origin
from codegen_c.emit.sources import emit_sources
from codegen_c.kernels.contract import Implementation, Kept, StoredRows
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import Conv2d, TensorType, Window
from codegen_c.program.interface import Interface, Port
from codegen_c.program.program import Program
from codegen_c.program.steps import AffineRow, KernelCall, Loop, RowRange, Step, Transfer
from codegen_c.program.tensors import Constant, Tensor
from codegen_c.targets.registry import target_of
from tvm_ext.core.errors import PlanRejected
from tvm_ext.core.platform import Platform
from tvm_ext.execution.host_model import HostModel

PLATFORM = Platform.load("host")
SIZE, CHANNELS, RING_ROWS = 12, 5, 3
IMAGE = (1, SIZE, SIZE, CHANNELS)
WINDOW = Window(kernel=(3, 3), padding=(1, 1, 1, 1))


def convolution(seed: int) -> Conv2d:
    random = np.random.default_rng(seed)
    kind = TensorType(shape=IMAGE, dtype="float32")
    return Conv2d(
        inputs=(kind,),
        outputs=(kind,),
        weight=random.normal(size=(CHANNELS, 3, 3, CHANNELS)).astype(np.float32),
        bias=random.normal(size=CHANNELS).astype(np.float32),
        window=WINDOW,
    )


FIRST, SECOND = convolution(1), convolution(2)


@dataclass(frozen=True, kw_only=True)
class Built:
    """Steps and constants on the way to a Program."""

    steps: tuple[Step, ...]
    constants: dict[str, Constant]


def kernel(operator: Conv2d, stored: StoredRows) -> Implementation:
    chosen = select(operator, target_of(PLATFORM.processor), stored)
    assert isinstance(chosen, Implementation) and chosen.spatial
    return chosen


def call(
    name: str, layer: str, operator: Conv2d, tensors: tuple[str, str], stored: StoredRows, rows: RowRange | None
) -> KernelCall:
    """One layer, or the rows of it; parts of one layer share its constants."""
    return KernelCall(
        name=name, implementation=kernel(operator, stored), inputs=tensors[:1], outputs=tensors[1:],
        input_shapes=(operator.inputs[0].shape,), constants=(f"{layer}_weights", f"{layer}_bias"),
        source_nodes=(layer,), rows=rows,
    )  # fmt: skip


def constants() -> dict[str, Constant]:
    return {
        f"{layer}_{role}": Constant(name=f"{layer}_{role}", data=data, memory=PLATFORM.weights, note=layer)
        for layer, operator in (("first", FIRST), ("second", SECOND))
        for role, data in kernel(operator, StoredRows()).constants
    }


def rows(begin: int, end: int, step: int = 0) -> RowRange:
    return RowRange(begin=AffineRow(base=begin, step=step), end=AffineRow(base=end, step=step))


def made(steps: tuple[Step, ...], middle_rows: int, *names: str) -> Program:
    """x -> (copies) -> middle -> y; `middle` holds that many rows."""
    shapes = {"x": IMAGE, "middle": (1, middle_rows, SIZE, CHANNELS), "y": IMAGE} | dict.fromkeys(names, IMAGE)
    return Program(
        name="m", inputs=("x",), outputs=("y",), constants=constants(), steps=steps,
        tensors={
            name: Tensor(name=name, source=name, shape=shape, dtype="float32", memory=PLATFORM.activations)
            for name, shape in shapes.items()
        },
    )  # fmt: skip


def plain() -> Program:
    whole = StoredRows()
    steps = (
        call("one", "first", FIRST, ("x", "middle"), whole, None),
        call("two", "second", SECOND, ("middle", "y"), whole, None),
    )
    return made(steps, SIZE)


def ringed() -> Program:
    """Copy; rows 0 and 1 of the middle; then row i + 2 of it and row i + 1 of the output; both borders apart."""
    ring = Kept(stored=RING_ROWS)
    to_ring, from_ring = StoredRows(output=ring), StoredRows(inputs=(ring,))
    body = (
        call("one_row", "first", FIRST, ("held", "middle"), to_ring, rows(2, 3, step=1)),
        call("two_row", "second", SECOND, ("middle", "y"), from_ring, rows(1, 2, step=1)),
    )
    steps = (
        Transfer(name="fetch", source="x", target="held"),
        call("one_top", "first", FIRST, ("held", "middle"), to_ring, rows(0, 2)),
        call("two_top", "second", SECOND, ("middle", "y"), from_ring, rows(0, 1)),
        Loop(name="rows", count=SIZE - 2, body=body),
        call("two_bottom", "second", SECOND, ("middle", "y"), from_ring, rows(SIZE - 1, SIZE)),
    )
    return made(steps, RING_ROWS, "held")


def sources(program: Program, plan: MemoryPlan) -> tuple[dict[str, str], Interface]:
    def port(name: str) -> Port:
        return Port(name=name, source=name, shape=IMAGE, dtype="float32")

    interface = Interface(model="m", io="arena", inputs=(port("x"),), outputs=(port("y"),))
    origin = Origin(generator="tests", model="by hand", sha256="", platform=PLATFORM.name)
    return emit_sources(program, plan, interface, origin, PLATFORM), interface


def run(program: Program, x: np.ndarray, folder: Path) -> np.ndarray:
    """Planned, validated, compiled without a warning, run twice: the second time on a used arena."""
    program, plan = plan_memory(program, activations=PLATFORM.activations)
    validate(program, plan)
    texts, interface = sources(program, plan)
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)
    with HostModel(folder, interface) as model:
        first = model.run({"x": x})["y"]
        np.testing.assert_array_equal(model.run({"x": x})["y"], first)
        return first


def test_rows_through_a_ring_give_the_same_bits(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=IMAGE).astype(np.float32)
    whole = run(plain(), x, tmp_path / "plain")
    np.testing.assert_array_equal(run(ringed(), x, tmp_path / "ringed").view(np.uint32), whole.view(np.uint32))
    middle = kernel(FIRST, StoredRows()).reference([x])[0]
    np.testing.assert_allclose(whole, kernel(SECOND, StoredRows()).reference([middle])[0], rtol=1e-4, atol=1e-4)


def test_the_ring_is_smaller_and_lives_from_its_first_row_to_its_last() -> None:
    _, plan = plan_memory(ringed(), activations=PLATFORM.activations)
    ring = plan.placements["middle"]
    assert ring.num_bytes == RING_ROWS * SIZE * CHANNELS * 4 and (ring.begin, ring.end) == (1, 5)


def test_the_run_reads_as_a_loop() -> None:
    program = ringed()
    text = sources(*plan_memory(program, activations=PLATFORM.activations))[0]["m.c"]
    memory = PLATFORM.activations
    assert f"memcpy({memory}->held, {memory}->x, {SIZE * SIZE * CHANNELS * 4}u);" in text
    assert f"for (int32_t i = 0; i < {SIZE - 2}; ++i) {{" in text
    assert f"m_one_top({memory}->held, {memory}->middle, m_first_weights, m_first_bias, 2 + i, 3 + i);" in text
    assert f"m_two_top({memory}->middle, {memory}->y, m_second_weights, m_second_bias, 1 + i, 2 + i);" in text


@pytest.mark.parametrize(
    ("name", "onto", "lost"),
    [
        ("middle", "held", r"step 1 \(one_top\): \d+ B of held do not hold its value but hold middle"),
        ("y", "middle", r"step 2 \(two_top\): \d+ B of middle do not hold its value but hold y"),
        ("y", "held", r"step 3 \(rows\): \d+ B of held do not hold its value but hold y"),
    ],
)
def test_a_wrong_plan_of_it_is_rejected(name: str, onto: str, lost: str) -> None:
    """While the loop runs, its input, its ring and its output are all alive."""
    program = ringed()
    program, plan = plan_memory(program, activations=PLATFORM.activations)
    moved = replace(plan.placements[name], offset=plan.placements[onto].offset)
    room = tuple(replace(arena, num_bytes=1 << 20) for arena in plan.arenas)
    with pytest.raises(PlanRejected, match=lost):
        validate(program, replace(plan, placements=plan.placements | {name: moved}, arenas=room))
