"""Loops that data end: `break` in the printed C, and the operations of the shortest run."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax, tirx

from codegen_c.tir.composite import lower_composite
from codegen_c.tir.end_loops import has_open_loops
from codegen_c.tir.plain_c import PlainC
from codegen_c.tir.repeat import repeat_step
from tvm_ext.core.decisions.composites import RepeatedStep
from tvm_ext.frontends.emitter import Emitter

SIZE, COUNT = 4, 50


def growing(*, begins: bool) -> PlainC:
    """x = 2 x @ w while the first element is below 100. begins: whether the first iteration surely runs."""
    builder = relax.BlockBuilder()
    emit = Emitter(builder)
    x, w = (
        relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in (("x", (1, SIZE)), ("w", (SIZE, SIZE)))
    )
    with builder.function("main", [x, w]):
        with builder.dataflow():
            after = builder.emit(emit.multiply(emit.matmul(x, w), 2.0))
            first = emit.reshaped(emit.slice(emit.slice(after, 0, 0, 1), 1, 0, 1), ())
            results = builder.emit_output(relax.Tuple([emit.less(first, 100.0), after]))
        builder.emit_func_output(results)
    loop = repeat_step(builder.get()["main"], RepeatedStep(count=COUNT, num_states=1, is_open=True))
    whole = relax.BlockBuilder()
    given = [relax.Var(one.name, one.ty) for one in (x, w)]
    condition = relax.Var("go", relax.TensorType((), "bool"))
    with whole.function("main", [*([] if begins else [condition]), *given]):
        with whole.dataflow():
            name = whole.add_func(loop.function, "loop")
            first = relax.const(True, "bool") if begins else condition
            types = [relax.TensorType((), "int32"), x.ty]
            made = whole.emit_output(relax.call_tir(name, relax.Tuple([first, *given]), types))
        whole.emit_func_output(made)
    module = whole.get()
    lowered = lower_composite(module["main"], module)
    assert isinstance(lowered, PlainC)
    return lowered


@pytest.mark.parametrize(("begins", "least"), [(True, SIZE * SIZE), (False, 0)])
def test_a_loop_ends_where_its_condition_does(begins: bool, least: int) -> None:
    lowered = growing(begins=begins)
    assert "if (!going) {\n        break;\n    }" in lowered.function.body
    assert lowered.macs == COUNT * SIZE * SIZE and lowered.least_macs == least
    assert lowered.least_work is not None
    assert sum(lowered.least_work.values()) * 10 < sum(lowered.work.values())


def test_a_condition_that_nothing_changes_ends_no_loop() -> None:
    counter, zero = tirx.Var("i", "int32"), tirx.IntImm("int32", 0)
    flag, target = tirx.decl_buffer((1,), "bool", "flag"), tirx.decl_buffer((8,), "float32", "target")
    store = tirx.BufferStore(target, tirx.const(1.0, "float32"), [counter])
    loop = tirx.For(
        counter, zero, tirx.IntImm("int32", 8), tirx.ForKind.SERIAL,
        tirx.IfThenElse(tirx.BufferLoad(flag, [zero]), store, None),
    )  # fmt: skip
    assert not has_open_loops(loop)
    ends = tirx.BufferStore(flag, tvm.tirx.const(False, "bool"), [zero])
    inside = tirx.IfThenElse(tirx.BufferLoad(flag, [zero]), tirx.SeqStmt([store, ends]), None)
    assert has_open_loops(tirx.For(counter, zero, tirx.IntImm("int32", 8), tirx.ForKind.SERIAL, inside))
