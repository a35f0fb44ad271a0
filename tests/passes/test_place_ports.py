"""PlacePorts: ports in memories of the user's choice; they take no bytes of the default memory, nor of a search's."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax

from codegen_c.backend.byoc import CodegenBackend
from codegen_c.costs.predict import time_model
from codegen_c.targets.registry import target_of
from relay_passes.dataflow import build
from relay_passes.memory.assign_memories import AssignMemories
from relay_passes.memory.memory_problem import whole_problem
from relay_passes.memory.place_ports import PlacePorts
from relay_passes.regions.form_composites import FormComposites
from relay_passes.searched import Searched
from tvm_ext.core.decisions.composites import PlacedPorts
from tvm_ext.core.decisions.models import PortNames
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.platform import Platform

PLATFORM = Platform.load("always_on")
BACKEND = CodegenBackend(target=target_of(PLATFORM.processor))
BYTES = 4096


def module() -> tvm.IRModule:
    """main(x, other) = exp(x), tanh(other)."""
    x, other = (relax.Var(name, relax.TensorType((BYTES // 4,), "float32")) for name in ("x", "other"))
    values = [relax.BlockBuilder().normalize(value) for value in (relax.op.exp(x), relax.op.tanh(other))]
    first, second = (relax.Var(name, x.ty) for name in ("first", "second"))
    bound = [relax.VarBinding(var, value) for var, value in zip((first, second), values, strict=True)]
    mod = tvm.IRModule({"main": build([x, other], bound, [first, second], as_tuple=True)})
    names = PortNames(inputs=("the x", "other"), outputs=("the y", "second"))
    return FormComposites(BACKEND)(names.write(mod))


def test_main_says_the_memory_of_each_port() -> None:
    before = module()
    after = PlacePorts({"the x": "dtcm", "second": "dtcm"})(before)
    placed = PlacedPorts.read(after["main"])
    assert (placed.inputs, placed.outputs) == (("dtcm", ""), ("", "dtcm"))
    assert '"placed_inputs"' in after.script()
    tvm.ir.assert_structural_equal(PlacedPorts().write(after["main"]), before["main"])


def test_nothing_is_said_of_ports_that_stay() -> None:
    after = PlacePorts({})(module())
    assert not Searched(mod=after, backend=BACKEND).placed


def test_a_name_of_no_port_is_refused() -> None:
    with pytest.raises(BadOptions, match=r"no input or output 'x'; it has the x, other, the y, second"):
        PlacePorts({"x": "dtcm"})(module())


def test_placed_ports_take_no_bytes_and_their_memory_has_less() -> None:
    known = Searched(mod=PlacePorts({"the x": "dtcm", "the y": "dtcm"})(module()), backend=BACKEND)
    plain = Searched(mod=module(), backend=BACKEND)
    (x,), (first,) = known.operators.nodes[0].reads, known.operators.nodes[0].writes
    assert known.placed == {x: "dtcm", first: "dtcm"} and known.placed_bytes == {"dtcm": 2 * BYTES}
    assert [value for value, size in enumerate(known.graph.sizes) if not size] == sorted({x, first})
    assert all(plain.graph.sizes)
    assert not known.graph.nodes[0].shared_bytes and plain.graph.nodes[0].shared_bytes, "nor is one written over"


def test_a_search_counts_their_cycles_where_they_are() -> None:
    """In the near memory a step that reads its port there takes fewer, and nothing is gained by moving it."""
    time, limits = time_model(PLATFORM), {"sram": 1 << 20, "dtcm": 1 << 16}
    modules = module(), PlacePorts({"the x": "dtcm"})(module())
    plain, placed = (whole_problem(Searched(mod=mod, backend=BACKEND), BACKEND, time, limits) for mod in modules)
    (value,) = plain.steps[0].reads
    wait = time.read_cycles("dtcm", BYTES, plain.steps[0].kernel.input)
    assert placed.steps[0].reads == {value: 0} and placed.sizes[value] == 0
    assert placed.steps[0].cycles == pytest.approx(plain.steps[0].cycles + wait)
    assert placed.steps[1] == plain.steps[1]
    assert wait < time.read_cycles("sram", BYTES, plain.steps[0].kernel.input)


def test_ports_left_to_the_search_take_their_bytes_and_get_a_memory() -> None:
    """The search writes the memory it finds: the near one, or none where nothing is gained."""
    mod = PlacePorts({"the x": "auto", "second": "auto"})(module())
    known = Searched(mod=mod, backend=BACKEND)
    (x,), (second,) = known.operators.nodes[0].reads, known.operators.nodes[1].writes
    assert known.free_ports == {x, second} and not known.placed and all(known.graph.sizes)
    for near_bytes, wanted in ((1 << 16, "dtcm"), (64, "")):
        after = AssignMemories(BACKEND, time_model(PLATFORM), {"sram": 1 << 20, "dtcm": near_bytes})(mod)
        placed = PlacedPorts.read(after["main"])
        if wanted:
            assert (placed.inputs, placed.outputs) == ((wanted, ""), ("", wanted))
        else:
            assert not {*placed.inputs, *placed.outputs} & {"dtcm", "sram"}
