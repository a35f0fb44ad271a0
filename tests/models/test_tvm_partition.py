"""tvm_ext as TVM's users know back ends: partitions, patterns, RunCodegen, readable C, cross compilers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from onnx import helper
from tvm import relax
from tvm.relax.backend import get_patterns_with_prefix

import tvm_ext
import tvm_ext.relax.partition
from codegen_c.backend.target_toolchain import toolchain_of
from tests.models.test_place_backends import dense_network, inputs_of
from tests.models.test_tvm_compile import run
from tests.support import toy_byoc
from tests.support.onnx_models import SMALL_MODELS, model_of, saved, weights
from tests.support.packages import assert_close
from tests.support.refusing import refuse
from tvm_ext import BuildOptions, errors
from tvm_ext.core.toolchain import installed
from tvm_ext.verification.reference_runtimes.onnxruntime_runtime import onnx_outputs

LLVM = "llvm"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, tvm.IRModule]:
    model = SMALL_MODELS["branches"]()
    return model, tvm_ext.load(saved(model, tmp_path_factory.mktemp("network")))


def compiled(mod: tvm.IRModule, **target_options: object) -> object:
    options = {"tvm_ext": target_options} if target_options else None
    return tvm.compile(relax.transform.RunCodegen(options)(mod), target=LLVM)


def in_pipeline(mod: tvm.IRModule, inputs: dict[str, np.ndarray], platform: str) -> list[np.ndarray]:
    executable = tvm.compile(mod, target=LLVM, relax_pipeline=tvm_ext.relax_pipeline(platform))
    return run(executable, list(inputs.values()))[0]


@pytest.mark.parametrize("platform", ["host", "cortex_m4"])
def test_partition_and_run_codegen(network: tuple[object, tvm.IRModule], platform: str) -> None:
    """The same bits as the pipeline, with platform and options on each region."""
    model, mod = network
    inputs = inputs_of(mod)
    regions = tvm_ext.partition_for_tvm_ext(mod, platform, BuildOptions(name="net"))
    assert regions["net"].attrs["Codegen"] == "tvm_ext"
    found, called = run(compiled(regions), list(inputs.values()))
    assert called == ["net"]
    (expected,) = onnx_outputs(model, [inputs])
    assert_close(dict(zip(expected, found, strict=True)), expected)
    for one, other in zip(found, in_pipeline(mod, inputs, platform), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("merged", [True, False])
def test_patterns_of_tvm(network: tuple[object, tvm.IRModule], merged: bool) -> None:
    """TVM's own passes partition by our registered patterns; the functions go through our passes after that."""
    model, mod = network
    inputs = inputs_of(mod)
    patterns = get_patterns_with_prefix("tvm_ext.")
    assert len({pattern.name for pattern in patterns}) == len(patterns) > 20
    partition = relax.transform.FuseOpsByPattern(patterns, bind_constants=True, annotate_codegen=not merged)
    passes = [partition, *([relax.transform.MergeCompositeFunctions()] if merged else [])]
    found, called = run(
        compiled(tvm.transform.Sequential(passes)(mod), platform="cortex_m4"), list(inputs.values())
    )  # fmt: skip
    ours = [name for name in called if name.startswith("fused_")]
    assert len(ours) >= (1 if merged else 3)
    (expected,) = onnx_outputs(model, [inputs])
    assert_close(dict(zip(expected, found, strict=True)), expected)


def test_options_of_run_codegen(network: tuple[object, tvm.IRModule]) -> None:
    _, mod = network
    patterns = get_patterns_with_prefix("tvm_ext.")
    fused = relax.transform.FuseOpsByPattern(patterns, bind_constants=True, annotate_codegen=True)(mod)
    with pytest.raises(errors.BadPlatform, match="cortex_m99"):
        compiled(fused, platform="cortex_m99")
    with pytest.raises(errors.BadOptions, match=r"options of RunCodegen for tvm_ext: .*'speedy'"):
        compiled(fused, speedy=True)


@pytest.mark.parametrize("symbol", ["theirs", "n" * 200])
def test_functions_of_any_pass(symbol: str, tmp_path: Path) -> None:
    """Another pass may assign a function of any symbol to us, also one that is longer than a file name."""
    node = helper.make_node("CumSum", ["x", "axis"], ["y"])
    mod = tvm_ext.load(saved(model_of([node], {"x": (1, 6)}, ["y"], {"axis": np.array(1)}), tmp_path))
    found, called = run(compiled(assigned(mod["main"], symbol)), [np.arange(6, dtype=np.float32).reshape(1, 6)])
    assert called == [symbol]
    np.testing.assert_array_equal(found[0], np.cumsum(np.arange(6, dtype=np.float32)).reshape(1, 6))


def test_a_function_that_our_c_cannot_compute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "cumsum")
    node = helper.make_node("CumSum", ["x", "axis"], ["y"])
    mod = tvm_ext.load(saved(model_of([node], {"x": (1, 6)}, ["y"], {"axis": np.array(1)}), tmp_path))
    with pytest.raises(errors.UnsupportedModel, match=r"theirs: our C cannot compute all operators .* Use tvm_ext"):
        compiled(assigned(mod["main"], "theirs"))


def assigned(function: relax.Function, symbol: str) -> tvm.IRModule:
    """A module whose main only calls a function that is assigned to us."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", function.params[0].ty)
    with builder.function("main", [x]):
        with builder.dataflow():
            ours = builder.add_func(function.with_attrs({"Codegen": "tvm_ext", "global_symbol": symbol}), symbol)
            result = builder.emit_output(relax.Call(ours, [x]))
        builder.emit_func_output(result)
    return builder.get()


def test_functions_of_another_back_end_stay(tmp_path: Path) -> None:
    """A vendor's patterns come first; our regions are what lies between its functions."""
    toy_byoc.register()
    model = dense_network()
    mod = tvm_ext.load(saved(model, tmp_path))
    inputs = inputs_of(mod)
    fuse = relax.transform.FuseOpsByPattern(
        get_patterns_with_prefix("toy."), bind_constants=True, annotate_codegen=True
    )
    vendors = fuse(mod)
    (expected,) = onnx_outputs(model, [inputs])
    pipeline = tvm_ext.relax_pipeline("host")
    for executable in (
        tvm.compile(vendors, target=LLVM, relax_pipeline=pipeline),
        compiled(tvm_ext.partition_for_tvm_ext(vendors, "host")),
    ):
        found, called = run(executable, list(inputs.values()))
        assert [name.startswith("fused_") for name in called] == [True, False, True, False]
        assert_close(dict(zip(expected, found, strict=True)), expected)


def test_the_c_is_readable_by_inspect_source(network: tuple[object, tvm.IRModule], tmp_path: Path) -> None:
    _, mod = network
    folder = tmp_path / "c"
    pipeline = tvm_ext.relax_pipeline("cortex_m4", BuildOptions(name="net"), dump=folder)
    executable = tvm.compile(mod, target=LLVM, relax_pipeline=pipeline)
    written = {path.name: path.read_text() for path in (folder / "net").iterdir()}
    (text,) = [text for name, text in tvm_ext.region_sources(executable).items() if name == "net"]
    (library,) = [module for module in executable.mod.imports if module.kind == "static_library"]
    assert library.imports[0].inspect_source() == text
    assert {"net.c", "net.h", "net_memory.c", "net_weights.c", "tvm_ext_entry.c"} <= written.keys()
    assert all(f"/* ==== {name} ==== */\n{own}" in text for name, own in written.items())
    exported = tmp_path / "net.so"
    executable.export_library(str(exported))  # the shown text is compiled with it, and defines nothing again
    assert tvm.runtime.load_module(str(exported)).implements_function("net", query_imports=True)


def test_a_folder_that_cannot_be_written(network: tuple[object, tvm.IRModule], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    pipeline = tvm_ext.relax_pipeline("host", dump=tmp_path / "file")
    with pytest.raises(errors.BadOptions, match=r"dump: .* cannot be written"):
        tvm.compile(network[1], target=LLVM, relax_pipeline=pipeline)


def test_another_machine_needs_its_compiler(network: tuple[object, tvm.IRModule], monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    target = tvm.target.Target({"kind": "llvm", "mtriple": "riscv64-unknown-linux-gnu"})
    message = r"mtriple = 'riscv64-unknown-linux-gnu': this machine is \w+, and no riscv64-.*-gcc is on PATH .* install"
    with pytest.raises(errors.MissingTool, match=message):
        tvm.compile(network[1], target=target, relax_pipeline=tvm_ext.relax_pipeline("host"))


@pytest.mark.skipif(installed("aarch64-linux-gnu-gcc") is None, reason="no aarch64-linux-gnu-gcc")
def test_objects_for_aarch64(network: tuple[object, tvm.IRModule], tmp_path: Path) -> None:
    from tvm.support import cc

    triple = "aarch64-linux-gnu"
    target = tvm.target.Target({"kind": "llvm", "mtriple": triple})
    executable = tvm.compile(network[1], target=target, relax_pipeline=tvm_ext.relax_pipeline("host"))
    link = cc.cross_compiler(f"{triple}-gcc", get_target_triple=lambda: triple)
    library = tmp_path / "net.so"
    executable.export_library(str(library), fcompile=link)
    header = subprocess.run(["readelf", "-h", library], capture_output=True, text=True, check=True).stdout
    assert "AArch64" in header


@pytest.mark.parametrize(("processor", "has_wide"), [("x86-64", False), ("x86-64-v3", True)])
def test_a_named_processor_of_this_machine(processor: str, has_wide: bool, tmp_path: Path) -> None:
    """`mcpu` bounds the instructions that our C uses, so that a library runs where TVM's part of it does."""
    target = tvm.target.Target({"kind": "llvm", "mcpu": processor})
    if target.kind.name != "llvm" or not Path("/proc/cpuinfo").exists():
        pytest.skip("no x86-64 machine")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    mod = tvm_ext.load(saved(model_of([node], {"x": (1, 32)}, ["y"], {"w": weights(32, 32)}), tmp_path))
    executable = tvm.compile(mod, target=target, relax_pipeline=tvm_ext.relax_pipeline("host"))
    library = tmp_path / "net.so"
    executable.export_library(str(library))
    text = subprocess.run(["objdump", "-d", library], capture_output=True, text=True, check=True).stdout
    assert ("%ymm" in text) == has_wide


def test_no_name_of_a_processor(network: tuple[object, tvm.IRModule]) -> None:
    target = tvm.target.Target({"kind": "llvm", "mcpu": "native -o x"})
    with pytest.raises(errors.BadOptions, match="mcpu = 'native -o x': is no name of a processor"):
        tvm.compile(network[1], target=target, relax_pipeline=tvm_ext.relax_pipeline("host"))


def test_a_processor_that_gcc_does_not_know() -> None:
    target = tvm.target.Target({"kind": "llvm", "mcpu": "znver99"})
    with pytest.raises(errors.BadOptions, match=r"mcpu = 'znver99': gcc knows no such processor of .* leave mcpu out"):
        toolchain_of(target)
    assert toolchain_of(tvm.target.Target({"kind": "llvm", "mcpu": "generic"})).flags == ()


def test_options_of_packages_are_refused(network: tuple[object, tvm.IRModule]) -> None:
    refused = {"io": "stream", "tune": True, "flash": 10, "context": "caller", "quantize": "int8"}
    for name, value in refused.items():
        with pytest.raises(errors.BadOptions, match=name):
            tvm_ext.partition_for_tvm_ext(network[1], "host", BuildOptions(**{name: value}))
        with pytest.raises(errors.BadOptions, match=name):
            compiled(assigned(network[1]["main"], "theirs"), **{name: value})


def test_a_module_that_is_partitioned_already(network: tuple[object, tvm.IRModule]) -> None:
    regions = tvm_ext.partition_for_tvm_ext(network[1], "host", BuildOptions(name="net"))
    with pytest.raises(errors.UnsupportedModel, match="calls net, which is partitioned for tvm_ext already"):
        tvm_ext.partition_for_tvm_ext(regions, "host")


def test_patterns_leave_half_floats_to_tvm() -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 8), "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, relax.const(weights(8, 4).astype(np.float16))))
            result = builder.emit_output(product)
        builder.emit_func_output(result)
    patterns = get_patterns_with_prefix("tvm_ext.")
    fused = relax.transform.FuseOpsByPattern(patterns, bind_constants=True, annotate_codegen=True)(builder.get())
    _, called = run(compiled(fused, platform="cortex_m4"), [np.ones((2, 8), np.float16)])
    assert not [name for name in called if name.startswith("fused_relax_matmul_tvm_ext")]


def test_registered_patterns_let_python_end() -> None:
    subprocess.run([sys.executable, "-c", "import tvm_ext.relax.partition"], check=True)


def test_a_tuple_inside_a_tuple() -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.Tuple([relax.Tuple([x, x]), x]))
        builder.emit_func_output(result)
    with pytest.raises(errors.UnsupportedModel, match="a tuple inside a tuple; return all tensors in a single tuple"):
        tvm_ext.partition_for_tvm_ext(builder.get(), "host")
