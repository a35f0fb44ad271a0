"""Back ends of TVM that a platform names: what contradicts itself, or is not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tvm
import tvm_ffi
from onnx import helper

import tvm_ext
from tests.errors.test_platform_errors import platform_file
from tests.support import toy_byoc
from tests.support.mixed_platforms import llvm, mixed, toy
from tests.support.onnx_models import model_of, saved
from tests.support.refusing import refuse
from tvm_ext import BuildOptions, Placing
from tvm_ext.core.errors import BadOptions, BadPlatform, MissingTool, UnsupportedModel
from tvm_ext.core.platform import Link, Memory, Platform
from tvm_ext.core.platform_parts import TvmBackend

MORE = """\
[[processors]]
name = "llvm"
isa = "host"
clock_hz = 1_000_000_000
kind = "tvm"
[processors.tvm]
target = "llvm"
macs_per_second = 4e9
bytes_per_second = 1e10
seconds_per_call = 1e-6
operators = ["nn_conv2d", "matmul"]
[[processors.tvm.rates]]
operator = "matmul"
macs_per_second = 1e9
bytes_per_second = 1e9
"""


def load(folder: Path, old: str = "", new: str = "") -> Platform:
    """The platform of the other tests with TVM's own code, its first `old` replaced."""
    return Platform.load(platform_file(folder, old, new, more=MORE))


def test_the_good_one_says_all(tmp_path: Path) -> None:
    platform = load(tmp_path)
    made_by = platform.processors[1].tvm
    assert made_by and (made_by.target, made_by.codegen, made_by.macs_per_second) == ("llvm", "", 4e9)
    assert made_by.operators == ("nn_conv2d", "matmul") and made_by.rates[0].operator == "matmul"
    assert Platform.from_json(platform.to_json()) == platform
    assert BuildOptions().tvm_processors_of(platform) == platform.processors[1:]
    assert BuildOptions(processors=("cpu",)).tvm_processors_of(platform) == ()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('kind = "tvm"\n', "", r"processors\.llvm\.tvm: is code that TVM makes; say kind = "),
        ('target = "llvm"\n', "", r"processors\.llvm: needs who makes its code: target = "),
        ('target = "llvm"', 'target = "llvm"\ncodegen = "npu"', r"processors\.llvm: needs who makes its code"),
        ('kind = "tvm"', 'kind = "tvm"\nsimd = "host"', r"processors\.llvm: offload, simd, fpu and flags are of our"),
        ('target = "llvm"', 'target = "llvm; rm"', r"processors\[1\]\.tvm\.target = 'llvm; rm'"),
        ('target = "llvm"', 'codegen = "a.b"', r"processors\[1\]\.tvm\.codegen = 'a\.b'"),
        ("macs_per_second = 4e9", "macs_per_second = 0", r"processors\[1\]\.tvm\.macs_per_second = 0"),
        ("seconds_per_call", "seconds", r"tvm\.seconds: unknown key; allowed here: .*seconds_per_call"),
        (
            'operator = "matmul"',
            'operator = "matmul"\nmacs = 1',
            r"rates\[0\]\.macs: unknown key; allowed here: operat",
        ),
        (
            "[[processors.tvm.rates]]",
            '[[processors.tvm.rates]]\noperator = "matmul"\nmacs_per_second = 1\nbytes_per_second = 1\n'
            "[[processors.tvm.rates]]",
            r"processors\.llvm\.tvm\.rates: matmul has two rates",
        ),
    ],
)
def test_platforms_that_contradict_themselves(old: str, new: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadPlatform, match=message):
        load(tmp_path, old, new)


@pytest.fixture
def mod(tmp_path: Path) -> tvm.IRModule:
    nodes = [helper.make_node("Tanh", ["x"], ["t"], name="bend"), helper.make_node("Softmax", ["t"], ["y"], name="end")]
    return tvm_ext.load(saved(model_of(nodes, {"x": (1, 4)}, ["y"]), tmp_path))


@pytest.mark.parametrize("kind", ["cuda", "opencl", "vulkan"])
def test_a_device_that_is_not_here(kind: str, mod: tvm.IRModule) -> None:
    """This TVM has code generators for them and no runtime; a user may have one, and then this test nothing to say."""
    if tvm.runtime.enabled(kind):
        pytest.skip(f"this TVM runs {kind}")
    platform = mixed(("gpu", TvmBackend(target=kind)))
    with pytest.raises(MissingTool, match=rf"processors\.gpu\.tvm\.target = '{kind}': .* or leave gpu out of"):
        tvm_ext.place(mod, platform)
    pipeline = tvm_ext.relax_pipeline(platform)
    with pytest.raises(MissingTool, match=r"was built without the .* runtime"):
        tvm.compile(mod, target="llvm", relax_pipeline=pipeline)
    assert tvm_ext.relax_pipeline(platform, BuildOptions(processors=("cpu",))) is not None


def test_back_ends_that_are_not_here(mod: tvm.IRModule) -> None:
    def place(codegen: str) -> None:
        tvm_ext.place(mod, mixed(("npu", TvmBackend(codegen=codegen))))

    with pytest.raises(MissingTool, match=r"codegen = 'absent': this TVM has no function relax\.ext\.absent"):
        place("absent")
    tvm_ffi.register_global_func("relax.ext.unpatterned", lambda *_: [], override=True)
    with pytest.raises(MissingTool, match=r"no patterns are registered under unpatterned\."):
        place("unpatterned")
    with pytest.raises(BadPlatform, match=r"tvm\.target = 'mips': TVM .* has no target of this name"):
        tvm_ext.place(mod, mixed(("npu", TvmBackend(target="mips"))))


@pytest.mark.parametrize(
    ("forced", "message"),
    [
        ({"bent": "llvm"}, r"forced bent=llvm: no operator of the model has this name\. Did you mean 'bend'"),
        ({"bend": "gpu"}, r"forced bend=gpu: unknown processor; processors in use are cpu, llvm\."),
        ({"bend": "llvm"}, r"forced bend=llvm: llvm cannot run this operator"),
    ],
)
def test_forced_choices(forced: dict[str, str], message: str, mod: tvm.IRModule) -> None:
    with pytest.raises(BadOptions, match=message):
        tvm_ext.place(mod, mixed(llvm(operators=("nn_softmax",))), placing=Placing(forced=forced))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ram": 1000}, r"ram and quantize = 'auto' plan the memory of our C, and llvm .* processors = cpu"),
        ({"quantize": "auto"}, r"ram and quantize = 'auto'"),
        (
            {"placement_objective": "throughput"},
            r"placement_objective = 'throughput' and placement_gran.* one after the other",
        ),
        ({"placement_granularity": "branches"}, r"placement_objective = 'throughput' and placement_granularity"),
        (
            {"placement_objective": "energy"},
            r"placement_objective = 'energy': mixed lacks the power of",
        ),
        ({"keep": ("x",)}, r"pin, keep and place_port: inside tvm\.compile"),
    ],
)
def test_options_that_a_mix_has_no_place_for(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadOptions, match=message):
        tvm_ext.relax_pipeline(mixed(llvm()), BuildOptions(**options))


def test_nothing_to_place_on(mod: tvm.IRModule) -> None:
    with pytest.raises(BadOptions, match=r"place: host uses no processor of kind = "):
        tvm_ext.place(mod, "host")
    with pytest.raises(BadOptions, match=r"placing: host uses no processor of kind = "):
        tvm_ext.relax_pipeline("host", placing=Placing())
    with pytest.raises(BadOptions, match=r"place: cortex_m4 uses no processor of .* on a platform of this machine"):
        tvm_ext.place(mod, "cortex_m4", placing=Placing(measure=True))
    with pytest.raises(BadOptions, match=r"place: host uses no processor of kind = "):
        tvm_ext.place(mod, "host", BuildOptions(processors=("cpu",)), placing=Placing(measure=True))


def test_an_operator_that_nothing_runs(mod: tvm.IRModule, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "tanh")
    toy_byoc.register()
    with pytest.raises(UnsupportedModel, match=r"bend: runs on none of cpu, npu; give mixed a processor"):
        tvm_ext.place(mod, mixed(toy()))


def test_a_memory_that_nothing_leads_to(mod: tvm.IRModule) -> None:
    own = Memory(name="vram", kind="ram", capacity_bytes=1 << 20, read_bytes_per_cycle=1, write_bytes_per_cycle=1)
    platform = mixed(llvm())
    link = Link(source="llvm", target="vram", bytes_per_cycle=1)
    apart = replace(platform, memories=(*platform.memories, own), links=(*platform.links, link))
    with pytest.raises(BadPlatform, match=r"mixed: no way joins ram and vram"):
        tvm_ext.place(mod, apart)
