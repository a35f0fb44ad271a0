"""Tables of report.json: what they must say, from reports written here by hand."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tvm_ext.command_line.show import show_end
from tvm_ext.core.errors import BadPackage
from tvm_ext.report.tables import report_tables

PASSED = {"passed": True, "max_abs_error": 1e-7, "max_rel_error": 2e-7, "elements": 10}
REPORT: dict[str, Any] = {
    "schema_version": 1,
    "model": {"name": "net", "sha256": "0123456789abcdef", "format": "onnx"},
    "platform": "cortex_m4",
    "options": {"optimize": "speed", "io": "arena"},
    "memories": [{"name": "sram", "kind": "ram", "capacity_bytes": 4000, "used_bytes": 1000}],
    "arena_bytes": 1100,
    "lower_bound_bytes": 1000,
    "weights_bytes": 38536,
    "code_bytes": None,
    "stack_bytes": 64,
    "macs": 123456,
    "steps": [
        {
            "index": 0,
            "name": "stem[bold]",
            "source_nodes": ["stem/Conv"],
            "kernel": "conv2d_f32",
            "macs": 123456,
            "scratch_bytes": 0,
            "outputs": [
                {
                    "name": "stem",
                    "shape": [1, 8, 8, 16],
                    "dtype": "float32",
                    "memory": "sram",
                    "offset": 256,
                    "begin": 0,
                    "end": 2,
                }
            ],
        }
    ],
    "artifacts": {"library": "libnet.a", "elf": "net.elf"},
    "verify": {"host": PASSED, "qemu": {**PASSED, "instructions": 987654}},
}


def shown(**changes: Any) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        for table in report_tables({**copy.deepcopy(REPORT), **changes}):
            console.print(table)
    return capture.get()


def test_everything_is_said() -> None:
    text = shown()
    for wanted in (
        "net on cortex_m4",
        "1,100 B, 10.0% above the lower bound of 1,000 B",
        "38,536 B",
        "not measured",
        "987,654",
        "25.0%",
        "stem[bold]",
        "conv2d_f32",
        "float32[1,8,8,16]",
        "sram+256 [0, 2)",
        "passed",
    ):
        assert wanted in text
    assert "NOT VERIFIED" not in text and "FAILED" not in text


@pytest.mark.parametrize("verify", [{}, {"host": None, "qemu": None}])
def test_unverified_is_said_loudly(verify: dict[str, Any]) -> None:
    assert "NOT VERIFIED" in shown(verify=verify)


def test_half_verified_names_the_other_half() -> None:
    text = shown(verify={"host": PASSED, "qemu": None})
    assert "not verified on qemu" in text and "NOT VERIFIED" not in text


def test_an_arena_at_its_bound() -> None:
    assert "1,000 B, its lower bound" in shown(arena_bytes=1000)


def test_what_is_computed_again_stands_beside_its_bound() -> None:
    again = {"operators": 3, "instructions": 12000, "at_least": 11500}
    assert "3 operators, 12,000 modelled instructions; at least 11,500 in this order" in shown(recomputed=again)
    assert "at least" not in shown(recomputed={**again, "at_least": None})


def test_where_there_is_no_board_none_is_missed() -> None:
    text = shown(verify={"host": PASSED, "qemu": None}, artifacts={"library": "libnet.a", "elf": None})
    assert "not verified" not in text


def test_tensors_of_the_caller() -> None:
    output = {**REPORT["steps"][0]["outputs"][0], "memory": None, "offset": None, "begin": None, "end": None}
    assert "the caller's" in shown(steps=[{**REPORT["steps"][0], "outputs": [output]}])


def test_failure_is_said() -> None:
    verify = {"host": PASSED, "qemu": {**PASSED, "passed": False, "instructions": None}}
    assert "FAILED" in shown(verify=verify)


@pytest.mark.parametrize("key", ["steps", "memories", "verify", "model", "arena_bytes"])
def test_a_missing_key_is_a_damaged_report(key: str) -> None:
    damaged = {name: value for name, value in REPORT.items() if name != key}
    with pytest.raises(BadPackage, match="damaged"):
        report_tables(damaged)


def test_floats_left_in_a_quantized_model_are_named() -> None:
    operation = {"step": "erf_3", "source_nodes": ["Erf_3"], "reason": "no integer kernel [yet]"}
    text = shown(float_operations=[operation])
    assert "erf_3" in text and "no integer kernel [yet]" in text
    assert "Float arithmetic" not in shown(float_operations=[])


def test_the_bound_of_the_stack_stands_beside_the_painted_one() -> None:
    bound = {"num_bytes": 72, "reason": None, "callback_depth_bytes": None, "with_callbacks_bytes": None}
    assert "stack, bound by call graph" in shown() and "72 B" in shown(stack_bound=bound)
    streamed = shown(stack_bound={**bound, "callback_depth_bytes": 40, "with_callbacks_bytes": 200})
    assert "72 B; 40 B and the callback's own stack in a callback" in streamed
    assert "none: recursion: f -> f" in shown(stack_bound={**bound, "num_bytes": None, "reason": "recursion: f -> f"})


def test_coverage_of_the_self_test_is_shown() -> None:
    coverage = {"statements": 90, "covered": 88, "missed": {"net.c": [7, 9]}, "missed_shared": {}, "reason": None}
    assert "88 of 90, 2 lines missed" in shown(selftest_coverage=coverage)
    assert "90 of 90" in shown(selftest_coverage={**coverage, "covered": 90, "missed": {}})
    unknown = {**coverage, "statements": None, "covered": None, "missed": {}, "reason": "no gcov"}
    assert "not measured: no gcov" in shown(selftest_coverage=unknown)


def test_processors_that_share_a_run() -> None:
    processors = [
        {"name": "cpu0", "steps": ["a", "b"], "instructions": 1200},
        {"name": "cpu1", "steps": ["c"], "instructions": 3400},
    ]
    counts = {"makespan_instructions": 3500, "single_processor_instructions": 4600, "signals": 2}
    bounds = {"stack_bound": {"num_bytes": 96}, "stack_bound_of": {"cpu1": {"num_bytes": 128}}}
    text = shown(processors=processors, **counts, **bounds)
    rows = [line.split("│")[1:-1] for line in text.splitlines() if "│ cpu" in line]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["cpu0", "2", "1,200", "96 B"], ["cpu1", "1", "3,400", "128 B"],
    ]  # fmt: skip
    assert "2 signals; 3,500 instructions from begin to end, waits included; 4,600 instructions on the fastest" in text


def test_accelerators_and_pipelines() -> None:
    processors = [
        {"name": "cpu", "steps": ["a", "b"], "instructions": None},
        {"name": "npu", "steps": ["c"], "instructions": None, "driver": "npu_driver.h"},
    ]
    counts = {"makespan_instructions": None, "single_processor_instructions": None, "signals": 0}
    text = shown(processors=processors, **counts, driver_calls={"starts": 1, "waits": 1}, interval_instructions=70)
    assert "npu, interface npu_driver.h" in text and "not measured" in text
    assert "0 signals; 1 starts of accelerators, 1 waits for accelerators; 70 instructions between" in text
    assert "Processors that share a run" not in shown()


@pytest.mark.parametrize(("elf", "target"), [("net.elf", "run"), (None, "selftest")])
def test_the_last_line_of_a_build_names_a_target_of_its_makefile(
    elf: str | None, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_end(Path("out"), {**REPORT, "artifacts": {"library": "libnet.a", "elf": elf}}, 1.0)
    assert f"make -C out {target} " in capsys.readouterr().out


def test_the_last_lines_of_a_build_can_be_copied(capsys: pytest.CaptureFixture[str]) -> None:
    """A shell would take a folder with a space as two words."""
    show_end(Path("my out"), {**REPORT, "artifacts": {"library": "libnet.a", "elf": None}}, 1.0)
    text = capsys.readouterr().out
    assert "make -C 'my out' selftest " in text and "tvm-ext report 'my out' --html " in text
