"""Ways to fit a budget: rejected plans are ours, larger budgets never cost more, the nearest that is named is met."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner

import tvm_ext
from benchmarks import monotonic, zoo
from benchmarks.networks.wired import gated_unet
from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.validate import validate
from codegen_c.backend import build as building
from codegen_c.backend.build import Compiled
from codegen_c.program.program import Program
from codegen_c.program.steps import RowSteps
from tests.support.onnx_models import NODE, model_of, saved, weights
from tests.support.tflite_runners import saved_tflite
from tests.support.tflite_state_models import over_time
from tvm_ext import BuildOptions
from tvm_ext.command_line.main import app
from tvm_ext.compilation.pipeline import compile_module, compile_within
from tvm_ext.core.errors import DefectNotice, DoesNotFit, PlanRejected
from tvm_ext.core.platform import Platform

BOARD = "cortex_m4"
PLANTED = "step 1 (planted): row 0 of x is not there any more."


@pytest.fixture(scope="module")
def within(digits: Path) -> Callable[[int | None], Compiled]:
    return compile_within(tvm_ext.load(digits / "digits.onnx"), Platform.load(BOARD), BuildOptions())


def is_split(program: Program) -> bool:
    """True for rows that run in series without strips of columns."""
    return any(isinstance(step, RowSteps) for step in program.steps) and not is_patched(program)


def is_patched(program: Program) -> bool:
    return any(tensor.strip for tensor in program.tensors.values())


def rejecting(monkeypatch: pytest.MonkeyPatch, refuses: Callable[[Program], bool]) -> None:
    """Plants a validator that finds a fault in some plans."""

    def planted(program: Program, plan: MemoryPlan) -> None:
        if refuses(program):
            raise PlanRejected(PLANTED)
        validate(program, plan)

    monkeypatch.setattr(building, "validate", planted)


def test_a_rejected_plan_is_told_and_the_next_way_is_taken(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejecting(monkeypatch, is_split)
    options = BuildOptions(ram=6700, verify=())
    with pytest.warns(
        DefectNotice, match=r"^split: this plan was rejected .*planted.* Please report it .* the model file"
    ):
        package = tvm_ext.build(tvm_ext.load(digits / "digits.onnx"), BOARD, tmp_path / "out", options)
    attempts = json.loads((tmp_path / "out" / "report.json").read_text())["fit"]["attempts"]
    told = [attempt for attempt in attempts if attempt["method"] == "split"]
    assert told[0] == {
        "method": "split",
        "arena_bytes": None,
        "added_instructions": None,
        "rejected": PLANTED,
        "cores": 1,
    }
    assert attempts[-1]["method"] == "patches" and attempts[-1]["rejected"] is None
    assert package.report["arena_bytes"] <= 6700


def test_a_rejected_plan_is_told_on_stderr(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rejecting(monkeypatch, is_split)
    arguments = [
        "compile", str(digits / "digits.onnx"), "-p", BOARD, "-o", str(tmp_path / "out"), "--ram", "6700", "--json",
        "--verify", "none",
    ]  # fmt: skip
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert f"warning: split: this plan was rejected and is not used: {PLANTED}" in result.stderr
    assert (
        "defect of tvm-ext" in result.stderr
        and "planted" in json.loads(result.stdout)["fit"]["attempts"][1]["rejected"]
    )


def test_nothing_else_fits(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rejecting(monkeypatch, lambda program: is_split(program) or is_patched(program))
    module = tvm_ext.load(digits / "digits.onnx")
    with (
        pytest.warns(DefectNotice),
        pytest.raises(
            DoesNotFit, match=r"because of a defect of tvm-ext: split: .*planted.* method: whole: 11264 B\.$"
        ),
    ):
        compile_module(module, Platform.load(BOARD), BuildOptions(ram=6700))


def test_every_plan_is_rejected(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rejecting(monkeypatch, lambda _: True)
    module = tvm_ext.load(digits / "digits.onnx")
    with (
        pytest.warns(DefectNotice),
        pytest.raises(
            PlanRejected, match=r"rejected every memory plan\. whole: .*planted.*defect of tvm-ext: please report"
        ),
    ):
        compile_module(module, Platform.load(BOARD), BuildOptions())


def test_what_fits_whole_is_compiled_once(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Program] = []
    monkeypatch.setattr(building, "validate", lambda program, plan: compiled.append(program))
    compile_module(tvm_ext.load(digits / "digits.onnx"), Platform.load(BOARD), BuildOptions(ram=11264))
    assert len(compiled) == 1


@pytest.mark.parametrize("ram", [5439, 5410, 4800])
def test_budgets_between_those_that_can_be_met(within: Callable[[int | None], Compiled], ram: int) -> None:
    assert within(ram).plan.arena_bytes <= ram


def test_the_nearest_that_is_named_can_be_had(within: Callable[[int | None], Compiled]) -> None:
    with pytest.raises(DoesNotFit, match="The nearest budget that can be met is 4800 B") as found:
        within(1)
    nearest = found.value.nearest_bytes
    assert nearest is not None and within(nearest).plan.arena_bytes == nearest
    with pytest.raises(DoesNotFit, match=r"may give 4799 B, 1 B less"):
        within(nearest - 1)


def test_the_nearest_is_no_larger_than_what_came_out(tmp_path: Path) -> None:
    """Results computed again by rows take fewer bytes than they were asked for."""
    path = saved(gated_unet("net", channels=(8, 16), size=16), tmp_path)
    within = compile_within(tvm_ext.load(path), Platform.load(BOARD), BuildOptions())
    with pytest.raises(DoesNotFit, match="split and recompute: 8704 B") as found:
        within(1)
    assert found.value.nearest_bytes == 8704 and within(8704).plan.arena_bytes == 8704
    with pytest.raises(DoesNotFit, match=r"may give 8703 B, 1 B less"):
        within(8703)


def test_a_larger_budget_costs_no_more() -> None:
    """A slice of `benchmarks/monotonic.py`, where estimates of strips are farthest from what comes."""
    within = compile_within(monotonic.module("digits_int8"), Platform.load(BOARD), BuildOptions())
    costs = [within(budget).modelled_instructions for budget in range(1656, 2360, 64)]
    assert costs == sorted(costs, reverse=True) and len(set(costs)) > 2


def test_one_byte_less_than_an_arena_is_no_reason_for_slower_kernels(tmp_path: Path) -> None:
    """ResNet-8 by direct kernels in 25,600 B; in one byte less its next cut adds 0.02 % of its instructions."""
    onnx.save(zoo.build("resnet8_int8"), tmp_path / "resnet8.onnx")
    options = BuildOptions(least_flash=True)
    within = compile_within(tvm_ext.load(tmp_path / "resnet8.onnx"), Platform.load(BOARD), options)
    some, less = within(25_600), within(25_599)
    assert some.plan.arena_bytes == 25_600 and less.plan.arena_bytes < 25_600
    assert less.modelled_instructions < some.modelled_instructions * 1.001


def test_nothing_moves_that_fits_where_it_is_and_gains_no_time(tmp_path: Path) -> None:
    """The rings of a stream are aliased by plan, which the search for memories does not see; both rams are as fast."""
    module, board = tvm_ext.load(saved_tflite(over_time(), tmp_path)), Platform.load("cortex_m55")
    latency = board.memory("sram").latency_cycles
    platform = replace(board, memories=tuple(replace(one, latency_cycles=latency) for one in board.memories))
    options = BuildOptions(new_frames={"frames": 1}, time_axis={"frames": 1})
    at_home = compile_module(module, platform, replace(options, memories="default")).plan
    compiled = compile_module(module, platform, replace(options, ram=at_home.bytes_in("sram")))
    assert compiled.plan.bytes_in("dtcm") == 0
    assert compiled.plan.bytes_in("sram") == at_home.bytes_in("sram")


def test_a_network_of_a_few_bytes_has_few_offers(tmp_path: Path) -> None:
    """Searches are asked for less and less down to one byte, not for nothing over and over."""
    nodes = [
        onnx.helper.make_node("Abs", ["x"], ["a"]),
        onnx.helper.make_node("Neg", ["a"], ["b"]),
        onnx.helper.make_node("Sign", ["b"], ["c"]),
        onnx.helper.make_node("Max", ["a", "c"], ["y"]),
    ]
    module = tvm_ext.load(
        saved(model_of(nodes, {"x": ((3,), onnx.TensorProto.INT8)}, [("y", onnx.TensorProto.INT8)]), tmp_path)
    )
    with pytest.raises(DoesNotFit, match=r"may give 1 B"):
        compile_module(module, Platform.load(BOARD), BuildOptions(ram=1))


def test_images_with_channels_first_are_stored_once(tmp_path: Path) -> None:
    """Neither border of the model stores its image a second time with channels last."""
    nodes = [
        NODE("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        NODE("Conv", ["a", "w1"], ["b"], pads=[1, 1, 1, 1], strides=[2, 2]),
        NODE("ConvTranspose", ["b", "w2"], ["c"], strides=[2, 2]),
        NODE("ConvTranspose", ["c", "w3"], ["y"], strides=[2, 2]),
    ]
    constants = {
        "w0": weights(4, 3, 3, 3),
        "w1": weights(4, 4, 3, 3),
        "w2": weights(4, 4, 2, 2),
        "w3": weights(4, 3, 2, 2),
    }
    module = tvm_ext.load(saved(model_of(nodes, {"x": (1, 3, 32, 32)}, ["y"], constants), tmp_path))
    image_bytes = 3 * 32 * 32 * 4
    with pytest.raises(DoesNotFit) as error:
        compile_module(module, Platform.load(BOARD), BuildOptions(ram=1))
    nearest = error.value.nearest_bytes
    assert nearest is not None and image_bytes < nearest < 1.5 * image_bytes
    tvm_ext.build(module, BOARD, tmp_path / "out", BuildOptions(ram=nearest, verify=("host",)))
