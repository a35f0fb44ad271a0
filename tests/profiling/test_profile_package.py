"""Packages that have no profile, and the inputs of those that have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from codegen_c.operators.kinds import Quantization
from codegen_c.program.interface import Interface, Port
from tests.support.onnx_models import SMALL_MODELS
from tests.support.packages import Packages
from tvm_ext import BuildOptions
from tvm_ext.command_line.main import app
from tvm_ext.core.errors import RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_objects
from tvm_ext.profiling.core_table import core_table
from tvm_ext.profiling.layer_names import PackageSteps
from tvm_ext.profiling.profile_package import ProfiledModel, noise, profile_model, profile_plugin

PORTS = (
    Port(name="a", source="a", shape=(64,), dtype="float32"),
    Port(name="b", source="b", shape=(640,), dtype="int8", quantization=Quantization(scale=0.5, zero_point=3)),
    Port(name="c", source="c", shape=(64,), dtype="int64"),
    Port(name="d", source="d", shape=(64,), dtype="bool"),
)
INTERFACE = Interface(model="m", io="arena", inputs=PORTS, outputs=())


def subject(platform: Platform, interface: Interface = INTERFACE) -> ProfiledModel:
    return ProfiledModel(
        elf=Path("m.elf"), platform=platform, interface=interface, steps=PackageSteps(), report_steps=()
    )


def test_noise_is_the_same_each_time_and_indexes_any_table() -> None:
    found, again = noise(INTERFACE), noise(INTERFACE)
    assert all(np.array_equal(found[name], again[name]) for name in found)
    assert {name: array.dtype for name, array in found.items()} == {p.source: np.dtype(p.dtype) for p in PORTS}
    assert found["b"].min() < -100 and found["b"].max() > 100
    assert {*found["c"].tolist()} == {0, 1, 2} and {*found["d"].tolist()} == {False, True}


def test_a_platform_without_a_board() -> None:
    with pytest.raises(RunFailed, match=r"platform host has no board in QEMU.*compile for a platform with a board"):
        profile_model(subject(Platform.load("host")), noise(INTERFACE), time_limit_s=10)


def test_a_run_that_several_processors_share() -> None:
    shared = replace(INTERFACE, servers=("cpu1",))
    platform = Platform.load("dual_m33")
    with pytest.raises(RunFailed, match=rf"several processors share a run.*--processors {platform.processor.name}"):
        profile_model(subject(platform, shared), noise(shared), time_limit_s=10)


@pytest.mark.board
def test_a_profile_does_not_take_its_package_s_place(packages: Packages, cortex_m4: Platform) -> None:
    package = packages.small("unused_input", SMALL_MODELS["unused_input"], "cortex_m4", BuildOptions(verify=()))
    for place in (package.folder, package.folder / ".." / package.folder.name):
        done = CliRunner().invoke(app, ["profile", str(package.folder), "-o", str(place)])
        assert done.exit_code == 1
        assert "the profile would replace the package itself; choose another folder" in done.output
    assert (package.folder / "report.json").exists()


@pytest.mark.board
def test_firmware_without_the_run_function(tmp_path: Path, cortex_m4: Platform) -> None:
    (tmp_path / "other.c").write_text("int other(void);\nint other(void) { return 1; }\n")
    (elf,) = compile_objects([tmp_path / "other.c"], tmp_path, cortex_m4.toolchain)
    with pytest.raises(RunFailed, match="has no function m_run"):
        profile_plugin(elf, cortex_m4, core_table(cortex_m4), "m_run", tmp_path, skip=0)
