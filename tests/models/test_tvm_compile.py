"""tvm.compile through our pipeline: TVM's virtual machine calls our C, in the process and from a library."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path

import numpy as np
import pytest
import tvm
from onnx import helper
from tvm import relax

import tvm_ext
from codegen_c.backend import tvm_regions
from tests.support.onnx_models import SMALL_MODELS, model_of, saved, weights
from tests.support.packages import assert_close
from tests.support.refusing import refuse
from tests.support.state_models import frames
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, errors
from tvm_ext.verification.input_ranges import input_ranges, random_inputs
from tvm_ext.verification.reference_runtimes.onnxruntime_runtime import onnx_outputs

NODE = helper.make_node


def run(
    executable: object, inputs: list[np.ndarray], devices: Sequence[object] = ()
) -> tuple[list[np.ndarray], list[str]]:
    """Outputs, and the names of all functions the virtual machine called, in order. devices: by default the host."""
    machine = relax.VirtualMachine(executable, list(devices) or tvm.cpu())
    called: list[str] = []

    def watch(_function: object, name: str, before: bool, *_: object) -> int:
        if before:
            called.append(str(name))
        return 0

    machine.set_instrument(watch)
    result = machine["main"](*(tvm.runtime.tensor(array) for array in inputs))
    outputs = [result.numpy()] if isinstance(result, tvm.runtime.Tensor) else [field.numpy() for field in result]
    return outputs, [name for name in called if not name.startswith("vm.")]


@pytest.mark.parametrize("name", some_of(["kws_fp32"], sweep=["kws_int8", "resnet_fp32", "resnet_int8"]))
def test_shared_models(shared_models: Path, tmp_path: Path, packages, name: str) -> None:
    """The one function called is ours; the exported library holds it, and gives the same bits."""
    stored = np.load(shared_models / f"{name}.npz")
    mod = tvm_ext.load(shared_models / f"{name}.onnx")
    executable = tvm.compile(mod, target="llvm", relax_pipeline=tvm_ext.relax_pipeline("host"))
    (found,), called = run(executable, [stored["in0"]])
    assert called == [name]
    package = packages.shared(name)
    (expected,) = package.run({next(iter(package.inputs)): stored["in0"]}).values()
    np.testing.assert_array_equal(found, expected)

    library = tmp_path / "model.so"
    executable.export_library(str(library))
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    assert f" T __tvm_ffi_{name}\n" in symbols
    (again,), called = run(tvm.runtime.load_module(str(library)), [stored["in0"]])
    assert called == [name]
    np.testing.assert_array_equal(again, expected)


def test_without_our_pipeline_nothing_of_ours_is_called(shared_models: Path) -> None:
    stored = np.load(shared_models / "kws_fp32.npz")
    executable = tvm.compile(tvm_ext.load(shared_models / "kws_fp32.onnx"), target="llvm")
    _, called = run(executable, [stored["in0"]])
    assert called and "kws_fp32" not in called


@pytest.mark.parametrize("name", some_of([*SMALL_MODELS][1::2], sweep=[*SMALL_MODELS][::2]))
def test_small_models(tmp_path: Path, name: str) -> None:
    model = SMALL_MODELS[name]()
    mod = tvm_ext.load(saved(model, tmp_path, name))
    specs = {param.name: (tuple(int(d) for d in param.ty.shape.values), str(param.ty.dtype)) for param in _params(mod)}
    inputs = random_inputs(specs, seed=5, ranges=input_ranges(mod))
    executable = tvm.compile(mod, target="llvm", relax_pipeline=tvm_ext.relax_pipeline("cortex_m4"))
    found, called = run(executable, list(inputs.values()))
    (expected,) = onnx_outputs(model, [inputs])
    assert_close(dict(zip(expected, found, strict=True)), expected)
    assert called == [name]


def test_ports_of_the_caller(tmp_path: Path) -> None:
    model = SMALL_MODELS["two_inputs_two_outputs"]()
    mod = tvm_ext.load(saved(model, tmp_path))
    inputs = random_inputs({"left": ((2, 6), "float32"), "right": ((2, 6), "float32")}, seed=1)
    pipeline = tvm_ext.relax_pipeline("host", BuildOptions(io="caller", name="own_name"))
    found, called = run(tvm.compile(mod, target="llvm", relax_pipeline=pipeline), list(inputs.values()))
    (expected,) = onnx_outputs(model, [inputs])
    assert_close(dict(zip(expected, found, strict=True)), expected)
    assert called == ["own_name"]


def test_what_no_kernel_takes_is_left_to_tvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CumSum stays TVM's; before and behind it our regions run. The pipeline is found by its name."""
    refuse(monkeypatch, "cumsum")
    nodes = [
        NODE("MatMul", ["x", "w"], ["m"]),
        NODE("CumSum", ["m", "axis"], ["sum"]),
        NODE("Relu", ["sum"], ["y"]),
    ]
    constants = {"w": weights(6, 8), "axis": np.array(1)}
    model = model_of(nodes, {"x": (1, 6)}, ["y", "m"], constants)
    mod = tvm_ext.load(saved(model, tmp_path, "mixed"))
    inputs = random_inputs({"x": ((1, 6), "float32")}, seed=1)
    found, called = run(tvm.compile(mod, target="llvm", relax_pipeline="tvm_ext.host"), list(inputs.values()))
    (expected,) = onnx_outputs(model, [inputs])
    assert_close(dict(zip(expected, found, strict=True)), expected)
    assert [name for name in called if name.startswith("mixed")] == ["mixed_region", "mixed_region_2"]
    assert len(called) > 2


@pytest.mark.parametrize("fails", [False, True])
def test_regions_planned_by_services_are_the_same(fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four regions with TVM's CumSum between: by this process, by an executor that does each, and by one that fails."""
    refuse(monkeypatch, "cumsum")
    steps = [(f"x{i}", f"w{i}", f"m{i}", f"x{i + 1}") for i in range(4)]
    nodes = [
        node for x, w, m, y in steps for node in (NODE("MatMul", [x, w], [m]), NODE("CumSum", [m, "axis"], [y]))
    ]  # fmt: skip
    constants = {f"w{i}": weights(6, 6) + np.float32(i) for i in range(4)} | {"axis": np.array(1)}
    mod = tvm_ext.load(saved(model_of(nodes, {"x0": (1, 6)}, ["x4"], constants), tmp_path, "several"))
    if fails:
        monkeypatch.setattr(tvm_regions.region_job, "__name__", "nothing_of_this_name")
    written: list[dict[str, object]] = []
    real = tvm_regions._object
    monkeypatch.setattr(
        tvm_regions,
        "_object",
        lambda symbol, texts, *of: (written[-1].update({symbol: texts}), real(symbol, texts, *of))[1],
    )
    done: list[bool] = []
    for executor in (None, Counting(done)):
        written.append({})
        tvm.compile(mod, target="llvm", relax_pipeline=tvm_ext.relax_pipeline("host", executor=executor))
    assert done == [not fails] * 3
    assert len(written[0]) == 4
    assert written[0] == written[1]


class Counting(Executor):
    """Does at once what it is given, and keeps if it came to an end."""

    def __init__(self, done: list[bool]) -> None:
        self._done = done

    def submit(self, fn: Callable[..., bytes], /, *args: object, **kwargs: object) -> Future[bytes]:
        future = Future[bytes]()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        self._done.append(future.exception() is None)
        return future


def test_jobs_that_are_none_are_refused() -> None:
    with pytest.raises(errors.BadOptions, match="jobs = 0"):
        tvm_ext.relax_pipeline("host", jobs=0)


def test_errors_come_through_as_what_they_are(tmp_path: Path) -> None:
    mod = tvm_ext.load(saved(SMALL_MODELS["branches"](), tmp_path))
    with pytest.raises(errors.DoesNotFit, match="ram of host may give 64 B"):
        tvm.compile(mod, target="llvm", relax_pipeline=tvm_ext.relax_pipeline("host", BuildOptions(ram=64)))


@pytest.mark.parametrize("platform", ["host", "cortex_m4", "cortex_m55"])
def test_pipelines_are_known_by_name(platform: str) -> None:
    assert tvm_ext.load is not None
    assert relax.get_pipeline(f"tvm_ext.{platform}") is not None


def test_an_output_that_is_an_input_and_one_that_is_constant(tmp_path: Path) -> None:
    table = weights(2)
    model = model_of([NODE("Relu", ["x"], ["y"])], {"x": (1, 4)}, ["c", "x", "y"], {"c": table})
    mod = tvm_ext.load(saved(model, tmp_path))
    x = np.array([[-1, 0, 1, 2]], np.float32)
    found, _ = run(tvm.compile(mod, target="llvm", relax_pipeline=tvm_ext.relax_pipeline("host")), [x])
    for array, wanted in zip(found, (table, x, np.maximum(x, 0)), strict=True):
        np.testing.assert_array_equal(array, wanted)


def _params(mod: tvm.IRModule) -> list[relax.Var]:
    return list(mod["main"].params)


@pytest.mark.parametrize("ram", [None, 4096])
def test_states_are_the_callers(ram: int | None, tmp_path: Path) -> None:
    """Inputs and outputs behind the others, in the layout of the model, which a package would turn; over 20 steps."""
    model = frames()
    mod = tvm_ext.load(saved(model, tmp_path), states={"before": "before.next"})
    pipeline = tvm_ext.relax_pipeline("host", BuildOptions(ram=ram, name="stepped"))
    executable = tvm.compile(mod, target="llvm", relax_pipeline=pipeline)
    random = np.random.default_rng(0)
    samples = [{"x": random.standard_normal((1, 8, 1, 1)).astype(np.float32)} for _ in range(20)]
    held = np.zeros((1, 8, 4, 1), np.float32)
    wanted = onnx_outputs(model, samples, (), [{"name": "before", "output": "before.next", "initial": held}])
    for sample, expected in zip(samples, wanted, strict=True):
        (found, held), called = run(executable, [sample["x"], held])
        assert called == ["stepped"] and held.shape == (1, 8, 4, 1)
        assert_close({"y": found}, {"y": expected["y"]})
