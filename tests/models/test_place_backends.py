"""Operators shared among our C, TVM's own code and a BYOC back end, and run as a mix in TVM's virtual machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from onnx import helper

import tvm_ext
from relay_passes.dataflow import bindings
from tests.models.test_tvm_compile import run
from tests.support import toy_byoc
from tests.support.mixed_platforms import llvm, mixed, toy
from tests.support.onnx_models import SMALL_MODELS, model_of, saved, weights
from tests.support.packages import assert_close
from tests.support.refusing import refuse
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Placing
from tvm_ext.core.decisions.composites import OperatorProcessor
from tvm_ext.core.platform import Link, Memory
from tvm_ext.verification.input_ranges import input_ranges, random_inputs
from tvm_ext.verification.reference_runtimes.onnxruntime_runtime import onnx_outputs

NODE = helper.make_node
EVEN = 1e9


def inputs_of(mod: tvm.IRModule, seed: int = 3) -> dict[str, np.ndarray]:
    specs = {p.name: (tuple(int(d) for d in p.ty.shape.values), str(p.ty.dtype)) for p in mod["main"].params}
    return random_inputs(specs, seed=seed, ranges=input_ranges(mod))


def checked(placed: tvm_ext.PlacedModule, model: Any, inputs: dict[str, np.ndarray]) -> list[str]:
    """Functions that the virtual machine called, once outputs are those of onnxruntime."""
    found, called = run(placed.compile(), list(inputs.values()), placed.devices)
    (expected,) = onnx_outputs(model, [inputs])
    assert_close(dict(zip(expected, found, strict=True)), expected)
    return called


def on(placed: tvm_ext.PlacedModule) -> dict[str, str]:
    """The processor of each operator of the report."""
    return {row["name"]: row["processor"] for row in placed.report["operators"]}


def test_costs_of_the_platform_split_a_network(tmp_path: Path) -> None:
    """Convolutions go to TVM, all else stays: the decision stands in the module, and the mix computes the model."""
    model = SMALL_MODELS["branches"]()
    mod = tvm_ext.load(saved(model, tmp_path))
    placed = tvm_ext.place(mod, mixed(llvm("nn_conv2d")))
    kinds = {row["name"]: row["kind"] for row in placed.report["operators"]}
    assert {name for name, processor in on(placed).items() if processor == "llvm"} == {
        name for name, kind in kinds.items() if kind == "nn_conv2d"
    }
    said = {
        b.value.op.name_hint: OperatorProcessor.read(placed.module[b.value.op]).processor for b in placed_calls(placed)
    }
    assert {name: said[name] or "cpu" for name in on(placed)} == on(placed)
    assert 'processor": "llvm"' in placed.module.script()
    called = checked(placed, model, inputs_of(mod))
    ours = [name for name in called if name.startswith("small_region")]
    theirs = [name for name in called if name.startswith("small_llvm")]
    assert ours and theirs and len(ours) <= 2, called
    alone = placed.report["single_processor_seconds"]
    assert placed.report["total_seconds"] <= min(alone.values())
    assert json.loads(json.dumps(placed.report)) == placed.report
    assert all(name in placed.table() for name in (*kinds, "cpu us", "llvm us", "predicted"))


def placed_calls(placed: tvm_ext.PlacedModule) -> list[Any]:
    return [b for b in bindings(placed.module["main"]) if isinstance(b.value, tvm.relax.Call)]


SOME = ("gathers", "unused_input")


@pytest.mark.parametrize("name", some_of(SOME, sweep=[name for name in SMALL_MODELS if name not in SOME]))
@pytest.mark.parametrize("fast", ["", "nn_conv2d nn_relu matmul take nn_softmax"])
def test_small_models(name: str, fast: str, tmp_path: Path) -> None:
    """All that can leaves our C, or every second kind."""
    model = SMALL_MODELS[name]()
    mod = tvm_ext.load(saved(model, tmp_path, name))
    platform = mixed(llvm(*fast.split())) if fast else mixed(llvm(slow=1e15))
    placed = tvm_ext.place(mod, platform)
    checked(placed, model, inputs_of(mod))


@pytest.mark.parametrize("name", some_of(SOME[:1], sweep=[name for name in SMALL_MODELS if name not in SOME[:1]]))
def test_any_mix(name: str, tmp_path: Path) -> None:
    """Each operator where chance puts it."""
    model, random = SMALL_MODELS[name](), np.random.default_rng(len(name))
    mod, platform = tvm_ext.load(saved(model, tmp_path, name)), mixed(llvm(slow=EVEN))
    both = [row for row in tvm_ext.place(mod, platform).report["operators"] if None not in row["seconds"].values()]
    forced = {row["name"]: str(random.choice(["cpu", "llvm"])) for row in both}
    placed = tvm_ext.place(mod, platform, placing=Placing(forced=forced))
    assert forced.items() <= on(placed).items()
    checked(placed, model, inputs_of(mod))


def dense_network() -> Any:
    """Two dense layers, relu behind the first, running sums between them, softmax at the end."""
    nodes = [
        NODE("MatMul", ["x", "w0"], ["a"], name="first"),
        NODE("Add", ["a", "b0"], ["b"]),
        NODE("Relu", ["b"], ["c"]),
        NODE("CumSum", ["c", "axis"], ["d"], name="sums"),
        NODE("MatMul", ["d", "w1"], ["e"], name="second"),
        NODE("Softmax", ["e"], ["y"], name="end"),
    ]
    constants = {"w0": weights(12, 8), "b0": weights(8, seed=1), "w1": weights(8, 5, seed=2), "axis": np.array(1)}
    return model_of(nodes, {"x": (1, 12)}, ["y"], constants)


@pytest.fixture
def dense(tmp_path: Path) -> tuple[Any, tvm.IRModule]:
    model = dense_network()
    return model, tvm_ext.load(saved(model, tmp_path, "dense"))


def test_a_back_end_from_outside(dense: tuple[Any, tvm.IRModule]) -> None:
    """It takes the products that its pattern covers; TVM runs what was fused behind them, our C the rest."""
    model, mod = dense
    toy_byoc.register()
    placed = tvm_ext.place(mod, mixed(toy()))
    assert on(placed) == {"first": "npu", "sums": "cpu", "second": "npu", "end": "cpu"}
    cannot = {row["name"] for row in placed.report["operators"] if row["seconds"]["npu"] is None}
    assert cannot == {"sums", "end"}
    assert placed.report["single_processor_seconds"]["npu"] is None
    called = checked(placed, model, inputs_of(mod))
    assert [name for name in called if "toy" in name] == ["dense_npu_toy", "dense_npu_2_toy"]
    assert [name for name in called if "region" in name] == ["dense_region", "dense_region_2"]


def test_three_at_once(dense: tuple[Any, tvm.IRModule]) -> None:
    model, mod = dense
    toy_byoc.register()
    placed = tvm_ext.place(mod, mixed(llvm("nn_softmax"), toy(EVEN)), placing=Placing(forced={"first": "npu"}))
    assert set(on(placed).values()) == {"cpu", "llvm", "npu"}
    checked(placed, model, inputs_of(mod))


def test_a_forced_choice(dense: tuple[Any, tvm.IRModule]) -> None:
    """By the model's own name, against the costs, and by nothing but the option of the pipeline."""
    model, mod = dense
    placing = Placing(forced={"sums": "llvm"})
    pipeline = tvm_ext.relax_pipeline(mixed(llvm()), placing=placing)
    inputs = inputs_of(mod)
    found, called = run(tvm.compile(mod, target="llvm", relax_pipeline=pipeline), list(inputs.values()))
    (expected,) = onnx_outputs(model, [inputs])
    assert_close(dict(zip(expected, found, strict=True)), expected)
    assert called == ["dense_region", "dense_llvm", "cumsum", "dense_region_2"]
    assert on(tvm_ext.place(mod, mixed(llvm()), placing=placing))["sums"] == "llvm"


def test_a_placed_module_keeps_what_it_says(dense: tuple[Any, tvm.IRModule]) -> None:
    """Decisions changed by a pass of the user's between placing and compiling are those that run."""
    _, mod = dense
    platform = mixed(llvm())
    placed = tvm_ext.place(mod, platform)
    assert set(on(placed).values()) == {"cpu"}
    changed = placed.module.clone()
    for binding in placed_calls(placed):
        decision = OperatorProcessor(processor="llvm")
        changed.update_func(binding.value.op, decision.write(changed[binding.value.op]))
    executable = tvm.compile(changed, target="llvm", relax_pipeline=tvm_ext.relax_pipeline(platform))
    _, called = run(executable, list(inputs_of(mod).values()))
    assert called[0] == "dense_llvm" and not [name for name in called if "region" in name]


def test_what_our_c_refuses_is_placed_too(dense: tuple[Any, tvm.IRModule], monkeypatch: pytest.MonkeyPatch) -> None:
    model, mod = dense
    refuse(monkeypatch, "cumsum")
    placed = tvm_ext.place(mod, mixed(llvm()))
    assert on(placed)["sums"] == "llvm"
    (row,) = [row for row in placed.report["operators"] if row["name"] == "sums"]
    assert row["seconds"]["cpu"] is None and placed.report["single_processor_seconds"]["cpu"] is None
    checked(placed, model, inputs_of(mod))


def test_the_same_again(dense: tuple[Any, tvm.IRModule]) -> None:
    _, mod = dense
    platform = mixed(llvm("matmul"))
    first, second = (tvm_ext.place(mod, platform) for _ in range(2))
    assert first.report == second.report and first.table() == second.table()
    tvm.ir.assert_structural_equal(first.module, second.module)


def test_measured(dense: tuple[Any, tvm.IRModule], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operator has a time on each back end that takes it; equal ones are timed once. No time is asserted."""
    model, mod = dense
    toy_byoc.register()
    placed = tvm_ext.place(mod, mixed(toy()), placing=Placing(measure=True))
    for row in placed.report["operators"]:
        assert row["seconds"]["cpu"] > 0
        assert (row["seconds"]["npu"] is not None) == (row["kind"] == "matmul")
    assert "measured" in placed.report["note"]
    assert placed.report["total_seconds"] <= placed.report["single_processor_seconds"]["cpu"]
    checked(placed, model, inputs_of(mod))


def test_one_core_beside_tvm_s_own_code(dense: tuple[Any, tvm.IRModule]) -> None:
    """The platform lists a core alone: what TVM makes for this machine is timed, too."""
    model, mod = dense
    first = tvm_ext.place(mod, mixed(llvm())).report["operators"][0]["name"]
    placed = tvm_ext.place(mod, "host", placing=Placing(measure=True, forced={first: "llvm"}))
    assert all(row["seconds"]["cpu"] > 0 for row in placed.report["operators"])
    assert any(row["seconds"]["llvm"] is not None for row in placed.report["operators"])
    assert placed.report["operators"][0]["processor"] == "llvm"
    checked(placed, model, inputs_of(mod))


def test_a_memory_of_its_own(dense: tuple[Any, tvm.IRModule]) -> None:
    """A second memory of the host stands in for that of a device: values are copied there and back, at the link's rate,
    and where that takes longer than it saves, all stays."""
    model, mod = dense
    own = Memory(name="vram", kind="ram", capacity_bytes=1 << 20, read_bytes_per_cycle=1, write_bytes_per_cycle=1)

    def place(bytes_per_cycle: float) -> tvm_ext.PlacedModule:
        platform = mixed(llvm("matmul", "cumsum"))
        links = [
            Link(source="llvm", target="vram", bytes_per_cycle=1),
            Link(source="ram", target="vram", bytes_per_cycle=bytes_per_cycle, dma=True),
        ]
        return tvm_ext.place(
            mod, replace(platform, memories=(*platform.memories, own), links=(*platform.links, *links))
        )

    fast, slow = place(1e5), place(1e-3)
    assert set(on(slow).values()) == {"cpu"}
    assert on(fast) == {"first": "llvm", "sums": "llvm", "second": "llvm", "end": "cpu"}
    assert len(fast.devices) == 2 and fast.devices[1] == tvm.cpu(1)
    assert "vm.builtin.to_device" in fast.compile().as_text()
    checked(fast, model, inputs_of(mod))


def test_int8_in_a_mix_has_the_bytes_of_our_c(tmp_path: Path) -> None:
    """TVM computes a quantized convolution in floats between dequantize and quantize."""
    mod = tvm_ext.load(saved(SMALL_MODELS["image_in_and_out"](), tmp_path))
    samples = np.random.default_rng(0).standard_normal((8, 3, 12, 10)).astype(np.float32)
    options, platform = BuildOptions(quantize="int8"), mixed(llvm())
    results = []
    for forced in ({}, {"head": "llvm"}):
        placing = Placing(forced=forced)
        placed = tvm_ext.place(mod, platform, options, calibration={"x": samples}, placing=placing)
        assert on(placed)["head"] == forced.get("head", "cpu")
        image = np.random.default_rng(1).integers(-128, 128, (1, 3, 12, 10)).astype(np.int8)
        results.append(run(placed.compile({"kind": "llvm"}), [image])[0][0])
    assert results[0].dtype == np.int8 and results[0].std() > 1
    np.testing.assert_array_equal(*results)
