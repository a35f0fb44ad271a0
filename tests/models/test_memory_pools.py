"""Memories given as TVM's pools, and memory scopes of VDevices that name them: in the plan, in bits, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.global_info import VDevice
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_ext
from tests.models.test_place_ports import memories_of
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.decisions.models import MemoryScopes
from tvm_ext.core.errors import BadOptions, BadPlatform
from tvm_ext.relax.memory_pools import MemoryPool, platform_with_pools

POOLS = platform_with_pools(
    "always_on",
    workspace=[
        MemoryPool(pool_name="dtcm", size_hint_bytes="48KiB"),
        MemoryPool(pool_name="sram", size_hint_bytes=262144),
    ],
)


@I.ir_module
class InAndOut:
    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0, "dtcm"), I.vdevice("llvm", 0, "global.sram")]})

    @R.function
    def main(x: R.Tensor((4, 8), "float32", "vdevice:0"), w: R.Tensor((8, 8), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            moved = R.to_vdevice(y, "vdevice:1")
            z = R.nn.relu(moved)
            out = R.to_vdevice(R.exp(z), "vdevice:0")
            R.output(out)
        return out


def network() -> tvm.IRModule:
    weights = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    return relax.transform.BindParams("main", {"w": weights})(InAndOut)


def scoped(scope: str, where: str = "input") -> tvm.IRModule:
    """A network of one operator with a scope at its input, at a constant, or at a value between operators."""
    device = VDevice("llvm", 0, scope)
    x = relax.Var("x", relax.TensorType((4, 8), "float32", device if where == "input" else None))
    build = relax.BlockBuilder()
    with build.function("main", [x]):
        with build.dataflow():
            constant: Any = relax.const(np.ones((4, 8), np.float32))
            if where == "constant":
                constant = build.emit(relax.op.to_vdevice(constant, device))
            y = build.emit(relax.op.add(x, constant))
            z = build.emit(relax.op.to_vdevice(y, device)) if where == "value" else y
            out = build.emit_output(relax.op.exp(z))
        build.emit_func_output(out)
    module = build.get()
    module.update_global_info("vdevice", [device])
    return module


def test_scopes_place_inputs_and_outputs() -> None:
    loaded = tvm_ext.load(network())
    assert MemoryScopes.read(loaded).ports == {"x": "dtcm", "out": "dtcm"}
    assert MemoryScopes.read(loaded).others == ("sram",)
    assert "vdevice=" not in loaded["main"].script()
    assert memories_of(compile_module(loaded, POOLS, BuildOptions())) == ("dtcm", "dtcm")
    explicit = BuildOptions(place_port={"out": "sram"})
    assert memories_of(compile_module(loaded, POOLS, explicit)) == ("dtcm", "sram")


def test_a_package_of_pools_computes_the_same(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
    package = tvm_ext.build(network(), POOLS, tmp_path / "model", BuildOptions(verify=("host",)))
    weights = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    np.testing.assert_allclose(package.run({"x": x})["out"], np.exp(np.maximum(x @ weights, 0)), rtol=1e-5)
    assert tvm_ext.estimate(network(), POOLS) is not None


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (scoped("ccm"), {}, "x: its VDevice has the memory scope 'ccm', but always_on has no memory of this name"),
        (scoped("flash"), {}, "scope 'flash', but always_on has no memory of this name for tensors; it has dtcm, sram"),
        (scoped("dtcm", "constant"), {}, "a constant's VDevice .* the constants for always_on lie in flash"),
        (scoped("ccm", "value"), {}, "to_vdevice: always_on has no memory 'ccm'; it has code, flash, dtcm, sram"),
        (scoped("dtcm"), {"io": "caller"}, "x: its VDevice .* with io = 'caller' the application chooses"),
        (scoped("dtcm"), {"context": "caller", "memories": "default"}, "with context = 'caller' the application"),
    ],
)
def test_scopes_that_cannot_be(module: tvm.IRModule, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadOptions, match=message):
        compile_module(tvm_ext.load(module), POOLS, BuildOptions(**options))


@pytest.mark.parametrize(("scope", "where"), [("global", "input"), ("flash", "constant"), ("sram", "value")])
def test_scopes_that_ask_for_nothing(scope: str, where: str) -> None:
    compiled = compile_module(tvm_ext.load(scoped(scope, where)), POOLS, BuildOptions())
    assert memories_of(compiled)[1] == "sram"


def test_a_state_lies_with_the_states() -> None:
    with pytest.raises(BadOptions, match="x is a state, and the states for always_on lie in sram"):
        compile_module(tvm_ext.load(_with_two_outputs("dtcm"), states={"x": "next"}), POOLS, BuildOptions())
    compile_module(tvm_ext.load(_with_two_outputs("sram"), states={"x": "next"}), POOLS, BuildOptions())


def _with_two_outputs(scope: str) -> tvm.IRModule:
    x = relax.Var("x", relax.TensorType((4,), "float32", VDevice("llvm", 0, scope)))
    y = relax.Var("y", relax.TensorType((4,), "float32"))
    build = relax.BlockBuilder()
    with build.function("main", [x, y]):
        with build.dataflow():
            total = build.emit_output(relax.op.add(x, y), "next")
            out = build.emit_output(relax.op.exp(total), "out")
        build.emit_func_output(relax.Tuple([total, out]))
    return build.get()


def test_scopes_inside_tvm_compile() -> None:
    with pytest.raises(BadOptions, match=r"x: the memory scope 'dtcm' of its VDevice .*build a package"):
        tvm_ext.relax_pipeline("host")(scoped("dtcm"))
    with pytest.raises(BadOptions, match=r"inside tvm\.compile the caller holds inputs and outputs"):
        tvm_ext.partition_for_tvm_ext(scoped("dtcm"), "host")


def test_pools_of_the_platform() -> None:
    """Sizes, the largest pool as default memory, the same board; other memories give nothing."""
    assert (POOLS.activations, POOLS.weights, POOLS.board is not None) == ("sram", "flash", True)
    assert [POOLS.memory(name).usable_bytes for name in ("dtcm", "sram")] == [49152, 262144]
    assert len([link for link in POOLS.links if link.dma]) == len(
        [one for one in Platform.load("always_on").links if one.dma]
    )
    only = platform_with_pools("cortex_m55", workspace=[MemoryPool(pool_name="sram")])
    assert (only.memory("dtcm").usable_bytes, only.board is not None) == (16, True)
    nucleo = platform_with_pools("nucleo-h743zi", workspace=[MemoryPool(pool_name="axisram")])
    assert nucleo.board is not None
    assert {*nucleo.board.memories} < {*Platform.load("nucleo-h743zi").board.memories}  # type: ignore[union-attr]


def test_pools_that_the_platform_lacks() -> None:
    made = platform_with_pools(
        "cortex_m4",
        workspace=[
            MemoryPool(pool_name="fast", size_hint_bytes="16KiB", read_bandwidth_bytes_per_cycle=8),
            pool("psram", "8MiB", read_bandwidth_bytes_per_cycle=1, read_latency_cycles=9),
        ],
        constants=MemoryPool(pool_name="qspi", size_hint_bytes="16MiB", target_access="ro"),
    )  # fmt: skip
    assert (made.activations, made.weights, made.board) == ("psram", "qspi", None)
    assert {memory.name for memory in made.memories} == {"flash", "fast", "psram", "qspi"}
    psram = made.memory("psram")
    assert (psram.read_bytes_per_cycle, psram.write_bytes_per_cycle, psram.latency_cycles) == (1, 1, 9)
    assert made.reached_by("cpu", "fast") is not None
    assert compile_module(tvm_ext.load(scoped("fast")), made, BuildOptions()).plan.arenas


def pool(name: str = "sram", size: Any = 64, **more: Any) -> MemoryPool:
    return MemoryPool(pool_name=name, size_hint_bytes=size, **more)


@pytest.mark.parametrize(
    ("workspace", "constants", "message"),
    [
        ([], None, "no workspace pool is given"),
        ([pool(), pool()], None, "two workspace pools have the name 'sram'"),
        ([pool("Fast")], None, r"memories\[1\].name = 'Fast'"),
        ([pool("fast", None)], None, "pool fast: its size is unknown, because cortex_m4 has no memory of that name"),
        ([pool("fast", "16K")], None, "pool fast: size_hint_bytes = '16K': is not a size: K does not say"),
        ([pool("fast", True)], None, "pool fast: size_hint_bytes = True: give a whole number"),
        ([pool("fast", -1)], None, "pool fast: size_hint_bytes = -1: give a whole number"),
        ([pool("sram", 1 << 30)], None, "pool sram: size_hint_bytes = 1073741824, but the platform's memory"),
        ([pool("flash")], None, "pool flash: target_access = 'rw', but cortex_m4 has a rom of that name"),
        ([pool(target_access="ro")], None, "pool sram: target_access = 'ro', but tensors are written"),
        ([pool("fast", targets=("npu",))], None, r"source = 'npu' is neither a processor nor a memory"),
        ([pool()], pool("sram", 32), "pool sram: its descriptions as workspace and as constants differ"),
        ([pool()], pool("flash", target_access="wo"), "pool flash: target_access = 'wo': give 'ro' or 'rw'"),
    ],
)
def test_pools_that_cannot_be(workspace: list[MemoryPool], constants: MemoryPool | None, message: str) -> None:
    with pytest.raises(BadPlatform, match=message):
        platform_with_pools("cortex_m4", workspace=workspace, constants=constants)


def test_weights_in_a_pool_that_is_missing() -> None:
    ram = Platform.load("cortex_m4")
    text = ram.to_json().replace('"weights":"flash"', '"weights":"sram"')
    base = Platform.from_json(text)
    with pytest.raises(BadPlatform, match="the weights of cortex_m4 lie in sram, which is no pool"):
        platform_with_pools(base, workspace=[pool("fast")])
