"""Predicted cycles: rates and latencies of memories and links, transfers beside the processor."""

from __future__ import annotations

import pytest

from codegen_c.costs.predict import time_model
from tests.support.memory_problems import always_on
from tvm_ext.core.platform import Platform
from tvm_ext.core.time_model import CALL_CYCLES, COPY_INSTRUCTIONS_A_BYTE, Event, TimeModel, finish_cycles

TIME = TimeModel(platform=always_on())


def test_an_operand_costs_its_bytes_and_a_latency() -> None:
    assert TIME.read_cycles("dtcm", 800) == 100
    assert TIME.read_cycles("sram", 800) == 204
    assert TIME.write_cycles("sram", 800) == 204
    assert TIME.read_cycles("flash", 800) == 1624


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
    assert time.transfer_cycles("sram", "dtcm", 800) == 204 + 100 + 800 * COPY_INSTRUCTIONS_A_BYTE


def test_instructions_are_calibrated_by_kernel() -> None:
    time = TimeModel(platform=always_on(), calibration={"pointwise_f32": 0.87})
    assert time.compute_cycles("pointwise_f32", 1000) == 870
    assert time.compute_cycles("a kernel nobody measured", 1000) == 1000


def test_the_calibration_is_that_of_the_processors_target() -> None:
    assert time_model(always_on()).compute_cycles("permute", 1000) == 920
    assert time_model(Platform.load("host")).compute_cycles("pointwise_f32", 1000) == 1000


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
