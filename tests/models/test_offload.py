"""Models whose layers an accelerator computes: bytes of the core alone, whenever it computes; and what is refused."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tvm_ext
from codegen_c.backend.build import Compiled
from codegen_c.backend.share import check_driven, driver_names
from codegen_c.program.program import drivers_of
from codegen_c.program.steps import DriverWait, KernelCall
from tests.support.core_platforms import host_cores
from tests.support.offload_platforms import with_accelerator
from tests.support.onnx_models import model_of, weights
from tests.support.random_models import random_model
from tests.support.shared_runs import write_sources
from tests.support.sweeps import some_of
from tvm_ext.compilation.pipeline import compile_model
from tvm_ext.core.decisions.models import PortNames
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.execution.host_model import HostModel
from tvm_ext.frontends.load import load

HOST = with_accelerator("host")
Sample = dict[str, np.ndarray]


def branches() -> onnx.ModelProto:
    """A convolution beside a chain of pools and activations, both read at the end; and a dense layer."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1] * 4),
        helper.make_node("MaxPool", ["x"], ["p"], name="pool", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Relu", ["p"], ["r"], name="relu"),
        helper.make_node("Concat", ["c", "r"], ["j"], name="join", axis=1),
        helper.make_node("GlobalAveragePool", ["j"], ["g"], name="mean"),
        helper.make_node("Flatten", ["g"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "d"], ["y"], name="dense"),
    ]
    constants = {"w": weights(8, 4, 3, 3), "b": weights(8, seed=1), "d": weights(12, 5, seed=2)}
    return model_of(nodes, {"x": (1, 4, 12, 12)}, {"y": (1, 5)}, constants)


def compiled(
    model: onnx.ModelProto, folder: Path, platform: Platform = HOST, seed: int = 0, **options: Any
) -> tuple[Compiled, list[Sample]]:
    """The model in int8, and samples of it."""
    onnx.save(model, folder / "net.onnx")
    mod, rng = load(folder / "net.onnx"), np.random.default_rng(seed)
    params = dict(zip(PortNames.read(mod).inputs, mod["main"].params, strict=True))
    samples = [
        {
            name: rng.uniform(-1, 1, [int(n) for n in param.ty.shape]).astype(np.float32)
            for name, param in params.items()
        }
        for _ in range(3)
    ]
    chosen = BuildOptions(quantize="int8", name="net", verify=(), **options)
    found = compile_model(mod, platform, chosen, samples)[1]
    kinds = {port.source: port for port in found.interface.inputs}
    return found, [
        {name: rng.integers(-128, 128, port.shape).astype(port.dtype) for name, port in kinds.items()} for _ in range(2)
    ]


def answers(one: Compiled, folder: Path, samples: list[Sample], *flags: str) -> list[Sample]:
    write_sources(one, folder)
    with HostModel(folder, one.interface, flags=flags) as model:
        return [model.run(sample) for sample in samples]


def same(one: list[Sample], other: list[Sample]) -> bool:
    return all(a[name].tobytes() == b[name].tobytes() for a, b in zip(one, other, strict=True) for name in a)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("offload")


@pytest.fixture(scope="module")
def driven(folder: Path) -> Compiled:
    return compiled(branches(), folder)[0]


@pytest.fixture(scope="module")
def alone(folder: Path) -> tuple[Compiled, list[Sample], list[Sample]]:
    """The same model on the core alone, samples, and its answers."""
    found, samples = compiled(branches(), folder, processors=("cpu",))
    return found, samples, answers(found, folder / "alone", samples)


@pytest.mark.parametrize("seed", some_of([], sweep=range(2, 102)))
def test_accelerator_answers_as_the_core(seed: int, tmp_path: Path) -> None:
    model = random_model(seed, 8)
    found, samples = compiled(model, tmp_path)
    single, _ = compiled(model, tmp_path, processors=("cpu",))
    assert not drivers_of(single.program)
    expected = answers(single, tmp_path / "single", samples)
    assert same(expected, answers(found, tmp_path / "late", samples))
    assert same(expected, answers(found, tmp_path / "early", samples, "-DTVM_EXT_OFFLOAD_EARLY=1"))


def test_core_works_beside_the_accelerator(
    driven: Compiled, alone: tuple[Compiled, list[Sample], list[Sample]], tmp_path: Path
) -> None:
    """Between the start of the convolution and the wait for it, the core computes the other branch."""
    steps = driven.program.steps
    (start,) = (i for i, step in enumerate(steps) if isinstance(step, KernelCall) and "conv" in step.name)
    (wait,) = (i for i, step in enumerate(steps) if isinstance(step, DriverWait) and step.call is steps[start])
    assert any("pool" in step.name for step in steps[start + 1 : wait]), [step.name for step in steps]
    report = driven.placement
    assert report and report["makespan_cycles"] < report["single_processor"]["makespan_cycles"]
    _, samples, expected = alone
    assert same(expected, answers(driven, tmp_path / "late", samples))
    assert same(expected, answers(driven, tmp_path / "early", samples, "-DTVM_EXT_OFFLOAD_EARLY=1"))


def test_a_program_that_does_not_wait_gives_other_bytes(
    driven: Compiled, alone: tuple[Compiled, list[Sample], list[Sample]], tmp_path: Path
) -> None:
    """A wait behind all steps: what computes there has not computed when the result is read."""
    _, samples, expected = alone
    text = write_sources(driven, tmp_path / "bad") / "net.c"
    lines = text.read_text(encoding="utf-8").splitlines()
    (at,) = (i for i, line in enumerate(lines) if "npu_wait()" in line and "conv" in line)
    lines.insert(len(lines) - 3, lines.pop(at))
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with HostModel(tmp_path / "bad", driven.interface) as model:
        assert not same(expected, [model.run(sample) for sample in samples])


def test_two_cores_and_an_accelerator(tmp_path: Path) -> None:
    """Rows that both cores make are joined for the accelerator, which the first one starts."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], name="pool", kernel_shape=[5, 5], pads=[2] * 4),
        helper.make_node("Conv", ["p", "w"], ["y"], name="conv", pads=[1] * 4),
    ]
    model = model_of(nodes, {"x": (1, 8, 24, 24)}, {"y": (1, 8, 24, 24)}, {"w": weights(8, 8, 3, 3)})
    both = with_accelerator(host_cores(1_000_000_000, 1_000_000_000))
    found, samples = compiled(model, tmp_path, both)
    assert found.parallel and [steps.processor for steps in found.parallel.lists] == ["cpu", "cpu1"]
    assert drivers_of(found.program) and found.placement and found.placement["split_operators"] >= 1
    single, _ = compiled(model, tmp_path, both, processors=("cpu",))
    expected = answers(single, tmp_path / "single", samples)
    assert same(expected, answers(found, tmp_path / "late", samples))
    assert same(expected, answers(found, tmp_path / "early", samples, "-DTVM_EXT_OFFLOAD_EARLY=1"))


def test_dear_accelerators_get_nothing(tmp_path: Path) -> None:
    dear = with_accelerator("host", {"conv2d": {"cycles_per_mac": 1000.0}, "dense": {"cycles_per_call": 10**9}})
    found, _ = compiled(branches(), tmp_path, dear)
    assert not drivers_of(found.program)


def test_little_memory_keeps_the_accelerator(driven: Compiled, tmp_path: Path) -> None:
    """Where what lives on beside the accelerator does not fit, it is waited for at once, and still used."""
    tight, _ = compiled(branches(), tmp_path, ram=driven.plan.arena_bytes - 16)
    assert tight.plan.arena_bytes < driven.plan.arena_bytes
    assert drivers_of(tight.program)


def test_rows_of_the_application_beside_the_accelerator(
    alone: tuple[Compiled, list[Sample], list[Sample]], tmp_path: Path
) -> None:
    """The self-test lets each function fail; the run waits for the accelerator all the same, the next one is right."""
    _, samples, expected = alone
    fast = with_accelerator("host", clock_hz=10**12)
    found, _ = compiled(branches(), tmp_path, fast, io="stream")
    assert drivers_of(found.program)
    assert same(expected, answers(found, tmp_path / "late", samples))
    assert same(expected, answers(found, tmp_path / "early", samples, "-DTVM_EXT_OFFLOAD_EARLY=1"))
    rng = np.random.default_rng(0)
    calibration = [{"x": rng.uniform(-1, 1, (1, 4, 12, 12)).astype(np.float32)} for _ in range(3)]
    options = BuildOptions(io="stream", quantize="int8", name="net", verify=("host",))
    package = tvm_ext.build(load(tmp_path / "net.onnx"), fast, tmp_path / "package", options, calibration=calibration)
    done = subprocess.run(["make", "-s", "selftest"], cwd=package.folder, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("PASS")


def test_instances_are_refused(driven: Compiled) -> None:
    options = BuildOptions(context="caller")
    with pytest.raises(
        BadOptions, match=r"context = 'caller': steps run on npu, which several instances .* or processors = cpu"
    ):
        check_driven(driven.program, ("cpu",), options)
    check_driven(replace(driven.program, steps=()), ("cpu",), options)


def test_pipelines_have_no_accelerators() -> None:
    options = BuildOptions(placement_objective="throughput")
    with pytest.raises(BadOptions, match=r"placement_objective = 'throughput': npu is an accelerator, and no st"):
        options.offloads_of(HOST)
    assert not replace(options, processors=("cpu",)).offloads_of(HOST)


def test_names_of_drivers_are_not_a_model_s(tmp_path: Path) -> None:
    platform = with_accelerator("host", {"conv2d": {"start": "net_conv"}})
    found, _ = compiled(branches(), tmp_path, platform)
    assert "net_conv(&net_" in found.sources()["net.c"]
    assert all(step.name != "conv" for step in found.program.steps)
    npu = platform.processors[1]
    assert npu.offload
    taken = replace(npu, offload=replace(npu.offload, wait="net_run"))
    with pytest.raises(BadOptions, match="name = 'net': net_run is also a function of a driver of host"):
        driver_names(replace(platform, processors=(platform.processor, taken)), "net")
