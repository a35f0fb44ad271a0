"""Decisions as attributes: what is written is read, defaults are not written, and take back what was."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax

from relay_passes.own_operators import move
from tvm_ext.core.decisions.composites import (
    ColumnStrip,
    CompositeKind,
    ModelTensor,
    MoveTarget,
    OperatorMemories,
    PortsOutside,
    Region,
    RowSplit,
    SourceNodes,
    StorageLayout,
    StoredWeights,
    StreamDirection,
    Symbol,
)
from tvm_ext.core.decisions.decision import Decision
from tvm_ext.core.decisions.models import (
    AttentionInParts,
    InputDemands,
    LoadLimits,
    ModelOrigin,
    PortNames,
    PredictedTime,
    QuantizationMeasured,
    Recomputed,
    SchedulePeak,
    SplitCost,
)
from tvm_ext.core.limits import Limits
from tvm_ext.core.model_nodes import ModelNode

OF_FUNCTIONS = [
    RowSplit(sequence="sequence_0", rows_per_call=2, input_rows=12),
    ColumnStrip(columns=(0, 9)),
    StreamDirection(direction="read", rereads=True),
    PortsOutside(is_set=True),
    OperatorMemories(memory="dtcm", weights_memory="itcm", weights_ahead=3, scratch_memory="sram"),
    CompositeKind(kind="nn_conv2d", is_primitive=True),
    SourceNodes(nodes=("Conv_0", "Relu")),
    StorageLayout(axes=(0, 2, 3, 1)),
    ModelTensor(name="features.0"),
    StoredWeights(bits=4),
    Region(codegen="tvm_ext", parameters=("x",)),
    Symbol(name="main"),
    SchedulePeak(peak_bytes=128, proved=False),
    SplitCost(peak_bytes=64, instructions=1000),
    Recomputed(operators=1, instructions=100, at_least=90),
    AttentionInParts(parts=4),
    PredictedTime(cycles=10, cycles_at_home=20),
]
OF_MODULES = [
    ModelOrigin(
        path="m.onnx", source_format="onnx", sha256="0" * 64, name="m", rounding="tflite",
        nodes=(ModelNode(name="Conv_0", operator="Conv", inputs=("x",), outputs=("日本 語",)),),
    ),
    PortNames(inputs=("x",), outputs=("y", "日本 語")),
    LoadLimits(limits=Limits(tensor_bytes=4096)),
    InputDemands(ranges={"x": (0.0, 4.0)}),
    QuantizationMeasured(report={"samples": 3, "operators": []}),
]  # fmt: skip


def function() -> relax.Function:
    x = relax.Var("x", relax.TensorType([4], "float32"))
    return relax.Function([x], x, x.ty, True)


def module() -> tvm.IRModule:
    return tvm.IRModule({"main": Symbol(name="main").write(function())})


@pytest.mark.parametrize("decision", OF_FUNCTIONS, ids=lambda decision: type(decision).__name__)
def test_a_function_carries_it(decision: Decision) -> None:
    plain = function()
    written = decision.write(plain)
    assert type(decision).read(written) == decision
    assert type(decision).read(plain) == type(decision)() == type(decision).read(None) != decision
    assert type(decision)().attributes() == {}
    # It survives a module's text and JSON, where containers and numbers are TVM's own.
    mod = tvm.IRModule({"main": written if isinstance(decision, Symbol) else Symbol(name="main").write(written)})
    for again in (tvm.ir.load_json(tvm.ir.save_json(mod)), tvm.script.from_source(mod.script(show_meta=True))):
        assert type(decision).read(again["main"]) == decision


@pytest.mark.parametrize("decision", OF_MODULES, ids=lambda decision: type(decision).__name__)
def test_a_module_carries_it(decision: Decision) -> None:
    written = decision.write(module())
    assert type(decision).read(written) == decision
    assert type(decision).read(module()) == type(decision)() != decision
    assert type(decision).read(tvm.ir.load_json(tvm.ir.save_json(written))) == decision


def test_a_default_takes_back_what_was_written() -> None:
    near = OperatorMemories(memory="dtcm", weights_memory="dtcm", weights_ahead=1).write(function())
    moved = OperatorMemories(memory="sram").write(near)
    assert OperatorMemories.read(moved) == OperatorMemories(memory="sram") and sorted(moved.attrs.keys()) == ["memory"]
    assert not OperatorMemories().write(moved).attrs


def test_others_stay() -> None:
    both = StreamDirection(direction="read").write(ColumnStrip(columns=(3, 7)).write(function()))
    assert ColumnStrip.read(both).columns == (3, 7) and StreamDirection.read(both).direction == "read"
    assert ColumnStrip.read(StreamDirection().write(both)).columns == (3, 7)


def test_a_call_carries_its_target() -> None:
    x = relax.Var("x", relax.TensorType([4], "float32"))
    assert MoveTarget.read(move(x, "dtcm")) == MoveTarget(memory="dtcm")
    assert MoveTarget.read(move(x, "dtcm", 0)) == MoveTarget(memory="dtcm", within=0)
