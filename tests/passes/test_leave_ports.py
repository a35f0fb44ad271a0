"""LeavePorts: inputs and outputs take no bytes in a search, states do."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from codegen_c.backend.byoc import CodegenBackend
from codegen_c.targets.registry import target_of
from relay_passes.dataflow import build
from relay_passes.memory.place_ports import LeavePorts
from relay_passes.regions.form_composites import FormComposites
from relay_passes.searched import Searched
from tvm_ext.core.decisions.models import KeptStates
from tvm_ext.core.model_nodes import ModelState
from tvm_ext.core.platform import Platform

BACKEND = CodegenBackend(target=target_of(Platform.load("host").processor))
BYTES = 64


def module() -> tvm.IRModule:
    """main(x, kept): (exp(exp(x)), tanh(kept)), kept a state."""
    x, kept = (relax.Var(name, relax.TensorType((BYTES // 4,), "float32")) for name in ("x", "kept"))
    inner = relax.Var("inner", x.ty)
    values = [relax.BlockBuilder().normalize(v) for v in (relax.op.exp(x), relax.op.exp(inner), relax.op.tanh(kept))]
    outer, following = (relax.Var(name, x.ty) for name in ("outer", "following"))
    bound = [relax.VarBinding(var, value) for var, value in zip((inner, outer, following), values, strict=True)]
    states = KeptStates(states=(ModelState(name="kept", initial=np.zeros(BYTES // 4, np.float32)),))
    mod = tvm.IRModule({"main": build([x, kept], bound, [outer, following], as_tuple=True)})
    return FormComposites(BACKEND)(states.write(mod))


def test_ports_take_no_bytes_and_nothing_is_written_over_them() -> None:
    before = module()
    after = LeavePorts()(before)
    inside, outside = (Searched(mod=mod, backend=BACKEND).graph for mod in (before, after))
    exp, tanh = inside.nodes[0], inside.nodes[-1]
    (x,), (kept,), (outer,) = exp.reads, tanh.reads, inside.nodes[-2].writes
    for graph in (inside, outside):
        held = {x, outer} if graph is outside else set[int]()
        assert {value for value, size in enumerate(graph.sizes) if size == 0} == held
        assert graph.nodes[-1].shared_bytes == {kept: BYTES}
    assert [len(node.shared_bytes) for node in inside.nodes] == [1] * len(inside.nodes)
    assert [len(node.shared_bytes) for node in outside.nodes[:-1]] == [0] * (len(outside.nodes) - 1)
