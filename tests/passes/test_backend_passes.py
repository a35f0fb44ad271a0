"""Passes for back ends of TVM's virtual machine: runs as functions, tensors on devices; and the order of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import tvm
from onnx import helper
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_ext
from relay_passes.dataflow import bindings, build, infer
from relay_passes.processors.move_to_devices import BackendDevice, MoveToDevices
from relay_passes.processors.outline_backends import OutlineBackends
from relay_passes.processors.tvm_costs import TvmCosts
from relay_passes.regions.form_composites import FormComposites
from relay_passes.solvers.processors.runs import in_runs, num_runs
from tests.passes.modules import without_spans
from tests.passes.stub_backend import StubBackend
from tests.support.mixed_platforms import llvm, mixed
from tests.support.onnx_models import model_of, saved, weights
from tests.support.virtual_machine import run
from tvm_ext import BuildOptions, Placing
from tvm_ext.core.decisions.composites import CompositeKind, OperatorProcessor, QuantizedRounding
from tvm_ext.core.platform import Processor
from tvm_ext.core.platform_parts import TvmBackend
from tvm_ext.relax.placement import Stopwatch, operator_key


@I.ir_module
class Chain:
    """Three operators, of which the middle two are another back end's."""

    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        R.func_attr({"global_symbol": "main"})
        with R.dataflow():
            a = R.exp(x)
            b = R.nn.softmax(a)
            c = R.nn.relu(b)
            y = R.add(c, a)
            R.output(b, y)
        return (b, y)


def placed(processor: str) -> tvm.IRModule:
    mod = FormComposites(StubBackend(max_operators=1))(without_spans(Chain)).clone()
    for binding in bindings(mod["main"])[1:3]:
        mod.update_func(binding.value.op, OperatorProcessor(processor=processor).write(mod[binding.value.op]))
    return mod


def test_a_run_becomes_a_function() -> None:
    """Plain operators, with their processor; results are those read outside or returned. Others stay."""
    before = placed("gpu")
    after = OutlineBackends(["gpu"], "net")(before)
    (outlined,) = [func for var, func in after.functions_items() if var.name_hint == "net_gpu"]
    assert OperatorProcessor.read(outlined).processor == "gpu"
    assert [b.value.op.name for b in bindings(outlined)] == ["relax.nn.softmax", "relax.nn.relu"]
    assert len(outlined.params) == 1 and len(outlined.body.body.fields) == 2
    calls = [b.value.op.name_hint for b in bindings(after["main"]) if isinstance(b.value, relax.Call)]
    assert calls == ["a", "net_gpu", "y"]
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    np.testing.assert_array_equal(run(after, x), run(before, x))
    tvm.ir.assert_structural_equal(OutlineBackends(["npu"], "net")(before), before)


def test_tensors_of_a_gpu_lie_there() -> None:
    """As far as this TVM compiles for one: kernels have threads and the target, values are copied there and back."""
    outlined = relax.get_pipeline("zero")(plain(OutlineBackends(["gpu"], "net")(placed("gpu"))))
    device = BackendDevice(processor="gpu", target=tvm.target.Target("cuda"), number=0)
    after = MoveToDevices(tvm.target.Target("llvm"), [device])(outlined)
    kernels = {var.name_hint: func.script() for var, func in after.functions_items() if var.name_hint.endswith("_gpu")}
    loops = [text for name, text in kernels.items() if name != "net_gpu"]
    assert loops and all("threadIdx.x" in text and '"kind": "cuda"' in text for text in loops)
    text = after.script()
    assert text.count("R.to_vdevice") == 3 and text.count('dst_vdevice="cuda:0:global"') == 1
    assert str(after["net_gpu"].params[0].ty.vdevice.target.kind) == "cuda"
    assert relax.get_pipeline("default_build")(after) is not None
    other = BackendDevice(processor="npu", target=device.target, number=0)
    tvm.ir.assert_structural_equal(MoveToDevices(tvm.target.Target("llvm"), [other])(outlined), outlined)


def plain(module: tvm.IRModule) -> tvm.IRModule:
    """Composites as the plain functions they are."""
    changed = module.clone()
    for var, func in module.functions_items():
        if isinstance(func, relax.Function) and func.attrs and "Composite" in func.attrs:
            changed.update_func(var, func.without_attr("Composite").without_attr("Primitive"))
    return changed


def orders(makers: Sequence[Sequence[int]], done: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """All orders in which each task stands behind those whose values it reads."""
    ready = [task for task, own in enumerate(makers) if task not in done and set(own) <= set(done)]
    return [order for task in ready for order in orders(makers, (*done, task))] if ready else [done]


@pytest.mark.parametrize("seed", range(40))
def test_few_runs(seed: int) -> None:
    """An order that works, never of more runs than the one given; of two back ends, the fewest that there can be."""
    random = Random(seed)
    makers = [sorted(random.sample(range(task), min(task, random.choice([0, 1, 1, 2])))) for task in range(7)]
    processors = [random.randrange(2) for _ in makers]
    order = in_runs(makers, processors)
    assert order in (all_orders := orders(makers))
    assert num_runs(order, processors) == min(num_runs(other, processors) for other in all_orders)
    assert in_runs(makers, [0] * len(makers)) == tuple(range(len(makers)))
    assert in_runs([], []) == ()


def test_equal_operators_have_one_key() -> None:
    """Names and constants are no part of a key; another attribute, shape or operand is another operator."""
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))

    def key(source: relax.Call, name: str = "y") -> str:
        result = relax.VarBinding(relax.Var(name, x.ty), infer(source))
        return operator_key(build([x], [result], [result.var]))

    one, other = (relax.const(np.full(3, value, np.float32)) for value in (1, 2))
    assert key(relax.op.add(x, one)) == key(relax.op.add(x, other), "z")
    different = [relax.op.add(x, x), relax.op.add(one, x), relax.op.nn.softmax(x, 0), relax.op.nn.softmax(x, 1)]
    assert len({key(one) for one in [relax.op.add(x, one), *different]}) == 5


@pytest.mark.parametrize(
    ("meaning", "operators", "taken"),
    [("onnx", (), True), ("tflite", (), False), ("onnx", ("a",), False), ("onnx", ("exp",), True)],
)
def test_what_code_of_tvm_takes(meaning: str, operators: tuple[str, ...], taken: bool) -> None:
    """It takes all that the platform leaves to it, but for integers that TensorFlow Lite rounds in its own way."""
    formed = FormComposites(StubBackend(max_operators=1))(without_spans(Chain))
    composite = QuantizedRounding(meaning=meaning).write(formed["a"])
    made_by = TvmBackend(target="llvm", operators=operators, bytes_per_second=1e9, seconds_per_call=1e-6)
    cost = TvmCosts(processor=Processor(name="llvm", isa="host", clock_hz=1, kind="tvm", tvm=made_by))
    assert cost.nanoseconds(composite) == (1000 + 2 * 4 * 8 * 4 if taken else None)


def squares(path: Path) -> tvm.IRModule:
    """Four products by constants of one shape, one more of another, and running sums between them."""
    nodes = []
    for layer in range(5):
        nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"m{layer}"]))
        nodes.append(helper.make_node("CumSum", [f"m{layer}", "axis"], [f"x{layer + 1}"]))
    constants = {f"w{layer}": weights(6, 6 if layer < 4 else 3, seed=layer) for layer in range(5)}
    constants["axis"] = np.array(1)
    return tvm_ext.load(saved(model_of(nodes, {"x0": (1, 6)}, ["x5"], constants), path))


def test_equal_operators_are_timed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[str] = []

    def stopped(_watch: Stopwatch, composite: relax.Function, processor: str) -> float:
        timed.append(f"{CompositeKind.read(composite).kind} {processor}".strip())
        return 1e-6 if processor else 3e-6

    monkeypatch.setattr(Stopwatch, "_timed", stopped)
    placed = tvm_ext.place(squares(tmp_path), mixed(llvm()), placing=Placing(measure=True))
    per_kind = {"matmul": 2, "matmul llvm": 2, "cumsum": 2, "cumsum llvm": 2, "nn_relu": 1}
    assert {kind: timed.count(kind) for kind in timed} == per_kind
    assert {row["processor"] for row in placed.report["operators"]} == {"cpu"}
    assert {row["seconds"]["cpu"] for row in placed.report["operators"]} == {1e-9}, "a call of it is taken off"


def test_the_least_energy(tmp_path: Path) -> None:
    """The slower one, where the faster takes far more power."""
    mod, platform = squares(tmp_path), mixed(llvm(slow=1e15))
    powered = [replace(one, watts=watts) for one, watts in zip(platform.processors, (0.001, 1e5), strict=True)]
    platform = replace(platform, processors=tuple(powered))
    fast, frugal = (
        tvm_ext.place(mod, platform),
        tvm_ext.place(mod, platform, BuildOptions(placement_objective="energy")),
    )
    assert {row["processor"] for row in fast.report["operators"]} == {"llvm"}
    assert {row["processor"] for row in frugal.report["operators"]} == {"cpu"}
