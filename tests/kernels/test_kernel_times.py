"""Times of kernels on cores: files of the targets' folders, what is no such file, and the runs they are made of."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from onnx import helper

import tvm_ext
from benchmarks.measure.roles import Subject, by_roles, measured
from codegen_c.kernels.contract import Implementation, Kept, StoredRows
from codegen_c.kernels.registry import kernels, select
from codegen_c.operators.kinds import Pool2d, TensorType, Window
from codegen_c.targets.instruction_set import InstructionSet
from codegen_c.targets.read_times import core_times, read_times
from codegen_c.targets.registry import instruction_sets, target_of
from tests.support.onnx_models import model_of, saved, weights
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_model
from tvm_ext.core.time_model import KernelTime, Traffic
from tvm_ext.profiling.core_table import core_tables

TARGETS = [target for target in instruction_sets() if target.times]
NAMES = {kernel.name for kernel in kernels()} | {"generic"}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.simd)
def test_files_name_kernels_and_cores_that_there_are(target: InstructionSet) -> None:
    assert target.times.keys() == target.times_for_size.keys()
    for core, times in (*target.times.items(), *target.times_for_size.items()):
        assert core in times.cpus and core in core_tables()
        assert times.kernels and times.kernels.keys() <= NAMES
        assert all(one.cycles > 0 and one.instructions > 0 for one in times.kernels.values())


def test_cores_with_a_table_of_cycles_have_times() -> None:
    cores = {core for target in TARGETS for core in target.times}
    assert {core for core in core_tables() if core.startswith("cortex")} == {one for one in cores if "cortex" in one}
    assert "rv32imac" in cores


def test_times_are_those_of_what_the_code_is_compiled_for() -> None:
    """A core without times for size has those of code that is compiled for speed."""
    target = next(target for target in TARGETS if "cortex-m4" in target.times and target.times_for_size)
    assert target.times_of("cortex-m4", "speed") is target.times["cortex-m4"]
    assert target.times_of("cortex-m4", "size") is target.times_for_size["cortex-m4"]
    assert replace(target, times_for_size={}).times_of("cortex-m4", "size") is target.times["cortex-m4"]
    assert target.times_of("cortex-m99", "size") is None
    assert target.executed_instructions("softmax_f32", "cortex-m99", "size") == 1.0


def test_modelled_instructions_of_code_for_size_are_corrected() -> None:
    """Also where the kernel runs row by row."""
    kind = TensorType(shape=(1, 8, 6, 16), dtype="float32")
    window = Window(kernel=(3, 3), padding=(1, 1, 1, 1))
    operator = Pool2d(inputs=(kind,), outputs=(kind,), method="max", window=window)
    core = Platform.load("cortex_m4").processor
    target = target_of(core, core="cortex-m4", optimize="size")
    plain = replace(target, instruction_set=replace(target.instruction_set, times_for_size={}))
    corrected, counted = (select(operator, one) for one in (target, plain))
    assert isinstance(corrected, Implementation) and isinstance(counted, Implementation)
    factor = target.instruction_set.times_for_size["cortex-m4"].kernels[counted.kernel].instructions
    assert factor != 1.0 and corrected.instructions == round(counted.instructions * factor)
    row = StoredRows(output=Kept(stored=1))
    assert corrected.keeping and counted.keeping
    assert corrected.keeping(row).instructions == round(counted.keeping(row).instructions * factor)


def package(name: str, folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with a file of times."""
    (folder / name / "times").mkdir(parents=True)
    (folder / name / "__init__.py").write_text("", encoding="utf-8")
    (folder / name / "times" / "core.toml").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop(name, None)
    return name


def test_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        'cpus = ["one", "other"]\ncycles = 1.5\n[kernels]\n'
        "k = { cycles = 2, input = [0.25, 0.5, 1] }\nl = { instructions = 1.25, cycles = 3 }\n"
    )
    found = read_times(package("times_of_a_core", tmp_path, text, monkeypatch))
    assert found.keys() == {"one", "other"} and found["one"] is found["other"]
    assert found["one"].cycles == 1.5
    expected = KernelTime(cycles=2.0, input=Traffic(transactions=0.25, bursts=0.5, num_bytes=1))
    assert found["one"].kernels == {"k": expected, "l": KernelTime(instructions=1.25, cycles=3.0)}


@pytest.mark.parametrize(
    "text", ["cpus = [", "cycles = 1.0", 'cpus = ["c"]\ncycles = 1\n[kernels]\nk = { cycles = 1, inputs = [1, 1, 1] }',
             'cpus = ["c"]\ncycles = 1\n[kernels]\nk = { cycles = 1, input = [1, 1] }']
)  # fmt: skip
def test_another_file_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = package("damaged_times", tmp_path, text, monkeypatch)
    with pytest.raises(ImportError, match=r"damaged_times\.times/core\.toml: has no times of kernels"):
        read_times(name)


def test_a_target_without_a_folder_has_none(tmp_path: Path) -> None:
    assert read_times(ModuleType(__name__).__name__.partition(".")[0]) == {}
    assert core_times({"cpus": [], "cycles": 1, "kernels": {}}).kernels == {}


@pytest.mark.board
def test_a_kernel_alone_moves_the_bytes_of_its_operands(tmp_path: Path) -> None:
    model = model_of(
        [helper.make_node("Conv", ["x", "w"], ["y"])], {"x": (1, 4, 6, 6)}, ["y"], {"w": weights(8, 4, 1, 1)}
    )
    platform = Platform.load("cortex_m4")
    compiled = compile_model(tvm_ext.load(saved(model, tmp_path, "m")), platform, BuildOptions(name="m"))[1]
    (call,) = (call for call in compiled.program.kernel_calls() if call.implementation.macs)
    assert call.operator is not None
    (run,) = measured([Subject(form=call.operator, made=call.implementation)], by_roles(platform))
    assert run.kernel == call.implementation.kernel and run.modelled == call.implementation.instructions
    assert run.traffic["output"].num_bytes == run.modelled_bytes["output"] == 4 * 8 * 36
    assert run.traffic["input"].num_bytes == pytest.approx(run.modelled_bytes["input"], rel=0.25)
    assert run.traffic["constants"].num_bytes == pytest.approx(run.modelled_bytes["constants"], rel=0.25)
    assert run.executed < run.cycles < 4 * run.executed and "scratch" not in run.traffic
