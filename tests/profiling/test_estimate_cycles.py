"""Counts of a run by hand -> layers: names, sums, waits of slow memories, stack; what is damaged is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tvm_ext.core.errors import BadPackage, RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.core.time_model import TimeModel, Traffic
from tvm_ext.profiling.core_table import core_tables
from tvm_ext.profiling.estimate_cycles import (
    BlockCount,
    CallSite,
    Firmware,
    RunCounts,
    joined,
    layer_profiles,
    read_counts,
    wait_cycles,
)
from tvm_ext.profiling.instructions import instruction
from tvm_ext.profiling.layer_names import PackageSteps, layer_names, steps_of_package

CODE = {
    0x100: instruction("bl", "200 <m_conv>"),
    0x200: instruction("ldr", "r0, [r1]"),
    0x202: instruction("subs", "r2, r2, #1"),
    0x204: instruction("bne.n", "200"),
}
FIRMWARE = Firmware(
    instructions=CODE, functions=[("m_run", 0x100, 0x110), ("m_conv", 0x200, 0x206)], memories=["flash", "sram"]
)
COUNTS = RunCounts(
    stack_top=0x2000,
    calls=(CallSite(site=0, target=0x100, lowest=0x1FF0), CallSite(site=0x104, target=0x200, lowest=0x1F00)),
    blocks=(
        BlockCount(addresses=(0x100,), call=0, executed=1, taken=1),
        BlockCount(
            addresses=(0x200, 0x202, 0x204), call=1, executed=10, taken=9,
            traffic={(1, False): Traffic(transactions=10, bursts=1, num_bytes=40)},
        ),
    ),
)  # fmt: skip


def test_layers_add_up_what_their_blocks_did(cortex_m4: Platform) -> None:
    layers = layer_profiles(
        COUNTS, ["run", "conv"], FIRMWARE, core_tables()["cortex-m4"], TimeModel(platform=cortex_m4)
    )
    run, conv = layers
    assert (run.num_instructions, run.cycles, run.stack_bytes) == (1, 1 + 2, 0x10)
    assert conv.instructions == {"load": 10, "alu": 10, "branch": 10} and conv.stack_bytes == 0x100
    assert conv.cycles_by_kind() == {"load": 20, "alu": 10, "branch": 10 + 9 * 2}
    assert [function.name for function in conv.functions] == ["m_conv"]
    assert [(one.name, one.loads, one.loaded_bytes, one.stores) for one in conv.memories] == [("sram", 10, 40, 0)]


def test_blocks_that_end_without_a_branch_continue_in_the_next_one() -> None:
    """QEMU splits a loop after its first instruction; the traffic of both parts adds up."""
    load = {(1, False): Traffic(transactions=1, bursts=1, num_bytes=4)}
    first = BlockCount(addresses=(0x200,), call=1, executed=10, taken=0, traffic=load)
    second = BlockCount(addresses=(0x202, 0x204), call=1, executed=10, taken=9, traffic=load)
    (whole,) = joined((second, first), CODE)
    assert (whole.addresses, whole.executed, whole.taken) == ((0x200, 0x202, 0x204), 10, 9)
    assert whole.traffic[1, False] == Traffic(transactions=2, bursts=2, num_bytes=8)
    other = replace(second, call=2)
    assert joined((first, other), CODE) == [first, other], "another call"
    fewer = replace(second, executed=9)
    assert joined((first, fewer), CODE) == [first, fewer], "something jumps out of or into the middle"
    branch = BlockCount(addresses=(0x100,), call=1, executed=10, taken=0)
    assert joined((branch, first), {0x100: CODE[0x100], 0x200: CODE[0x200]}) == [branch, first]


def test_slow_memories_add_waits(cortex_m4: Platform) -> None:
    """A byte a cycle and a latency of 3: words take 4 cycles of which one is the load's, bursts wait to begin."""
    memories = tuple(
        replace(one, read_bytes_per_cycle=1.0, latency_cycles=3) if one.name == "sram" else one
        for one in cortex_m4.memories
    )
    slow = TimeModel(platform=replace(cortex_m4, memories=memories))
    traffic = Traffic(transactions=10, bursts=2, num_bytes=40)
    assert wait_cycles(traffic, "sram", slow, is_store=False) == 40 - 10 + 2 * 3
    assert wait_cycles(traffic, "sram", TimeModel(platform=cortex_m4), is_store=False) == 0
    assert wait_cycles(traffic, "elsewhere", slow, is_store=False) == 0
    (_, conv) = layer_profiles(COUNTS, ["run", "conv"], FIRMWARE, core_tables()["cortex-m4"], slow)
    assert conv.cycles_by_kind()["waits"] == 40 - 10 + 3 and conv.memories[0].wait_cycles == 33


def test_an_instruction_that_the_disassembly_lacks(cortex_m4: Platform) -> None:
    counts = replace(COUNTS, blocks=(BlockCount(addresses=(0x300,), call=0, executed=1, taken=0),))
    with pytest.raises(RunFailed, match=r"executed address 0x300, at which its disassembly has no instruction"):
        layer_profiles(counts, ["run", "conv"], FIRMWARE, core_tables()["cortex-m4"], TimeModel(platform=cortex_m4))


FUNCTIONS = {1: "m_run", 2: "m_conv.constprop.0", 3: "memcpy", 4: "m_pool", 5: "m_rows_of_d", 6: "m_rows_of_e"}


def sites(*targets: int) -> list[CallSite]:
    """The run function, and calls of functions by address in the order in which they first ran."""
    return [CallSite(site=8 * number, target=target, lowest=None) for number, target in enumerate((1, *targets))]


def test_layers_of_one_function_are_told_apart_by_their_order() -> None:
    steps = PackageSteps(functions={"m_conv": ["a", "b"], "m_pool": ["p"]}, order=[["a"], ["p"], ["b"]])
    assert layer_names(sites(2, 4, 3, 2), FUNCTIONS, steps) == ["run", "a", "p", "memcpy", "b"]
    assert layer_names(sites(7), FUNCTIONS, steps) == ["run", "0x7"]


def test_functions_that_the_compiler_folded_into_one_keep_their_steps() -> None:
    """m_other is not in the firmware: its code is that of m_conv, which is called in its place."""
    functions = {"m_conv": ["a"], "m_other": ["b"], "m_pool": ["p"]}
    steps = PackageSteps(functions=functions, order=[["a"], ["p"], ["b"]])
    assert layer_names(sites(2, 4, 2), FUNCTIONS, steps) == ["run", "a", "p", "b"]


def test_calls_for_some_rows_at_a_time_are_one_layer() -> None:
    """Several places of a sequence call the same functions in turn; a folded one behind it is none of them."""
    functions = {"m_rows_of_d": ["d"], "m_rows_of_e": ["e"], "m_conv": ["a"], "m_other": ["b"]}
    steps = PackageSteps(functions=functions, order=[["d", "e"], ["b"], ["a"]])
    found = layer_names(sites(5, 6, 5, 6, 2, 2), FUNCTIONS, steps)
    assert found == ["run", "d", "e", "d", "e", "b", "a"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"code": [{"is": "function", "name": "f", "steps": 3}]}', '{"code": [3]}']
)
def test_a_damaged_trace_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "trace.json").write_text(text)
    with pytest.raises(BadPackage, match="the steps of functions are missing"):
        steps_of_package(tmp_path / "trace.json")


def test_the_trace_gives_steps_of_package(tmp_path: Path) -> None:
    entries = [
        {"is": "text", "name": ""}, {"is": "function", "name": "f", "steps": ["a", "b"]},
        {"is": "step", "name": "s", "steps": ["a"]}, {"is": "step", "name": "b", "steps": ["b"]},
    ]  # fmt: skip
    (tmp_path / "trace.json").write_text(json.dumps({"code": entries}))
    found = steps_of_package(tmp_path / "trace.json")
    assert found == PackageSteps(functions={"f": ["a", "b"]}, order=[["a"], ["b"]])


def test_a_run_that_was_not_counted(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="counted no run"):
        read_counts(tmp_path / "counts")
