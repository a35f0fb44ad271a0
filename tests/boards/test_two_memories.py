"""Boards with two memories for tensors: what runs there moves what was planned, and lies where the platform says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tvm_ext.verification.judgement
from tests.support.image_networks import layer_of_many_weights
from tests.support.onnx_models import saved
from tests.support.packages import Packages
from tests.support.random_models import random_model
from tvm_ext import BuildOptions, Package
from tvm_ext.core.errors import VerificationFailed

pytestmark = pytest.mark.board

VERIFIED = BuildOptions(verify=("host", "qemu"))
NEAR_BYTES = 24 * 1024
LITTLE = BuildOptions(verify=("host", "qemu"), ram={"dtcm": NEAR_BYTES})
STREAMED = BuildOptions(verify=("host", "qemu"), io="stream")
ONE_MEMORY = BuildOptions(verify=("host", "qemu"), memories="default")


def addresses(package: Package) -> dict[str, int]:
    elf = package.folder / package.report["artifacts"]["elf"]
    symbols = subprocess.run(["arm-none-eabi-nm", str(elf)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1]: int(line.split()[0], 16) for line in symbols.splitlines() if line[0] != " "}


def lies_in(package: Package, symbol: str, memory: str) -> bool:
    place, address = package.platform.memory(memory), addresses(package)[symbol]
    assert place.address is not None
    return place.address <= address < place.address + place.capacity_bytes


@pytest.mark.parametrize(
    ("name", "options", "pairs"),
    [
        pytest.param("resnet_fp32", VERIFIED, {("flash", "dtcm"), ("flash", "sram")}, marks=pytest.mark.sweep),
        pytest.param("resnet_fp32", STREAMED, {("flash", "dtcm"), ("flash", "sram")}, marks=pytest.mark.sweep),
        ("resnet_int8", LITTLE, {("flash", "dtcm"), ("sram", "dtcm"), ("dtcm", "sram")}),
    ],
)
def test_resnet_moves_what_was_planned_and_computes_the_same(
    packages: Packages, shared_models, name: str, options: BuildOptions, pairs: set[tuple[str, str]]
) -> None:
    """Weights are streamed; with little near memory, results are spilled and fetched back too."""
    package = packages.shared(name, "always_on", options)
    prediction, qemu = package.report["prediction"], package.report["verify"]["qemu"]
    assert qemu["passed"] and qemu["moved"] == prediction["moved"]
    assert pairs <= {(row["source"], row["target"]) for row in prediction["moved"]}
    assert prediction["cycles_in_default_memory"] >= 1.5 * prediction["cycles"]
    assert "not measured" in prediction["note"]
    one = packages.shared(name, "always_on", ONE_MEMORY)
    assert one.report["verify"]["qemu"]["moved"] == []
    inputs = {key: np.load(shared_models / f"{name}.npz")["in0"] for key in package.inputs}
    found, wanted = (built.run_board([inputs]).outputs[0] for built in (package, one))
    for key, array in wanted.items():
        np.testing.assert_array_equal(found[key].view(np.uint8), array.view(np.uint8))


def test_tiles_of_weights_move_what_was_planned_and_compute_the_same(packages: Packages) -> None:
    """A layer of 37 KB of weights between two memories that are smaller."""
    options = BuildOptions(verify=("host", "qemu"), ram={"dtcm": 33_792, "sram": 8_192})
    package = packages.small("in_tiles", layer_of_many_weights, "always_on", options)
    assert sum("_channels_" in step["name"] for step in package.report["steps"] if step["macs"]) >= 3
    assert package.report["verify"]["qemu"]["moved"] == package.report["prediction"]["moved"]
    plain = packages.small("in_tiles", layer_of_many_weights, "always_on", ONE_MEMORY)
    inputs = {"input": np.random.default_rng(0).integers(-128, 128, (1, 12, 12, 32)).astype(np.int8)}
    found, wanted = (built.run_board([inputs]).outputs[0] for built in (package, plain))
    for key, array in wanted.items():
        np.testing.assert_array_equal(found[key], array)


def test_the_makefile_links_what_counts_the_copies(packages: Packages, tmp_path: Path) -> None:
    options = BuildOptions(verify=("host", "qemu"), ram={"dtcm": 33_792, "sram": 8_192})
    package = packages.small("in_tiles", layer_of_many_weights, "always_on", options)
    copied = shutil.copytree(package.folder, tmp_path / "copied")
    done = subprocess.run(["make", "-s", "-C", str(copied), "run"], capture_output=True, text=True)
    assert done.returncode == 0 and "PASS" in done.stdout + done.stderr, done.stdout + done.stderr


def test_arenas_and_weights_lie_where_the_platform_says(packages: Packages) -> None:
    package = packages.shared("resnet_int8", "always_on", LITTLE)
    assert lies_in(package, "resnet_int8_dtcm", "dtcm")
    assert lies_in(package, "resnet_int8_sram", "sram")
    tables = [name for name in addresses(package) if name.endswith(("_weights", "_constants"))]
    assert any(name.endswith("_constants") for name in tables), "layers that one transfer fetches"
    assert tables and all(lies_in(package, name, "flash") for name in tables)
    used = {memory["name"]: memory["used_bytes"] for memory in package.report["memories"]}
    assert 0 < used["dtcm"] <= NEAR_BYTES and used["sram"] > 0


def test_a_fast_memory_that_holds_the_stack_too(packages: Packages) -> None:
    """On the Cortex-M7 the arena, the stack and the firmware's variables share the SRAM; the rest is in PSRAM."""
    package = packages.shared("kws_int8", "cortex_m7_psram", VERIFIED)
    qemu = package.report["verify"]["qemu"]
    assert qemu["passed"] and qemu["moved"] == package.report["prediction"]["moved"] != []
    assert lies_in(package, "kws_int8_sram", "sram")
    assert lies_in(package, "kws_int8_psram", "psram")


def test_inputs_of_the_caller_are_moved_from_where_the_plan_has_them(packages: Packages) -> None:
    """The firmware keeps them in the memory for tensors, which is not that of its other variables."""
    options = BuildOptions(verify=("host", "qemu"), io="caller", ram={"sram": 1})
    package = packages.small("random_1", lambda: random_model(1), "cortex_m55", options)
    moved = package.report["verify"]["qemu"]["moved"]
    assert moved == package.report["prediction"]["moved"] != []
    assert all(lies_in(package, f"input_{spec.name}", "sram") for spec in package.interface.inputs)


def test_a_board_that_moves_something_else_fails_verification(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tvm_ext.verification.judgement, "moved_bytes", lambda _: {("sram", "dtcm"): 1})
    mod = tvm_ext.load(saved(random_model(1), tmp_path))
    with pytest.raises(VerificationFailed, match=r"board: moved .*, but \{\('sram', 'dtcm'\): 1\} were"):
        tvm_ext.build(mod, "always_on", tmp_path / "out", VERIFIED)
