"""Predicted cycles: rates and latencies of memories and links, transfers beside the processor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen_c.costs.predict import time_model
from codegen_c.targets.registry import instruction_set_of
from tests.support.memory_problems import always_on
from tvm_ext.core.platform import Platform
from tvm_ext.core.time_model import (
    CALL_CYCLES,
    COPY_INSTRUCTIONS_A_BYTE,
    Event,
    KernelTime,
    TimeModel,
    Traffic,
    finish_cycles,
)

TIME = TimeModel(platform=always_on())


def test_an_operand_costs_what_its_memory_is_slower_than_a_cycle_a_word() -> None:
    assert TIME.read_cycles("dtcm", 800) == 0
    assert TIME.read_cycles("sram", 800) == TIME.write_cycles("sram", 800) == 4
    assert TIME.read_cycles("flash", 800) == 1600 - 200 + 24
    assert TIME.read_cycles("flash", 0) == 0


def test_an_operand_costs_its_bursts_and_what_is_beyond_its_transactions() -> None:
    doubles = Traffic(transactions=0.125, bursts=0.0625, num_bytes=1.5)
    assert TIME.read_cycles("dtcm", 800, doubles) == 1200 / 8 - 100
    assert TIME.write_cycles("sram", 800, doubles) == 1200 / 4 - 100 + 50 * 4
    assert TIME.read_cycles("sram", 800, replace(doubles, transactions=1.0)) == 50 * 4


def test_a_memory_no_processor_reaches_has_no_time() -> None:
    with pytest.raises(KeyError, match="elsewhere"):
        TIME.read_cycles("elsewhere", 1)


def test_a_transfer_goes_at_the_lowest_rate_on_its_way() -> None:
    assert TIME.transfer_cycles("sram", "dtcm", 800) == 216
    assert TIME.transfer_cycles("flash", "sram", 800) == 1632
    assert TIME.has_dma("sram", "dtcm") and not TIME.has_dma("dtcm", "flash")


def test_without_a_dma_the_processor_reads_writes_and_copies() -> None:
    time = TimeModel(platform=always_on(dma=False))
    assert not time.has_dma("sram", "dtcm")
    assert time.transfer_cycles("sram", "dtcm", 800) == 4 + 800 * COPY_INSTRUCTIONS_A_BYTE


def test_instructions_are_weighed_by_kernel() -> None:
    time = TimeModel(platform=always_on(), kernels={"pointwise_f32": KernelTime(cycles=0.87)})
    assert time.compute_cycles("pointwise_f32", 1000) == 870
    assert time.compute_cycles("a kernel nobody measured", 1000) == 1000


def test_a_kernel_in_rows_has_the_time_of_the_kernel_that_it_calls() -> None:
    time = TimeModel(platform=always_on(), kernels={"softmax_f32": KernelTime(cycles=1.79)})
    assert time.compute_cycles("softmax_f32_in_rows", 1000) == time.compute_cycles("softmax_f32", 1000) == 1790


def test_a_kernel_waits_for_the_memories_of_its_stack_and_code() -> None:
    own = Traffic(transactions=0.125, bursts=0.0625, num_bytes=0.5)
    time = TimeModel(platform=always_on(), kernels={"spilling": KernelTime(stack=own, code=own)})
    assert (
        time.compute_cycles("spilling", 1600) == 1600 + 4 * 100
    )  # code is as fast as the core, the stack's memory late


def test_times_are_those_of_the_target_on_the_core() -> None:
    known = time_model(always_on())
    declared = instruction_set_of(known.platform.processor).times["cortex-m55"]
    assert known.kernel("qsoftmax_i8") == declared.kernels["qsoftmax_i8"]
    assert known.other.cycles == declared.cycles > 1
    assert time_model(Platform.load("host")).compute_cycles("pointwise_f32", 1000) == 1000


def test_a_core_without_times_executes_calibrated_instructions_a_cycle_each() -> None:
    platform = always_on()
    strange = replace(platform, toolchain=replace(platform.toolchain, flags=("-mcpu=cortex-m99",)))
    assert time_model(strange).compute_cycles("permute", 1000) == 920


def test_transfers_run_one_after_the_other_beside_the_steps() -> None:
    events = [
        Event(kind="start", cycles=1000, number=0),
        Event(kind="start", cycles=500, number=1),
        Event(kind="run", cycles=300),
        Event(kind="wait", number=0),
        Event(kind="run", cycles=2000),
        Event(kind="wait", number=1),
    ]
    assert finish_cycles(events[:4]) == CALL_CYCLES + 1000
    assert finish_cycles(events) == CALL_CYCLES + 1000 + 2000 + CALL_CYCLES
